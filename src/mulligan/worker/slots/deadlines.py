"""How much time a task has left."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

from mulligan.core.effects.tasks import Task
from mulligan.core.model.actions import traits
from mulligan.core.model.reports import Report
from mulligan.ports import Clock, Lease
from mulligan.worker.supervisor import wall_clock


def with_local_deadline(lease: Lease, clock: Clock | None) -> Lease:
    """Return the lease with its deadline converted to the clock of this machine's processes."""
    deadline = lease.task.deadline
    if clock is None or deadline is None:
        return lease
    here = datetime.fromtimestamp(wall_clock.now(), UTC) + (deadline - clock.now())
    return replace(lease, task=replace(lease.task, deadline=here))


def without_limits(lease: Lease) -> Lease:
    """Return the lease of a step in Python without limits of time: somebody debugs it, for as long as that takes."""
    if not traits(lease.task.kind, lease.task.params).runs_python:
        return lease
    return replace(lease, task=replace(lease.task, timeout=None, deadline=None))


def with_local_time(report: Report, clock: Clock | None) -> Report:
    """Return the report with the time of this clock."""
    return report if clock is None else replace(report, at=clock.now())


def seconds_left(task: Task) -> float | None:
    """Return the shorter of its timeout and what is left of its visit; None if there is no limit."""
    left = visit_seconds_left(task)
    return task.timeout if left is None else left if task.timeout is None else min(left, task.timeout)


def visit_seconds_left(task: Task) -> float | None:
    """Return what is left of its visit; None if that has no deadline."""
    return None if task.deadline is None else max(0.0, task.deadline.timestamp() - wall_clock.now())


def is_past_deadline(task: Task, started: float) -> bool:
    """Whether a task that started then and timed out ran into the deadline of its visit, not its own timeout."""
    if task.deadline is None:
        return False
    return task.timeout is None or task.deadline.timestamp() < started + task.timeout
