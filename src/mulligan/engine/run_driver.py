"""One run that this engine holds the turn of: its state in memory, what it is about to be told, and what follows.

A turn answers all the reports that wait. Nothing is true before its commit is written: `confirm` once it is,
`take_back` if it never was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from mulligan.core.deciding.breaker import Guard, GuardedOutcome, breaker_verdict
from mulligan.core.deciding.budgets import remaining_budget
from mulligan.core.deciding.flow import remaining_start_batches
from mulligan.core.effects import effects as fx
from mulligan.core.effects.child_runs import child_uid
from mulligan.core.effects.reuse import forced_child_steps
from mulligan.core.effects.snapshot import changes
from mulligan.core.effects.tasks import Task, make_task
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import encode, version, with_callers_secrets
from mulligan.core.state.held_steps import is_on_hold
from mulligan.core.state.scope import Evaluator, fill_params
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.verdict import unhandled
from mulligan.core.turn import follow
from mulligan.errors import ExpressionFailed, InputInvalid, NotFound, Refused
from mulligan.language import check_recorded_inputs
from mulligan.ports import Answer, ChildReport, Commit, Executor, Message, NewRun, RunRecord, Turn

# A verb that makes no sense is refused at the core's door, before it has changed anything.
REFUSALS = (Refused, NotFound, InputInvalid)
NOT_AHEAD = timedelta(0)
# A turn that brings more than this at once is taken in pieces: its process shall not grow with its inbox.
REPORTS_PER_TURN_MAX = 1000
# How many tasks that do not fit are looked at before one gives up for now: there may be a hundred thousand.
TURNED_AWAY_MAX = 20


class Told(msgspec.Struct, frozen=True):
    """A report that waits for the run's next turn: from its inbox, or (with a token) of this worker's own task."""

    report: r.Report
    message_id: int | None = None
    is_asking: bool = False
    token: int | None = None
    # Of the task that the token is about.
    guard: Guard | None = None


class _Pending(msgspec.Struct):
    """What the turn under way has gathered."""

    after: int
    entries: list[e.Entry] = []
    # Tasks that this turn has queued, by place: those that our hands may still take, and those that they have not.
    fresh: dict[str, Task] = {}
    queued: dict[str, Task] = {}
    taken: dict[str, Task] = {}
    # Places whose tasks were queued by an earlier turn and are taken by this one, in order.
    claimed: list[tuple[str, int]] = []
    stopped: list[fx.StopTask] = []
    timers: list[fx.SetTimer] = []
    children: list[NewRun] = []
    told: list[tuple[int, r.Report]] = []
    told_children: list[ChildReport] = []
    ended: list[int] = []
    counted: list[GuardedOutcome] = []
    drained: list[tuple[int, Answer | None]] = []
    answered: list[Told] = []
    # Pieces of the first steps: those that this turn has entered, and those that it has found to follow.
    begun: list[int] = []
    starts: list[int] = []
    # Reports that follow in the same turn: a timer that has passed already, a task that our hands take.
    next: deque[r.Report] = msgspec.field(default_factory=deque)
    is_last: bool = False


class RunDriver:
    """A run in this engine's hands."""

    def __init__(
        self,
        turn: Turn,
        record: RunRecord,
        state: State,
        evaluator: Evaluator,
        executor: Executor | None,
        *,
        is_exclusive: bool = True,
        ahead: timedelta = NOT_AHEAD,
    ) -> None:
        self.turn = turn
        # How far the run's time is ahead of our clock: a log's time never goes back, and goes on from where it was.
        self.ahead = ahead
        self.record = record
        self.state = state
        self.evaluator = evaluator
        self.executor = executor
        # Nobody else may ever take its tasks: what our hands can never take, nobody can.
        self.is_exclusive = is_exclusive
        self.reports: deque[Told] = deque()
        # Tasks of earlier turns that nobody has taken, oldest first; kept only where no one else may take them.
        self.queue: deque[tuple[str, int]] = deque()
        # Of a large run: the pieces of its first steps that are still to be entered, by where they begin.
        self.starts: deque[int] = deque(remaining_start_batches(state) if state.places else ())
        self.crashes = 0
        # What met a bug of ours: told again when the pause that came of it is lifted.
        self.aside: deque[Told] = deque()
        # Messages of the inbox that are in `reports`, or in the turn under way.
        self.delivered: set[int] = set()
        self._pending: _Pending | None = None

    @property
    def run_id(self) -> int:
        return self.turn.run_id

    @property
    def has_ended(self) -> bool:
        return self.state.run.status in RUN_ENDED

    @property
    def is_paused(self) -> bool:
        return self.state.run.status == "paused"

    @property
    def is_paused_at_a_bug(self) -> bool:
        """Whether it holds what the run cannot be told before its pause is lifted."""
        return bool(self.aside) and self.is_paused

    @property
    def is_stopping(self) -> bool:
        return self.state.run.stop is not None

    @property
    def has_more_to_enter(self) -> bool:
        """Whether the next turn goes on with the first steps of a large run: not while it is paused."""
        return bool(self.starts) and not self.is_paused

    @property
    def is_under_way(self) -> bool:
        """Whether a turn has begun that is not written."""
        return self._pending is not None

    def deliver(self, message: Message) -> bool:
        """Let a message of the inbox wait for the next turn; False if it does already."""
        if message.id in self.delivered:
            return False
        self.delivered.add(message.id)
        told = Told(message.report, message.id, message.is_asking)
        if isinstance(message.report, r.TaskStarted):
            # What runs is known to run before it is asked to end: else the run might be over while it still does.
            self.reports.appendleft(told)
        else:
            self.reports.append(told)
        return True

    def pause_at_a_bug(self, now: datetime, reason: str) -> str:
        """Set aside what the run cannot be told, and pause it; what that was, in a word."""
        now += self.ahead
        poison = self.reports.popleft() if self.reports else None
        if poison is not None:
            self.aside.append(poison)
        self.reports.appendleft(Told(r.PauseRequested(now, "engine", reason)))
        return type(poison.report).__name__ if poison else "a task that there is room for"

    def requeue(self, known_by: Iterable[tuple[str, int]]) -> None:
        """These tasks wait in the store since before. Guarded ones are left there, unless nobody can ever take them."""
        self.queue.clear()
        self.queue.extend(one for one in known_by if not self._is_guarded(one[0]))

    def _is_guarded(self, key: str) -> bool:
        place = self.state.places.get(key)
        return place is not None and place.spec.breaker is not None and not self._is_ours(make_task(self.state, key))

    # -- a turn ------------------------------------------------------------------------------------------------------

    def answer(self, now: datetime, reports_max: int = REPORTS_PER_TURN_MAX) -> None:
        """Tell the run what waits; what follows that there is room for is taken by our hands at once.

        Up to the end of a round: its commit clears away what is left of that, and must not touch the next one.
        """
        now += self.ahead
        pending, reports = self._begin(), self.reports
        for _ in range(min(reports_max, len(reports))):
            if pending.is_last:
                break
            told = reports.popleft()
            pending.answered.append(told)
            self._answer(pending, told, now)
        if self.has_more_to_enter:
            pending.begun.append(self.starts.popleft())
            pending.next.append(r.StartsDue(now, pending.begun[-1]))
            self._follow(pending, now)
        if (left := self.starts or pending.starts) and not (self.is_exclusive or self.is_paused or pending.is_last):
            # If we die now, and nothing else of this run calls for a worker: the next one must hear that there is more.
            pending.told.append((self.run_id, r.StartsDue(now, left[0])))

    def claim(self, now: datetime) -> Task | None:
        """Take tasks of earlier turns that there is room for, the oldest first; the last one that there was none for.

        A large one that waits for room does not keep smaller ones behind it waiting; a few are asked, not all.
        """
        now += self.ahead
        waiting: list[tuple[str, int]] = []
        wanted = None
        try:
            while self.queue and len(waiting) < TURNED_AWAY_MAX and self.executor is not None and not self.is_paused:
                known_by = self.queue.popleft()
                if not self._is_ready(*known_by):
                    continue
                waiting.append(known_by)
                wanted = self._task(known_by[0])
                if self._is_ours(wanted):
                    self._begin().claimed.append(waiting.pop())
                    self._take_or_refuse(self._begin(), wanted, now)
                    self._follow(self._begin(), now)
                elif wanted.is_small:
                    break
        finally:
            # Also where one of them met a bug of ours: the others still wait.
            self.queue.extendleft(reversed(waiting))
        return wanted if waiting else None

    def _is_ready(self, key: str, attempt: int) -> bool:
        place = self.state.places.get(key)
        is_ready = place is not None and place.attempt == attempt and place.status == "ready"
        # One that is held is queued again when its step is resumed.
        return is_ready and not is_on_hold(self.state, self.state.places[key])

    def _begin(self) -> _Pending:
        if self._pending is None:
            self.state.begin()
            self._pending = _Pending(self.state.run.seq)
        return self._pending

    def _answer(self, pending: _Pending, told: Told, now: datetime) -> None:
        refusal: Answer | None = None
        try:
            pending.next.append(self._dated(told, now))
            self._follow(pending, now)
        except REFUSALS as error:
            pending.next.clear()
            refusal = Answer(error.code, error.message, error.hint)
        if told.token is not None:
            pending.ended.append(told.token)
            if told.guard is not None:
                pending.counted.append(GuardedOutcome(told.token, told.guard, breaker_verdict(told.report, told.guard)))
        if told.message_id is not None:
            pending.drained.append((told.message_id, (refusal or Answer()) if told.is_asking else None))

    def _dated(self, told: Told, now: datetime) -> r.Report:
        """The report with the time by our own clock: that of who wrote it may be wrong, or was stepped since."""
        report = told.report
        if told.token is not None:
            # Of what we saw ourselves we know the time.
            return replace(report, at=report.at + self.ahead) if self.ahead else report
        if isinstance(report, r.TimerFired) and report.at > now:
            # The store says that it is due. It was the clock of another process, where each has its own: it was ahead.
            self.ahead += report.at - now if self.is_exclusive else NOT_AHEAD
            return report
        return replace(report, at=now)

    def due(self, timer: fx.SetTimer, stepped: timedelta) -> datetime:
        """When a timer of this run is due by our clock, where the wall clock is ahead of that by `stepped`."""
        return timer.due - (stepped if timer.kind == "until" else self.ahead)

    def _task(self, key: str) -> Task:
        """What a worker is told: a deadline by the clock of this process."""
        found = make_task(self.state, key)
        if self.ahead and found.deadline is not None:
            return replace(found, deadline=found.deadline - self.ahead)
        return found

    def _follow(self, pending: _Pending, now: datetime) -> None:
        state, entries, effects = self.state, pending.entries, fx.effects
        while pending.next:
            for entry in follow(state, pending.next.popleft(), self.evaluator):
                entries.append(entry)
                fact = entry.fact
                for effect in effects(state, fact):
                    _CARRY_OUT[type(effect)](self, pending, effect, now)
                if type(fact) in _ENDS:
                    self._end(pending, now)
            if pending.fresh:
                self._take(pending, now)

    def _take(self, pending: _Pending, now: datetime) -> None:
        """What this turn has queued goes to our own hands at once, while there is room; the rest waits."""
        is_paused = self.is_paused
        for key, wanted in pending.fresh.items():
            if is_paused or not self._is_here(wanted) or not self._is_ours(wanted):
                pending.queued[key] = wanted
            else:
                self._take_or_refuse(pending, wanted, now)
        pending.fresh.clear()

    def _is_here(self, wanted: Task) -> bool:
        """Whether it may run on this host. Else it is queued: the store knows whether its own host is still there."""
        return self.is_exclusive or self.executor is None or wanted.host in ("", self.executor.host)

    def _is_ours(self, wanted: Task) -> bool:
        """Whether it is for our hands: there is room, or it is for them to say that there will never be any.

        A guarded one is the store's to give: its breaker is asked there.
        """
        if self.executor is None:
            return False
        has_room = wanted.guard is None and self.executor.fits(wanted)
        return has_room or (self.is_exclusive and not self.executor.can_ever(wanted))

    def _take_or_refuse(self, pending: _Pending, wanted: Task, now: datetime) -> None:
        assert self.executor is not None
        if not self.executor.can_ever(wanted):
            outcome = Outcome(
                code="NO_CAPACITY",
                message=f"no worker here can ever take it: it asks for {self.executor.lacking(wanted)}",
            )
            pending.stopped.append(fx.StopTask(wanted.place, wanted.attempt, 0.0))
            pending.next.append(r.TaskEnded(now, wanted.place, wanted.attempt, outcome))
            return
        self.executor.reserve(wanted)
        pending.taken[wanted.place] = wanted
        pending.next.append(r.TaskStarted(now, wanted.place, wanted.attempt, self.executor.name, self.executor.host))

    def _end(self, pending: _Pending, now: datetime) -> None:
        """The round is over: whoever waits for this run as its child is told, with what came of it."""
        pending.is_last = True
        run, record = self.state.run, self.record
        if record.parent_run_id is None:
            return
        failures = tuple(found.failure for found in unhandled(self.state))
        status: Any = run.status
        report = r.ChildEnded(
            now,
            record.parent_place,
            record.parent_attempt,
            run.run_id,
            status,
            run.outputs,
            failures,
            run.spent.as_usage,
        )
        pending.told.append((record.parent_run_id, report))

    # -- what is written ---------------------------------------------------------------------------------------------

    def commit(self) -> Commit | None:
        """What the turn under way has to write; None if there is none."""
        pending, run = self._pending, self.state.run
        if pending is None:
            return None
        # By position, in the order of the fields: so many names take five times as long to find their fields.
        return Commit(
            self.turn,
            pending.after,
            pending.entries,
            changes(self.state) if pending.entries else (),
            run.status,
            run.round,
            run.at,
            run.degraded,
            run.reason,
            list(pending.queued.values()),
            list(pending.taken.values()),
            pending.ended,
            pending.stopped,
            pending.timers,
            pending.drained,
            pending.children,
            pending.told,
            pending.told_children,
            pending.is_last,
            pending.counted,
        )

    def confirm(self) -> list[e.Entry]:
        """The commit is written: what it says is true now."""
        pending = self._pending
        assert pending is not None, "no turn is under way"
        self.state.commit()
        if pending.queued:
            # What was queued while the run was paused, and nobody can ever take, is for us to say so.
            waiting = (one for one in pending.queued.values() if one.guard is None or self._is_ours(one))
            self.queue.extend((one.place, one.attempt) for one in waiting)
        if pending.drained:
            self.delivered.difference_update(message_id for message_id, _ in pending.drained)
        if self.aside and not self.is_paused:
            self.reports.extendleft(reversed(self.aside))
            self.aside.clear()
        self.starts.extend(pending.starts)
        self._pending = None
        return pending.entries

    def take_back(self) -> None:
        """The commit was not written: everything is as before, and the reports wait again."""
        pending = self._pending
        if pending is None:
            return
        self.state.rollback()
        self.reports.extendleft(reversed(pending.answered))
        self.starts.extendleft(reversed(pending.begun))
        self.queue.extendleft(reversed(pending.claimed))
        for wanted in pending.taken.values():
            assert self.executor is not None
            self.executor.unreserve(wanted)
        self._pending = None


