"""An executor for the simulator: runs nothing, and ends a task when the simulator says so."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from mulligan.core.effects.tasks import Task
from mulligan.core.model.reports import LeaseExpired, Report, TaskInterrupted
from mulligan.ports import Clock, Lease, Offer

MEMORY = 2**40


class FakeTasks:
    """Implements `ports.Executor`; the simulator calls `end`.

    With `watchdog_seconds` all tasks are lost if no renewal has come for that long, as with a real supervisor.
    `starting` is called with each task before it runs.
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
        # The tasks that were stopped, and whether they have a grace period.
        self.stopped: dict[int, float | None] = {}
        self._clock = clock
        self._watchdog_seconds = watchdog_seconds
        self._starting = starting
        self._renewed_at = clock.monotonic()
        self._reserved = 0.0
        self._running: dict[int, Lease] = {}
        self._done: list[tuple[Lease, Report]] = []

    # -- resources

    def fits(self, task: Task) -> bool:
        return self._reserved + task.cpus <= self.slots

    def can_ever_fit(self, task: Task) -> bool:
        return task.cpus <= self.slots

    def missing_resources(self, task: Task) -> str:
        return f"{task.cpus:g} cpus (there are {self.slots:g})"

    def offer(self) -> Offer:
        free = self.slots - self._reserved
        return Offer(free, MEMORY, 0, labels=(), host=self.host, tasks_max=int(free))

    def reserve(self, task: Task) -> None:
        self._reserved += task.cpus

    def unreserve(self, task: Task) -> None:
        self._reserved -= task.cpus

    # -- tasks

    @property
    def running(self) -> Collection[Lease]:
        """The tasks whose end the engine has not collected."""
        return [*self._running.values(), *(lease for lease, _ in self._done)]

    @property
    def unfinished(self) -> Collection[Lease]:
        """The tasks that have not ended."""
        return self._running.values()

    def start(self, leases: Iterable[Lease]) -> None:
        """Start tasks, unless the lease has expired: a supervisor would refuse too."""
        for lease in leases:
            if not self._is_expired:
                self._starting(self, lease)
            self._running[lease.token] = lease

    def token_of(self, run_id: int, place: str) -> int | None:
        """Return the token of the task of this place, unless the supervisor has ended it."""
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
        """End the task; the engine collects the report."""
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
        """End everything from outside."""
        for lease in list(self._running.values()):
            self.end(lease, LeaseExpired(self._clock.now(), lease.task.place, lease.task.attempt, self.name))

    def renew(self, at: float) -> None:
        self._renewed_at = at

    @property
    def must_renew(self) -> bool:
        return self._is_older_than(1 / 2)

    def _is_older_than(self, share: float) -> bool:
        """Whether no renewal has come for this share of the watchdog's time."""
        limit = self._watchdog_seconds
        return limit is not None and self._clock.monotonic() - self._renewed_at >= limit * share

    def watch(self, fd: int | None) -> None:
        """This executor never waits."""

    def close(self) -> None:
        self.drop_all()
