"""Editing a step in a text: everything else stays as it is written."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.errors import InputInvalid, NotFound
from mulligan.service.catalogue.text_edits import StepEdit, edit_text
from mulligan.service.catalogue.texts import WorkflowText

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
        ("load", {"set": {"retry": {"max_retries": 1}}}, "rows.csv}", 'rows.csv, retry: {"max_retries": 1}}'),
        ("report", {"set": {"needs": ["fetch"]}}, "needs: [load]", 'needs: ["fetch"]'),
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
