"""Turns of programs on a worker, with real processes: what comes of them, also when they end in an unusual way."""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.work import PATIENCE_SECONDS, Work

from mulligan.core.effects.program_history import ProgramHistory
from mulligan.core.model.program_calls import ProgramTurn
from mulligan.core.model.reports import TaskEnded
from mulligan.ports import Lease

_PROGRAMS = """
import os

from mulligan import program


@program
def large(size: int):
    return "x" * size


@program
def exits(status: int):
    print("printed")
    os._exit(status)
"""


def no_history(run_id: int, delivered: int) -> ProgramHistory:
    raise AssertionError("nothing is recorded of these programs")


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    made = Work(tmp_path, read_history=no_history)
    yield made
    made.close()


def turn(work: Work, name: str, *, number: int = 1, **args: Any) -> Lease:
    params = {"call": f"hosted:{name}", "source": _PROGRAMS, "file": "hosted.py", "args": args, "program": True}
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


def test_a_program_that_exits_with_an_error_shows_what_it_printed(work: Work) -> None:
    report = work.run(turn(work, "exits", status=3))

    assert (report.outcome.exit_code, report.outcome.stdout_tail) == (3, "printed\n")
