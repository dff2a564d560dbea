"""The table of background jobs: when each is asked, and what a failing one does to the others."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mulligan.errors import InputInvalid, StoreUnavailable
from mulligan.service import JOBS, BackgroundJobs, Job, run_jobs

# Sends itself SIGTERM when it begins to wait for what is due next: at the lock of an event, or at the system call.
TERMINATED_AT_WAIT = """
import os, signal, sys
def trap(frame, event, argument):
    name = frame.f_code.co_name if event == "call" else getattr(argument, "__name__", "") if event == "c_call" else ""
    if name == "select" or (name == "wait" and frame.f_back.f_code.co_name == "wait"):
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGTERM)
from mulligan.api.background import main
sys.setprofile(trap)
main(*sys.argv[1:])
"""
T0 = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """Stands for a service: jobs of these tests ask it for the time only."""

    def __init__(self) -> None:
        self.at = T0

    def now(self) -> datetime:
        return self.at

    def __enter__(self) -> Clock:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_a_server_fires_schedules_sends_notices_and_removes_what_is_old() -> None:
    assert [job.name for job in JOBS] == ["schedules", "notices", "retention"]


def test_a_job_is_asked_again_at_the_moment_that_it_named() -> None:
    clock: Any = Clock()
    asked: list[datetime] = []

    def work(service: Any, now: datetime) -> datetime:
        asked.append(now)
        return now + timedelta(seconds=0.25)

    jobs = BackgroundJobs([Job("a", work)], print)
    waits = []
    for seconds in (0.0, 0.125, 0.125):
        clock.at += timedelta(seconds=seconds)
        waits.append(jobs.run_due(clock))

    assert asked == [T0, T0 + timedelta(seconds=0.25)]
    assert waits == [0.25, 0.125, 0.25]


def test_a_clock_that_is_set_back_keeps_no_job_waiting() -> None:
    clock: Any = Clock()
    asked: list[datetime] = []
    jobs = BackgroundJobs([Job("a", lambda _, now: asked.append(now))], print)

    jobs.run_due(clock)
    clock.at -= timedelta(hours=1)
    wait = jobs.run_due(clock)

    assert asked == [T0, T0 - timedelta(hours=1)]
    assert wait <= 1


def test_a_job_that_fails_waits_longer_each_time_and_the_others_go_on() -> None:
    clock: Any = Clock()
    logged: list[str] = []
    done: list[datetime] = []

    def fails(service: Any, now: datetime) -> None:
        raise InputInvalid("no such target")

    jobs = BackgroundJobs([Job("bad", fails), Job("good", lambda _, now: done.append(now))], logged.append)
    for _ in range(4):
        jobs.run_due(clock)
        clock.at += timedelta(seconds=1)

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
    assert slept == [1.0, 2.0, 1.0]


def test_a_signal_that_comes_when_it_begins_to_wait_ends_it(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", TERMINATED_AT_WAIT, str(tmp_path / "home"), "text"], timeout=60)

    assert done.returncode == 0


def test_the_store_is_asked_for_its_time_once_for_all_jobs_and_again_after_one_that_took_long() -> None:
    clock: Any = Clock()
    asked, elapsed = [], [0.0]
    clock.now = lambda: (asked.append(1), clock.at)[1]

    def quick(service: Any, now: datetime) -> None:
        pass

    def slow(service: Any, now: datetime) -> None:
        elapsed[0] += 1.0

    at_rest = BackgroundJobs([Job(name, quick) for name in "abc"], print, lambda: elapsed[0])
    at_rest.run_due(clock)
    assert len(asked) == 1

    BackgroundJobs([Job("a", slow), Job("b", quick)], print, lambda: elapsed[0]).run_due(clock)
    assert len(asked) == 3
