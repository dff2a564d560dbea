"""The engine's loop: collect ended tasks, fire timers, read inboxes, take turns, commit, start tasks.

The engine is the only writer of the runs that it drives, and it waits only in `TaskRunner.collect`. Several engines
may share a store: each drives the runs whose turns it holds, and the runs of a dead engine are taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence, Set
from datetime import datetime

from mulligan.core.deciding.workers.breaker import Guard
from mulligan.core.model.reports import Report
from mulligan.core.state.scope import Evaluator
from mulligan.engine.change_watch import IDLE_SECONDS, ChangeWatch
from mulligan.engine.driven_runs import DrivenRuns
from mulligan.engine.heartbeat import HeartbeatSender
from mulligan.engine.observers import NullObserver, Observer
from mulligan.engine.pending_turn import QueuedReport
from mulligan.engine.store_wait import StoreWait
from mulligan.engine.task_leasing import TaskSupply
from mulligan.engine.tasks_in_flight import TasksInFlight
from mulligan.engine.timer_watch import TimerWatch
from mulligan.engine.timings import Timings
from mulligan.engine.turns import TurnTaker
from mulligan.engine.workflow_cache import WorkflowCache
from mulligan.ports import Clock, EngineExecutor, EngineStore, Lease, NewRun, Turn


class Engine:
    """Drives runs in a store under one worker's name; with `root_run_id` only that run and its descendants.

    `check` raises if results of tasks may no longer be written because their files are gone.
    """

    def __init__(
        self,
        store: EngineStore,
        clock: Clock,
        evaluator: Evaluator,
        name: str,
        executor: EngineExecutor | None = None,
        *,
        root_run_id: int | None = None,
        observer: Observer | None = None,
        check: Callable[[], None] = lambda: None,
        lease_seconds: float = 30.0,
        workflows: WorkflowCache | None = None,
        store_wait: StoreWait | None = None,
        expects_others: Callable[[], bool] = lambda: False,
    ) -> None:
        self.clock = clock
        self.evaluator = evaluator
        self.name = name
        self.executor = executor
        self.root_run_id = root_run_id
        self.workflows = workflows or WorkflowCache()
        self._store_wait = store_wait or StoreWait()
        self._store = store
        is_shared = store.is_shared
        observer = observer or NullObserver()
        # The worker was registered a moment ago.
        self.heartbeats = HeartbeatSender(store, clock, name, executor, lease_seconds)
        self._changes = ChangeWatch(store, clock, is_shared=is_shared)
        self._timers = TimerWatch(store, clock, holder="" if is_shared else name)
        self._supply = TaskSupply(
            store, executor, name, self.workflows, clock, is_shared=is_shared, expects_others=expects_others
        )
        self._tasks = TasksInFlight(
            store=store,
            clock=clock,
            name=name,
            executor=executor,
            send_heartbeat=self.heartbeats.send,
            check=check,
            changes=self._changes,
            lease_seconds=lease_seconds,
            may_give_back=lambda: self.root_run_id is None and self._supply.has_others(),
        )
        self._runs = DrivenRuns(
            store=store,
            clock=clock,
            evaluator=evaluator,
            name=name,
            executor=executor,
            observer=observer,
            workflows=self.workflows,
            tasks=self._tasks,
            supply=self._supply,
            timers=self._timers,
            changes=self._changes,
        )
        # The runs that we drive.
        self.drivers = self._runs.drivers
        self._turns = TurnTaker(
            store=store,
            clock=clock,
            observer=observer,
            check=check,
            workflows=self.workflows,
            runs=self._runs,
            tasks=self._tasks,
            supply=self._supply,
            timers=self._timers,
            changes=self._changes,
        )
        self._has_notices = self._changes.is_notified = self._watch_store() is not None
        # Runs of other workers, whose tasks we have: we had no need to take them up when we last looked.
        self._driven_elsewhere: Set[int] = frozenset()
        # Whether this process has got a signal to end.
        self.was_signalled: Callable[[], bool] = lambda: False

    def _watch_store(self) -> int | None:
        """Let the store wake the loop, if it can notify us."""
        fd = self._store.fileno()
        if self.executor is not None:
            self.executor.watch(fd)
        self._store_wait.watch(fd)
        return fd

    # -- runs --------------------------------------------------------------------------------------------------------

    @property
    def run_ids(self) -> list[int]:
        """The runs that we drive, or are about to."""
        return self._runs.run_ids

    def take_up(self, run_ids: Collection[int]) -> None:
        """Drive these runs if their turns are free: a batch now, the others in the next rounds."""
        self._runs.take_up(run_ids, self.root_run_id)

    def take_up_idle(self) -> None:
        """Hold the turns of unfinished runs that nobody holds, in the next rounds; load those with something to do.

        Unload those that have waited for a while.

        In a shared store there is no need: any worker with free capacity gets tasks of any run.
        """
        if not self._store.is_shared:
            self._runs.begin_idle_search()
            self._runs.unload_resting()

    @property
    def runs_held(self) -> int:
        """How many runs we hold: those that we drive, and those that wait."""
        return len(self.drivers) + len(self._runs.unloaded)

    def begin(self, turns: Iterable[Turn], runs: Iterable[NewRun]) -> None:
        """Drive runs that were just created, without reading them from the store."""
        self._runs.begin(turns, runs)

    def refuse_abandoned(self, run_id: int) -> None:
        """Raise if the run was abandoned: this process will not continue it."""
        self._runs.refuse_abandoned(run_id)

    def set_alone(self, is_alone: bool) -> None:
        """Set whether no other worker takes tasks from this store. Then queued tasks are ours without asking."""
        self._supply.set_alone(is_alone, self.drivers.values())

    def drain(self) -> None:
        """Start no more tasks. Running tasks may end, and their results are written."""
        self._supply.is_draining = True
        self._runs.drain()

    def release_all(self) -> None:
        """Give all turns back, so that other workers can continue."""
        self._runs.release_all()

    # -- the loop ----------------------------------------------------------------------------------------------------

    def tick(self, wait_seconds: float = IDLE_SECONDS) -> bool:
        """Run the loop once, waiting up to `wait_seconds` for something to do. False if no turn was taken."""
        limit = min(wait_seconds, IDLE_SECONDS if self._has_notices else self._changes.poll_seconds)
        self._collect(0.0 if self._has_more_to_do else self._timers.seconds_left(limit))
        if not self._supply.is_draining and self.was_signalled():
            # Before the turns: what was interrupted by the same signal would be started here again.
            self.drain()
        self._report_ended()
        if self._timers.is_due:
            self._fire_timers()
        if self._timers.was_clock_set(is_busy=bool(self._runs.ready)):
            self._changes.request()
        if self._runs.idle_after is not None:
            self._runs.hold_idle()
        if self._changes.is_due() or self._runs.to_claim.run_ids:
            self._poll()
            if self._timers.is_due:
                # What came due while nobody drove a run comes before anything of it is started.
                self._fire_timers()
                self._runs.read_inboxes(self.drivers.keys())
        if self.workflows.has_breakers and self._supply.pacing.comes_first:
            self._lease_tasks()
        has_written = self._turns.take()
        may_lease = self._store.is_shared or self.workflows.has_breakers or not self._supply.is_alone
        if may_lease and not self._turns.has_stopped_late:
            self._lease_tasks()
        return has_written

    @property
    def timings(self) -> Timings:
        """How long turns and commits took."""
        return self._turns.timings

    @property
    def tasks_running(self) -> int:
        """How many tasks this worker has."""
        return len(self._tasks)

    def request_poll(self) -> None:
        """Poll the store in the next round: there is something for us."""
        self._changes.request()

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs here, and nothing waits for a turn or for capacity."""
        return self.is_settled and not self._supply.has_waiting_tasks

    @property
    def is_settled(self) -> bool:
        """Whether nothing runs here, and the results of all tasks are written."""
        return self._tasks.is_done and not self._has_more_to_do

    def next_due(self) -> datetime | None:
        """When, by our clock, the next timer of our runs is due, or a breaker that their tasks wait for."""
        return self._timers.next_due(self.root_run_id)

    @property
    def _has_more_to_do(self) -> bool:
        """Whether the next round need not wait."""
        runs = self._runs
        if self._changes.is_requested or runs.ready or runs.to_claim.run_ids:
            return True
        return runs.idle_after is not None

    def _collect(self, timeout: float) -> None:
        """Take in the tasks that have ended."""
        if self.executor is None:
            self._store_wait.wait(timeout)
        elif self._tasks.collect(timeout, self._turns.gather_seconds):
            self._supply.pacing.has_more_room = True

    def _report_ended(self) -> None:
        """Give a run that we drive the reports of its ended tasks at once, and others theirs by their inbox.

        With the latter we ask for the next tasks, unless turns of our own runs come first.
        """
        leases = (
            self._tasks.report_except(self.drivers.keys())
            if self._runs.ready
            else self._tasks.report_except(self.drivers.keys(), self._report_and_lease)
        )
        if leases:
            self._start_leased(leases)
        for lease, report in self._tasks.take_ended():
            driver = self.drivers[lease.task.run_id]
            self._runs.add_report(driver, QueuedReport(report, token=lease.token, guard=lease.task.guard))

    def _fire_timers(self) -> None:
        if self._timers.fire(self.root_run_id):
            self._changes.request()
        # It may have been a breaker that may be probed now.
        self._supply.pacing.may_have_tasks = True

    def _poll(self) -> None:
        """Read what other processes have written for us: messages, queued tasks, stop requests, timers."""
        self._changes.begin_poll()
        self._supply.pacing.may_have_tasks = True
        seen = self._timers.poll(self.name, self.root_run_id)
        known = set(self.drivers)
        self.take_up(seen.run_ids)
        # The inboxes of the runs that were just taken up are read here.
        self._changes.is_requested = False
        self._runs.deliver(message for message in seen.messages if message.run_id in known)
        if taken := self.drivers.keys() - known:
            self._runs.read_inboxes(taken)
            if not self._store.is_shared:
                # The time of a run may be ahead of our clock.
                self._timers.refresh(self.root_run_id)
        self._runs.release_ended()
        self._tasks.stop_requested(seen.stops)
        if self._store.is_shared:
            # The store may have connected again: then its descriptor is another one, perhaps with the same number.
            self._watch_store()
            # If its turn is lost, we notice with one of the next looks: there is one every few seconds.
            self._driven_elsewhere = self._tasks.run_ids - self.drivers.keys()

    def _lease_tasks(self) -> None:
        leases = self._supply.lease(self.root_run_id)
        if leases is not None:
            self._start_leased(leases)

    def _report_and_lease(self, ended: Sequence[tuple[int, Report, Guard | None]]) -> tuple[bool, list[Lease]] | None:
        return self._supply.report_and_lease(ended, self.root_run_id)

    def _start_leased(self, leases: Sequence[Lease]) -> None:
        # TaskStarted is in the inboxes: a run must process it before the end of the task.
        run_ids = {lease.task.run_id for lease in leases}
        self._runs.read_inboxes(self.drivers.keys() if self.workflows.has_breakers else run_ids & self.drivers.keys())
        if not run_ids <= self.drivers.keys() | self._driven_elsewhere:
            self._changes.request()
        self._tasks.reserve_and_start(leases)
        if self.workflows.has_breakers:
            # Tasks that wait for a breaker have a due time.
            self._timers.refresh(self.root_run_id)

    # -- outages -----------------------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Let time pass while the store is unavailable. Tasks that end meanwhile are kept."""
        self._tasks.wait(seconds)

    def recover(self) -> None:
        """Continue after an outage with what the store says: a commit that was written in spite of an error counts."""
        self.heartbeats.send()
        self._watch_store()
        self._tasks.keep(self._runs.unsent_reports())
        run_ids = self.run_ids
        self._runs.forget_all()
        self.take_up(run_ids)
        self._tasks.recover()
        self._changes.request()
