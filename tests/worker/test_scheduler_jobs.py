"""Tasks that run in a job of a scheduler: their failures name the job, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.work import Announcements, Work, kill

from mulligan.core.model.clusters.scheduler_job import JobEnd, WorkerJob
from mulligan.core.model.reports import LeaseExpired, TaskInterrupted
from mulligan.worker.slots.task_limits import TaskLimits

JOB = WorkerJob("17", "n3", profile="long")


@pytest.fixture
def in_job(tmp_path: Path) -> Iterator[Work]:
    work = Work(tmp_path, job=JOB)
    yield work
    work.close()


def test_what_fails_in_a_job_says_so_and_what_succeeds_does_not(in_job: Work) -> None:
    failing = (
        in_job.run_shell("exit 3"),
        in_job.run_python("def main(): raise ValueError"),
        in_job.run_shell("true", cwd="nowhere"),
        in_job.run_shell("true", files={"mesh": "mesh.vtk"}),
    )

    assert [report.job for report in failing] == [JOB] * 4
    assert in_job.run_shell("true").job is None
    assert in_job.run_python("def main(): return 1").job is None


def test_what_is_lost_with_the_supervisor_names_the_job_of_the_worker(
    in_job: Work, announcements: Announcements
) -> None:
    in_job.start(in_job.shell(f"echo up > {announcements.path}; sleep 1000"))
    announcements.lines(1)

    kill(in_job.executor._supervisor.pid)

    (report,) = in_job.reports()
    assert isinstance(report, LeaseExpired)
    assert report.job == JobEnd(JOB)


@pytest.mark.parametrize("is_over", [True, False], ids=["its time is over", "somebody stops it"])
def test_a_task_that_ends_with_its_worker_says_how_long_both_lasted_if_the_time_was_over(
    tmp_path: Path, announcements: Announcements, is_over: bool
) -> None:
    now = [100.0]
    work = Work(tmp_path, job=JOB, limits=TaskLimits(until=160.0, monotonic=lambda: now[0]))
    work.start(work.shell(f"echo up > {announcements.path}; sleep 1000"))
    announcements.lines(1)

    now[0] = 160.0 if is_over else 159.0
    work.executor.stop_all(0.0)

    (report,) = work.reports()
    work.close()
    assert isinstance(report, TaskInterrupted)
    assert (report.life_seconds, report.job) == (60.0 if is_over else None, JOB)
    if is_over:
        assert report.ran_seconds is not None and 0.0 < report.ran_seconds < 60.0
    else:
        assert report.ran_seconds is None
