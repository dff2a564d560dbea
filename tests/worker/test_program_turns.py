"""Turns of programs on a worker, with real processes: what comes of them, also when they end in an unusual way."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.work import PATIENCE_SECONDS, Work

from mulligan.core.model.program_calls import ProgramTurn
from mulligan.core.model.reports import TaskEnded
from mulligan.ports import Lease

_PROGRAMS = """
import os

import mulligan
from mulligan import program, step


def call(name: str):
    return mulligan.progress(1, 2) if name == "progress" else mulligan.artifact(__file__)


@step(inline=True)
def inline(name: str):
    return call(name)


@program
def outside(name: str, is_inline: bool):
    return inline(name) if is_inline else call(name)


@program
def environment():
    return sorted(name for name in os.environ if name.startswith("MULLIGAN_"))


@program
def large(size: int):
    return "x" * size


@program
def exits(status: int):
    print("printed")
    os._exit(status)
"""


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    made = Work(tmp_path)
    yield made
    made.close()


def turn(work: Work, function: str, *, number: int = 1, **args: Any) -> Lease:
    params = {"call": f"hosted:{function}", "source": _PROGRAMS, "file": "hosted.py", "args": args, "program": True}
    return work.lease("python", params, turn=ProgramTurn(number))


def test_a_large_result_is_read_to_its_end_though_the_process_has_ended(work: Work) -> None:
    # The socket takes all of it, so the process ends before anything is read.
    work.start(turn(work, "large", size=150_000))
    turns = work.executor._program_turns
    assert turns is not None
    (host,) = turns._hosts.values()
    assert host.frames is not None and select.select([host.frames], [], [], PATIENCE_SECONDS)[0]

    (report,) = work.reports()

    assert isinstance(report, TaskEnded) and report.turn is not None
    assert (report.turn.how, len(report.output)) == ("returned", 150_000), report.outcome


def test_a_program_that_exits_before_it_has_returned_has_failed(work: Work) -> None:
    report = work.run(turn(work, "exits", status=0))

    assert (report.output, report.turn) == (None, None)
    assert report.outcome.code == "EXCEPTION"
    assert report.outcome.message == "its process exited before the program returned"


def test_a_program_gets_no_variable_that_belongs_to_one_of_its_turns(work: Work) -> None:
    names = work.run(turn(work, "environment")).output

    assert set(names) - set(os.environ) == {
        *("MULLIGAN_ATTEMPT", "MULLIGAN_CPUS", "MULLIGAN_IDEMPOTENCY_KEY", "MULLIGAN_OUTPUT_DIR", "MULLIGAN_PROGRAM"),
        *("MULLIGAN_RUN_ID", "MULLIGAN_STEP", "MULLIGAN_VISIT", "MULLIGAN_WORKER", "MULLIGAN_WORKFLOW"),
    }


@pytest.mark.parametrize("is_inline", [False, True])
@pytest.mark.parametrize("name", ["progress", "artifact"])
def test_what_belongs_to_a_step_is_refused_in_a_program(work: Work, name: str, is_inline: bool) -> None:
    report = work.run(turn(work, "outside", name=name, is_inline=is_inline))

    assert report.turn is not None
    found = report.turn.calls[0].failure if is_inline else report.turn.failure
    assert found is not None and found.message == (
        f"NotInStep: mulligan.{name}() was called in a program, or in an inline step of one; do it in a step of its own"
    )


def test_a_program_that_exits_with_an_error_shows_what_it_printed(work: Work) -> None:
    report = work.run(turn(work, "exits", status=3))

    assert (report.outcome.exit_code, report.outcome.stdout_tail) == (3, "printed\n")
