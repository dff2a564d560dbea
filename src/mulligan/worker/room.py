"""The room that a worker has: cpus, memory, gpus and labels, and what is taken of them."""

from __future__ import annotations

from ..core.tasks import Task
from ..ports import Offer

# Sums of shares such as 0.1 are never exact.
_EPSILON = 1e-9


class Room:
    """Counts what is taken. A task is counted from its reservation until its end is told."""

    def __init__(self, cpus: float, memory: int, gpus: int, labels: tuple[str, ...]) -> None:
        self.cpus = cpus
        self.memory = memory
        self.gpus = gpus
        self.labels = labels
        self._cpus_taken = 0.0
        self._memory_taken = 0
        self._gpus_taken = 0

    def can_ever(self, task: Task) -> bool:
        return (
            task.cpus <= self.cpus + _EPSILON
            and (task.memory or 0) <= self.memory
            and task.gpus <= self.gpus
            and set(task.labels) <= set(self.labels)
        )

    def fits(self, task: Task) -> bool:
        return (
            self._cpus_taken + task.cpus <= self.cpus + _EPSILON
            and self._memory_taken + (task.memory or 0) <= self.memory
            and self._gpus_taken + task.gpus <= self.gpus
            and (not task.labels or set(task.labels) <= set(self.labels))
        )

    def take(self, task: Task) -> None:
        self._count(task, 1)

    def give_back(self, task: Task) -> None:
        self._count(task, -1)

    def offer(self, host: str) -> Offer:
        cpus = max(0.0, self.cpus - self._cpus_taken)
        memory = max(0, self.memory - self._memory_taken)
        gpus = max(0, self.gpus - self._gpus_taken)
        return Offer(cpus, memory, gpus, self.labels, host, tasks_max=int(cpus + _EPSILON))

    def _count(self, task: Task, sign: int) -> None:
        self._cpus_taken += sign * task.cpus
        self._memory_taken += sign * (task.memory or 0)
        self._gpus_taken += sign * task.gpus
