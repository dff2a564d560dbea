"""Turns of programs on a worker, with real processes: what comes of them, also when they end in an unusual way."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from tests.support.work import PATIENCE_SECONDS, Work, kill
from tests.worker.test_log_shipping import Records

from mulligan.core.effects.program_history import ProgramHistory
from mulligan.core.model.artifacts import KEY, Artifact
from mulligan.core.model.failure import MESSAGE_CHARS_MAX
from mulligan.core.model.program_calls import Delivery, ProgramTurn
from mulligan.core.model.reports import CallsMade, LeaseExpired, TaskEnded
from mulligan.ports import Lease
from mulligan.programs import messages as m
from mulligan.testing.clock import JumpingClock
from mulligan.testing.memory.artifact_memory import ArtifactMemory

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


@step
def load(): ...


@program
def raises():
    raise ValueError("zero \\0 " + "x" * 3000)


@program
def parent():
    return os.getppid()


@program
def prints():
    print("one")
    load()
    print("two")


@program
def stuck():
    print("x" * 5000)
    while True:
        pass


@program
def environment():
    return sorted(name for name in os.environ if name.startswith("MULLIGAN_"))


@program
def large(size: int):
    return "x" * size


@step(inline=True)
def add(number: int):
    return number + 1


@program
def adds():
    return add(add(1))


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


class BrokenFiles(ArtifactMemory):
    """Artifacts that have no files, of which one cannot be read."""

    def fetch(self, artifact: Artifact) -> bytes:
        if artifact.name.endswith("broken"):
            raise OSError(errno.EIO, "it cannot be read")
        return super().fetch(artifact)


def turn(
    work: Work,
    function: str,
    *,
    number: int = 1,
    deliveries: tuple[Delivery, ...] = (),
    delivered: int = 0,
    place: str = "",
    version: str = "v1",
    **args: Any,
) -> Lease:
    params = {"call": f"hosted:{function}", "source": _PROGRAMS, "file": "hosted.py", "args": args, "program": True}
    fields = {"version": version, **({"place": place} if place else {})}
    return work.lease("python", params, turn=ProgramTurn(number, delivered=delivered, deliveries=deliveries), **fields)


def test_a_large_result_is_read_to_its_end_though_the_process_has_ended(work: Work) -> None:
    # The socket takes all of it, so the process ends before anything is read.
    work.start(turn(work, "large", size=150_000))
    turns = work.executor._program_turns
    assert turns is not None and turns._host is not None
    assert select.select([turns._host], [], [], PATIENCE_SECONDS)[0]

    (report,) = work.reports()

    assert isinstance(report, TaskEnded) and report.turn is not None
    assert (report.turn.how, len(report.output)) == ("returned", 150_000), report.outcome


@pytest.mark.parametrize("fails", ["history", "file"])
def test_a_turn_that_cannot_begin_leaves_no_process_and_no_file(tmp_path: Path, fails: str) -> None:
    def read_history(run_id: int, delivered: int) -> ProgramHistory:
        if fails == "history":
            raise OSError(errno.EIO, "it cannot be read")
        return ProgramHistory({}, [Delivery("", 0, "load", output=broken)])

    files = BrokenFiles({}, JumpingClock())
    good, broken = ({KEY: to_builtins(files.keep(f"7/{name}", b"x", "text"))} for name in ("good", "broken"))
    work = Work(tmp_path, artifacts=files, read_history=read_history)

    report = work.run(turn(work, "large", number=2, size=good))

    assert report.outcome.code == "EXCEPTION"
    assert list(Path(work.executor._folder).glob("program-*")) == []
    turns = work.executor._program_turns
    assert turns is not None and turns._forked == {}
    work.close()


def test_the_programs_of_all_workflows_are_forked_by_one_host(work: Work) -> None:
    first, second = (work.run(turn(work, "parent", version=version)).output for version in ("v1", "v2"))

    assert first == second != os.getpid()


def test_a_program_whose_host_is_dead_is_lost_and_the_next_one_gets_another_host(work: Work) -> None:
    host = work.run(turn(work, "parent")).output
    work.start(turn(work, "stuck"))
    kill(host)

    (lost,) = work.reports()

    assert isinstance(lost, LeaseExpired)
    assert work.run(turn(work, "parent")).output != host


def test_a_failure_of_a_program_begins_as_its_exception_and_can_be_written_anywhere(work: Work) -> None:
    report = work.run(turn(work, "raises"))

    assert report.turn is not None and report.turn.failure is not None
    assert report.turn.failure.message == "ValueError: zero \ufffd ".ljust(MESSAGE_CHARS_MAX, "x")


def test_a_program_that_prints_too_much_is_stopped(tmp_path: Path) -> None:
    work = Work(tmp_path, log_bytes_max=4000)
    lease = turn(work, "stuck")

    report = work.run(lease)

    assert report.outcome.code == "OUTPUT_INVALID"
    assert "bytes omitted" in work.log(lease).read_text()
    work.close()


def test_the_log_of_a_program_is_shipped_once_and_ends_with_the_program(tmp_path: Path) -> None:
    records = Records()
    work = Work(tmp_path, shipped_logs=lambda: records)
    first = turn(work, "prints", place="prints")
    second = turn(work, "prints", place="prints", number=2, deliveries=(Delivery("", 0, "load"),))

    work.run(first)
    waiting = records.text(first)
    work.run(second)

    assert (waiting, records.text(first)) == ("one\n…", "one\ntwo\n.")
    assert records.starts == [0, 4]
    work.close()


def test_a_process_that_is_stopped_while_it_speaks_is_not_kept_for_the_next_turn(work: Work) -> None:
    lease = turn(work, "prints")
    work.start(lease)
    turns = work.executor._program_turns
    assert turns is not None
    (process,) = turns._processes.values()
    assert process.frames is not None and select.select([process.frames], [], [], PATIENCE_SECONDS)[0]

    work.executor.stop(lease.token, 0.0)
    (report,) = work.reports()

    assert isinstance(report, TaskEnded) and report.turn is not None and report.turn.how == ""
    assert turns._processes == {}


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


def the_end_of(made: CallsMade) -> Delivery:
    """What a program gets for the inline step that it has run."""
    (call,) = made.turn.calls
    return Delivery(call.branch, call.ordinal, "add", output=call.output)


def calls_made(work: Work) -> CallsMade:
    (report,) = work.reports()
    assert isinstance(report, CallsMade)
    return report


def test_a_program_goes_on_in_its_turn_when_its_inline_step_is_recorded(work: Work) -> None:
    lease = turn(work, "adds")
    work.start(lease)

    for _ in range(2):
        made = calls_made(work)
        work.executor.go_on(lease.token, [the_end_of(made)])
    (report,) = work.reports()

    assert isinstance(report, TaskEnded) and report.turn is not None
    assert (report.turn.turn, report.output) == (1, 3)


def test_a_program_that_may_not_go_on_frees_its_slot_and_its_process_waits(work: Work) -> None:
    lease = turn(work, "adds", place="adds")
    free = work.executor.offer().cpus
    work.start(lease)
    end = the_end_of(calls_made(work))

    work.executor.end_turn(lease.token)
    work.executor.end_turn(lease.token)

    assert (work.executor.offer().cpus, work.executor.is_busy) == (free, False)
    work.start(turn(work, "adds", place="adds", number=2, deliveries=(end,)))
    assert calls_made(work).turn.calls[0].output == 3


def test_a_process_that_has_missed_an_answer_is_not_asked_to_go_on(tmp_path: Path) -> None:
    read: list[int] = []

    def read_history(run_id: int, delivered: int) -> ProgramHistory:
        read.append(delivered)
        return ProgramHistory({}, [])

    work = Work(tmp_path, read_history=read_history)
    lease = turn(work, "adds", place="adds")
    work.start(lease)
    calls_made(work)
    work.executor.end_turn(lease.token)

    # It is recorded as known, and the process does not know it.
    work.start(turn(work, "adds", place="adds", number=2, delivered=1))

    assert (read, calls_made(work).turn.turn) == ([1], 2)
    work.close()


def test_a_program_that_is_killed_while_it_waits_for_an_answer_ends_behind_what_it_has_said(work: Work) -> None:
    lease = turn(work, "adds")
    work.start(lease)
    made = calls_made(work)

    work.executor.stop(lease.token, 0.0)
    (report,) = work.reports()
    work.executor.go_on(lease.token, [the_end_of(made)])

    assert isinstance(report, TaskEnded) and report.outcome.is_stopped
    assert work.executor.collect(0.0) == []


def test_a_process_that_speaks_before_it_has_an_answer_is_killed(work: Work) -> None:
    lease = turn(work, "adds")
    work.start(lease)
    made = calls_made(work)
    turns = work.executor._program_turns
    assert turns is not None
    (process,) = turns._processes.values()

    turns._on_said(process, m.Idle(made.turn.turn))
    (report,) = work.reports()

    assert isinstance(report, TaskEnded)
    assert "before it had an answer" in report.outcome.message
