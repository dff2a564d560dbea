"""Reports that no run could make sense of, whoever sends them."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.deciding.report_checks import MACHINE_CHARS_MAX, PARTS_MAX, check_report
from mulligan.core.model.artifacts import KEY
from mulligan.core.model.clusters.scheduler_job import JobEnd, WorkerJob
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import LeaseExpired, Report, TaskEnded, TaskInterrupted
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
        TaskEnded(START, "build", 1, made_of={LONG: "0"}),
        TaskEnded(START, "build", 1, made_of={str(n): "0" for n in range(PARTS_MAX + 1)}),
    ],
    ids=["machine", "folder", "code", "job", "reason", "job that is gone", "part", "parts"],
)
def test_what_a_worker_says_of_its_machine_is_bounded(report: Report) -> None:
    with pytest.raises(InputInvalid):
        check_report(report)


def test_what_a_step_says_is_cut_and_not_refused() -> None:
    check_report(TaskEnded(START, "build", 1, Outcome(message=LONG, stderr_tail=LONG), output=LONG))


REFERENCE = {KEY: {"name": "7/build/1/out", "size": 1, "sha256": "0" * 64, "format": "text"}}
NO_REFERENCES: tuple[dict[str, Any], ...] = (
    *({KEY: "x"}, {KEY: {"name": "../out", "size": 1, "sha256": ""}}, {KEY: {**REFERENCE[KEY], "size": -1}}),
)


@pytest.mark.parametrize("value", NO_REFERENCES)
def test_what_looks_like_a_reference_is_one(value: dict[str, Any]) -> None:
    """Whoever looks at the run follows it."""
    forged = [
        TaskEnded(START, "build", 1, output={"deep": [value]}),
        TaskEnded(START, "build", 1, data={"x": value}),
        TaskEnded(START, "build", 1, artifacts=(value,)),
    ]

    for report in (*forged, TaskEnded(START, "build", 1, artifacts=(REFERENCE[KEY],))):
        with pytest.raises(InputInvalid):
            check_report(report)
    check_report(TaskEnded(START, "build", 1, output=[REFERENCE], data={"x": REFERENCE}, artifacts=(REFERENCE,)))
