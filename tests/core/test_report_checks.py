"""Reports that no run could make sense of, whoever sends them."""

from __future__ import annotations

import pytest

from mulligan.core.deciding.report_checks import MACHINE_CHARS_MAX, check_report
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import LeaseExpired, Report, TaskEnded, TaskInterrupted
from mulligan.core.model.scheduler_job import JobEnd, WorkerJob
from mulligan.errors import InputInvalid
from mulligan.testing.clock import START

LONG = "x" * (MACHINE_CHARS_MAX + 1)


@pytest.mark.parametrize(
    "report",
    [
        TaskEnded(START, "build", 1, Outcome(machine=LONG)),
        TaskEnded(START, "build", 1, Outcome(lacks_folder=LONG)),
        TaskEnded(START, "build", 1, Outcome(code=LONG)),
        TaskEnded(START, "build", 1, job=WorkerJob(LONG)),
        TaskInterrupted(START, "build", 1, reason=LONG),
        LeaseExpired(START, "build", 1, job=JobEnd(WorkerJob(LONG))),
    ],
    ids=["machine", "folder", "code", "job", "reason", "job that is gone"],
)
def test_what_a_worker_says_of_its_machine_is_bounded(report: Report) -> None:
    with pytest.raises(InputInvalid):
        check_report(report)


def test_what_a_step_says_is_cut_and_not_refused() -> None:
    check_report(TaskEnded(START, "build", 1, Outcome(message=LONG, stderr_tail=LONG), output=LONG))
