"""Somebody in a simulated world who sees what no store keeps: which tasks run where, whose word a store took, who
looked for the dead.

A promise that does not hold is noted in `complaints` and raised by the world: an engine would take an error that is
raised inside of it for one of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec

from mulligan.core.deciding.breaker import Guard, GuardedOutcome, breaker_verdict
from mulligan.core.model.reports import Report
from mulligan.ports import Clock, Commit, Committed, Lease, Store, WorkerRecord
from mulligan.testing.databases import Database
from mulligan.testing.fake_tasks import FakeTasks
from mulligan.testing.store_contents import HeldBreaker, StoreContents, TimerKey
from mulligan.testing.timer_checks import Timed, Timekeeper

# How far apart two heartbeats of a process may be, as a share of the lease, before it judges nobody for a lease.
GAP_SHARE_MAX = 1 / 2


class Search(msgspec.Struct, frozen=True):
    """Somebody looks for the dead: whom there is to be found by their locks, and at what time.

    Without a time nobody is to be found by the age of a heartbeat: whoever looks was cut off from the store itself.
    """

    dead: frozenset[str]
    at: datetime | None


class Outage(msgspec.Struct, frozen=True):
    """Nobody could reach the store."""

    began: datetime
    ended: datetime


class ExecutionRecorder:
    """Sees every task that is started, every report about a lease, and every search for the dead that came to its end.

    `lease_seconds`: how old a heartbeat may be, in a store where heartbeats count.
    """

    def __init__(self, database: Database, lease_seconds: float | None, timekeeper: Timekeeper | None = None) -> None:
        self.complaints: list[str] = []
        self.timekeeper = timekeeper
        self.leased = database.leased
        self._database = database
        self._lease = None if lease_seconds is None else timedelta(seconds=lease_seconds)
        # All that have ever run something, also those of processes that are dead: what they left runs on.
        self._executor: list[FakeTasks] = []
        self._started: set[tuple[int, int, str, int]] = set()
        self._known_dead: set[str] = set()
        self._searched_at: datetime | None = None
        self._outages: list[Outage] = []

    # -- tasks that run ----------------------------------------------------------------------------------------------

    def watch(self, executor: FakeTasks) -> None:
        self._executor.append(executor)

    def starting(self, executor: FakeTasks, lease: Lease) -> None:
        """Hands are about to start a task."""
        self._promise_4_a_lease_is_started_once(lease)
        self._promise_4_attempts_never_overlap_on_one_host(executor, lease)
        self._started.add(_known_by(lease))

    def _promise_4_a_lease_is_started_once(self, lease: Lease) -> None:
        if _known_by(lease) in self._started:
            self.complaints.append(f"promise 4: {_told(lease)} was started twice with one lease")

    def _promise_4_attempts_never_overlap_on_one_host(self, executor: FakeTasks, lease: Lease) -> None:
        for other in self._executor:
            token = other.token_of(lease.task.run_id, lease.task.place) if other.host == executor.host else None
            if token is not None:
                self.complaints.append(
                    f"promise 4: {_told(lease)} starts on {executor.host}, where {other.name} runs it"
                )

    def end_leftovers(self, name: str) -> None:
        """What a worker left running on its host is ended."""
        for executor in self._executor:
            if executor.name == name:
                executor.lose_all()

    # -- whose word counts -------------------------------------------------------------------------------------------

    def beside(self, store: Store, clock: Clock, process: Timed | None = None) -> Store:
        """The same store, with somebody who listens to what this process says. `clock` is the common one."""
        return cast(Store, _Overheard(store, self, clock, process))

    def promise_2_a_void_lease_is_not_heard(self, tokens: Collection[int], leased: Collection[int]) -> None:
        """Asked when the store has taken a report about these leases, and there were those just before."""
        void = [token for token in tokens if token not in leased]
        if void:
            self.complaints.append(f"promise 2: a report about lease {void[0]} was taken, and there was no such lease")

    def timers(self) -> dict[TimerKey, datetime]:
        return dict(self._database.look().timers)

    def breakers(self) -> dict[str, HeldBreaker]:
        return {breaker.name: breaker for breaker in self._database.look().breakers}

    def promise_7_what_fails_in_a_row_opens_a_breaker(
        self, counted: Sequence[GuardedOutcome], before: Mapping[str, HeldBreaker]
    ) -> None:
        """Asked when the store has taken these outcomes. Of one that is not closed only its probe counts."""
        after = self.breakers() if counted else {}
        for name in sorted({one.guard.name for one in counted}):
            was = before.get(name, _CLOSED)
            wanted = _counted(was.failures, [one for one in counted if one.guard.name == name])
            now = after.get(name, _CLOSED)
            if was.status == "closed" and (now.status, now.failures) != wanted:
                found = f"{now.status} after {now.failures} failures in a row"
                self.complaints.append(
                    f"promise 7: breaker '{name}' is {found}, and would be {wanted[0]} after {wanted[1]}"
                )

    # -- the dead ----------------------------------------------------------------------------------------------------

    def has_searched(self, search: Search) -> None:
        """Somebody has looked for the dead, and nothing came in between."""
        self._known_dead |= search.dead
        if search.at is not None:
            self._searched_at = max(search.at, self._searched_at or search.at)

    def outage(self, outage: Outage) -> None:
        """An outage has ended. One that is shorter than a lease makes no heartbeat too old."""
        if self._lease is not None and outage.ended - outage.began >= self._lease:
            self._outages.append(outage)

    def heartbeats(self) -> dict[str, datetime]:
        """When each worker was last heard of."""
        return dict(self._database.look().workers)

    def promise_7_an_outage_makes_nobody_dead(self, name: str, beat_at: datetime, now: datetime) -> None:
        """Asked when somebody has buried a worker for the age of its heartbeat."""
        for outage in self._outages:
            since = now - outage.ended
            if beat_at <= outage.ended and self._lease is not None and since < self._lease:
                self.complaints.append(
                    f"promise 7: {name} was buried {since.total_seconds():g}s after an outage of the store, in which "
                    "nobody could send a heartbeat"
                )

    def see(self, held: StoreContents) -> None:
        self._promise_7_the_dead_are_buried_by_who_looks(held)

    def _promise_7_the_dead_are_buried_by_who_looks(self, held: StoreContents) -> None:
        """Those whose locks are free, and where heartbeats count those whose last one is too old."""
        for name in sorted(held.workers.keys() & self._known_dead):
            self.complaints.append(f"promise 7: {name} is dead, somebody has looked, and it was not buried")
        if self._lease is None or self._searched_at is None:
            return
        for name, beat_at in held.workers.items():
            if beat_at < self._searched_at - self._lease:
                self.complaints.append(f"promise 7: {name} has not been heard of since {beat_at}, and was not buried")


class _Overheard:
    """Passes every call on. What is said about leases is held against those that there are."""

    def __init__(self, store: Store, recorder: ExecutionRecorder, clock: Clock, process: Timed | None) -> None:
        self._store = store
        self._recorder = recorder
        self._clock = clock
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def fire_timers(self, *args: Any, **named: Any) -> int:
        timekeeper = self._recorder.timekeeper
        if self._process is None or timekeeper is None:
            return self._store.fire_timers(*args, **named)
        before = self._recorder.timers()
        count = self._store.fire_timers(*args, **named)
        if count:
            timekeeper.fired(before, self._recorder.timers(), self._process.clock)
        return count

    def bury(self, name: str, *, is_dead: bool = False) -> bool:
        beat_at = self._recorder.heartbeats().get(name)
        is_buried = self._store.bury(name, is_dead=is_dead)
        if is_buried and not is_dead and beat_at is not None:
            self._recorder.promise_7_an_outage_makes_nobody_dead(name, beat_at, self._clock.now())
        return is_buried

    def report(self, token: int, report: Report, *, guard: Guard | None = None) -> None:
        recorder = self._recorder
        counted = [] if guard is None else [GuardedOutcome(token, guard, breaker_verdict(report, guard))]
        leased, breakers = recorder.leased(), recorder.breakers() if counted else {}
        self._store.report(token, report, guard=guard)
        recorder.promise_2_a_void_lease_is_not_heard([token], leased)
        recorder.promise_7_what_fails_in_a_row_opens_a_breaker(counted, breakers)

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        recorder = self._recorder
        ended = [token for commit in commits for token in commit.ended]
        counted = [one for commit in commits for one in commit.counted]
        leased, breakers = recorder.leased() if ended else set(), recorder.breakers() if counted else {}
        written = self._store.commit(commits)
        if self._process is not None and recorder.timekeeper is not None:
            recorder.timekeeper.written(commits, self._process)
        recorder.promise_2_a_void_lease_is_not_heard(ended, leased)
        recorder.promise_7_what_fails_in_a_row_opens_a_breaker(counted, breakers)
        return written


class Heartbeats:
    """Passes every call on, and notes how long the heartbeats of one process have been accepted without a gap.

    Written apart from `core.heartbeats`, which it is held against: what the process could see, by its own clock.
    """

    def __init__(self, store: Store, clock: Clock, lease_seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease_seconds
        # When the first one of the series was accepted, and when the last one was sent.
        self._times: list[float] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        setattr(self, name, found)
        return found

    def register(self, worker: WorkerRecord) -> None:
        self._store.register(worker)
        self._times = [self._clock.elapsed()]

    def beat(self, name: str) -> bool:
        sent = self._clock.elapsed()
        is_known = self._store.beat(name)
        if is_known and self._times:
            if self._is_cut_off:
                self._times = [self._clock.elapsed()]
            self._times = [self._times[0], sent]
        return is_known

    @property
    def are_steady(self) -> bool:
        """Whether they have been accepted for longer than a lease until now."""
        if not self._times or self._is_cut_off:
            return False
        return self._clock.elapsed() - self._times[0] > self._lease

    @property
    def _is_cut_off(self) -> bool:
        """Whether the last one was sent too long ago."""
        return self._clock.elapsed() - self._times[-1] > self._lease * GAP_SHARE_MAX


_CLOSED = HeldBreaker("", "closed", None)


def _counted(failures: int, outcomes: Sequence[GuardedOutcome]) -> tuple[str, int]:
    """What a closed breaker with so many failures in a row is after these outcomes."""
    for one in outcomes:
        if one.verdict == "success":
            failures = 0
        elif one.verdict == "failure":
            failures += 1
            if failures >= one.guard.rules.failures:
                return "open", failures
    return "closed", failures


def _known_by(lease: Lease) -> tuple[int, int, str, int]:
    return lease.token, lease.task.run_id, lease.task.place, lease.task.attempt


def _told(lease: Lease) -> str:
    return f"attempt {lease.task.attempt} of '{lease.task.place}' in run {lease.task.run_id}"
