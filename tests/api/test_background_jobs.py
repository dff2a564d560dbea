"""The table of background jobs: when each is asked, and what a failing one does to the others."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mulligan.errors import InputInvalid, StoreUnavailable
from mulligan.service.server.background_jobs import CLOCK_SECONDS, JOBS, BackgroundJobs, Job, run_jobs

# Sends itself SIGTERM when it begins to wait for what is due next: at the lock of an event, or at the system call.
TERMINATED_AT_WAIT = """
import os, signal, sys
def trap(frame, event, argument):
    name = frame.f_code.co_name if event == "call" else getattr(argument, "__name__", "") if event == "c_call" else ""
    if name == "select" or (name == "wait" and frame.f_back.f_code.co_name == "wait"):
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGTERM)
from mulligan.api.processes.background import main
sys.setprofile(trap)
main(*sys.argv[1:])
"""
T0 = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """Stands for a service: jobs of these tests ask it for the time only. Its time passes in `elapsed` too."""

    def __init__(self) -> None:
        self.at = T0
        self.seconds = 0.0
        self.asked = 0

    def now(self) -> datetime:
        self.asked += 1
        return self.at

    def elapsed(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.seconds += seconds

    def __enter__(self) -> Clock:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_a_server_fires_schedules_looks_at_workers_sends_notices_and_removes_what_is_old() -> None:
    assert [job.name for job in JOBS] == ["schedules", "workers", "notices", "retention"]


def test_a_job_is_asked_again_at_the_moment_that_it_named() -> None:
    clock: Any = Clock()
    asked: list[datetime] = []

    def work(service: Any, now: datetime) -> datetime:
        asked.append(now)
        return now + timedelta(seconds=0.25)

    jobs = BackgroundJobs([Job("a", work)], print, clock.elapsed)
    waits = []
    for seconds in (0.0, 0.125, 0.125):
        clock.advance(seconds)
        waits.append(jobs.run_due(clock))

    assert asked == [T0, T0 + timedelta(seconds=0.25)]
    assert waits == [0.25, 0.125, 0.25]


def test_a_clock_that_is_set_back_keeps_no_job_waiting() -> None:
    clock: Any = Clock()
    asked: list[datetime] = []
    jobs = BackgroundJobs([Job("a", lambda _, now: asked.append(now))], print, clock.elapsed)

    jobs.run_due(clock)
    clock.at -= timedelta(hours=1)
    clock.seconds += CLOCK_SECONDS
    wait = jobs.run_due(clock)

    assert asked == [T0, T0 - timedelta(hours=1)]
    assert wait <= 1


def test_a_job_that_fails_waits_longer_each_time_and_the_others_go_on() -> None:
    clock: Any = Clock()
    logged: list[str] = []
    done: list[datetime] = []

    def fails(service: Any, now: datetime) -> None:
        raise InputInvalid("no such target")

    both = [Job("bad", fails), Job("good", lambda _, now: done.append(now))]
    jobs = BackgroundJobs(both, logged.append, clock.elapsed)
    for _ in range(4):
        jobs.run_due(clock)
        clock.advance(1)

    assert len(done) == 4
    assert logged == [
        "bad: error[input.invalid]: no such target; trying again in 1 s",
        "bad: error[input.invalid]: no such target; trying again in 2 s",
        "bad: error[input.invalid]: no such target; trying again in 4 s",
    ]


def test_a_store_that_is_away_is_waited_for_and_said_once() -> None:
    logged: list[str] = []
    slept: list[float] = []
    answers = iter([StoreUnavailable("the store is away"), StoreUnavailable("the store is away"), None])

    def work(service: Any, now: datetime) -> None:
        if (error := next(answers)) is not None:
            raise error

    clock: Any = Clock()
    run_jobs(lambda: clock, lambda: len(slept) == 3, logged.append, jobs=[Job("a", work)], sleep=slept.append)

    assert logged == ["the store is away; waiting for it"]
    assert slept[:2] == [1.0, 2.0]


def test_a_signal_that_comes_when_it_begins_to_wait_ends_it(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", TERMINATED_AT_WAIT, str(tmp_path / "home"), "text"], timeout=60)

    assert done.returncode == 0


def test_the_store_is_asked_for_its_time_every_ten_seconds_and_time_passes_in_between() -> None:
    clock: Any = Clock()
    seen: list[datetime] = []

    def work(service: Any, now: datetime) -> None:
        seen.append(now)
        clock.advance(0.5)

    jobs = BackgroundJobs([Job("a", work), Job("b", work)], print, clock.elapsed)
    for _ in range(20):
        jobs.run_due(clock)

    assert clock.asked == 3
    assert seen == [T0 + timedelta(seconds=0.5 * number) for number in range(40)]


def test_an_answer_about_the_time_that_took_longer_does_not_make_every_job_due() -> None:
    clock: Any = Clock()
    asked: list[datetime] = []

    def work(service: Any, now: datetime) -> datetime:
        asked.append(now)
        return now + timedelta(hours=1)

    jobs = BackgroundJobs([Job("a", work)], print, clock.elapsed)
    jobs.run_due(clock)
    clock.advance(CLOCK_SECONDS)
    jobs.run_due(clock)
    clock.advance(CLOCK_SECONDS)
    clock.at -= timedelta(seconds=0.2)
    jobs.run_due(clock)

    assert asked == [T0]