def new_record(turn: Turn, new: NewRun) -> RunRecord:
    """The line of a run that was made just now."""
    request = new.request
    return RunRecord(
        turn.run_id,
        new.name,
        new.version,
        "running",
        1,
        0,
        request.at,
        request.at,
        parent_run_id=request.parent_run_id,
        parent_place=new.parent_place,
        parent_attempt=new.parent_attempt,
        holder=turn.holder,
    )


_ENDS = frozenset({e.RunCompleted, e.RunFailed, e.RunCancelled})


# -- effects ---------------------------------------------------------------------------------------------------------


def _queue(drive: RunDriver, pending: _Pending, effect: fx.QueueTask, now: datetime) -> None:
    if pending.stopped:
        # A step that was paused and resumed in one turn: its task stays where it is.
        known_by = (effect.place, effect.attempt)
        pending.stopped[:] = [stop for stop in pending.stopped if (stop.place, stop.attempt) != known_by]
    pending.fresh[effect.place] = drive._task(effect.place)


def _stop(drive: RunDriver, pending: _Pending, effect: fx.StopTask, now: datetime) -> None:
    """What nobody has been given yet is simply not given; the rest is the store's to find."""
    for tasks in (pending.fresh, pending.queued):
        found = tasks.get(effect.place)
        if found is not None and found.attempt == effect.attempt:
            del tasks[effect.place]
            return
    pending.stopped.append(effect)


