"""Editing a step in a text: everything else stays as it is written."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from mulligan.errors import InputInvalid, NotFound
from mulligan.service.server.catalogue.text_edits import AddedEdge, AddedRule, AddedStep, StepEdit, edit_text
from mulligan.service.server.catalogue.texts import WorkflowText

TEXT = """\
# the nightly load
name: nightly
steps:
  - step: fetch   # from the server
    shell: |
      curl -o rows.csv http://example.com/rows
      wc -l rows.csv

    timeout: 10m  # it is slow

  # the next one
  - {step: load, needs: [fetch], shell: ./load rows.csv}
  - step: report
    needs: [load]
    retry:
      max_retries: 3   # was 2
      delay: 5s
"""


def edited(step: str, text: str = TEXT, **change: Any) -> str:
    return edit_text(WorkflowText(text, "a.yaml"), StepEdit(step, **change)).text


@pytest.mark.parametrize(
    ("step", "change", "old", "new"),
    [
        ("fetch", {"set": {"timeout": "20m"}}, "timeout: 10m  # it is slow", 'timeout: "20m"  # it is slow'),
        ("fetch", {"set": {"shell": "make\nmake test\n"}}, TEXT[92:163], "make\n      make test"),
        ("fetch", {"remove": ["timeout"]}, "\n    timeout: 10m  # it is slow", ""),
        ("fetch", {"set": {"retry": 2}}, "# it is slow\n", "# it is slow\n    retry: 2\n"),
        ("load", {"set": {"shell": "./load2"}}, "./load rows.csv}", '"./load2"}'),
        ("load", {"set": {"retry": {"max_retries": 1}}}, "rows.csv}", "rows.csv, retry: {max_retries: 1}}"),
        ("report", {"set": {"needs": ["fetch"]}}, "needs: [load]", "needs: [fetch]"),
        ("report", {"set": {"retry": 1}}, "\n      max_retries: 3   # was 2\n      delay: 5s", " 1"),
        ("report", {"set": {"shell": "echo"}}, "delay: 5s\n", 'delay: 5s\n    shell: "echo"\n'),
    ],
)
def test_only_the_value_changes(step: str, change: dict[str, Any], old: str, new: str) -> None:
    if old == TEXT[92:163]:
        old = "curl -o rows.csv http://example.com/rows\n      wc -l rows.csv"

    assert TEXT.count(old) == 1
    assert edited(step, **change) == TEXT.replace(old, new)


def test_letters_of_any_language_are_counted_as_letters() -> None:
    text = TEXT.replace("# the nightly load", "# für die Nacht: 夜 🌙")

    assert edited("load", text, set={"shell": "größer"}) == text.replace("./load rows.csv", '"größer"')


def test_the_answer_says_what_a_check_finds() -> None:
    good = edit_text(WorkflowText(TEXT, "a.yaml"), StepEdit("report", {"shell": "echo"}))
    bad = edit_text(WorkflowText(TEXT, "a.yaml"), StepEdit("report", {"needs": ["nobody"], "shell": "echo"}))

    assert good.validation.ok
    assert not bad.validation.ok
    assert "nobody" in bad.validation.problems[0].message


@pytest.mark.parametrize(
    ("text", "edit", "error"),
    [
        (TEXT, StepEdit("fetchh", {"shell": "a"}), NotFound),
        (TEXT, StepEdit("fetch", {"step": "a"}), InputInvalid),
        (TEXT, StepEdit("fetch", remove=["retry"]), InputInvalid),
        (TEXT, StepEdit("load", remove=["needs"]), InputInvalid),
        ("steps: [", StepEdit("a", {"shell": "b"}), InputInvalid),
        ("jobs: []", StepEdit("a", {"shell": "b"}), InputInvalid),
        # An alias stands for a value elsewhere.
        ("x: &a 1\nsteps:\n- step: b\n  shell: &b c\n  cwd: *b\n", StepEdit("b", {"shell": "d"}), InputInvalid),
    ],
)
def test_what_cannot_be_edited_in_place_is_refused(text: str, edit: StepEdit, error: type[Exception]) -> None:
    with pytest.raises(error):
        edit_text(WorkflowText(text, "a.yaml"), edit)


# -- adding ----------------------------------------------------------------------------------------------------------

RERUN = {"on": "failure", "then": "rerun"}


def with_edge(source: str, target: str, text: str = TEXT, **about: Any) -> str:
    return edit_text(WorkflowText(text, "a.yaml"), AddedEdge(source, target, **about)).text


@pytest.mark.parametrize(
    ("source", "target", "about", "old", "new"),
    [
        (
            "fetch",
            "report",
            RERUN,
            "# it is slow\n",
            "# it is slow\n    next: {to: report, on: failure, then: rerun}\n",
        ),
        ("load", "report", {}, "rows.csv}", "rows.csv, next: report}"),
        ("fetch", "report", {"kind": "needs"}, "needs: [load]", "needs: [load, fetch]"),
        ("report", "fetch", {"kind": "needs"}, "# it is slow\n", "# it is slow\n    needs: [report]\n"),
        ("report", "end", {"on": "always"}, "delay: 5s\n", "delay: 5s\n    next: {to: end, on: always}\n"),
    ],
)
def test_an_edge_is_added_and_nothing_else_changes(
    source: str, target: str, about: dict[str, Any], old: str, new: str
) -> None:
    assert with_edge(source, target, **about) == TEXT.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("next: b # yes\n", "next: [b, {to: fix, on: failure, codes: [TIMEOUT]}] # yes\n"),
        ("next: {to: b}\n", "next: [{to: b}, {to: fix, on: failure, codes: [TIMEOUT]}]\n"),
        ("next: [b]\n", "next: [b, {to: fix, on: failure, codes: [TIMEOUT]}]\n"),
        ("next: []\n", "next: [{to: fix, on: failure, codes: [TIMEOUT]}]\n"),
        ("next:\n", "next: {to: fix, on: failure, codes: [TIMEOUT]}\n"),
        ("next:\n  - b # one\n", "next:\n  - b # one\n  - {to: fix, on: failure, codes: [TIMEOUT]}\n"),
        (
            "next:\n    # back\n    to: b\n    when: 1 < 2 # so\n",
            "next:\n    # back\n    - to: b\n      when: 1 < 2 # so\n    - {to: fix, on: failure, codes: [TIMEOUT]}\n",
        ),
    ],
)
def test_an_edge_joins_those_that_are_there_however_they_are_written(old: str, new: str) -> None:
    text = (
        "steps:\n- step: a\n  shell: 'true'\n  %s  # behind\n- {step: b, shell: 'true'}\n- {step: fix, shell: 'true'}\n"
    )

    assert with_edge("a", "fix", text % old, on="failure", codes=("TIMEOUT",)) == text % new


@pytest.mark.parametrize(
    ("new", "old", "result"),
    [
        (
            AddedStep("notify", {"shell": "mail -s done", "timeout": "5m"}),
            "delay: 5s\n",
            'delay: 5s\n\n  - step: notify\n    shell: mail -s done\n    timeout: "5m"\n',
        ),
        (
            AddedStep("clean", {"shell": "rm a\nrm b\n", "needs": ["fetch"]}, after="fetch"),
            "# it is slow\n",
            "# it is slow\n\n  - step: clean\n    shell: |\n      rm a\n      rm b\n    needs: [fetch]\n",
        ),
        (AddedStep("end_it", {"shell": "no"}, after="load"), "csv}\n", 'csv}\n\n  - step: end_it\n    shell: "no"\n'),
    ],
)
def test_a_step_is_added_and_nothing_else_changes(new: AddedStep, old: str, result: str) -> None:
    assert edit_text(WorkflowText(TEXT, "a.yaml"), new).text == TEXT.replace(old, result)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("", "steps:\n  - step: a\n    shell: make\n"),
        ("# mine\nname: x", "# mine\nname: x\nsteps:\n  - step: a\n    shell: make\n"),
        ("steps: []  # none\nname: x\n", "steps:\n  - step: a\n    shell: make  # none\nname: x\n"),
        ("steps:\n", "steps:\n  - step: a\n    shell: make\n"),
        ("steps: [{step: b, shell: c}]\n", "steps: [{step: b, shell: c}, {step: a, shell: make}]\n"),
    ],
)
def test_the_first_step_makes_the_list(text: str, result: str) -> None:
    assert edit_text(WorkflowText(text, "a.yaml"), AddedStep("a", {"shell": "make"})).text == result


def test_a_remediation_is_added_with_its_edge_and_the_answer_says_where() -> None:
    given = WorkflowText(TEXT.replace("    retry:", "    shell: echo\n    retry:"), "a.yaml")

    step = AddedStep("fix", {"shell": "make clean"}, after="fetch")
    done = edit_text(given, step, AddedEdge("fetch", "fix", **RERUN))

    assert done.validation.ok, done.validation.problems
    assert done.line == 10
    assert "    next: {to: fix, on: failure, then: rerun}\n\n  - step: fix\n    shell: make clean\n" in done.text
    assert all(line in done.text for line in given.text.splitlines())


@pytest.mark.parametrize(
    ("retry", "rule", "result"),
    [
        ("", {"exit_codes": (75,), "delay": "10s"}, '{"exit_codes": [75], "max_retries": 2, "delay": "10s"}'),
        ("", {}, '{"max_retries": 2}'),
        ("", {"exceptions": ("a.B",)}, '{"exceptions": ["a.B"], "max_retries": 2}'),
        (
            "3",
            {"codes": ("TIMEOUT",)},
            '{"rules": [{"any": true, "max_retries": 3}, {"codes": ["TIMEOUT"], "max_retries": 2}]}',
        ),
        ("true", {"exit_codes": ("10-19",)}, '{"rules": [{"any": true}, {"exit_codes": ["10-19"], "max_retries": 2}]}'),
        (
            "{delay: 5s, max_attempts: 4}",
            {"exit_codes": (75,)},
            '{"max_attempts": 4, "rules": [{"any": true, "max_retries": 3, "delay": "5s"}, '
            '{"exit_codes": [75], "max_retries": 2}]}',
        ),
        (
            "{rules: [{exit_codes: 11}]}",
            {},
            '{"rules": [{"exit_codes": 11}, {"any": true, "max_retries": 2}]}',
        ),
    ],
)
def test_a_retry_rule_is_added_to_those_that_are_there(retry: str, rule: dict[str, Any], result: str) -> None:
    text = "# mine\nsteps:\n  - step: load  # slow\n    shell: make\n" + (f"    retry: {retry}\n" if retry else "")

    done = edit_text(WorkflowText(text, "a.yaml"), AddedRule("load", 2, **rule))

    assert done.validation.ok, done.validation.problems
    assert yaml.safe_load(done.text)["steps"][0]["retry"] == json.loads(result)
    assert done.text.startswith("# mine\nsteps:\n  - step: load  # slow\n    shell: make\n    retry:")


def test_comments_and_lines_of_the_rules_that_are_there_stay() -> None:
    retry = "    retry:\n      exit_codes: [11]  # the solver\n      max_retries: 4\n"
    text = f"steps:\n  - step: load\n    shell: make\n{retry}"

    done = edit_text(WorkflowText(text, "a.yaml"), AddedRule("load", 2, codes=("TIMEOUT",)))

    assert done.validation.ok, done.validation.problems
    assert "exit_codes: [11]  # the solver\n" in done.text
    assert yaml.safe_load(done.text)["steps"][0]["retry"] == {
        "rules": [{"exit_codes": [11], "max_retries": 4}, {"codes": ["TIMEOUT"], "max_retries": 2}]
    }


def test_an_edge_for_some_exit_codes_is_added() -> None:
    text = "steps:\n  - {step: a, shell: make}\n  - {step: b, shell: make}\n"

    done = edit_text(WorkflowText(text, "a.yaml"), AddedEdge("a", "b", on="failure", exit_codes=(75, "10-19")))

    assert done.validation.ok, done.validation.problems
    assert "next: {to: b, on: failure, exit_codes: [75, " in done.text


@pytest.mark.parametrize(
    ("text", "edit", "error"),
    [
        ("steps: [{step: a, shell: b, retry: patient}]", AddedRule("a", 2), InputInvalid),
        (TEXT, AddedRule("fetch", 2, codes=("TIMEOUT",), exit_codes=(1,)), InputInvalid),
        (TEXT, AddedRule("fetch", 2, exceptions=("a.B",), exit_codes=(1,)), InputInvalid),
        (TEXT, AddedRule("nobody", 2), NotFound),
        (TEXT, AddedStep("fetch"), InputInvalid),
        (TEXT, AddedStep("a", after="fetchh"), NotFound),
        (TEXT, AddedEdge("fetch", "nobody"), NotFound),
        (TEXT, AddedEdge("end", "fetch"), NotFound),
        (TEXT, AddedEdge("fetch", "load", kind="needs", on="failure"), InputInvalid),
        ("jobs: []\nsteps: 3", AddedStep("a"), InputInvalid),
        ("- a\n- b\n", AddedStep("a"), InputInvalid),
        ("steps: [", AddedStep("a"), InputInvalid),
        ("x: &b 1\ny: *b\nsteps: []\n", AddedStep("a"), InputInvalid),
    ],
)
def test_what_cannot_be_added_in_place_is_refused(text: str, edit: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        edit_text(WorkflowText(text, "a.yaml"), edit)
