"""A proposal written into a file: the text means exactly the old one with the change, and keeps its comments."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from mulligan.analysis.suggest.changes import AddBreaker, AddRule, Change, RemoveRule, SetLimit, apply_change
from mulligan.analysis.suggest.messages import pattern_of, template_of
from mulligan.analysis.suggest.proposals import Counted, Saving
from mulligan.core.model.workflow import Workflow
from mulligan.formats import examine
from mulligan.service.authoring.suggest import SuggestedChange, WrittenChanges, write_into_file, write_into_text

RULE = AddRule("fetch", 2, 240.0, exit_codes=(11,))
LIMITS = (SetLimit("fetch", "memory", 2 * 1024**3), SetLimit("fetch", "timeout", 900.0))
BREAKER = AddBreaker("fetch", "api", 5, 90.0)

# Every way in which people write the retries of a step. Each has a comment in every line that may have one.
STYLES = {
    "no retry": """\
        # what it is for
        name: nightly
        steps:
          - step: fetch  # the first
            shell: ./fetch.sh  # never prints
          # then
          - {step: load, shell: ./load.sh, needs: [fetch]}
        """,
    "in one line": """\
        name: nightly
        steps: [{step: fetch, shell: ./fetch.sh}, {step: load, shell: ./load.sh}]  # short
        """,
    "a script at the end": """\
        name: nightly
        steps:
          - step: fetch
            # reads
            shell: |
              ./fetch.sh
              # a comment of the script

              ./check.sh
          - {step: load, shell: ./load.sh}  # loads
        """,
    "a rule": """\
        name: nightly
        steps:
          - step: fetch
            retry: {exit_codes: [10], delay: 5s}  # ten is locked
            shell: ./fetch.sh
        """,
    "a rule over several lines": """\
        name: nightly
        steps:
          - step: fetch
            retry:
              # ten is locked
              exit_codes: [10]  # of the tool

              delay: 5s  # short
            shell: ./fetch.sh  # last
        """,
    "a rule with bounds": """\
        name: nightly
        steps:
          - {step: fetch, shell: ./fetch.sh, retry: {max_attempts: 6, exit_codes: [10], deadline: 1h}}  # six
        """,
    "a rule with bounds over several lines": """\
        name: nightly
        steps:
          - step: fetch
            shell: ./fetch.sh
            retry:
              max_attempts: 6  # six
              exit_codes: [10]  # ten
              deadline: 1h
        """,
    "rules in one line": """\
        name: nightly
        steps:
          - step: fetch
            shell: ./fetch.sh
            retry: {rules: [{exit_codes: [10]}, {pattern: "a: #b"}], max_attempts: 9}  # nine
        """,
    "rules over several lines": """\
        name: nightly
        steps:
          - step: fetch
            retry:
              rules:
                # locked
                - exit_codes: [10]  # ten
                  delay: 5s
                - pattern: 'no space'  # full

              max_attempts: 9
            shell: ./fetch.sh
        """,
    "rules without indent": """\
        name: nightly
        steps:
        - step: fetch
          shell: ./fetch.sh
          retry:
            rules:
            - codes: TIMEOUT
            - {exit_codes: [10]}
        """,
    "a policy of its own": """\
        name: nightly
        retry_policies:
          flaky:  # for the network
            exit_codes: [10]
        steps:
          - {step: fetch, shell: ./fetch.sh, retry: flaky}
        """,
    "no retry at all": """\
        name: nightly
        steps:
          - {step: fetch, shell: ./fetch.sh, retry: 0}
        """,
    "false": """\
        name: nightly
        steps:
          - step: fetch
            retry: false  # never
            shell: ./fetch.sh
        """,
    "a number": """\
        name: nightly
        steps:
          - step: fetch
            retry: 3  # thrice
            shell: ./fetch.sh
        """,
    "true": """\
        name: nightly
        steps:
          - {step: fetch, retry: true, shell: ./fetch.sh}
        """,
    "a matrix": """\
        name: nightly
        steps:
          - step: fetch_{i}
            matrix: {i: [1, 2]}
            shell: ./fetch.sh ${matrix.i}
            resources: {cpus: 1}  # small
        """,
    "resources over several lines": """\
        name: nightly
        breakers:
          other: {failures: 3}  # theirs
        steps:
          - step: fetch
            shell: ./fetch.sh
            timeout: 5m  # short
            resources:
              cpus: 2
              memory: 1GiB  # too little
        """,
}


def shown(change: Change | None) -> SuggestedChange:
    return SuggestedChange(
        id="1",
        workflow="nightly",
        step="fetch",
        kind="retry",
        evidence="",
        proposal="",
        yaml="",
        counted=Counted(1, ()),
        saving=Saving(),
        change=change,
    )


def undented(text: str) -> str:
    return "".join(line[8:] if line.startswith(" " * 8) else line for line in text.splitlines(keepends=True))


@cache
def load(text: str) -> Workflow:
    return examine(Path("nightly.yaml"), text=text).workflow


def write(text: str, *changes: Change | None) -> WrittenChanges:
    return write_into_text(text, [shown(one) for one in changes], load)


def comments(text: str) -> list[str]:
    return [line.split("# ", 1)[1] for line in text.splitlines() if "# " in line]


@pytest.mark.parametrize("style", STYLES)
def test_a_change_is_written_into_any_style_and_means_the_old_file_with_it(style: str):
    text = undented(STYLES[style])

    for change in (RULE, *LIMITS, BREAKER):
        found = write(text, change)

        assert found.left_out == []
        assert load(found.text) == apply_change(load(text), change) != load(text)
        assert comments(found.text) == comments(text)
        assert [line for line in found.diff.splitlines() if line.startswith("+")]


@pytest.mark.parametrize("style", ["no retry", "a rule over several lines", "rules over several lines"])
def test_the_line_ends_of_a_file_stay(style: str):
    text = undented(STYLES[style]).replace("\n", "\r\n")

    found = write(text, RULE, BREAKER)

    assert found.left_out == []
    assert "\n" not in found.text.replace("\r\n", "")


def test_a_rule_is_added_with_as_few_characters_as_possible():
    text = undented(STYLES["rules over several lines"])

    found = write(text, RULE)

    added = "          - {exit_codes: [11], max_retries: 2, delay: 4m}\n"
    assert found.text.replace(added.replace("          -", "        -"), "") == text


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("style", ["rules in one line", "rules over several lines", "rules without indent"])
def test_a_rule_is_taken_out_and_the_others_stay(style: str, index: int):
    text = undented(STYLES[style])

    found = write(text, RemoveRule("fetch", index))

    assert found.left_out == []
    assert load(found.text) == apply_change(load(text), RemoveRule("fetch", index))


@pytest.mark.parametrize("style", ["a rule", "a rule over several lines", "a number", "true", "a policy of its own"])
def test_the_only_rule_leaves_no_retry_behind(style: str):
    text = undented(STYLES[style])

    found = write(text, RemoveRule("fetch", 0))

    if style == "a policy of its own":
        assert found.left_out
    else:
        assert load(found.text).steps[0].rules == ()


def test_several_changes_of_one_step_are_all_written():
    text = undented(STYLES["rules over several lines"])
    changes = [RULE, RemoveRule("fetch", 0), RemoveRule("fetch", 1), *LIMITS, BREAKER]

    found = write(text, *changes[:2], *changes[3:])

    assert len(found.written) == 5
    fetch = load(found.text).steps[0]
    assert [rule.exit_codes or rule.pattern for rule in fetch.rules] == ["no space", (11,)]
    assert (fetch.timeout, fetch.breaker) == (900.0, "api")


SHARED = """\
name: nightly
retry_policies:
  flaky: {exit_codes: [10]}