def _set_timer(drive: RunDriver, pending: _Pending, effect: fx.SetTimer, now: datetime) -> None:
    # Whether a time of day has come is for the store to say: it knows the wall clock.
    if effect.kind != "until" and effect.due <= drive.state.run.at:
        pending.next.append(r.TimerFired(drive.state.run.at, effect.kind, effect.place, effect.number))
    else:
        pending.timers.append(effect)


def _start_child(drive: RunDriver, pending: _Pending, effect: fx.StartChild, now: datetime) -> None:
    """The child run, in the same commit; what it is given is checked here, since expressions gave it."""
    place = drive.state.places[effect.place]
    assert place.spec.action is not None
    params = fill_params(place.spec.action, place.bindings)
    child = drive.state.workflow.children[params["file"]]
    try:
        inputs = check_recorded_inputs(child, params.get("inputs") or {}, drive.evaluator)
    except (InputInvalid, ExpressionFailed) as error:
        outcome = Outcome(code="INPUT_INVALID", message=error.message)
        pending.next.append(r.TaskEnded(now, effect.place, effect.attempt, outcome))
        return
    data = encode(with_callers_secrets(child, drive.state.workflow))
    run = drive.state.run
    request = r.RunRequested(
        now,
        0,
        inputs,
        version(data),
        by=f"run {run.run_id}",
        parent_run_id=run.run_id,
        cwd=run.cwd,
        uid=child_uid(run, effect.place, effect.attempt),
        changed_only=run.changed_only,
        forced=forced_child_steps(drive.state, place, child),
        callers_budget=remaining_budget(drive.state, place),
    )
    pending.children.append(NewRun(data, request.version, child.name, request, effect.place, effect.attempt))


