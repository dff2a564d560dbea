"""Which tasks a worker may be given beside what they need and what it has: one rule for all stores."""

from __future__ import annotations

from mulligan.core.effects.tasks import Task


def has_time_for(task: Task, seconds_left: float | None) -> bool:
    """Whether a worker that ends in so many seconds may start it: not if its timeout is longer.

    A task without a timeout may run for ever, so no worker has enough time for it: any may start it.
    """
    return seconds_left is None or task.timeout is None or task.timeout <= seconds_left
