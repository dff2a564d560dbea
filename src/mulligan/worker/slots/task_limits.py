"""How many tasks a worker may still take, and how long it has for them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from msgspec.structs import replace

from mulligan.core.effects.lease_rules import has_time_for
from mulligan.core.effects.tasks import Task
from mulligan.ports import Offer

# A job that is ended with less than this share of its time left is ended because of its time.
_NEAR_SHARE = 0.1


class TaskLimits:
    """The limits of one worker. Times are those of `monotonic`.

    `until`: by then its last task has to be over. `job_until`: then the scheduler ends the job of a worker that has no
    end of its own. It does not end before, but takes no task that would not be over by then.
    """

    def __init__(
        self,
        tasks_max: int | None = None,
        until: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        job_until: float | None = None,
    ) -> None:
        self._tasks_max = tasks_max
        self._until = until
        self._job_until = job_until if until is None else None
        self._monotonic = monotonic
        # How long the worker has for tasks, from its beginning on.
        self.life_seconds = self.seconds_left
        # The tasks that were taken, those that have ended included.
        self._taken = 0
        # Whether it was asked to take no more.
        self.is_finishing = False

    @property
    def is_set(self) -> bool:
        return self._tasks_max is not None or self._last_moment is not None or self.is_finishing

    @property
    def is_used_up(self) -> bool:
        """Whether as many tasks were taken as may be."""
        return self._tasks_left <= 0

    @property
    def seconds_left(self) -> float | None:
        return None if self._last_moment is None else max(0.0, self._last_moment - self._monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the time of the worker is over, so that it ends by itself."""
        return self._until is not None and self._until <= self._monotonic()

    @property
    def ends_life(self) -> bool:
        """Whether a worker that ends now does so because its time, or that of its job, is over.

        A scheduler may send its signal a while before the end of a job.
        """
        left, life = self.seconds_left, self.life_seconds
        is_near = self._job_until is not None and left is not None and life is not None and left <= life * _NEAR_SHARE
        return self.is_over or is_near

    @property
    def _last_moment(self) -> float | None:
        return self._job_until if self._until is None else self._until

    def admits(self, task: Task) -> bool:
        """Whether one more task, this one, may be taken."""
        if self._tasks_max is None and self._until is None and self._job_until is None and not self.is_finishing:
            return True
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
        if self.is_finishing:
            return 0.0
        return math.inf if self._tasks_max is None else self._tasks_max - self._taken
