"""`mulligan usage`: what was asked for, what was used, what to write. And the attempts in `mulligan show`."""

from __future__ import annotations

import re

import pytest
from tests.support.commands import mulligan, ran

pytestmark = pytest.mark.usefixtures("folder")

SWEEP = """\
name: sweep
steps:
  - step: "size_{i}"
    matrix: {i: 1..2}
    shell: 'true'
    resources: {memory: 4GiB}
  - step: late
    shell: sleep 100
    timeout: 50ms
    continue_on_error: true
  - step: check
    map: {over: [a, b, c], as: one}
    do: [{shell: 'true'}]
  - {step: gate, needs: [late], wait: 0s}
"""


def test_without_a_number_it_is_the_newest_run():
    ran(SWEEP)

    assert mulligan("usage") == mulligan("usage", 1)


def test_what_was_asked_and_used_is_compared_and_what_to_write_stands_below():
    ran(SWEEP)

    said = mulligan("usage", 1)

    assert (said.code, said.err) == (0, "")
    shown, _, proposed = said.out.partition("\n\n")
    assert [re.sub(r"\b\d+(\.\d+)?(MiB|s)\b", "N", re.sub(r" {2,}", "  ", line)) for line in shown.splitlines()] == [
        "STEP  TRIES  MEMORY  CPUS  TIME",
        "size (2)  2  N of 4.0GiB  -  N",
        "late  1  -  -  - of N  1 ran out of time",
        "check (3)  3  N  -  N",
    ]
    assert re.sub(r"it used \d+MiB", "it used N", proposed) == (
        "size:\n"
        "  resources: {memory: 64MiB}  # it used N of 4.0GiB\n"
        "\n"
        "late:\n"
        "  timeout: 10s  # it did not finish in 0.1s\n"
    )


def test_as_json_every_line_says_its_run_and_what_is_proposed():
    ran(SWEEP)

    found = mulligan("usage", 1, "--json").json

    assert [(line["run_id"], line["step"], line["parts"], line["attempts"]) for line in found] == [
        (1, "size", 2, 2),
        (1, "late", 1, 1),
        (1, "check", 3, 3),
    ]
    size, late, _ = found
    asked = {"memory": 4 << 30, "cpus": None, "gpus": None, "labels": [], "timeout": None, "nodes": None}
    assert size["asked"] == asked
    assert set(size["used"]) == {
        *("memory", "cpus", "longest_seconds", "wall_seconds", "cpu_seconds"),
        *("tokens", "out_of_memory", "timed_out", "hung", "killed"),
    }
    assert late["used"]["timed_out"] == 1
    assert late["proposals"] == [
        {"what": "timeout", "value": 10.0, "written": "10s", "why": "ran_out", "text": "it did not finish in 0.1s"}
    ]
    assert late["write"] == {"timeout": "10s"}


def test_attempts_that_were_killed_are_counted_and_nothing_is_proposed_from_them():
    ran("name: w\nsteps: [{step: a, resources: {memory: 4GiB}, shell: 'kill -9 $$'}]")

    said = mulligan("usage", 1)

    assert re.sub(r" {2,}", "  ", said.out).splitlines()[1] == "a  1  - of 4.0GiB  -  -  1 killed by a signal"
    assert said.err == "nothing to change: attempts that hung or were killed do not show what a step needs\n"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("timeout: 1m, ", "nothing to change: the requests fit the usage\n"),
        # Nobody asked for anything.
        ("", "nothing to change\n"),
    ],
)
def test_where_all_fits_that_is_said(asked: str, said: str):
    ran(f"name: w\nsteps: [{{step: a, {asked}shell: 'true'}}]")

    found = mulligan("usage", 1)

    assert (found.code, found.err) == (0, said)


def test_where_nothing_ran_that_is_said():
    ran("name: asking\nsteps: [{step: gate, approve: {message: 'go?'}}]\n")

    said = mulligan("usage", 1)

    assert (said.code, said.out, said.err) == (0, "", "nothing was measured in run 1 yet\n")


def test_a_run_that_is_not_there_is_refused():
    assert mulligan("usage", 7).code != 0


# -- show ------------------------------------------------------------------------------------------------------------

MENDED = """\
name: mended
steps:
  - step: build
    shell: exit 3
    retry: {max_retries: 1, delay: 0s, recovery_script: 'true'}
    on_failure: echo mended
  - step: check
    map: {over: [a], as: one}
    do: [{shell: 'true'}]
"""


def test_every_attempt_at_a_step_and_at_what_its_failure_set_off_is_shown():
    ran(MENDED)

    code, out, err = mulligan("show", 1, "--attempts").plain

    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == [
        "AT  ROUND  WHAT  TRY  TOOK  CPU  MEMORY  HOW IT ENDED",
        "THEN  1  build  1  Ns  Ns  NMiB  EXIT_NONZERO 3",
        "THEN  1  build.script@1  1  Ns  Ns  NMiB  succeeded",
        "THEN  1  build  2  Ns  Ns  NMiB  EXIT_NONZERO 3",
        "THEN  1  build.on_failure@2.0  1  Ns  Ns  NMiB  succeeded",
        "THEN  1  check  1  succeeded",
    ]


def test_as_json_a_step_has_its_attempts_with_what_each_cost():
    ran(MENDED)

    steps = mulligan("show", 1, "--json").json["steps"]

    first = steps["build"]["tries"][0]
    assert (first["place"], first["attempt"], first["status"]) == ("build", 1, "failed")
    assert first["wall_seconds"] > 0 and first["peak_memory"] > 0 and first["cpu_seconds"] >= 0
    assert [one["place"] for one in steps["build"]["tries"]] == [
        *("build", "build.script@1", "build", "build.on_failure@2.0")
    ]
    assert [one["place"] for one in steps["check"]["tries"]] == ["check"]
