"""What remains of an offer while tasks are leased."""

from __future__ import annotations

from msgspec.structs import replace

from mulligan.core.effects.lease_rules import ahead_share, has_nodes_for, may_be_held
from mulligan.core.effects.tasks import Task
from mulligan.ports import Offer


class RemainingCapacity:
    """Subtracts leased tasks from the capacity that a worker has offered."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._cpus, self._memory, self._gpus = offer.cpus, offer.memory, offer.gpus
        self._tasks = offer.tasks_max
        self._ahead = 0
        # A task that asks for several nodes gets them only while no other task has any.
        self._is_whole = True

    @property
    def is_full(self) -> bool:
        return self._tasks < 1

    def fits(self, cpus: float, memory: int, gpus: int, nodes: int = 1) -> bool:
        """Whether one more task with these needs fits."""
        if not has_nodes_for(nodes, self._offer.nodes, self._offer.nodes_min, is_idle=self._is_whole):
            return False
        is_refused = cpus in self._offer.refused_cpus
        return not (is_refused or self.is_full or cpus > self._cpus or memory > self._memory or gpus > self._gpus)

    def allow_ahead(self, queued: int) -> None:
        """Note how many tasks wait in the store: that limits what may be leased ahead."""
        self._ahead = ahead_share(queued - self._offer.tasks_max, self._offer.ahead)

    def may_hold(self, task: Task) -> bool:
        """Whether one more task that does not fit may be leased ahead."""
        return self._ahead > 0 and self._offer.nodes_min <= 1 and may_be_held(task)

    def hold(self) -> None:
        """Count a task that is leased ahead."""
        self._ahead -= 1

    def take(self, cpus: float, memory: int, gpus: int, nodes: int = 1) -> None:
        """Subtract a task that fits. One that asks for several nodes takes everything."""
        self._is_whole = False
        if nodes > 1:
            self._tasks = 0
            return
        self._cpus, self._memory, self._gpus = self._cpus - cpus, self._memory - memory, self._gpus - gpus
        self._tasks -= 1

    @property
    def rest(self) -> Offer:
        """The remaining offer."""
        nodes = self._offer.nodes if self._is_whole else 1
        left = {
            "cpus": self._cpus,
            "memory": self._memory,
            "gpus": self._gpus,
            "tasks_max": self._tasks,
            "nodes": nodes,
            "ahead": 0,
        }
        return replace(self._offer, **left)
