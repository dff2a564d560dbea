"""Record what the store of a simulated cluster does not: running tasks, accepted reports, searches for dead workers.

A violated invariant is added to `violations` and raised by the cluster: an engine would handle an error that is
raised inside it as one of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec

from mulligan.core.deciding.breaker import Guard, GuardedOutcome, breaker_verdict
from mulligan.core.effects.tasks import Task
from mulligan.core.model import events as e
from mulligan.core.model.reports import Report
from mulligan.core.model.scheduler_job import JobEnd
from mulligan.core.model.workflow import END
from mulligan.ports import Clock, Commit, CommitResult, Lease, Store, WorkerRecord
from mulligan.testing.databases import Database
from mulligan.testing.fake_tasks import FakeTasks
from mulligan.testing.store_contents import BreakerRow, StoreContents, TaskKey, TimerKey
from mulligan.testing.timer_checks import TimedWorker, TimerChecks

# The longest gap between two heartbeats of a process, as a share of the lease, before it stops judging others.
GAP_SHARE_MAX = 1 / 2


# After these the time of a run does not count, until a later event sets it.
_NO_TIME = (e.RunPaused, e.RunStopping, e.RunCompleted, e.RunFailed, e.RunCancelled)


class WorkerSearch(msgspec.Struct, frozen=True):
    """A search for dead workers: those whose locks are free, and the time of the search.

    Without a time, the age of heartbeats says nothing: the searching process was cut off from the store itself.
    """

    dead: frozenset[str]
    at: datetime | None


class Outage(msgspec.Struct, frozen=True):
    """A time in which no process could reach the store."""

    began: datetime
    ended: datetime


class ExecutionRecorder:
    """Record every task that starts, every report about a lease, and every completed search for dead workers.

    `lease_seconds`: how old a heartbeat may be, if the store counts them.
    """

    def __init__(
        self, database: Database, lease_seconds: float | None, timer_checks: TimerChecks | None = None
    ) -> None:
        self.violations: list[str] = []
        self.timer_checks = timer_checks
        self.lease_tokens = database.lease_tokens
        self._database = database
        self._lease = None if lease_seconds is None else timedelta(seconds=lease_seconds)
        # All executors, including those of dead processes, whose tasks still run.
        self._executor: list[FakeTasks] = []
        self._started: set[tuple[int, int, str, int]] = set()
        # Leases that a turn has taken for its own worker, by token; what logs say last about each attempt; and which
        # attempts were stopped and left to finish.
        self._taken: set[int] = set()
        self._last_facts: dict[TaskKey, e.Fact] = {}
        self._left_to_finish: set[TaskKey] = set()
        # When each worker that takes tasks was registered, by the common time, and its host.
        self._registered: dict[str, tuple[float, str]] = {}
        self._known_dead: set[str] = set()
        self._searched_at: datetime | None = None
        self._outages: list[Outage] = []
        # By run, when its time is up, as far as its log says so: not in a pause, and not once it stops.
        self._dues: dict[int, datetime] = {}

    # -- running tasks -----------------------------------------------------------------------------------------------

    def watch(self, executor: FakeTasks) -> None:
        self._executor.append(executor)

    def on_start(self, executor: FakeTasks, lease: Lease) -> None:
        """Check a task that is about to start."""
        self._promise_4_a_lease_is_started_once(lease)
        self._promise_4_attempts_never_overlap_on_one_host(executor, lease)
        self._promise_6_only_what_the_log_says_starts(lease)
        self._started.add(_key_of(lease))

    def note_commits(self, commits: Iterable[Commit], written: Iterable[CommitResult]) -> None:
        """Record what was written to the logs, and the leases that came with it."""
        for commit in commits:
            run_id = commit.turn.run_id
            facts = (entry.fact for entry in commit.entries)
            self._last_facts.update(
                {(run_id, fact.place, fact.attempt): fact for fact in facts if isinstance(fact, _OF_ATTEMPTS)}
            )
            self._left_to_finish.update(
                (run_id, stop.place, stop.attempt) for stop in commit.stopped if stop.grace_seconds is None
            )
        self._taken.update(lease.token for result in written for lease in result.leases)

    def _promise_6_only_what_the_log_says_starts(self, lease: Lease) -> None:
        """A task starts after the log says so, and not after the log says that it has ended or is to end.

        Only for a task that a turn has taken: of one that was leased from the store the run hears later, perhaps when
        it is stopping. What is left to finish may wait for a slot first.
        """
        if lease.token not in self._taken:
            return
        task_key = (lease.task.run_id, lease.task.place, lease.task.attempt)
        last = self._last_facts.get(task_key)
        is_finishing = isinstance(last, e.AttemptStopping) and task_key in self._left_to_finish
        if not isinstance(last, e.AttemptStarted) and not is_finishing:
            word = "nothing" if last is None else type(last).__name__
            self.violations.append(
                f"promise 6: {_describe(lease)} starts, and the last word of its log on it is {word}"
            )

    def _promise_4_a_lease_is_started_once(self, lease: Lease) -> None:
        if _key_of(lease) in self._started:
            self.violations.append(f"promise 4: {_describe(lease)} was started twice with one lease")

    def _promise_4_attempts_never_overlap_on_one_host(self, executor: FakeTasks, lease: Lease) -> None:
        for other in self._executor:
            token = other.token_of(lease.task.run_id, lease.task.place) if other.host == executor.host else None
            if token is not None:
                self.violations.append(
                    f"promise 4: {_describe(lease)} starts on {executor.host}, where {other.name} runs it"
                )

    def note_logs(self, commits: Sequence[Commit]) -> None:
        """Read in what was written when the time of each run is up, and check the tasks that were taken with it."""
        for commit in commits:
            run_id, before = commit.turn.run_id, commit.at
            for entry in commit.entries:
                fact = entry.fact
                if isinstance(fact, e.RunStarted | e.RunReopened | e.RunResumed):
                    self._set_due(run_id, fact.due)
                elif isinstance(fact, e.RunForked) and run_id in self._dues:
                    self._dues[run_id] += entry.at - before
                elif isinstance(fact, _NO_TIME):
                    self._set_due(run_id, None)
                before = entry.at
            self.promise_6_no_task_starts_after_the_time_of_its_run(commit.taken, commit.at)

    def _set_due(self, run_id: int, due: datetime | None) -> None:
        self._dues.pop(run_id, None)
        if due is not None:
            self._dues[run_id] = due

    def forget_logs(self, commits: Sequence[Commit]) -> None:
        """Nobody knows whether these were written."""
        for commit in commits:
            self._dues.pop(commit.turn.run_id, None)

    def promise_6_no_task_starts_after_the_time_of_its_run(self, tasks: Iterable[Task], at: datetime) -> None:
        for task in tasks:
            due = self._dues.get(task.run_id)
            goes_on = task.step == END or "." in task.place
            if due is not None and at > due and not goes_on:
                self.violations.append(
                    f"promise 6: '{task.place}' of run {task.run_id} starts at {at}, and its time was up at {due}"
                )

    def note_registered(self, worker: WorkerRecord, at: float) -> None:
        if worker.cpus:
            self._registered[worker.name] = at, worker.host

    def promise_15_what_belongs_to_a_host_runs_there(self, tasks: Iterable[Task], process: TimedWorker) -> None:
        """Called after a worker has taken these tasks: not if a worker of their host was there when it began to."""
        bound = [task for task in tasks if task.host not in ("", process.host)]
        if not bound:
            return
        known = (self._registered[name] for name in self._database.read_contents().workers if name in self._registered)
        hosts = {host for at, host in known if at < process.stepped_at}
        for task in bound:
            if task.host in hosts:
                self.violations.append(
                    f"promise 15: '{task.place}' of run {task.run_id} starts on {process.host}, and a worker of "
                    f"{task.host}, to which it belongs, is there"
                )

    def kill_leftovers(self, name: str) -> None:
        """Kill what a worker left running on its host."""
        for executor in self._executor:
            if executor.name == name:
                executor.lose_all()

    # -- accepted reports --------------------------------------------------------------------------------------------

    def wrap(self, store: Store, clock: Clock, process: TimedWorker | None = None) -> Store:
        """Wrap the store of one process to record its calls. `clock` is the common clock."""
        return cast(Store, _RecordedStore(store, self, clock, process))

    def promise_2_a_void_lease_is_ignored(self, tokens: Collection[int], leased: Collection[int]) -> None:
        """Called after the store accepted a report about these leases; `leased` existed just before."""
        void = [token for token in tokens if token not in leased]
        if void:
            self.violations.append(
                f"promise 2: a report about lease {void[0]} was accepted, and there was no such lease"
            )

    def promise_2_void_leases_are_ignored(self, tokens: Collection[int], leased: Collection[int], count: int) -> None:
        """Called after the store was given reports about these leases together, and put so many into inboxes."""
        known = len({*tokens}.intersection(leased))
        if count > known:
            self.violations.append(f"promise 2: {count} reports were accepted, and {known} of their leases existed")

    def count_messages(self) -> int:
        return self._database.count_messages()

    def timers(self) -> dict[TimerKey, datetime]:
        return dict(self._database.read_contents().timers)

    def breakers(self) -> dict[str, BreakerRow]:
        return {breaker.name: breaker for breaker in self._database.read_contents().breakers}

    def promise_7_what_fails_in_a_row_opens_a_breaker(
        self, counted: Sequence[GuardedOutcome], before: Mapping[str, BreakerRow]
    ) -> None:
        """Called after the store accepted these outcomes. Unless a breaker is closed, only its probe counts."""
        after = self.breakers() if counted else {}
        for name in sorted({one.guard.name for one in counted}):
            was = before.get(name, _CLOSED)
            wanted = _breaker_after(was.failures, [one for one in counted if one.guard.name == name])
            now = after.get(name, _CLOSED)
            if was.status == "closed" and (now.status, now.failures) != wanted:
                found = f"{now.status} after {now.failures} failures in a row"
                self.violations.append(
                    f"promise 7: breaker '{name}' is {found}, and would be {wanted[0]} after {wanted[1]}"
                )

    def promise_7_no_more_run_than_may_fail(self, leases: Sequence[Lease]) -> None:
        """Called after these leases. Behind a closed breaker run at most as many as may fail before it opens."""
        guards = {lease.task.guard.name: lease.task.guard for lease in leases if lease.task.guard is not None}
        if not guards:
            return
        contents = self._database.read_contents()
        for row in contents.breakers:
            if row.status != "closed" or row.name not in guards:
                continue
            rules, running = guards[row.name].rules, sum(lease.breaker == row.name for lease in contents.leases)
            # At least one: another workflow may allow this breaker more failures.
            left = max(1, rules.failures - row.failures) if row.failures else None
            if running > min(limit for limit in (left, rules.max_parallel, running) if limit is not None):
                self.violations.append(
                    f"promise 7: {running} tasks run behind breaker '{row.name}' after {row.failures} failures in a row"
                )

    # -- dead workers ------------------------------------------------------------------------------------------------

    def note_search(self, search: WorkerSearch) -> None:
        """Record a search for dead workers that was not interrupted."""
        self._known_dead |= search.dead
        if search.at is not None:
            self._searched_at = max(search.at, self._searched_at or search.at)

    def note_outage(self, note_outage: Outage) -> None:
        """Record an outage that has ended. One that is shorter than a lease makes no heartbeat too old."""
        if self._lease is not None and note_outage.ended - note_outage.began >= self._lease:
            self._outages.append(note_outage)

    def heartbeats(self) -> dict[str, datetime]:
        """Return the last heartbeat of each worker."""
        return dict(self._database.read_contents().workers)

    def promise_7_an_outage_expires_no_worker(self, name: str, beat_at: datetime, now: datetime) -> None:
        """Called when a worker was expired because of the age of its heartbeat."""
        for note_outage in self._outages:
            since = now - note_outage.ended
            if beat_at <= note_outage.ended and self._lease is not None and since < self._lease:
                self.violations.append(
                    f"promise 7: {name} was expired {since.total_seconds():g}s after an outage of the store, in which "
                    "no heartbeat could be sent"
                )

    def check(self, contents: StoreContents) -> None:
        self._promise_7_a_search_expires_dead_workers(contents)

    def _promise_7_a_search_expires_dead_workers(self, contents: StoreContents) -> None:
        """Check workers whose locks are free and, if heartbeats count, those whose last one is too old."""
        for name in sorted(contents.workers.keys() & self._known_dead):
            self.violations.append(f"promise 7: {name} is dead, workers were searched, and it was not expired")
        if self._lease is None or self._searched_at is None:
            return
        for name, beat_at in contents.workers.items():
            if beat_at < self._searched_at - self._lease:
                self.violations.append(f"promise 7: {name} has sent no heartbeat since {beat_at}, and was not expired")


class _RecordedStore:
    """Pass every call on, and compare what is said about leases with the leases that exist."""

    def __init__(self, store: Store, recorder: ExecutionRecorder, clock: Clock, process: TimedWorker | None) -> None:
        self._store = store
        self._recorder = recorder
        self._clock = clock
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def register(self, worker: WorkerRecord) -> None:
        self._store.register(worker)
        self._recorder.note_registered(worker, self._clock.monotonic())

    def fire_timers(self, *args: Any, **named: Any) -> int:
        timer_checks = self._recorder.timer_checks
        if self._process is None or timer_checks is None:
            return self._store.fire_timers(*args, **named)
        before = self._recorder.timers()
        count = self._store.fire_timers(*args, **named)
        if count:
            timer_checks.check_fired(before, self._recorder.timers(), self._process.clock)
        return count

    def expire(self, name: str, *, is_dead: bool = False, job: JobEnd | None = None) -> bool:
        beat_at = self._recorder.heartbeats().get(name)
        is_expired = self._store.expire(name, is_dead=is_dead, job=job)
        if is_expired and not is_dead and beat_at is not None:
            self._recorder.promise_7_an_outage_expires_no_worker(name, beat_at, self._clock.now())
        return is_expired

    def lease(self, *args: Any, **named: Any) -> list[Lease]:
        leases = self._store.lease(*args, **named)
        self._recorder.promise_7_no_more_run_than_may_fail(leases)
        self._check_leases(leases)
        return leases

    def report_and_lease(self, *args: Any, **named: Any) -> tuple[bool, list[Lease]]:
        is_free, leases = self._store.report_and_lease(*args, **named)
        self._check_leases(leases)
        return is_free, leases

    def _check_leases(self, leases: Sequence[Lease]) -> None:
        tasks = [lease.task for lease in leases]
        if self._process is not None:
            self._recorder.promise_15_what_belongs_to_a_host_runs_there(tasks, self._process)
        if self._store.is_shared:
            # Only there the store has a clock for all.
            self._recorder.promise_6_no_task_starts_after_the_time_of_its_run(tasks, self._clock.now())

    def report(self, token: int, report: Report, *, guard: Guard | None = None) -> None:
        recorder = self._recorder
        counted = [] if guard is None else [GuardedOutcome(token, guard, breaker_verdict(report, guard))]
        leased, breakers = recorder.lease_tokens(), recorder.breakers() if counted else {}
        self._store.report(token, report, guard=guard)
        recorder.promise_2_a_void_lease_is_ignored([token], leased)
        recorder.promise_7_what_fails_in_a_row_opens_a_breaker(counted, breakers)

    def report_all(self, ended: Sequence[tuple[int, Report, Guard | None]]) -> bool:
        if not ended:
            return self._store.report_all(ended)
        recorder = self._recorder
        leased, before = recorder.lease_tokens(), recorder.count_messages()
        answer = self._store.report_all(ended)
        count = recorder.count_messages() - before
        recorder.promise_2_void_leases_are_ignored([token for token, *_ in ended], leased, count)
        return answer

    def commit(self, commits: Sequence[Commit]) -> list[CommitResult]:
        recorder = self._recorder
        ended = [token for commit in commits for token in commit.ended]
        counted = [one for commit in commits for one in commit.counted]
        leased, breakers = recorder.lease_tokens() if ended else set(), recorder.breakers() if counted else {}
        try:
            written = self._store.commit(commits)
        except BaseException:
            recorder.forget_logs(commits)
            raise
        recorder.note_commits(commits, written)
        recorder.note_logs(commits)
        if self._process is not None:
            taken = (task for commit in commits for task in commit.taken)
            recorder.promise_15_what_belongs_to_a_host_runs_there(taken, self._process)
            if recorder.timer_checks is not None:
                recorder.timer_checks.note_commits(commits, self._process)
        recorder.promise_2_a_void_lease_is_ignored(ended, leased)
        recorder.promise_7_what_fails_in_a_row_opens_a_breaker(counted, breakers)
        return written


class HeartbeatRecorder:
    """Pass every call on, and record since when the heartbeats of one process were accepted without a gap.

    Independent of `core` on purpose, which it checks: it uses what the process can see, by its own clock.
    """

    def __init__(self, store: Store, clock: Clock, lease_seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease_seconds
        # When the first heartbeat of the series was accepted, and when the last one was sent.
        self._times: list[float] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        setattr(self, name, found)
        return found

    def register(self, worker: WorkerRecord) -> None:
        self._store.register(worker)
        self._times = [self._clock.elapsed()]

    def record_heartbeat(self, name: str) -> datetime | None:
        sent = self._clock.elapsed()
        taken_at = self._store.record_heartbeat(name)
        if taken_at and self._times:
            if self._is_cut_off:
                self._times = [self._clock.elapsed()]
            self._times = [self._times[0], sent]
        return taken_at

    @property
    def are_continuous(self) -> bool:
        """Whether they have been accepted for longer than a lease."""
        if not self._times or self._is_cut_off:
            return False
        return self._clock.elapsed() - self._times[0] > self._lease

    @property
    def _is_cut_off(self) -> bool:
        """Whether the last one is too old."""
        return self._clock.elapsed() - self._times[-1] > self._lease * GAP_SHARE_MAX


_CLOSED = BreakerRow("", "closed", None)


def _breaker_after(failures: int, outcomes: Sequence[GuardedOutcome]) -> tuple[str, int]:
    """Return what a closed breaker with this many failures in a row becomes after these outcomes."""
    for one in outcomes:
        if one.verdict == "success":
            failures = 0
        elif one.verdict == "failure":
            failures += 1
            if failures >= one.guard.rules.failures:
                return "open", failures
    return "closed", failures


_OF_ATTEMPTS = (
    e.AttemptScheduled,
    e.AttemptStarted,
    e.AttemptStopping,
    e.AttemptSucceeded,
    e.AttemptFailed,
    e.AttemptCancelled,
    e.AttemptLost,
    e.AttemptInterrupted,
)


def _key_of(lease: Lease) -> tuple[int, int, str, int]:
    return lease.token, lease.task.run_id, lease.task.place, lease.task.attempt


def _describe(lease: Lease) -> str:
    return f"attempt {lease.task.attempt} of '{lease.task.place}' in run {lease.task.run_id}"
