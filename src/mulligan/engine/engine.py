"""The engine's one loop: what has ended, what was asked, what is due; turns of all runs that have any; one commit.

It is the only writer of the runs it drives, and waits only in `Executor.collect`. Several engines may share
a store: each drives the runs whose turns it holds, and what a dead one held is taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from itertools import islice

from mulligan.core.deciding.breaker import Guard
from mulligan.core.effects.snapshot import restore
from mulligan.core.effects.tasks import Task
from mulligan.core.model import reports as r
from mulligan.core.state.scope import Evaluator
from mulligan.core.state.state import State
from mulligan.engine.heartbeat import HeartbeatSender
from mulligan.engine.integrity import refuse_damaged
from mulligan.engine.lease_pacing import Asking, Commits
from mulligan.engine.observers import NullObserver, Observer
from mulligan.engine.run_driver import NOT_AHEAD, REPORTS_PER_TURN_MAX, RunDriver, Told, new_record
from mulligan.engine.runs_to_claim import Wanted
from mulligan.engine.tasks_in_flight import TasksInFlight
from mulligan.engine.workflow_cache import Known
from mulligan.errors import CodecError, Conflict, MulliganError, StaleLease, StoreRefused, StoreUnavailable
from mulligan.ports import (
    Clock,
    Commit,
    Committed,
    EngineExecutor,
    EngineStore,
    Message,
    NewRun,
    RunRecord,
    Turn,
    fault_point,
)

# A smaller change of how far the wall clock is ahead of ours is no step of it.
STEP = timedelta(seconds=0.5)
# How long the loop waits at most: what tells nobody (a clock that was set, a dead engine's runs) is seen by then.
IDLE_SECONDS = 1.0
# How often a store that cannot call is asked for news.
NEWS_SECONDS = 0.02
# A turn that crashes this often has met a bug of ours: the run is paused, and disturbs no other.
CRASHES_MAX = 3
# How many runs have their turns in a round, and share a commit: heartbeats lie between.
TURNS_AT_ONCE_MAX = 500
# How many runs are asked in a round whether a task of theirs fits: there may be thousands.
CLAIMS_MAX = 200


class LeftAlone(MulliganError):
    """The run that this process is to drive meets a bug of ours, and could not even be paused."""

    code = "run.left_alone"


class Engine:
    """Drives runs in a store under one worker's name; with `root_run_id` only that run and those it starts."""

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
    ) -> None:
        self.store = store
        # Raises where what tasks came to may not be written any more: their files are gone.
        self._check = check
        self.clock = clock
        self.evaluator = evaluator
        self.name = name
        self.executor = executor
        self.root_run_id = root_run_id
        self.observer = observer or NullObserver()
        self.drives: dict[int, RunDriver] = {}
        self.known = Known()
        self._is_draining = False
        self._is_alone = not store.is_shared
        # Drives with reports that wait, and with tasks that wait for room.
        self._told: dict[int, RunDriver] = {}
        self._queuing: dict[int, RunDriver] = {}
        # Runs that we have yet to take up.
        self._wanted = Wanted()
        # Drives of runs that had ended when we took them up.
        self._ended: list[RunDriver] = []
        self._turned_away: Task | None = None
        # Runs that this process cannot drive: a bug of ours.
        self._given_up: set[int] = set()
        # The worker was registered just now.
        self.contact = HeartbeatSender(store, clock, name, executor, lease_seconds)
        self._at_work = TasksInFlight(executor, clock, self.contact.beat)
        self._next_due: datetime | None = None
        # Where the clock is our own: of the runs whose time is ahead of it, how far. And how far the wall clock was
        # stepped when we last looked.
        self._ahead: dict[int, timedelta] = {}
        self._stepped = clock.stepped()
        self._holder = "" if store.is_shared else name
        self._must_look = True
        self._looked_at = self._asked_at = 0.0
        self._asking = Asking(clock, is_shared=store.is_shared)
        self._commits = Commits()
        self._patience_max = NEWS_SECONDS if self._listen() is None else IDLE_SECONDS

    def _listen(self) -> int | None:
        """Be woken by the store, where it can call."""
        fd = self.store.fileno()
        if self.executor is not None:
            self.executor.watch(fd)
        return fd

    # -- runs --------------------------------------------------------------------------------------------------------

    def take_up(self, run_ids: Collection[int]) -> None:
        """Drive these runs, as far as their turns are free: some of them now, the others with the next rounds."""
        self._wanted.add(run_id for run_id in run_ids if run_id not in self.drives and run_id not in self._given_up)
        self._take_up_some()

    def _take_up_some(self) -> None:
        some = self._wanted.some()
        if some:
            self.adopt(self.store.take_turns(some, self.name))
            self._wanted.done(some)

    @property
    def run_ids(self) -> list[int]:
        """The runs that we drive, or are about to."""
        return [*self.drives, *(run_id for run_id in self._wanted if run_id not in self.drives)]

    def adopt(self, turns: Iterable[Turn]) -> None:
        """Drive runs whose turns we have, from where they are. One that cannot be read disturbs no other."""
        for turn in turns:
            try:
                self._adopt(turn)
            except CodecError as error:
                if turn.run_id == self.root_run_id:
                    raise
                self._given_up.add(turn.run_id)
                self.store.release([turn])
                self.observer.trouble(f"run {turn.run_id} is left alone: {error.message}")

    def refuse_given_up(self, run_id: int) -> None:
        """Raise where a run was left alone: nothing more will come of it here."""
        if run_id in self._given_up:
            raise LeftAlone(
                f"run {run_id} meets a bug of ours and cannot be driven on by this version",
                hint=f"nothing of it is lost; what it did: mulligan explain {run_id}",
            )

    def _adopt(self, turn: Turn) -> None:
        loaded = self.store.load(turn.run_id)
        workflow, graph = self.known.get(loaded.record.version, loaded.workflow)
        state = restore(workflow, loaded.rows, graph)
        self.known.notice(state.workflow)
        refuse_damaged(loaded.record, state)
        drive = self._drive(turn, loaded.record, state)
        if self._is_alone:
            drive.requeue(self.store.queued(turn.run_id))
            self._queuing[turn.run_id] = drive

    def begin(self, turns: Iterable[Turn], runs: Iterable[NewRun]) -> None:
        """Drive runs that were made just now: nothing of them has to be read."""
        for turn, new in zip(turns, runs, strict=True):
            workflow, graph = self.known.get(new.version, new.workflow)
            self._drive(turn, new_record(turn, new), State(workflow, graph))

    def _drive(self, turn: Turn, record: RunRecord, state: State) -> RunDriver:
        executor = None if self._is_draining else self.executor
        ahead = NOT_AHEAD if self.store.is_shared else max(NOT_AHEAD, state.run.at - self.clock.now())
        drive = RunDriver(
            turn, record, state, self.evaluator, executor, is_exclusive=not self.store.is_shared, ahead=ahead
        )
        self.drives[turn.run_id] = drive
        if ahead:
            self._ahead[turn.run_id] = ahead
        if drive.has_more_to_enter:
            self._told[turn.run_id] = drive
        if drive.has_ended:
            self._ended.append(drive)
        self._must_look = True
        return drive

    def set_alone(self, is_alone: bool) -> None:
        """Whether nobody else takes tasks in this store now: then what is queued is ours to take without asking.

        Somebody may come at any time: a task that was taken already makes our commit a conflict, and nothing is lost.
        """
        is_alone = is_alone or not self.store.is_shared
        if is_alone == self._is_alone:
            return
        self._is_alone = is_alone
        self._queuing.clear()
        for drive in self.drives.values():
            drive.queue.clear()
            if is_alone:
                drive.requeue(self.store.queued(drive.run_id))
                self._queuing[drive.run_id] = drive

    def drain(self) -> None:
        """From now on nothing starts. What runs may end, and is written."""
        self._is_draining = True
        for drive in self.drives.values():
            drive.executor = None
            # Whoever takes the run up finds them.
            drive.starts.clear()

    def let_go(self) -> None:
        """Give every turn back: others may go on where we stop."""
        self.store.release([drive.turn for drive in self.drives.values()])
        self._forget_all()

    # -- the loop ----------------------------------------------------------------------------------------------------

    def tick(self, patience: float = IDLE_SECONDS) -> bool:
        """Once round: gather, decide, commit, hand out. Waits up to `patience` for something; False if nothing came."""
        self._collect(0.0 if self._has_more_to_do else self._until_due(patience))
        self._fire_timers()
        if abs(self.clock.stepped() - self._stepped) >= STEP:
            self._stepped, self._must_look = self.clock.stepped(), True
        if self._must_look or self._has_news() or self._has_not_looked_for_long() or self._wanted:
            self._look()
        return self._take_turns()

    def call(self) -> None:
        """There is news for us in the store: look there on the next round."""
        self._must_look = True

    @property
    def is_idle(self) -> bool:
        """Nothing runs here, nothing waits for a turn or for room."""
        return self.is_settled and not any(drive.queue and not drive.is_paused for drive in self._queuing.values())

    @property
    def is_settled(self) -> bool:
        """Nothing runs here, and everything that has ended is written."""
        return self._at_work.is_done and not self._has_more_to_do

    @property
    def _has_more_to_do(self) -> bool:
        """Whether the next round need not wait for anything."""
        return bool(self._must_look or self._told or self._wanted)

    def _until_due(self, patience: float) -> float:
        patience = min(patience, self._patience_max)
        if self._next_due is not None:
            patience = min(patience, (self._next_due - self.clock.now()).total_seconds())
        return max(0.0, patience)

    def _collect(self, timeout: float) -> None:
        if self._at_work.collect(timeout, self._commits.worth_waiting_seconds):
            self._asking.has_more_room = True
        # Straight to its run, where we hold its turn, else through its inbox.
        for lease, report in self._at_work.ended():
            drive = self.drives.get(lease.task.run_id)
            if drive is None:
                self._send(lease.token, report, lease.task.guard)
            else:
                self._tell(drive, Told(report, token=lease.token, guard=lease.task.guard))

    def _tell(self, drive: RunDriver, told: Told) -> None:
        drive.reports.append(told)
        self._told[drive.run_id] = drive

    def _send(self, token: int, report: r.Report, guard: Guard | None) -> None:
        self._check()
        # If nobody has the run it is for us to answer.
        self._must_look = True
        try:
            self.store.report(token, report, guard=guard)
        except StaleLease:
            # The task was given away: what became of it under our lease counts for nothing.
            return

    def _fire_timers(self) -> None:
        now = self.clock.now()
        if self._next_due is None or now < self._next_due:
            return
        if self.store.fire_timers(self.root_run_id, holder=self._holder, ahead=self._ahead):
            self._must_look = True
        # It may have been a breaker that may be probed now.
        self._asking.may_have_tasks = True
        self._next_due = self.next_due()
        if self._next_due is not None and self._next_due <= now:
            # By the store's clock it is not due yet: ours is ahead.
            self._next_due = now + timedelta(seconds=NEWS_SECONDS)

    def next_due(self) -> datetime | None:
        """When, by our clock, the next timer of our runs is due, or a breaker that their tasks wait for."""
        return self.store.next_due(self.root_run_id, holder=self._holder, ahead=self._ahead)

    def _has_news(self) -> bool:
        """Asked a few times a second: a round of the loop may take less than the question."""
        now = self.clock.monotonic()
        if now - self._asked_at < NEWS_SECONDS:
            return False
        self._asked_at = now
        return self.store.has_news()

    def _has_not_looked_for_long(self) -> bool:
        return self.store.is_shared and self.clock.monotonic() - self._looked_at > IDLE_SECONDS

    def _look(self) -> None:
        """Somebody may have written to us: messages, tasks that others queued, tasks that are to end, timers."""
        self._must_look = False
        self._looked_at = self.clock.monotonic()
        self._asking.may_have_tasks = True
        called = self.store.called(self.name, self.root_run_id)
        self.take_up(called)
        self._must_look = False
        # Of ten thousand runs that wait, those that were told something. A child alone is not below its own root.
        self._read_inboxes(self.drives.keys() & called if self.root_run_id is None else self.drives.keys())
        if self._ended:
            self._part_with_ended()
        if self._at_work.has_leases:
            self._at_work.stop_asked(self.store.stops(self.name))
        self._next_due = self.next_due()

    def _read_inboxes(self, run_ids: Collection[int]) -> None:
        too_soon: set[int] = set()
        for message in self.store.inbox(run_ids):
            drive = self.drives[message.run_id]
            if drive.run_id not in too_soon and self._is_too_soon(drive, message):
                too_soon.add(drive.run_id)
            if drive.run_id not in too_soon and drive.deliver(message):
                self._told[drive.run_id] = drive

    def _is_too_soon(self, drive: RunDriver, message: Message) -> bool:
        """Another round waits for what is left of the last one: what was given out as that was stopped has its grace.

        It stays in the inbox, and what came after it too; that the task has ended is news.
        """
        return drive.has_ended and isinstance(message.report, r.RetryRequested) and self.store.has_leases(drive.run_id)

    # -- turns -------------------------------------------------------------------------------------------------------

    def _take_turns(self) -> bool:
        if self.known.has_breakers and self._asking.comes_first:
            self._lease()
        now = self.clock.now()
        drives = [self._told.pop(run_id) for run_id in list(islice(self._told, TURNS_AT_ONCE_MAX))]
        if drives:
            fault_point("before_turn")
        for drive in drives:
            self._decide(drive, now)
        drives += self._claim(now)
        under_way = list({drive.run_id: drive for drive in drives if drive.is_under_way}.values())
        if under_way:
            fault_point("before_commit")
            self._commit(under_way)
        if self.store.is_shared or self.known.has_breakers:
            self._lease()
        return bool(under_way)

    def _decide(self, drive: RunDriver, now: datetime) -> None:
        try:
            drive.answer(now, 1 if drive.crashes else REPORTS_PER_TURN_MAX)
        except StoreUnavailable:
            # An artifact that an expression reads cannot be fetched now.
            self._take_back(drive)
            raise
        except Exception as error:
            self._crashed(drive, error, now)
        if drive.run_id in self.drives:
            if drive.ahead:
                self._ahead[drive.run_id] = drive.ahead
            if drive.reports or drive.has_more_to_enter:
                self._told[drive.run_id] = drive

    def _crashed(self, drive: RunDriver, error: Exception, now: datetime) -> None:
        """A bug of ours. The turn is taken back; where it crashes again and again the run is paused, and says why."""
        drive.take_back()
        drive.crashes += 1
        if drive.crashes < CRASHES_MAX:
            return
        if drive.crashes > CRASHES_MAX or drive.is_stopping:
            self._give_up(drive, error)
            return
        reason = f"engine_error: {type(error).__name__}: {error}"
        told = drive.pause_at_a_bug(now, reason)
        self._told[drive.run_id] = drive
        self.observer.trouble(f"run {drive.run_id} is paused, a bug of ours: {reason} (told {told})")

    def _give_up(self, drive: RunDriver, error: Exception) -> None:
        """It cannot be paused, or not even that can be written: we leave it alone, and let whoever is wiser have it."""
        self._pass_on(drive)
        self._forget(drive)
        self._given_up.add(drive.run_id)
        self.store.release([drive.turn])
        self.observer.trouble(f"run {drive.run_id} is left alone, a bug of ours: {type(error).__name__}: {error}")

    def _claim(self, now: datetime) -> list[RunDriver]:
        """Tasks of earlier turns that there is room for now. Where others may take them too, the store is asked."""
        claimed: list[RunDriver] = []
        if self.executor is None or self._is_draining or not self._is_alone or not self._queuing or self._is_full():
            return claimed
        for drive in list(islice(self._queuing.values(), CLAIMS_MAX)):
            try:
                turned_away = drive.claim(now)
            except Exception as error:
                self._crashed(drive, error, now)
                continue
            claimed.append(drive)
            if not drive.queue:
                del self._queuing[drive.run_id]
            if turned_away is not None and turned_away.is_small:
                self._turned_away = turned_away
                break
        return claimed

    def _is_full(self) -> bool:
        """Whether a small task that was turned away would be again: then nothing else fits either."""
        assert self.executor is not None
        return self._turned_away is not None and not self.executor.fits(self._turned_away)

    def _commit(self, drives: list[RunDriver]) -> None:
        self._check()
        try:
            commits = [commit for drive in drives if (commit := drive.commit()) is not None]
            begun_at = self.clock.monotonic()
            written = self.store.commit(commits)
            self._commits.took(self.clock.monotonic() - begun_at)
        except Conflict:
            self._commit_apart(drives)
            self.set_alone(False)
            return
        except (StoreUnavailable, StoreRefused):
            for drive in drives:
                self._take_back(drive)
            raise
        except Exception as error:
            self._commit_without(drives, error)
            return
        fault_point("after_commit")
        self._confirm(drives, commits, written)

    def _commit_without(self, drives: list[RunDriver], error: Exception) -> None:
        """A bug of ours: what one of them is to write cannot be written. Each alone: the others are not disturbed."""
        if len(drives) == 1:
            self._crashed(drives[0], error, self.clock.now())
            if drives[0].run_id in self.drives:
                self._told[drives[0].run_id] = drives[0]
        else:
            self._commit_apart(drives)

    def _take_back(self, drive: RunDriver) -> None:
        drive.take_back()
        self._told[drive.run_id] = drive
        if drive.queue:
            self._queuing[drive.run_id] = drive

    def _commit_apart(self, drives: list[RunDriver]) -> None:
        """One of them is no longer ours. Each alone: the others are written, and that one is let go."""
        if len(drives) == 1:
            self._lose(drives[0])
            return
        now = self.clock.now()
        for drive in drives:
            self._take_back(drive)
        for drive in drives:
            self._told.pop(drive.run_id, None)
            self._decide(drive, now)
            if drive.is_under_way:
                self._commit([drive])

    def _lose(self, drive: RunDriver) -> None:
        """Another holder has written the run. What our own tasks have to say goes through its inbox."""
        drive.take_back()
        self._pass_on(drive)
        self._forget(drive)
        self._must_look = True

    def _pass_on(self, drive: RunDriver) -> None:
        """Nobody else has the leases of our own tasks: whoever drives the run next hears from us what they came to."""
        for told in (*drive.aside, *drive.reports):
            if told.token is not None:
                self._send(told.token, told.report, told.guard)

    def _forget_all(self) -> None:
        for drives in (self.drives, self._told, self._queuing):
            drives.clear()
        self._ahead.clear()
        self._ended.clear()

    def _forget(self, drive: RunDriver) -> None:
        for drives in (self.drives, self._told, self._queuing):
            drives.pop(drive.run_id, None)
        self._ahead.pop(drive.run_id, None)

    def _confirm(self, drives: list[RunDriver], commits: list[Commit], written: list[Committed]) -> None:
        fault_point("after_drain")
        # First of all: what follows here takes its time while the tasks run.
        self._at_work.start([lease for gave in written for lease in gave.leases])
        for drive, commit, gave in zip(drives, commits, written, strict=True):
            entries = drive.confirm()
            drive.crashes = 0
            if not self._is_alone:
                drive.queue.clear()
            elif drive.queue:
                self._queuing[drive.run_id] = drive
            if drive.has_more_to_enter:
                self._told[drive.run_id] = drive
            if entries:
                self.observer.committed(drive.state, entries)
            if drive.has_ended:
                self._part_with(drive, commit)
            elif drive.reports:
                # A pause is lifted that a bug of ours had made: what it was about is told again.
                self._told[drive.run_id] = drive
            self._note(drive, commit, gave)
        self._at_work.stop(commits)

    def _part_with(self, drive: RunDriver, commit: Commit) -> None:
        """The run has ended: its last commit gave the turn back, a later one (a verb that was refused) does not."""
        # What came behind the end of the round is in its inbox.
        self._must_look = self._must_look or bool(drive.reports)
        if not commit.is_last:
            self.store.release([drive.turn])
        self._forget(drive)

    def _part_with_ended(self) -> None:
        """Give back runs that had ended when we took them up: another may have driven them to their ends, or a commit
        was written though we saw an error. One that was told something is parted with when it has answered.
        """
        ended = [drive for drive in self._ended if not drive.reports]
        self.store.release([drive.turn for drive in ended])
        self._ended.clear()
        for drive in ended:
            self._forget(drive)

    def _note(self, drive: RunDriver, commit: Commit, gave: Committed) -> None:
        """What the commit makes us look at next."""
        self.known.notice(drive.state.workflow)
        for timer in commit.timers:
            due = drive.due(timer, self._stepped)
            if self._next_due is None or due < self._next_due:
                self._next_due = due
        if gave.children:
            self.begin(gave.children, commit.children)
        if commit.told or commit.told_children:
            self._must_look = True
        # What is guarded is asked for everywhere; and who waits for a breaker may pass when its probe has ended.
        is_guarded = self.known.has_breakers and bool(commit.queued or commit.counted or commit.is_last)
        if is_guarded or (commit.queued and not self._is_alone):
            self._asking.may_have_tasks = True

    def _lease(self) -> None:
        """The store is asked for tasks that fit: where others queue some too for all, else for those with a breaker."""
        may_have_others = self.known.has_breakers or not self._is_alone
        if self.executor is None or self._is_draining or not self._asking.is_worth_it(may_have_others=may_have_others):
            return
        offer = self.executor.offer()
        if offer.tasks_max < 1:
            self._asking.has_no_room()
            return
        is_guarded = not self.store.is_shared
        leases = self.store.lease(self.name, offer, root_run_id=self.root_run_id, is_guarded=is_guarded)
        self._asking.asked(may_have_more=len(leases) == offer.tasks_max)
        # That they have started is in their inboxes: a run hears of it before it hears of their end.
        run_ids = {lease.task.run_id for lease in leases}
        self._read_inboxes(self.drives.keys() if self.known.has_breakers else run_ids & self.drives.keys())
        self._must_look = self._must_look or not run_ids <= self.drives.keys()
        self._at_work.reserve_and_start(leases)
        if self.known.has_breakers:
            # Tasks that wait for a breaker have a time.
            self._next_due = self.next_due()

    # -- trouble -----------------------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Let time pass while the store does not answer. What ends meanwhile is kept."""
        self._at_work.wait(seconds)

    def recover(self) -> None:
        """The store is back. What it says is true: what was written though we saw an error is not done again."""
        self.contact.beat()
        self._listen()
        self._at_work.keep(self._unsent())
        run_ids = self.run_ids
        self._forget_all()
        self.take_up(run_ids)
        self._at_work.go_on(self.store.held(self.name), self._at_work.untold())
        self._must_look = True

    def _unsent(self) -> dict[int, r.Report]:
        """What our own tasks have reported that may not have been written."""
        unsent: dict[int, r.Report] = {}
        for drive in self.drives.values():
            drive.take_back()
            told = (*drive.aside, *drive.reports)
            unsent.update((one.token, one.report) for one in told if one.token is not None)
        return unsent