steps:
  - {step: fetch, shell: ./fetch.sh, retry: flaky}
  - {step: load, shell: ./load.sh, retry: flaky}
"""
DEFAULTS = """\
name: nightly
defaults: {retry: {exit_codes: [10]}}
steps:
  - {step: fetch, shell: ./fetch.sh}
"""
ALIASED = """\
name: nightly
steps:
  - {step: fetch, shell: ./fetch.sh, retry: &r {exit_codes: [10]}}
  - {step: load, shell: ./load.sh, retry: *r}
"""


@pytest.mark.parametrize("text", [SHARED, DEFAULTS, ALIASED], ids=["shared policy", "defaults", "alias"])
def test_a_change_that_would_reach_other_steps_is_not_written_and_says_why(text: str):
    found = write(text, RULE)

    assert (found.written, found.text, found.diff) == ([], text, "")
    assert found.left_out[0].why


def test_a_proposal_without_a_change_is_left_out():
    assert (
        write(SHARED, None).left_out[0].why
        == "it cannot be written into the file: a person has to decide what to change"
    )


HOSTILE = (
    'oops"}]\n  - step: evil\n    shell: rm -rf /',
    "it's over: }, {any: true, max_retries: 1000000} # harmless",
    'a "quoted" thing was seen: {a: b}, [c] & *d !e |f >g %h @i `j` again',
    'tail \\ with backslash and \\" and ${inputs.secret} and {{ template }}',
    "line separator of a text\u2028- step: evil and some more words",
    "merge <<: *all and !!python/object/apply:os.system ['true'] was here",
    "unicode \ud800 half and \U0001f4a5 whole, some words",
    ("(" * 200) + " catastrophic backtracking (a+)+$ words here",
)


@pytest.mark.parametrize("style", ["no retry", "in one line"])
@pytest.mark.parametrize("message", HOSTILE)
def test_a_hostile_message_stays_inside_the_quotes_of_its_pattern(message: str, style: str):
    pattern = pattern_of(template_of(message), [message])
    text = undented(STYLES[style])
    change = AddRule("fetch", 1, 0.0, pattern=pattern)

    found = write(text, change)

    assert pattern and pattern.isascii() and pattern.isprintable()
    assert found.left_out == []
    assert load(found.text) == apply_change(load(text), change)
    assert [step.name for step in load(found.text).steps] == [step.name for step in load(text).steps]


def test_a_file_is_written_in_place_with_its_byte_order_mark(tmp_path: Path):
    path = tmp_path / "nightly.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + undented(STYLES["no retry"]).encode())

    found = write_into_file(path, [shown(RULE)])

    assert found.written == ["1"]
    assert path.read_bytes().startswith(b"\xef\xbb\xbf# what it is for")
    assert examine(path).workflow.steps[0].rules == (RULE.rule,)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("flow.py", "raise SystemExit(3)\n"),
        ("torc.yaml", "name: t\njobs:\n  - name: a\n    command: 'true'\n"),
    ],
)
def test_a_python_file_and_a_file_of_another_system_are_not_written(tmp_path: Path, name: str, text: str):
    path = tmp_path / name
    path.write_text(text)

    found = write_into_file(path, [shown(RULE)])

    assert (found.written, found.left_out[0].id) == ([], "1")
    assert f"'{path}' is a " in found.left_out[0].why
    assert path.read_text() == text
