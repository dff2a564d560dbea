"""`mulligan stats`: what retries, handlers, triage and routes were good for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.commands import Said, mulligan, ran, ran_before

pytestmark = pytest.mark.usefixtures("folder")

HELLO = "name: hello\nsteps:\n  - {step: greet, shell: echo hello}\n"
FLAKY = """\
name: flaky
steps:
  - step: fetch
    shell: '[ "$MULLIGAN_ATTEMPT" -gt 2 ] || exit 10'
    retry: {rules: [{codes: [TIMEOUT]}, {exit_codes: [10, 11], recovery_script: 'true'}]}
"""
# The same rule is now the first one.
FLAKY_LATER = FLAKY.replace("{codes: [TIMEOUT]}, ", "")
LADDER = """\
name: ladder
fail_fast: never
steps:
  - {step: build, shell: exit 1, retry: {rules: [{pattern: no space}, {any: true, max_retries: 1}]}, on_failure: 'true'}
  - {step: tidy, shell: exit 1, on_failure: {shell: 'true', strategy: cleanup}, continue_on_error: true}
  - step: check
    map: {over: [a, b], as: one, on_item_failure: collect}
    do:
      - shell: 'true'
      - {shell: exit 1, on_failure: {commands: [{shell: 'test ${one} = a', retry: 1}], strategy: fallback}}
  - {step: deploy, shell: exit 1, next: [{to: repair, on: failure}]}
  - {step: repair, shell: exit 1, next: [{to: mend, on: failure}]}
  - {step: mend, shell: 'true'}
  - {step: publish, shell: exit 1, triage: true}
"""


def table(said: Said) -> str:
    """What was shown, without times and with two blanks between columns."""
    assert (said.code, said.err) == (0, "")
    return re.sub(r" {2,}", "  ", re.sub(r"\b[\d.]+m?s\b", "TIME", said.out))


def test_every_rung_that_was_tried_has_a_line_in_the_order_of_file_and_ladder():
    assert ran(LADDER).code == 4

    assert table(mulligan("stats")) == (
        "WORKFLOW  STEP  TRIED  WORKED  SHARE  EACH  RUNG\n"
        "ladder  build  1  0  0%  TIME  retry, any failure\n"
        "ladder  build  1  1  100%  TIME  recovery handler\n"
        "ladder  tidy  1  1  100%  TIME  cleanup handler\n"
        "ladder  check  2  1  50%  TIME  fallback handler (command 2 of each item)\n"
        "ladder  check  1  0  0%  TIME  retry, any failure (command 1 of its handler of command 2 of each item)\n"
        "ladder  deploy  1  1  100%  TIME  route to 'repair'\n"
        "ladder  repair  1  1  100%  TIME  route to 'mend'\n"
        "ladder  publish  1  0  0%  -  triage\n"
    )


def test_as_json_it_is_an_array_of_objects():
    ran(FLAKY)

    found = mulligan("stats", "--json").json

    for line in found:
        assert 0 <= line.pop("average_seconds") < 60
    common = {"workflow": "flaky", "step": "fetch", "command": "", "what": "exit codes 10, 11", "runs": 1, "tried": 2}
    assert found == [
        {**common, "rung": "retry", "worked": 1, "share": 0.5},
        {**common, "rung": "script", "worked": 2, "share": 1.0},
    ]


def test_runs_are_summed_up_and_one_can_be_asked_for_alone():
    for text in (FLAKY, HELLO, FLAKY):
        ran(text)

    assert [(line["runs"], line["tried"]) for line in mulligan("stats", "--json").json] == [(2, 4), (2, 4)]
    assert [(line["runs"], line["tried"]) for line in mulligan("stats", 3, "--json").json] == [(1, 2), (1, 2)]


def test_a_rule_that_has_another_place_in_a_later_file_is_still_the_same_rule():
    ran(FLAKY)
    ran(FLAKY_LATER)

    assert table(mulligan("stats")) == (
        "WORKFLOW  STEP  TRIED  WORKED  SHARE  EACH  RUNG\n"
        "flaky  fetch  4  2  50%  TIME  retry, exit codes 10, 11\n"
        "flaky  fetch  4  4  100%  TIME  recovery script, exit codes 10, 11\n"
    )


def test_it_can_be_asked_for_one_workflow_and_for_the_last_days():
    ran(FLAKY)
    ran(LADDER)

    names = {line["workflow"] for line in mulligan("stats", "--json", "--workflow", "flaky", "--since", "7d").json}

    assert names == {"flaky"}
    assert len(mulligan("stats", "--json", "--since", "7d").json) == 2 + 8


def test_triage_works_when_the_retry_it_decided_on_completes_the_step():
    ran("name: w\nsteps:\n  - {step: a, shell: '[ -e here ]', triage: true}\n")
    Path("here").touch()
    mulligan("classify", 1, "a", "retry", "--reason", "it is there now", "--no-follow")
    assert mulligan("resume", 1).code == 0

    [line] = mulligan("stats", "--json").json

    assert (line["rung"], line["what"], line["tried"], line["worked"]) == ("triage", "", 1, 1)


def test_what_the_store_has_counted_is_what_the_log_says():
    ran(LADDER)

    assert mulligan("replay", 1, "--verify").code == 0


# nothing to tell


def test_where_nothing_was_run_there_is_nothing_to_tell_and_nothing_is_made(folder: Path):
    said = mulligan("stats")

    assert said == (0, "", "no retry, handler, triage or route was tried in any run\n")
    assert mulligan("stats", "--json").json == []
    assert not (folder / ".mulligan").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((2,), "in run 2"),
        (("--workflow", "hello"), "in any run of 'hello'"),
        (("--workflow", "nope", "--since", "1h30m"), "in any run of 'nope' started in the last 1h30m"),
        # Begun before now: all of them.
        (("--since", "0s"), "in any run started in the last 0s"),
        (("--workflow", ""), "in any run of ''"),
    ],
)
def test_where_nothing_was_tried_it_says_so(words: tuple[object, ...], said: str):
    ran_before(FLAKY, HELLO)

    assert mulligan("stats", *words) == (0, "", f"no retry, handler, triage or route was tried {said}\n")


# refused


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((7,), 2, "error[run.unknown]: there is no run 7\n  list them: mulligan list\n"),
        ((-1,), 2, "error[usage]: no such option '-1'\n  see: mulligan stats --help\n"),
        ((2**70,), 2, f"error[run.unknown]: there is no run {2**70}\n  list them: mulligan list\n"),
        (
            ("--since", "yesterday"),
            2,
            "error[input.invalid]: 'yesterday' is not a duration\n  write it like 30s, 5m or 1h30m\n",
        ),
        (("--since", ""), 2, "error[input.invalid]: '' is not a duration\n  write it like 30s, 5m or 1h30m\n"),
        (
            (1, "--since", "7d"),
            2,
            "error[usage]: --workflow and --since cannot be combined with a run\n  leave out the run or the options\n",
        ),
        (
            ("one",),
            2,
            "error[run.unknown]: 'one' is not the number of a run\n"
            "  give the number of a run or 'latest'; list them: mulligan list\n",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(words: tuple[object, ...], code: int, said: str):
    ran_before(HELLO)

    assert mulligan("stats", *words) == (code, "", said)
