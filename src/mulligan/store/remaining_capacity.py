"""What remains of an offer while tasks are leased."""

from __future__ import annotations

from msgspec.structs import replace

from mulligan.ports import Offer


class RemainingCapacity:
    """Subtracts leased tasks from the capacity that a worker has offered."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._cpus, self._memory, self._gpus = offer.cpus, offer.memory, offer.gpus
        self._tasks = offer.tasks_max

    @property
    def is_full(self) -> bool:
        return self._tasks < 1

    def fits(self, cpus: float, memory: int, gpus: int) -> bool:
        """Whether one more task with these needs fits."""
        is_refused = cpus in self._offer.refused_cpus
        return not (is_refused or self.is_full or cpus > self._cpus or memory > self._memory or gpus > self._gpus)

    def take(self, cpus: float, memory: int, gpus: int) -> None:
        """Subtract a task that fits."""
        self._cpus, self._memory, self._gpus = self._cpus - cpus, self._memory - memory, self._gpus - gpus
        self._tasks -= 1

    @property
    def rest(self) -> Offer:
        """The remaining offer."""
        left = {"cpus": self._cpus, "memory": self._memory, "gpus": self._gpus, "tasks_max": self._tasks}
        return replace(self._offer, **left)
