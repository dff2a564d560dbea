"""An executor that runs nothing: each task ends as the test says, in the order the test says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from operator import attrgetter
from typing import Any

from mulligan.core.effects.tasks import Task
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.reports import Report, TaskEnded, TaskInterrupted
from mulligan.ports import Clock, Lease, Offer

# The outcome of a task; None while it continues.
Ends = Callable[[Task], Outcome | None]


def all_well(task: Task) -> Outcome:
    return Outcome(exit_code=0)


class FakeExecutor:
    """Implements `ports.Executor` without processes. `started` lists every lease that was ever started."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        slots: int = 4,
        ends: Ends = all_well,
        host: str = "here",
        output: Callable[[Task], Any] = attrgetter("place"),
    ) -> None:
        self.name = name
        self.host = host
        self.clock = clock
        self.slots = slots
        self.ends = ends
        self.output = output
        self.started: list[Lease] = []
        self.stopped: dict[int, float | None] = {}
        self.reserved = 0.0
        self._running: dict[int, Lease] = {}
        self._interrupted: set[int] = set()

    def fits(self, task: Task) -> bool:
        return self.reserved + task.cpus <= self.slots

    def may_hold(self, task: Task) -> bool:
        return False

    def can_ever_fit(self, task: Task) -> bool:
        return task.cpus <= self.slots

    def missing_resources(self, task: Task) -> str:
        return f"{task.cpus:g} cpus (there are {self.slots:g})"

    def host_of(self, task: Task) -> str:
        return self.host

    def offer(self) -> Offer:
        free = self.slots - self.reserved
        return Offer(free, 2**40, 0, labels=(), host=self.host, tasks_max=int(free))

    def reserve(self, task: Task) -> None:
        self.reserved += task.cpus

    def unreserve(self, task: Task) -> None:
        self.reserved -= task.cpus

    def start(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            self.started.append(lease)
            self._running[lease.token] = lease

    def stop(self, token: int, grace_seconds: float | None) -> None:
        if token in self._running:
            self.stopped[token] = grace_seconds

    def stop_all(self, grace_seconds: float) -> None:
        self._interrupted.update(self._running)

    def drop_all(self) -> None:
        self._running.clear()
        self.reserved = 0.0

    def watch(self, fd: int | None) -> None:
        """This executor never waits."""

    def collect(self, timeout: float | None) -> list[tuple[Lease, Report]]:
        """Return every task whose outcome is known."""
        found = [(lease, self._end(lease, self.clock.now())) for lease in self._running.values()]
        ended = [(lease, report) for lease, report in found if report is not None]
        for lease, _ in ended:
            del self._running[lease.token]
            self.reserved -= lease.task.cpus
        return ended

    def _end(self, lease: Lease, now: datetime) -> Report | None:
        task = lease.task
        if lease.token in self._interrupted:
            return TaskInterrupted(now, task.place, task.attempt)
        if lease.token in self.stopped and self.stopped[lease.token] is not None:
            return TaskEnded(now, task.place, task.attempt, Outcome(signal=15, is_stopped=True))
        outcome = self.ends(task)
        if outcome is None:
            return None
        return TaskEnded(now, task.place, task.attempt, outcome=outcome, output=self.output(task))

    def renew(self, at: float) -> None:
        """This executor has no watchdog."""

    @property
    def must_renew(self) -> bool:
        return False

    @property
    def running(self) -> Collection[Lease]:
        return self._running.values()

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    def close(self) -> None:
        self._running.clear()
