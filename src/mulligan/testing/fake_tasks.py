"""Hands that run nothing and end a task when somebody says so, as that says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from mulligan.core.effects.tasks import Task
from mulligan.core.model.reports import LeaseExpired, Report, TaskInterrupted
from mulligan.ports import Clock, Lease, Offer

MEMORY = 2**40


class FakeTasks:
    """Makes the promises of `ports.Hands`; `end` is for whoever pulls the strings.

    With `watchdog_seconds` everything is lost when no renewal has come for so long, as a supervisor sees to it.
    `starting` is told of each task before it runs.
    """

    def __init__(
        self,
        name: str,
        host: str,
        clock: Clock,
        slots: float,
        watchdog_seconds: float | None = None,
        starting: Callable[[FakeTasks, Lease], None] = lambda executor, lease: None,
    ) -> None:
        self.name = name
        self.host = host
        self.slots = slots
        # The tasks that were asked to end, and whether they may take their time.
        self.stopped: dict[int, float | None] = {}
        self._clock = clock
        self._watchdog_seconds = watchdog_seconds
        self._starting = starting
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
        """Those that the engine has not heard the end of."""
        return [*self._running.values(), *(lease for lease, _ in self._done)]

    @property
    def unfinished(self) -> Collection[Lease]:
        """Those that have not ended."""
        return self._running.values()

    def start(self, leases: Iterable[Lease]) -> None:
        """What was ordered when the lease had run out is never started: the supervisor sees to it."""
        for lease in leases:
            if not self._is_expired:
                self._starting(self, lease)
            self._running[lease.token] = lease

    def token_of(self, run_id: int, place: str) -> int | None:
        """Of the task of this place that runs here; not of one that the supervisor has ended, known to us or not."""
        tasks = () if self._is_expired else self._running.values()
        return next((one.token for one in tasks if (one.task.run_id, one.task.place) == (run_id, place)), None)

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
        if self._is_expired:
            self.lose_all()
        done, self._done = self._done, []
        return done

    @property
    def _is_expired(self) -> bool:
        """Whether no renewal has come for too long."""
        return self._is_older_than(1)

    def lose_all(self) -> None:
        """Everything that runs is ended from outside."""
        for lease in list(self._running.values()):
            self.end(lease, LeaseExpired(self._clock.now(), lease.task.place, lease.task.attempt, self.name))

    def renewed(self, at: float) -> None:
        self._renewed_at = at

    @property
    def must_renew(self) -> bool:
        return self._is_older_than(1 / 2)

    def _is_older_than(self, share: float) -> bool:
        """Whether no renewal has come for this share of what the supervisor allows."""
        limit = self._watchdog_seconds
        return limit is not None and self._clock.monotonic() - self._renewed_at >= limit * share

    def watch(self, fd: int | None) -> None:
        """Nothing here waits."""

    def close(self) -> None:
        self.drop_all()
