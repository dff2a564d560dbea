"""What is written instead of a turn that has met a bug: less of a result, or the end of the run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from msgspec.structs import replace

from mulligan.core.deciding.report_checks import RESULTS, check_report
from mulligan.core.effects.effects import StopTask
from mulligan.core.model import reports as r
from mulligan.core.model.artifacts import referenced_places
from mulligan.core.model.outcome import Outcome
from mulligan.core.state.state import Run, State
from mulligan.errors import InputInvalid, RunFinished
from mulligan.ports import Answer, ChildReport, RunRecord

# For whoever sent what could not be processed, and whoever sent something to a run that was ended by force.
REPORT_IT = "this is a bug in Mulligan: please report it with the output of 'mulligan doctor'"
OVER = Answer(RunFinished.code, "the run was ended", "")


def without_content(
    report: r.Report | None, reason: str, check_places: Callable[[set[str]], None] = lambda places: None
) -> r.Report | None:
    """A result that says less, and that its task has failed; None if all that it says is possible: the bug is ours.

    `check_places` raises InputInvalid for places of objects that it may not refer to.
    """
    if not isinstance(report, RESULTS):
        return None
    try:
        check_report(report)
        if places := referenced_places(report):
            check_places(places)
    except InputInvalid as error:
        said = f"its result cannot be taken up: {error.message}"
    else:
        return None
    if isinstance(report, r.TaskEnded):
        return r.TaskEnded(report.at, report.place, report.attempt, Outcome(output_error=f"{said} ({reason})"))
    if isinstance(report, r.ChildEnded):
        return replace(report, status="failed", outputs={}, failures=(), usage={}, reason=said, undo_failed=())
    if isinstance(report, r.LeaseExpired):
        return r.LeaseExpired(report.at, report.place, report.attempt, report.worker)
    return r.TaskInterrupted(report.at, report.place, report.attempt)


def running_tasks(state: State) -> list[StopTask]:
    """A request to kill each task that may still run."""
    active = (place for place in state.places.values() if place.status in ("ready", "running"))
    return [StopTask(place.key, place.attempt, 0.0) for place in active]


def to_parent(record: RunRecord, run: Run | None, reason: str, now: datetime) -> list[tuple[int, r.Report]]:
    """What the parent of a run that was ended by force hears, if it has one. No `run`: it cannot be read."""
    if record.parent_run_id is None:
        return []
    ended = r.ChildEnded(
        at=now,
        place=record.parent_place,
        attempt=(run.called_attempt if run is not None else None) or record.parent_attempt,
        child_run_id=record.run_id,
        status="failed" if run is not None and run.status == "failed" else "cancelled",
        reason=reason,
        round=run.round if run is not None else record.round,
    )
    return [(record.parent_run_id, ended)]


def to_children(record: RunRecord, now: datetime) -> ChildReport:
    """What the child runs of a run that was ended by force hear."""
    return ChildReport(r.CancelRequested(now, f"run {record.run_id}", "its parent was ended", now=True))
