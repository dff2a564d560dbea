"""The runs whose turns an engine holds: taking them up, their reports, and letting them go."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import msgspec

from mulligan.core.effects.snapshot import restore
from mulligan.core.model import reports as r
from mulligan.core.model.text.formatting import single_line
from mulligan.core.state.scope import Evaluator
from mulligan.core.state.state import State
from mulligan.engine.change_watch import ChangeWatch
from mulligan.engine.integrity import refuse_damaged
from mulligan.engine.observers import Observer
from mulligan.engine.pending_turn import QueuedReport
from mulligan.engine.run_driver import NOT_AHEAD, RunDriver
from mulligan.engine.task_leasing import TaskSupply
from mulligan.engine.tasks_in_flight import TasksInFlight
from mulligan.engine.timer_watch import TimerWatch
from mulligan.engine.workflow_cache import WorkflowCache
from mulligan.errors import MulliganError, StoreRefused, StoreUnavailable
from mulligan.ports import Clock, EngineExecutor, EngineStore, LoadedRun, Message, NewRun, RunRecord, Turn

# How many runs are loaded in one round of the loop: a heartbeat must not wait for more than that.
TAKEN_AT_ONCE_MAX = 50
# How many unfinished runs are looked at in one round of the loop for those that nobody holds.
IDLE_AT_ONCE_MAX = 1000
# How often runs are looked for that have waited since the last look, and are unloaded.
UNLOAD_SECONDS = 30.0
# How much of an error is written down.
REASON_CHARS_MAX = 500
# How long a run is left alone that cannot be driven: at first, and at most.
LEFT_ALONE_SECONDS, LEFT_ALONE_SECONDS_MAX = 5.0, 600.0
# The state of a run with more rows is left out when garbage is looked for.
ROWS_COLLECTED_MAX = 10_000


@contextmanager
def _keeping(rows: int) -> Iterator[None]:
    """Within it a state is made from so many rows. It stays for long and has no cycles.

    To look for garbage in a million objects, again and again, would take longer than to load them.
    """
    if rows <= ROWS_COLLECTED_MAX:
        yield
        return
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


class RunAbandoned(MulliganError):
    """The run that this process is to drive triggers a bug in Mulligan, and could not even be paused."""

    code = "run.left_alone"


class _LeftAlone(msgspec.Struct, frozen=True):
    """A run that is not taken up before a moment of the process's clock."""

    until: float
    seconds: float


class RunsToClaim:
    """Runs to take up, in order of request. Thousands may wait, and loading one takes time."""

    def __init__(self) -> None:
        # An attribute, and no `__bool__`: whether there are any is asked in every round.
        self.run_ids: dict[int, None] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self.run_ids)

    def add(self, run_ids: Iterable[int]) -> None:
        self.run_ids.update(dict.fromkeys(run_ids))

    def next_batch(self) -> list[int]:
        """The next ones. They stay here until `discard`, so that an error loses none."""
        return list(islice(self.run_ids, TAKEN_AT_ONCE_MAX))

    def discard(self, run_ids: Iterable[int]) -> None:
        for run_id in run_ids:
            self.run_ids.pop(run_id, None)


