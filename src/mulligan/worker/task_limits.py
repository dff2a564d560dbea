"""How many tasks a worker may still take, and how long it has for them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from msgspec.structs import replace

from mulligan.core.effects.lease_rules import has_time_for
from mulligan.core.effects.tasks import Task
from mulligan.ports import Offer


class TaskLimits:
    """The limits of one worker. `until` is a time of `monotonic`, by which its last task has to be over."""

    def __init__(
        self,
        tasks_max: int | None = None,
        until: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tasks_max = tasks_max
        self._until = until
        self._monotonic = monotonic
        # The tasks that were taken, those that have ended included.
        self._taken = 0

    @property
    def is_set(self) -> bool:
        return self._tasks_max is not None or self._until is not None

    @property
    def is_used_up(self) -> bool:
        """Whether as many tasks were taken as may be."""
        return self._tasks_left <= 0

    @property
    def seconds_left(self) -> float | None:
        return None if self._until is None else max(0.0, self._until - self._monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self.seconds_left == 0.0

    def admits(self, task: Task) -> bool:
        """Whether one more task, this one, may be taken."""
        return self._tasks_left > 0 and not self.is_over and has_time_for(task, self.seconds_left)

    def narrow(self, offer: Offer) -> Offer:
        """The offer of a worker with these limits."""
        if not self.is_set:
            return offer
        tasks_max = 0 if self.is_over else int(max(0, min(offer.tasks_max, self._tasks_left)))
        return replace(offer, tasks_max=tasks_max, seconds_left=self.seconds_left)

    def take(self) -> None:
        """Count a task that is taken."""
        self._taken += 1

    def give_back(self) -> None:
        """Do not count a task that was not leased after all."""
        self._taken -= 1

    @property
    def _tasks_left(self) -> float:
        return math.inf if self._tasks_max is None else self._tasks_max - self._taken
