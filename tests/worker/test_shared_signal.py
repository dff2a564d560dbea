"""What dies of the signal by which its worker is told to end was interrupted, also if it died a moment before."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.support.work import Announcements, Work

from mulligan.core.model.reports import Report, TaskEnded, TaskInterrupted
from mulligan.worker.supervisor.shared_signal import HOLD_SECONDS, SharedSignal
from mulligan.worker.task_reports import ProcessExit

TERMINATED, KILLED, EXIT_1, EXIT_143 = int(signal.SIGTERM), int(signal.SIGKILL), 1 << 8, 143 << 8

PATIENT = """
import os, time

def main(path):
    with open(path, "w") as pipe:
        pipe.write(f"{os.getpid()}\\n")
    time.sleep(1000)
"""


class Worker:
    """A worker with a clock, that is told to end when a test says so."""

    def __init__(self) -> None:
        self.now, self.was_signalled = 100.0, False
        self.signal = SharedSignal(lambda: self.was_signalled, lambda: self.now)

    def ends(self, status: int, stop_reason: str = "") -> str | None:
        """Why the task ended, or None while that is not known."""
        self.signal.add(1, exit_of(status, stop_reason))
        return next(iter(self.taken()), None)

    def taken(self) -> list[str]:
        return [one.stop_reason for _, one in self.signal.take()]


def exit_of(status: int, stop_reason: str = "") -> ProcessExit:
    return ProcessExit(status, 1.0, ended=2.0, cpu_seconds=0.0, peak_memory=0, stop_reason=stop_reason)


@pytest.mark.parametrize("status", [TERMINATED, KILLED, EXIT_1, EXIT_143])
def test_what_fails_after_the_worker_was_told_was_interrupted(status: int):
    worker = Worker()
    worker.was_signalled = True

    assert worker.ends(status) == "interrupted"


@pytest.mark.parametrize("status", [TERMINATED, EXIT_143])
def test_what_died_of_sigterm_waits_a_moment_for_the_worker_to_be_told(status: int):
    worker = Worker()

    assert worker.ends(status) is None
    assert worker.taken() == []
    worker.was_signalled = True

    assert worker.taken() == ["interrupted"]
    assert worker.taken() == []


def test_what_died_of_a_sigterm_of_its_own_is_reported_as_that_after_the_moment():
    worker = Worker()
    worker.ends(TERMINATED)

    assert worker.signal.next_due == 100.0 + HOLD_SECONDS
    worker.now += HOLD_SECONDS

    assert worker.taken() == [""]


@pytest.mark.parametrize("status", [0, KILLED, EXIT_1])
def test_nothing_else_waits(status: int):
    assert Worker().ends(status) == ""


def test_a_success_and_a_stop_for_another_reason_stay_what_they_are():
    worker = Worker()
    worker.was_signalled = True

    assert worker.ends(0) == ""
    assert worker.ends(TERMINATED, "timeout") == "timeout"


# With real processes


def signalled_first(tmp_path: Path, announcements: Announcements, kind: str, *, is_told_too: bool) -> Report:
    """How a task ends that got SIGTERM; its worker is told after it has seen the task die, or never."""
    told = False
    work = Work(tmp_path, was_signalled=lambda: told)
    try:
        if kind == "shell":
            work.start(work.shell(f"echo $$ > {announcements.path}; sleep 1000"))
        else:
            work.start(work.python(PATIENT, {"path": str(announcements.path)}))
        (pid,) = announcements.numbers(1)
        os.kill(pid, signal.SIGTERM)
        if is_told_too:
            work.wait_for(lambda: work.executor._shared_signal.held)
            told = True
        (report,) = work.reports()
        return report
    finally:
        work.executor.close()


@pytest.mark.parametrize("kind", ["shell", "python"])
def test_a_task_that_died_before_its_worker_was_told_was_interrupted(
    tmp_path: Path, announcements: Announcements, kind: str
):
    report = signalled_first(tmp_path, announcements, kind, is_told_too=True)

    assert isinstance(report, TaskInterrupted)


def test_a_task_that_somebody_terminates_alone_has_failed(tmp_path: Path, announcements: Announcements):
    report = signalled_first(tmp_path, announcements, "shell", is_told_too=False)

    assert isinstance(report, TaskEnded)
    assert report.outcome.signal == signal.SIGTERM
