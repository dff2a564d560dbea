"""What is told of a failure fits a terminal, whatever a command has written."""

from __future__ import annotations

import pytest

from mulligan.core.model.failure import failure
from mulligan.core.model.text.formatting import strip_control_characters
from mulligan.core.model.workflow import Command, TriageAgent
from mulligan.history.phrases import describe_failure, describe_triager


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("plain words, ümlauts and 漢字", "plain words, ümlauts and 漢字"),
        ("\x1b[1;31merror:\x1b[0m disk full", "error: disk full"),
        ("\x1b]0;a title\x07done", "done"),
        ("\x1b]8;;https://x.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("50%\x1b[2K\x1b[1Gdone", "50%done"),
        ("bell\x07 and back\x08space", "bell and backspace"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x9b31mred", "31mred"),
    ],
)
def test_what_would_command_a_terminal_is_left_out(written: str, told: str) -> None:
    assert strip_control_characters(written) == told


def test_the_line_that_is_shown_of_a_failure_commands_no_terminal() -> None:
    found = failure("EXIT_NONZERO", "first\n\x1b[31mfatal:\x1b[0m no space left\n", exit_code=1)

    assert describe_failure(found) == "EXIT_NONZERO 1: fatal: no space left"


def test_what_a_command_wrote_is_cut_to_a_line() -> None:
    found = failure("EXIT_NONZERO", "x" * 200, exit_code=1)

    assert describe_failure(found) == "EXIT_NONZERO 1: " + "x" * 97 + "…"


@pytest.mark.parametrize(
    "code", ["INPUT_INVALID", "OUTPUT_INVALID", "EXPRESSION_FAILED", "NO_CAPACITY", "A_CODE_OF_THE_STEPS_OWN"]
)
def test_what_is_in_no_log_is_told_to_its_end(code: str) -> None:
    said = "this worker does not have it: " + "x" * 150 + ": install it where the worker runs"

    assert describe_failure(failure(code, said)) == f"{code}: {said}"


def test_what_is_in_no_log_is_bounded_too() -> None:
    assert describe_failure(failure("INPUT_INVALID", "x" * 1_000)) == "INPUT_INVALID: " + "x" * 397 + "…"


def test_the_job_of_a_scheduler_in_which_it_failed_is_named() -> None:
    job = {"job_id": "17", "node": "n3", "array_id": "16", "array_task": 4, "state": "OUT_OF_MEMORY"}
    found = failure("SIGNALED", "killed by signal 9", signal=9, details={"slurm": job})

    shown = describe_failure(found)

    assert shown == "SIGNALED by SIGKILL (signal 9); on node n3, Slurm job 16_4, state OUT_OF_MEMORY"


@pytest.mark.parametrize("found", ["17", {}, {"node": "n3"}, None, {"job_id": "\x1b[2J" + "7" * 500}])
def test_what_a_step_says_of_a_job_commands_no_terminal_and_is_bounded(found: object) -> None:
    shown = describe_failure(failure("EXCEPTION", "it broke", details={"slurm": found}))

    assert len(shown) < 120
    assert "\x1b" not in shown


def test_what_a_triager_may_decide_is_said():
    agent = TriageAgent("claude", Command(), may=("retry",), max_per_run=1)

    said = describe_triager(agent)

    assert said == "agent 'claude' is asked first: it may decide retry, if it is at least 80% sure, once in a run"