class DrivenRuns:
    """A driver for each run, and which of them have something to do."""

    def __init__(
        self,
        *,
        store: EngineStore,
        clock: Clock,
        evaluator: Evaluator,
        name: str,
        executor: EngineExecutor | None,
        observer: Observer,
        workflows: WorkflowCache,
        tasks: TasksInFlight,
        supply: TaskSupply,
        timers: TimerWatch,
        changes: ChangeWatch,
    ) -> None:
        self._store = store
        self._clock = clock
        self._evaluator = evaluator
        self._name = name
        self._executor = executor
        self._observer = observer
        self._workflows = workflows
        self._tasks = tasks
        self._supply = supply
        self._timers = timers
        self._changes = changes
        self.drivers: dict[int, RunDriver] = {}
        # Drivers with something for their next turn.
        self.ready: dict[int, RunDriver] = {}
        self.to_claim = RunsToClaim()
        # Drivers of runs that had ended when they were taken up.
        self._ended: list[RunDriver] = []
        # Runs that this process cannot drive because of a bug or damaged data, until it tries again.
        self._abandoned: dict[int, _LeftAlone] = {}
        # Runs whose turn we hold and that are not loaded: they wait, and a message will wake them.
        self.unloaded: set[int] = set()
        # Which runs had nothing to do at the last look, with the number of their last event; and when that was.
        self._resting: dict[int, int] = {}
        self._unloaded_at = clock.monotonic()
        # Where the search for runs that nobody holds goes on; None if it is over. And how often the store had been
        # looked into when it began.
        # Behind which root and id the search for idle runs goes on; None if there is none.
        self.idle_after: tuple[int, int] | None = None
        self._idle_polls = -1

    @property
    def run_ids(self) -> list[int]:
        """The runs that we drive, or are about to."""
        return [*self.drivers, *(run_id for run_id in self.to_claim if run_id not in self.drivers)]

    # -- taking up ---------------------------------------------------------------------------------------------------

    def take_up(self, run_ids: Collection[int], root_run_id: int | None) -> None:
        """Drive these runs if their turns are free: a batch now, the others in the next rounds."""
        free = (run_id for run_id in run_ids if run_id not in self.drivers)
        self.to_claim.add(run_id for run_id in free if not self._is_left_alone(run_id))
        batch = self.to_claim.next_batch()
        if batch:
            self._adopt(self._store.take_turns(batch, self._name), root_run_id)
            self.to_claim.discard(batch)

    def begin_idle_search(self) -> None:
        """Look for unfinished runs that nobody holds, in this round and the next ones.

        Not if nothing was written since the last search: a turn becomes free only by a commit of another process, or
        when we expire a worker, and both make us look into the store.
        """
        if self.idle_after is None and self._idle_polls != self._changes.polls:
            self.idle_after, self._idle_polls = (0, 0), self._changes.polls

    def hold_idle(self) -> None:
        """Take the turns of some runs that nobody holds, and load those that have something to do.

        The others wait. Whatever wakes one of them, a timer, a person or the end of a task, is a message in its inbox,
        and a run with a message is taken up. So a worker starts at once, however many runs wait.
        """
        assert self.idle_after is not None
        found = self._store.idle_runs(self._name, self.idle_after, IDLE_AT_ONCE_MAX)
        # Also those that we hold without knowing it: an answer of the store was lost.
        free = (run_id for run_id in found.run_ids if run_id not in self.drivers and run_id not in self.unloaded)
        run_ids = [run_id for run_id in free if not self._is_left_alone(run_id)]
        held = [turn.run_id for turn in self._store.take_turns(run_ids, self._name)] if run_ids else []
        if held:
            with_work = self._store.runs_with_work(held)
            self.unloaded.update(held)
            self.to_claim.add(with_work)
            # What was written for them so far has to be looked for, and their timers.
            self._changes.request()
        self.idle_after = found.after

    def unload_resting(self) -> None:
        """Unload the runs of which nothing was written since the last call: they wait, as those of `hold_idle`."""
        now = self._clock.monotonic()
        if now - self._unloaded_at < UNLOAD_SECONDS:
            return
        self._unloaded_at = now
        before, self._resting = self._resting, {}
        resting: list[RunDriver] = []
        for run_id, driver in self.drivers.items():
            if run_id not in self.ready and driver.is_resting:
                self._resting[run_id] = driver.state.run.seq
                if before.get(run_id) == driver.state.run.seq:
                    resting.append(driver)
        if not resting:
            return
        busy = self._tasks.run_ids | set(self._store.runs_with_work([driver.run_id for driver in resting]))
        for driver in resting:
            if driver.run_id not in busy:
                self._forget(driver)
                self.unloaded.add(driver.run_id)

    def _adopt(self, turns: Sequence[Turn], root_run_id: int | None) -> None:
        loaded = {one.record.run_id: one for one in self._store.load_all([turn.run_id for turn in turns])}
        for turn in turns:
            try:
                # One that is missing says why when it is loaded alone.
                self._load(turn, loaded.get(turn.run_id) or self._store.load(turn.run_id))
            except (StoreUnavailable, StoreRefused):
                raise
            except Exception as error:
                # A run that cannot be read must not disturb the others.
                if turn.run_id == root_run_id:
                    raise
                self.unloaded.discard(turn.run_id)
                self._store.release([turn])
                self._leave_alone(turn.run_id, error.message if isinstance(error, MulliganError) else _bug(error))

    def _load(self, turn: Turn, loaded: LoadedRun) -> None:
        with _keeping(len(loaded.rows)):
            workflow, graph = self._workflows.get(loaded.record.version, loaded.workflow)
            state = restore(workflow, loaded.rows, graph)
        self._workflows.note_definition(state.workflow)
        refuse_damaged(loaded.record, state)
        self._supply.add(self._drive(turn, loaded.record, state))

    def begin(self, turns: Iterable[Turn], runs: Iterable[NewRun]) -> None:
        """Drive runs that were just created, without reading them from the store."""
        for turn, new in zip(turns, runs, strict=True):
            workflow, graph = self._workflows.get(new.version, new.workflow)
            self._drive(turn, new_record(turn, new), State(workflow, graph))

    def _drive(self, turn: Turn, record: RunRecord, state: State) -> RunDriver:
        is_shared = self._store.is_shared
        ahead = NOT_AHEAD if is_shared else max(NOT_AHEAD, state.run.at - self._clock.now())
        driver = RunDriver(
            turn=turn,
            record=record,
            state=state,
            evaluator=self._evaluator,
            executor=None if self._supply.is_draining else self._executor,
            is_exclusive=not is_shared,
            ahead=ahead,
            has_others=self._supply.has_others,
            others_take_part=self._supply.others_take_part,
        )
        driver.is_alone = self._supply.is_alone
        self.drivers[turn.run_id] = driver
        self.unloaded.discard(turn.run_id)
        if ahead:
            self._timers.ahead[turn.run_id] = ahead
        if driver.has_more_to_enter or driver.is_time_up(self._clock.now()):
            self.ready[turn.run_id] = driver
        if driver.has_ended:
            self._ended.append(driver)
        self._changes.request()
        return driver

    # -- reports -----------------------------------------------------------------------------------------------------

    def add_report(self, driver: RunDriver, report: QueuedReport) -> None:
        driver.reports.append(report)
        self.ready[driver.run_id] = driver

    def read_inboxes(self, run_ids: Collection[int]) -> None:
        if run_ids:
            self.deliver(self._store.inbox(run_ids))

    def deliver(self, messages: Iterable[Message]) -> None:
        """Add messages of inboxes to the next turns of their runs."""
        postponed: set[int] = set()
        for message in messages:
            driver = self.drivers[message.run_id]
            if driver.run_id not in postponed and self._is_too_early(driver, message):
                postponed.add(driver.run_id)
            if driver.run_id not in postponed and driver.deliver(message):
                self.ready[driver.run_id] = driver

    def _is_too_early(self, driver: RunDriver, message: Message) -> bool:
        """Whether a new round has to wait: tasks of the last round that were stopped still have their grace.

        The message stays in the inbox with all that follow it. The end of the task is a change that we notice.
        """
        is_new_round = driver.has_ended and isinstance(message.report, r.RetryRequested | r.RoundRequested)
        return is_new_round and self._store.has_leases(driver.run_id)

    def unsent_reports(self) -> dict[int, r.Report]:
        """Roll all turns back. The reports of our own tasks that may not be written, by token."""
        unsent: dict[int, r.Report] = {}
        for driver in self.drivers.values():
            driver.roll_back()
            unsent.update((one.token, one.report) for one in driver.all_reports if one.token is not None)
        return unsent

    def roll_back(self, driver: RunDriver) -> None:
        """The turn was not written: it is decided again in the next round."""
        driver.roll_back()
        self.ready[driver.run_id] = driver
        self._supply.note_queue(driver)

    # -- letting go --------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Start no more tasks."""
        for driver in self.drivers.values():
            if driver.has_open_turn:
                # The store did not answer: what the turn would start is not wanted any more.
                self.roll_back(driver)
            driver.executor = None
            # The next holder of the turn finds them.
            driver.starts.clear()

    def release_all(self) -> None:
        """Give all turns back, so that other workers can continue."""
        for driver in self.drivers.values():
            self._pass_on_reports(driver)
        self._store.release([driver.turn for driver in self.drivers.values()])
        self.forget_all()

    def release_ended(self) -> None:
        """Give back runs that had ended when they were taken up.

        Another worker may have driven them to their end, or a commit was written though we saw an error. A run with
        unprocessed reports is released after its next turn.
        """
        if not self._ended:
            return
        ended = [driver for driver in self._ended if not driver.reports]
        self._store.release([driver.turn for driver in ended])
        self._ended.clear()
        for driver in ended:
            self._forget(driver)

    def part_with(self, driver: RunDriver, *, is_released: bool) -> None:
        """Stop driving a run that has ended. The last commit of a round released its turn; a later one did not."""
        if driver.reports:
            # They arrived behind the end of the round, and are still in the inbox, or belong there.
            self._changes.request()
            self._pass_on_reports(driver)
        if not is_released:
            self._store.release([driver.turn])
        self._forget(driver)

    def lose(self, driver: RunDriver) -> None:
        """Stop driving a run that another worker has written. Reports of our own tasks go through its inbox."""
        self._pass_on_reports(driver)
        self._forget(driver)
        self._changes.request()

    def abandon(self, driver: RunDriver, error: Exception) -> None:
        """Stop driving a run that cannot be paused, or whose pause cannot be written. Another version may do better."""
        self._pass_on_reports(driver)
        self._store.release([driver.turn])
        self._forget(driver)
        self._leave_alone(driver.run_id, _bug(error))

    def _leave_alone(self, run_id: int, why: str) -> None:
        """Do not take the run up for a while, which is longer each time."""
        before = self._abandoned.get(run_id)
        seconds = LEFT_ALONE_SECONDS if before is None else min(before.seconds * 2, LEFT_ALONE_SECONDS_MAX)
        self._abandoned[run_id] = _LeftAlone(self._clock.monotonic() + seconds, seconds)
        self._observer.trouble(f"run {run_id} is left alone for {seconds:g}s: {why}")

    def _is_left_alone(self, run_id: int) -> bool:
        found = self._abandoned.get(run_id)
        return found is not None and self._clock.monotonic() < found.until

    def note_written(self, run_id: int) -> None:
        """A turn of the run was written: if it was left alone before, it goes on now."""
        if self._abandoned:
            self._abandoned.pop(run_id, None)

    def refuse_abandoned(self, run_id: int) -> None:
        """Raise if the run was abandoned: this process will not continue it."""
        if run_id in self._abandoned and run_id not in self.drivers:
            raise RunAbandoned(
                f"run {run_id} triggers a bug in Mulligan and cannot be continued by this version",
                hint=f"nothing of it is lost; to see what it did: mulligan explain {run_id}",
            )

    def _pass_on_reports(self, driver: RunDriver) -> None:
        """Only we have the leases of our own tasks: the next holder of the turn gets their reports from us."""
        driver.roll_back()
        for queued in driver.all_reports:
            if queued.token is not None:
                self._tasks.send_report(queued.token, queued.report, queued.guard)

    def _forget(self, driver: RunDriver) -> None:
        self.drivers.pop(driver.run_id, None)
        self.ready.pop(driver.run_id, None)
        self._supply.forget(driver.run_id)
        self._timers.ahead.pop(driver.run_id, None)

    def forget_all(self) -> None:
        self.drivers.clear()
        self.ready.clear()
        self._supply.forget_all()
        self._timers.ahead.clear()
        self._ended.clear()
        self.unloaded.clear()
        self.idle_after, self._idle_polls = None, -1


def _bug(error: Exception) -> str:
    return f"a bug in Mulligan: {single_line(f'{type(error).__name__}: {error}')[:REASON_CHARS_MAX]}"


def new_record(turn: Turn, new: NewRun) -> RunRecord:
    """The record of a run that was just created."""
    request = new.request
    return RunRecord(
        run_id=turn.run_id,
        workflow=new.name,
        version=new.version,
        status="running",
        round=1,
        seq=0,
        created_at=request.at,
        updated_at=request.at,
        parent_run_id=request.parent_run_id,
        parent_place=new.parent_place,
        parent_attempt=new.parent_attempt,
        holder=turn.holder,
        started_by=request.by,
    )
