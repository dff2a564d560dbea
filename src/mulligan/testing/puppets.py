"""Hands that run nothing and end a task when somebody says so, as that says."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..core.reports import LeaseExpired, Report, TaskInterrupted
from ..core.tasks import Task
from ..ports import Clock, Lease, Offer

MEMORY = 2**40


class Puppets:
    """Makes the promises of `ports.Hands`; `end` is for whoever pulls the strings.

    With `watchdog_seconds` everything is lost when no renewal has come for so long, as a supervisor sees to it.
    """

    def __init__(self, name: str, host: str, clock: Clock, slots: float, watchdog_seconds: float | None = None) -> None:
        self.name = name
        self.host = host
        self.slots = slots
        # The tasks that were asked to end, and whether they may take their time.
        self.stopped: dict[int, float | None] = {}
        self._clock = clock
        self._watchdog_seconds = watchdog_seconds
        self._renewed_at = clock.monotonic()
        self._reserved = 0.0
        self._running: dict[int, Lease] = {}
        self._done: list[tuple[Lease, Report]] = []

    # -- room

    def fits(self, task: Task) -> bool:
        return self._reserved + task.cpus <= self.slots

    def can_ever(self, task: Task) -> bool:
        return task.cpus <= self.slots

    def lacking(self, task: Task) -> str:
        return f"{task.cpus:g} cpus (there are {self.slots:g})"

    def offer(self) -> Offer:
        free = self.slots - self._reserved
        return Offer(free, MEMORY, 0, (), self.host, int(free))

    def reserve(self, task: Task) -> None:
        self._reserved += task.cpus

    def unreserve(self, task: Task) -> None:
        self._reserved -= task.cpus

    # -- tasks

    @property
    def running(self) -> Collection[Lease]:
        return self._running.values()

    def start(self, leases: Iterable[Lease]) -> None:
        self._running.update((lease.token, lease) for lease in leases)

    def stop(self, token: int, grace_seconds: float | None) -> None:
        if token in self._running:
            self.stopped[token] = grace_seconds

    def stop_all(self, grace_seconds: float) -> None:
        for lease in list(self._running.values()):
            self.end(lease, TaskInterrupted(self._clock.now(), lease.task.place, lease.task.attempt))

    def drop_all(self) -> None:
        self._running.clear()
        self._done.clear()
        self._reserved = 0.0

    def end(self, lease: Lease, report: Report) -> None:
        """The task is over: the engine hears of it when it asks next."""
        del self._running[lease.token]
        self._reserved -= lease.task.cpus
        self._done.append((lease, report))

    def collect(self, timeout: float | None) -> list[tuple[Lease, Report]]:
        self._lose_what_was_not_renewed()
        done, self._done = self._done, []
        return done

    def _lose_what_was_not_renewed(self) -> None:
        if self._watchdog_seconds is None or self._clock.monotonic() - self._renewed_at < self._watchdog_seconds:
            return
        for lease in list(self._running.values()):
            self.end(lease, LeaseExpired(self._clock.now(), lease.task.place, lease.task.attempt, self.name))

    def renewed(self) -> None:
        self._renewed_at = self._clock.monotonic()

    def watch(self, fd: int | None) -> None:
        """Nothing here waits."""

    def close(self) -> None:
        self.drop_all()
