"""An executor for the simulator: runs nothing, and ends a task when the simulator says so."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf

from msgspec.structs import replace

from mulligan.core.effects.lease_rules import HELD_SECONDS_MAX, may_be_held
from mulligan.core.effects.tasks import Task, round_cpus
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.program_calls import Delivery
from mulligan.core.model.reports import CallsMade, LeaseExpired, Report, TaskEnded, TaskInterrupted
from mulligan.errors import StoreUnavailable
from mulligan.ports import Clock, Lease, Offer
from proof.simulator.cluster.simulated_results import SimulatedResults

MEMORY = 2**40


class FakeTasks:
    """Implements `ports.Executor`; the simulator calls `end`.

    With `watchdog_seconds` all tasks are lost if no renewal has come for that long, as with a real supervisor.
    `starting` is called with each task before it runs. `life_seconds`: its worker stops because its time is over.
    `ahead` is how many tasks it holds for a free slot. `results` are earlier results, in place of which a task runs.
    """

    def __init__(
        self,
        name: str,
        host: str,
        clock: Clock,
        slots: float,
        watchdog_seconds: float | None = None,
        starting: Callable[[FakeTasks, Lease], None] = lambda executor, lease: None,
        life_seconds: float | None = None,
        ahead: int = 0,
        results: SimulatedResults | None = None,
    ) -> None:
        self.name = name
        self.host = host
        self.slots = slots
        # The tasks that were stopped, and whether they have a grace period.
        self.stopped: dict[int, float | None] = {}
        self._clock = clock
        self._watchdog_seconds = watchdog_seconds
        self._starting = starting
        self._life_seconds = life_seconds
        self._started_at: dict[int, float] = {}
        self._renewed_at = clock.monotonic()
        self._reserved = 0.0
        self._running: dict[int, Lease] = {}
        self._ahead = ahead
        # The tasks that may wait for a slot, by run, place and attempt; and those that do, oldest first.
        self._reserved_ahead: set[tuple[int, str, int]] = set()
        self._held: dict[int, Lease] = {}
        self._held_since: dict[int, float] = {}
        self._done: list[tuple[Lease, Report]] = []
        self._results = results
        # Programs that have said what they have called and wait for an answer; and the answers, by token.
        self.mid_turn: set[int] = set()
        self.answers: dict[int, tuple[Delivery, ...]] = {}
        # Tasks that have a slot and have not started: the store was not asked for earlier results, or did not answer.
        self._not_ready: set[int] = set()

    # -- resources

    def fits(self, task: Task) -> bool:
        return self._has_slot(task) or self.may_hold(task)

    def _has_slot(self, task: Task) -> bool:
        return self._reserved + task.cpus <= self.slots

    def may_hold(self, task: Task) -> bool:
        return may_be_held(task) and len(self._reserved_ahead) < self._ahead

    def can_ever_fit(self, task: Task) -> bool:
        return task.cpus <= self.slots

    def missing_resources(self, task: Task) -> str:
        return f"{task.cpus:g} cpus (there are {self.slots:g})"

    def host_of(self, task: Task) -> str:
        return self.host

    def offer(self) -> Offer:
        free = self.slots - self._reserved
        ahead = self._ahead - len(self._reserved_ahead) if not 0 < free < 1 else 0
        return Offer(free, MEMORY, 0, labels=(), host=self.host, tasks_max=int(free), ahead=ahead)

    def reserve(self, task: Task) -> None:
        if not self._has_slot(task) and self.may_hold(task):
            self._reserved_ahead.add(_key(task))
        else:
            self._reserved = round_cpus(self._reserved + task.cpus)

    def unreserve(self, task: Task) -> None:
        if _key(task) in self._reserved_ahead:
            self._reserved_ahead.remove(_key(task))
        else:
            self._reserved = round_cpus(self._reserved - task.cpus)

    # -- tasks

    @property
    def running(self) -> Collection[Lease]:
        """The tasks whose end the engine has not collected."""
        return [*self._running.values(), *self._held.values(), *(lease for lease, _ in self._done)]

    @property
    def unfinished(self) -> Collection[Lease]:
        """The tasks that run and have not ended."""
        waiting = self._not_ready | (self.mid_turn - self.stopped.keys())
        if not waiting:
            return self._running.values()
        return [lease for token, lease in self._running.items() if token not in waiting]

    def start(self, leases: Iterable[Lease]) -> None:
        """Start tasks, unless the lease has expired: a supervisor would refuse too."""
        for lease in leases:
            if _key(lease.task) in self._reserved_ahead:
                self._held[lease.token] = lease
                self._held_since[lease.token] = self._clock.monotonic()
                continue
            self._running[lease.token] = lease
            self._not_ready.add(lease.token)
            self._started_at[lease.token] = self._clock.monotonic()
            self._start(lease)

    def _start(self, lease: Lease) -> None:
        """Start a task, unless an earlier result stands for it."""
        found = None
        if self._results is not None and not self._is_expired:
            try:
                found = self._results.find(lease)
            except StoreUnavailable:
                return
        if lease.token not in self._running:
            # It was ended while the store was asked.
            return
        if found is not None:
            self.end(lease, found)
        elif not self._is_expired:
            self._starting(self, lease)
        self._not_ready.discard(lease.token)

    def _start_held(self) -> None:
        """Start tasks that wait for a slot, while there is one and the lease is certain."""
        for lease in list(self._held.values()):
            if self.must_renew or not self._has_slot(lease.task):
                return
            del self._held[lease.token]
            self._reserved_ahead.remove(_key(lease.task))
            self._reserved = round_cpus(self._reserved + lease.task.cpus)
            self.start([lease])

    def _give_back(self, since: float) -> None:
        """Give back the tasks that have waited for a slot since then."""
        for lease in [lease for token, lease in self._held.items() if self._held_since[token] <= since]:
            self.end(lease, TaskInterrupted(self._clock.now(), lease.task.place, lease.task.attempt))

    def token_of(self, run_id: int, place: str) -> int | None:
        """Return the token of the task of this place, unless the supervisor has ended it."""
        tasks = () if self._is_expired else self.unfinished
        return next((one.token for one in tasks if (one.task.run_id, one.task.place) == (run_id, place)), None)

    def stop(self, token: int, grace_seconds: float | None) -> None:
        if token in self._running:
            self.stopped[token] = grace_seconds
        elif token in self._held and grace_seconds is not None:
            task = self._held[token].task
            outcome = Outcome(None, signal=15, is_stopped=True)
            self.end(self._held[token], TaskEnded(self._clock.now(), task.place, task.attempt, outcome))

    def stop_all(self, grace_seconds: float) -> None:
        self._give_back(inf)
        for lease in list(self._running.values()):
            report = TaskInterrupted(self._clock.now(), lease.task.place, lease.task.attempt)
            if self._life_seconds is not None:
                ran = self._clock.monotonic() - self._started_at[lease.token]
                report = replace(report, ran_seconds=min(ran, self._life_seconds), life_seconds=self._life_seconds)
            self.end(lease, report)

    def drop_all(self) -> None:
        self._running.clear()
        self._held.clear()
        self._reserved_ahead.clear()
        self._done.clear()
        self.mid_turn.clear()
        self._not_ready.clear()
        if self._results is not None:
            self._results.clear()
        self._reserved = 0.0

    def say(self, lease: Lease, report: CallsMade) -> None:
        """The engine collects what a program has called, which waits for an answer."""
        self.mid_turn.add(lease.token)
        self._done.append((lease, report))

    def go_on(self, token: int, ends: Sequence[Delivery]) -> None:
        if token in self.mid_turn:
            self.mid_turn.remove(token)
            self.answers[token] = tuple(ends)

    def end_turn(self, token: int) -> None:
        if token in self.mid_turn:
            self.mid_turn.remove(token)
            self.unreserve(self._running.pop(token).task)

    def end(self, lease: Lease, report: Report) -> None:
        """End the task; the engine collects the report."""
        if self._held.pop(lease.token, None) is None:
            del self._running[lease.token]
        self._not_ready.discard(lease.token)
        self.mid_turn.discard(lease.token)
        if self._results is not None:
            report = self._results.record(lease, report)
        self.unreserve(lease.task)
        self._done.append((lease, report))

    def collect(self, timeout: float | None) -> list[tuple[Lease, Report]]:
        if self._is_expired:
            self.lose_all()
        for token in sorted(self._not_ready):
            self._start(self._running[token])
        self._start_held()
        self._give_back(self._clock.monotonic() - HELD_SECONDS_MAX)
        done, self._done = self._done, []
        return done

    @property
    def _is_expired(self) -> bool:
        """Whether no renewal has come for too long."""
        return self._is_older_than(1)

    def lose_all(self) -> None:
        """End everything from outside. What waits for a slot waits on."""
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


def _key(task: Task) -> tuple[int, str, int]:
    return task.run_id, task.place, task.attempt