def _stop_child(drive: RunDriver, pending: _Pending, effect: fx.StopChild, now: datetime) -> None:
    report = r.CancelRequested(now, f"run {drive.run_id}", "its parent asked it to end", effect.now)
    pending.told_children.append(ChildReport(report, effect.place, effect.attempt))


def _enter_more(drive: RunDriver, pending: _Pending, effect: fx.EnterMore, now: datetime) -> None:
    pending.starts.append(effect.begin)


def _pause_children(drive: RunDriver, pending: _Pending, effect: fx.PauseChildren, now: datetime) -> None:
    pending.told_children.append(ChildReport(r.PauseRequested(now, f"run {drive.run_id}", "its parent was paused")))


def _resume_children(drive: RunDriver, pending: _Pending, effect: fx.ResumeChildren, now: datetime) -> None:
    pending.told_children.append(ChildReport(r.ResumeRequested(now, f"run {drive.run_id}")))


_CARRY_OUT: dict[type[fx.Effect], Callable[[RunDriver, _Pending, Any, datetime], None]] = {
    fx.QueueTask: _queue,
    fx.StopTask: _stop,
    fx.SetTimer: _set_timer,
    fx.StartChild: _start_child,
    fx.StopChild: _stop_child,
    fx.EnterMore: _enter_more,
    fx.PauseChildren: _pause_children,
    fx.ResumeChildren: _resume_children,
}
