"""Deciding and writing the turns of runs: many in one commit, each alone when something goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import chain, islice
from operator import attrgetter

from mulligan.core.model.text.formatting import single_line
from mulligan.engine.change_watch import ChangeWatch
from mulligan.engine.driven_runs import REASON_CHARS_MAX, DrivenRuns
from mulligan.engine.observers import Observer
from mulligan.engine.run_driver import REPORTS_PER_TURN_MAX, RunDriver
from mulligan.engine.task_leasing import TaskSupply
from mulligan.engine.tasks_in_flight import TasksInFlight
from mulligan.engine.timer_watch import TimerWatch
from mulligan.engine.timings import Timings
from mulligan.engine.workflow_cache import WorkflowCache
from mulligan.errors import Conflict, StoreRefused, StoreUnavailable
from mulligan.ports import Clock, Commit, CommitResult, Turns, fault_point

# A turn that crashes this often has met a bug: the run is paused and does not disturb the others.
CRASHES_MAX = 3
# How many runs have their turns in one round and share a commit: heartbeats are sent between rounds.
TURNS_AT_ONCE_MAX = 500
# From this duration on it is worth to wait for more tasks that may share a commit; how long at most; and the weight of
# the last commit in the average.
SLOW_COMMIT_SECONDS, GATHER_SECONDS_MAX, WEIGHT_OF_THE_LAST = 0.0008, 0.001, 0.1
_leases, _stopped = attrgetter("leases"), attrgetter("stopped")


class TurnTaker:
    """Takes the turns of the runs that are ready."""

    def __init__(
        self,
        *,
        store: Turns,
        clock: Clock,
        observer: Observer,
        check: Callable[[], None],
        workflows: WorkflowCache,
        runs: DrivenRuns,
        tasks: TasksInFlight,
        supply: TaskSupply,
        timers: TimerWatch,
        changes: ChangeWatch,
    ) -> None:
        self._store = store
        self._clock = clock
        self._observer = observer
        self._check = check
        self._workflows = workflows
        self._runs = runs
        self._tasks = tasks
        self._supply = supply
        self._timers = timers
        self._changes = changes
        self.timings = Timings()
        # Whether the last round stopped runs whose time was up: their child runs have not heard of it yet.
        self.has_stopped_late = False
        # A moving average.
        self._commit_seconds = 0.0

    @property
    def gather_seconds(self) -> float:
        """How long to wait for other tasks that are about to end: a small part of a slow commit."""
        seconds = self._commit_seconds
        return 0.0 if seconds < SLOW_COMMIT_SECONDS else min(seconds / 2, GATHER_SECONDS_MAX)

    def take(self) -> bool:
        """Decide and write one turn of each run that is ready. False if there was nothing to write."""
        self._supply.note_found_others(self._runs.drivers.values())
        now, ready = self._clock.now(), self._runs.ready
        run_ids = list(islice(ready, TURNS_AT_ONCE_MAX))
        # Runs whose time is up are stopped alone: their child runs must hear of it before they start anything.
        late: list[int] = []
        for run_id in run_ids:
            driver = ready[run_id]
            if driver.state.run.due is not None and driver.is_time_up(now):
                late.append(run_id)
        drivers, self.has_stopped_late = list(map(ready.pop, late or run_ids)), bool(late)
        if drivers:
            fault_point("before_turn")
        for driver in drivers:
            self._decide(driver, now)
        if not late:
            drivers += self._supply.claim(now, lambda driver, error: self._handle_crash(driver, error, now))
        open_turns = [driver for driver in drivers if driver.has_open_turn]
        # A driver may be there twice: it has decided, and has claimed tasks.
        decided = open_turns if len(open_turns) < 2 else list({one.run_id: one for one in open_turns}.values())
        if decided:
            fault_point("before_commit")
            self._commit(decided)
        return bool(decided)

    # -- deciding ----------------------------------------------------------------------------------------------------

    def _decide(self, driver: RunDriver, now: datetime) -> None:
        started_at = self._clock.monotonic()
        try:
            driver.decide(now, 1 if driver.crashes else REPORTS_PER_TURN_MAX)
            self.timings.turns.add(self._clock.monotonic() - started_at)
        except StoreUnavailable:
            # An artifact that an expression reads cannot be fetched now.
            self._runs.roll_back(driver)
            raise
        except Exception as error:
            self._handle_crash(driver, error, now)
        if driver.run_id in self._runs.drivers:
            if driver.ahead:
                self._timers.ahead[driver.run_id] = driver.ahead
            if driver.reports or (driver.starts and driver.has_more_to_enter):
                self._runs.ready[driver.run_id] = driver

    def _handle_crash(self, driver: RunDriver, error: Exception, now: datetime) -> None:
        """Roll back a turn that has met a bug. If that happens repeatedly, the run goes on without what caused it.

        If it cannot, it is left alone for a while: it disturbs no other run, and this process can end.
        """
        driver.roll_back()
        driver.crashes += 1
        if driver.crashes < CRASHES_MAX:
            return
        reason = f"engine_error: {single_line(f'{type(error).__name__}: {error}')[:REASON_CHARS_MAX]}"
        answer = driver.answer_crash(now, reason) if driver.crashes == CRASHES_MAX else ""
        if not answer:
            self._runs.abandon(driver, error)
            return
        self._runs.ready[driver.run_id] = driver
        self._observer.trouble(f"run {driver.run_id} {answer}")

    # -- writing -----------------------------------------------------------------------------------------------------

    def _commit(self, drivers: list[RunDriver]) -> None:
        self._check()
        try:
            commits = [commit for driver in drivers if (commit := driver.build_commit()) is not None]
            started_at = self._clock.monotonic()
            results = self._store.commit(commits)
            seconds = self._clock.monotonic() - started_at
            self._commit_seconds += (seconds - self._commit_seconds) * WEIGHT_OF_THE_LAST
            self.timings.commits.add(seconds)
        except Conflict:
            if len(drivers) == 1:
                self._runs.lose(drivers[0])
            else:
                self._commit_one_by_one(drivers)
            self._supply.note_conflict(self._runs.drivers.values())
            return
        except (StoreUnavailable, StoreRefused):
            for driver in drivers:
                self._runs.roll_back(driver)
            raise
        except Exception as error:
            # A bug: one of the commits cannot be written.
            if len(drivers) > 1:
                self._commit_one_by_one(drivers)
                return
            (driver,) = drivers
            self._handle_crash(driver, error, self._clock.now())
            if driver.run_id in self._runs.drivers:
                self._runs.ready[driver.run_id] = driver
            return
        fault_point("after_commit")
        self._confirm(drivers, commits, results)

    def _commit_one_by_one(self, drivers: list[RunDriver]) -> None:
        """Find the one that cannot be written, and write the others."""
        now = self._clock.now()
        for driver in drivers:
            self._runs.roll_back(driver)
        for driver in drivers:
            self._runs.ready.pop(driver.run_id, None)
            self._decide(driver, now)
            if driver.has_open_turn:
                self._commit([driver])

    def _confirm(self, drivers: list[RunDriver], commits: list[Commit], results: list[CommitResult]) -> None:
        fault_point("after_drain")
        # First of all: the rest takes its time while the tasks run.
        self._tasks.start(list(chain.from_iterable(map(_leases, results))))
        if self._tasks.mid_turn:
            for driver, commit in zip(drivers, commits, strict=True):
                self._tasks.answer(driver.going_on, commit.ended)
        # All of them before the store is asked for anything: what is written must not be rolled back if it fails.
        confirmed = list(map(RunDriver.confirm, drivers))
        for driver, commit, result, entries in zip(drivers, commits, results, confirmed, strict=True):
            driver.crashes = 0
            self._runs.note_written(driver.run_id)
            if not self._supply.is_alone:
                driver.queue.clear()
            self._supply.note_queue(driver)
            if driver.starts and driver.has_more_to_enter:
                self._runs.ready[driver.run_id] = driver
            if entries:
                self._observer.committed(driver.state, entries, commit.is_ordinary)
            if driver.has_ended:
                self._runs.part_with(driver, is_released=commit.is_last)
            elif driver.reports:
                # A pause after a crash was lifted: the reports that were set aside are processed again.
                self._runs.ready[driver.run_id] = driver
            if not commit.is_ordinary:
                self._note_consequences(driver, commit, result)
        if any(map(_stopped, commits)):
            self._tasks.stop(commits)

    def _note_consequences(self, driver: RunDriver, commit: Commit, result: CommitResult) -> None:
        """Note what has to be looked at next: after an ordinary turn, nothing."""
        self._workflows.note_definition(driver.state.workflow)
        for timer in commit.timers:
            self._timers.add(driver, timer)
        if result.children:
            self._runs.begin(result.children, commit.children)
        if commit.outgoing or commit.child_reports:
            self._changes.request()
        self._supply.note_commit(commit)
