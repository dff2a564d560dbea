"""Which tasks a worker may be given beside what they need and what it has: one rule for all stores."""

from __future__ import annotations

from datetime import datetime

from mulligan.core.effects.tasks import Task


def may_run_on(task: Task, host: str, now: datetime) -> bool:
    """Whether a worker of that host may have it: not if it has failed there and still waits for another host."""
    return task.avoids is None or host not in task.avoids.hosts or now >= task.avoids.until


def has_time_for(task: Task, seconds_left: float | None) -> bool:
    """Whether a worker that ends in so many seconds may start it: not if its timeout is longer.

    A task without a timeout may run for ever, so no worker has enough time for it: any may start it.
    """
    return seconds_left is None or task.timeout is None or task.timeout <= seconds_left
