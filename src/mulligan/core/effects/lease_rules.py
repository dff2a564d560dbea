"""Which tasks a worker may be given beside what they need and what it has: one rule for all stores.

A worker may lease tasks *ahead*: before it has a slot for them, so that a slot that becomes free never waits for the
store. Only short tasks, only where many wait, and not for long.
"""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime

from mulligan.core.effects.tasks import Task


def may_run_on(task: Task, host: str, now: datetime, lacks: Container[str] = ()) -> bool:
    """Whether a worker of that host may have it: not if it has failed there and still waits for another host.

    Nor if it works in a folder that the host `lacks`.
    """
    is_avoided = task.avoids is not None and host in task.avoids.hosts and now < task.avoids.until
    return not is_avoided and task.home not in lacks


def is_run_due(task: Task, now: datetime) -> bool:
    """Whether the time of its run is up, so that it must not start, as far as the task knows.

    A pause moves that time. So if it has passed, the store looks for the timer of the run: if that is due later, the
    task may start. If it is due, or has fired, the run will be stopped as soon as somebody drives it.
    """
    return task.run_due is not None and now >= task.run_due


def has_nodes_for(asked: int, nodes: int, nodes_min: int, *, is_idle: bool) -> bool:
    """Whether a worker whose allocation has so many nodes may run a task that asks for some: all of them are its own.

    `nodes_min`: what the worker is for. The nodes of an allocation would be idle while small tasks run on the first.
    """
    return nodes_min <= asked <= (nodes if is_idle else 1)


def has_time_for(task: Task, seconds_left: float | None) -> bool:
    """Whether a worker that ends in so many seconds may start it: not if its timeout, or what it has shown, is longer.

    A task without a timeout may run for ever, so no worker has enough time for it: any may start it, until the end of
    one has interrupted it.
    """
    return seconds_left is None or task.seconds_needed <= seconds_left


# How many tasks a worker may hold for each of its slots, by what tasks have taken on average: the longer they take, the
# longer one that is held has to wait, and the less a slot gains by it.
_HELD_PER_SLOT = ((0.01, 6), (0.05, 2), (0.2, 1))
# Of the tasks that wait, a worker leaves so many times as many to others as it leases ahead.
_LEFT_TO_OTHERS = 3
# A task that was held so long for a slot is given back: another worker may be idle.
HELD_SECONDS_MAX = 1.0


def may_be_held(task: Task) -> bool:
    """Whether a worker may lease it before it has a slot for it.

    It must fit into the slot of any other task, and cost nothing if the worker dies before it has started it. The
    breaker of a guarded task is asked when it is leased: that must be when it starts.
    """
    return task.cpus == 1.0 and task.is_small and not task.is_careful and task.guard is None


def held_max(slots: int, average_seconds: float | None) -> int:
    """How many tasks a worker may hold beyond its slots: none while it does not know how long tasks take."""
    if average_seconds is None:
        return 0
    return next((slots * count for seconds, count in _HELD_PER_SLOT if average_seconds < seconds), 0)


def ahead_share(queued: int, wanted: int) -> int:
    """How many of the queued tasks may be leased ahead: most of them are left to workers that have a slot."""
    return max(0, min(wanted, queued // (1 + _LEFT_TO_OTHERS)))
