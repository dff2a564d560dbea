"""One run whose turn this engine holds: its state in memory, its waiting reports, and the turn that processes them.

A turn processes all waiting reports. Nothing of it is true before its commit is written: `confirm` it then, or
`roll_back`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import inf
from typing import Any

from msgspec.structs import replace

from mulligan.core import ordinary
from mulligan.core.deciding.flow import remaining_start_batches
from mulligan.core.deciding.programs import goes_on
from mulligan.core.deciding.report_checks import REQUESTS, check_report
from mulligan.core.deciding.rounds.child_failure import child_end, undo_failed_in
from mulligan.core.deciding.workers.breaker import GuardedOutcome, breaker_verdict
from mulligan.core.effects import effects as fx
from mulligan.core.effects.lease_rules import ahead_share, has_time_for, may_be_held
from mulligan.core.effects.program_history import ends_of
from mulligan.core.effects.run_lists import RunFailures, run_failures
from mulligan.core.effects.snapshot import changes
from mulligan.core.effects.tasks import Task, make_task
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.actions import waits
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.program_calls import Delivery
from mulligan.core.state.deadlines import is_time_up
from mulligan.core.state.held_steps import is_on_hold
from mulligan.core.state.scope import Evaluator
from mulligan.core.state.state import Place, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.verdict import unhandled
from mulligan.core.turn import end_by_force, follow_at_length, follow_rest, refused_report, report_before
from mulligan.engine.child_effects import continue_child, pause_children, resume_children, start_child, stop_child
from mulligan.engine.crash_answers import OVER, REPORT_IT, running_tasks, to_children, to_parent, without_content
from mulligan.engine.pending_turn import PendingTurn, QueuedReport
from mulligan.engine.task_backlog import BacklogEntry, TaskBacklog
from mulligan.errors import (
    InputInvalid,
    MessageRefused,
    MulliganError,
    NotFound,
    Refused,
    UndoFailed,
)
from mulligan.ports import Answer, Commit, Message, NoticeRecord, RunRecord, TaskCapacity, Turn

# The core refuses a verb that is not allowed before it has changed anything.
REFUSALS = (Refused, NotFound, InputInvalid)
NOT_AHEAD = timedelta(0)
# More reports than this are processed in several turns, so that memory does not grow with the inbox.
REPORTS_PER_TURN_MAX = 1000
# How many tasks that do not fit are looked at before a run gives up for now: there may be a hundred thousand.
REJECTED_MAX = 20


class RunDriver:
    """Decides the turns of one run."""

    def __init__(
        self,
        *,
        turn: Turn,
        record: RunRecord,
        state: State,
        evaluator: Evaluator,
        executor: TaskCapacity | None,
        is_exclusive: bool,
        ahead: timedelta,
        has_others: Callable[[], bool] = lambda: False,
        others_take_part: Callable[[], bool] = lambda: False,
    ) -> None:
        self.turn = turn
        self.run_id = turn.run_id
        # How far the run's time is ahead of our clock: the time in a log never goes back.
        self.ahead = ahead
        # The same when the open turn began.
        self._ahead_in_turn = ahead
        self.record = record
        self.state = state
        self.evaluator = evaluator
        self.executor = executor
        # No other worker may ever take its tasks: a task that our executor can never take fails. Unless workers of
        # other hosts take part, or did: one that comes again may take it.
        self.is_exclusive = is_exclusive
        self._others_take_part = others_take_part
        # Whether other workers take tasks now: `is_alone` may be old.
        self._has_others = has_others
        # Whether no other worker takes tasks of this run: then all of them are ours, also those that never fit.
        self.is_alone = True
        self.reports: deque[QueuedReport] = deque()
        # Free tasks of earlier turns, oldest first; empty if other workers may take them.
        self.queue = TaskBacklog()
        # Batches of first steps of a large run that are not entered yet, by their first index.
        self.starts: deque[int] = deque(remaining_start_batches(state) if state.places else ())
        self.crashes = 0
        # Reports that crashed a turn: processed again when the pause that followed is lifted.
        self.set_aside: deque[QueuedReport] = deque()
        # The report that the open turn was made of, if it was one alone; and why the next turn ends the run by force.
        self._suspect: QueuedReport | None = None
        self._forced_end = ""
        # Ids of inbox messages that are in `reports` or in the open turn.
        self.delivered: set[int] = set()
        self._pending: PendingTurn | None = None

    @property
    def has_ended(self) -> bool:
        return self.state.run.status in RUN_ENDED

    @property
    def is_paused(self) -> bool:
        return self.state.run.status == "paused"

    @property
    def is_resting(self) -> bool:
        """Whether it only waits for messages, which wake it as well if it is not loaded."""
        is_open = self.state.run.status in ("running", "paused") and not self.is_stopping
        has_more = self.reports or self.set_aside or self.queue or self.starts or self.ahead or self.crashes
        return is_open and not has_more and not self.has_open_turn

    @property
    def is_paused_after_crash(self) -> bool:
        """Whether it holds a report that crashed a turn, until its pause is lifted."""
        return bool(self.set_aside) and self.is_paused

    @property
    def is_stopping(self) -> bool:
        return self.state.run.stop is not None

    @property
    def has_more_to_enter(self) -> bool:
        """Whether the next turn enters more first steps of a large run: not while it is paused."""
        return bool(self.starts) and not self.is_paused

    @property
    def has_open_turn(self) -> bool:
        """Whether a turn has begun and is not written."""
        return self._pending is not None

    def deliver(self, message: Message) -> bool:
        """Add a message of the inbox to the next turn. False if it was added before."""
        if message.id in self.delivered:
            return False
        self.delivered.add(message.id)
        queued = QueuedReport(message.report, message.id, message.is_asking)
        if isinstance(message.report, r.TaskStarted):
            # A run must know of a running task before it is asked to stop: otherwise it could end while the task runs.
            self.reports.appendleft(queued)
        elif isinstance(message.report, r.CancelRequested):
            # Before what came just before it and would start something.
            index = len(self.reports)
            while index and _may_start_something(self.reports[index - 1]):
                index -= 1
            self.reports.insert(index, queued)
        else:
            self.reports.append(queued)
        return True

    def answer_crash(self, now: datetime, reason: str) -> str:
        """Prepare a turn that does not meet the same bug. What becomes of the run, in words; "" if there is none.

        What people ask for is refused, what a worker made up is a failure, anything else is set aside in a pause.
        """
        poison = self._suspect if self.reports and self.reports[0] == self._suspect else None
        report = poison.report if poison is not None else None
        trigger = "a queued task" if report is None else type(report).__name__
        if isinstance(report, r.RunRequested) or (isinstance(report, r.CancelRequested) and report.now):
            self._forced_end = reason
            return f"is ended because of a bug in Mulligan: {reason} (at {trigger})"
        if poison is not None and isinstance(report, REQUESTS):
            self.reports[0] = replace(poison, refusal=reason)
            return f"refuses a message that it cannot process: {reason} (at {trigger})"
        if poison is not None and (plain := without_content(report, reason)) is not None:
            self.reports[0] = replace(poison, report=plain)
            return f"takes a result that it cannot process for a failure: {reason} (at {trigger})"
        if self.state.run.status in ("running", "paused") and not self.is_stopping:
            if self.reports:
                self.set_aside.append(self.reports.popleft())
            self.reports.appendleft(QueuedReport(r.PauseRequested(now + self.ahead, "engine", reason)))
            return f"is paused because of a bug in Mulligan: {reason} (at {trigger})"
        if not self.has_ended and self._is_to_end_at_once:
            self._forced_end = reason
            return f"is ended because of a bug in Mulligan: {reason} (at {trigger})"
        return ""

    @property
    def _is_to_end_at_once(self) -> bool:
        """Whether somebody has asked that only `end` runs, or asks for that now."""
        asked = (one.report.now for one in self.all_reports if isinstance(one.report, r.CancelRequested))
        return any(asked) or (self.state.run.stop is not None and self.state.run.stop.now)

    @property
    def all_reports(self) -> tuple[QueuedReport, ...]:
        return (*self.set_aside, *self.reports)

    def requeue(self, task_keys: Iterable[tuple[str, int]]) -> None:
        """Queue tasks that wait in the store. Guarded ones stay there, unless no worker can ever take them."""
        self.queue.clear()
        for task_key in task_keys:
            if not self._is_guarded(task_key[0]):
                self.queue.append(task_key, waits=self._waits(task_key[0]))

    def _waits(self, key: str) -> bool:
        """Whether the task of a place probably waits for another machine: where a value is missing, only it knows."""
        place = self.state.places.get(key)
        if place is None or place.spec.action is None:
            return False
        resources = place.spec.resources
        is_asking = resources is not None and resources.cpus is not None
        return not is_asking and waits(place.spec.action.kind, place.spec.action.params)

    def _is_guarded(self, key: str) -> bool:
        place = self.state.places.get(key)
        return place is not None and place.spec.breaker is not None and not self._is_ours(make_task(self.state, key))

    # -- a turn ------------------------------------------------------------------------------------------------------

    def decide(self, now: datetime, reports_max: int = REPORTS_PER_TURN_MAX) -> None:
        """Process the waiting reports. Tasks that follow and fit are taken by our executor at once.

        Stops at the end of a round: the commit removes what is left of the round, and must not touch the next one.
        """
        now, self._ahead_in_turn = now + self.ahead, self.ahead
        pending, reports = self._begin(), self.reports
        if self._forced_end:
            self._end_by_force(pending, now)
            return
        self._suspect = None
        for _ in range(min(reports_max, len(reports))):
            if self.state.run.due is not None and not pending.is_last:
                self._report_first(pending, report_before(self.state, self._with_time(reports[0], now)), now)
            if pending.is_last:
                break
            queued = reports.popleft()
            if type(queued.report) is r.CallsMade and not self._goes_on(queued.report):
                queued = self._as_end(queued, queued.report)
            pending.processed.append(queued)
            self._suspect = queued
            self._process(pending, queued, now)
        self._suspect = self._suspect if len(pending.processed) == 1 else None
        if self.state.run.due is not None:
            self._stop_if_time_is_up(pending, now)
        if self.starts and self.has_more_to_enter:
            pending.entered.append(self.starts.popleft())
            pending.next.append(r.StartsDue(now, pending.entered[-1]))
            self._follow(pending, now)
        if (left := self.starts or pending.starts) and not (self.is_paused or pending.is_last):
            # If this worker dies now, a message must make the next one continue.
            pending.outgoing.append((self.run_id, r.StartsDue(now, left[0])))

    def is_time_up(self, now: datetime) -> bool:
        """Whether the time of the run is up, and the run is not stopped for it yet."""
        return is_time_up(self.state, now + self.ahead)

    def _stop_if_time_is_up(self, pending: PendingTurn, now: datetime) -> None:
        """Stop the run before anything else of it starts, whatever was due or reported meanwhile.

        Its timer may not have fired: nobody drove the run, or another timer was due before it.
        """
        if is_time_up(self.state, now):
            self._report_first(pending, r.TimerFired(now, "run", "", self.state.run.round), now)

    def _report_first(self, pending: PendingTurn, report: r.Report | None, now: datetime) -> None:
        if report is not None:
            pending.next.append(report)
            self._follow(pending, now)

    def claim_tasks(self, now: datetime) -> Task | None:
        """Take tasks of earlier turns that fit, the oldest first. Return one that did not fit, if possible a small one.

        A large task does not keep smaller ones behind it waiting, nor do tasks that wait for another machine keep
        others. Only a few are looked at.
        """
        now += self.ahead
        if is_time_up(self.state, now):
            self._stop_if_time_is_up(self._begin(), now)
            return None
        # A crash here says nothing about the report of this turn.
        suspect, self._suspect = self._suspect, None
        skipped: list[BacklogEntry] = []
        rejected: Task | None = None
        rejected_waiting: Task | None = None
        try:
            while len(skipped) < REJECTED_MAX and self.executor is not None and not self.is_paused:
                entry = self.queue.pop(skips_waiting=rejected_waiting is not None)
                if entry is None:
                    break
                if not self._is_ready(*entry.task_key):
                    continue
                skipped.append(entry)
                task = self._task(entry.task_key[0])
                if not self._may_run_here(task):
                    continue
                if self._is_ours(task):
                    self._begin().claimed.append(skipped.pop().task_key)
                    self._take_or_refuse(self._begin(), task, now)
                    self._follow(self._begin(), now)
                    continue
                if task.waits and task.is_small:
                    rejected_waiting = task
                    continue
                rejected = task
                if task.is_small and has_time_for(task, self.executor.offer().seconds_left):
                    break
        finally:
            # Also after a crash: the other tasks still wait.
            self.queue.put_back(skipped)
        self._suspect = suspect
        return rejected if rejected is not None and rejected.is_small else rejected_waiting or rejected

    def _is_ready(self, key: str, attempt: int) -> bool:
        place = self.state.places.get(key)
        is_ready = place is not None and place.attempt == attempt and place.status == "ready"
        # A task on hold is queued again when its step is resumed.
        return is_ready and not is_on_hold(self.state, self.state.places[key])

    def _begin(self) -> PendingTurn:
        if self._pending is None:
            self.state.begin()
            self._pending = PendingTurn(self.state.run.seq)
        return self._pending

    def _process(self, pending: PendingTurn, queued: QueuedReport, now: datetime) -> None:
        refusal: Answer | None = None
        try:
            if isinstance(queued.report, REQUESTS | r.Unreadable):
                self._refuse_senseless(pending, queued, now)
            is_timed = queued.token is not None and not self.ahead
            pending.next.append(queued.report if is_timed else self._with_time(queued, now))
            self._follow(pending, now)
        except REFUSALS as error:
            pending.next.clear()
            refusal = Answer(error.code, error.message, error.hint)
            if isinstance(queued.report, r.RoundRequested):
                self._refuse_round(pending, queued.report, error, now)
        self._note_end(pending, queued, refusal)

    def _goes_on(self, report: r.CallsMade) -> bool:
        # Without an executor we start nothing more, so the program goes on in the next turn, maybe on another worker.
        return self.executor is not None and goes_on(self.state, report)

    def _as_end(self, queued: QueuedReport, report: r.CallsMade) -> QueuedReport:
        """A program may not go on in its turn: its slot is free at once, maybe for its next turn."""
        if self.executor is not None and queued.token is not None:
            self.executor.end_turn(queued.token)
        return replace(queued, report=report.as_end)

    def _note_end(self, pending: PendingTurn, queued: QueuedReport, refusal: Answer | None) -> None:
        """The report is processed: its lease is over, and whoever waits for an answer gets one."""
        if type(queued.report) is r.CallsMade and queued.token is not None:
            place = self.state.places[queued.report.place]
            if place.status == "running" and place.attempt == queued.report.attempt:
                # One that is stopped meanwhile gets no answer: it is killed.
                if not place.phase:
                    pending.going_on[queued.token] = ends_of(self.state, queued.report.turn)
                return
        if queued.token is not None:
            pending.ended.append(queued.token)
            if queued.guard is not None:
                pending.counted.append(
                    GuardedOutcome(queued.token, queued.guard, breaker_verdict(queued.report, queued.guard))
                )
        if queued.message_id is not None:
            pending.drained.append((queued.message_id, (refusal or Answer()) if queued.is_asking else None))

    def _refuse_senseless(self, pending: PendingTurn, queued: QueuedReport, now: datetime) -> None:
        """Raise if no run can make sense of the request, or this one could not. The log says so, for people to see."""
        report, reason = queued.report, queued.refusal
        try:
            if isinstance(report, r.Unreadable):
                raise InputInvalid(report.problem)
            if reason:
                raise MessageRefused(f"run {self.run_id} cannot process this: {reason}", hint=REPORT_IT)
            check_report(report)
        except REFUSALS as error:
            pending.is_ordinary = False
            if self.state.run.status != "new":
                pending.entries.append(refused_report(self.state, report, reason or error.message, now))
            raise

    def _end_by_force(self, pending: PendingTurn, now: datetime) -> None:
        """End the run, whatever its state is, and stop what still runs of it. Nothing is decided."""
        run, record, reason = self.state.run, self.record, self._forced_end
        asked = next((one.report for one in self.all_reports if isinstance(one.report, r.CancelRequested)), None)
        by, said = (asked.by, asked.reason) if asked is not None else ("engine", "")
        started, pending.is_ordinary = None, False
        if run.status == "new":
            started = e.RunStarted(self.run_id, record.workflow, record.version, by=by)
            started = replace(started, parent_run_id=record.parent_run_id)
        pending.entries += end_by_force(self.state, by, said or reason, now, started)
        for queued in (*self.set_aside, *self.reports):
            pending.processed.append(queued)
            self._note_end(pending, queued, None if isinstance(queued.report, r.CancelRequested) else OVER)
        self.set_aside.clear()
        self.reports.clear()
        pending.is_last = True
        pending.stopped += running_tasks(self.state)
        pending.child_reports.append(to_children(record, now))
        pending.outgoing += to_parent(record, run, reason, now)

    def _with_time(self, queued: QueuedReport, now: datetime) -> r.Report:
        """The report with the time of our own clock: the sender's may be wrong, or was set since."""
        report = queued.report
        if queued.token is not None:
            # Our own task: the time is by our clock.
            return replace(report, at=report.at + self.ahead) if self.ahead else report
        if isinstance(report, r.TimerFired) and report.at > now:
            # The timer is due by the clock of another process, which is ahead of ours. Another timer of this turn may
            # have said so already.
            if self.is_exclusive:
                self.ahead = max(self.ahead, self._ahead_in_turn + (report.at - now))
            return report
        return replace(report, at=now)

    def timer_due(self, timer: fx.SetTimer, stepped: timedelta) -> datetime:
        """When a timer of this run is due by our clock, if the wall clock is ahead of it by `stepped`."""
        return timer.due - (stepped if timer.kind == "until" else self.ahead)

    def _task(self, key: str) -> Task:
        """The task of a place, with its times by the clock of this process."""
        return self._localized(ordinary.task_of(self.state, self.state.places[key]))

    def _localized(self, task: Task) -> Task:
        if self.ahead and (task.deadline is not None or task.run_due is not None):
            deadline, run_due = (None if at is None else at - self.ahead for at in (task.deadline, task.run_due))
            return replace(task, deadline=deadline, run_due=run_due)
        return task

    def _follow(self, pending: PendingTurn, now: datetime) -> None:
        state, entries, rules = self.state, pending.entries, fx.RULES
        while pending.next:
            report = pending.next.popleft()
            if type(report) is r.TaskStarted:
                if self._is_too_late(pending, report):
                    self._give_back(pending, (report.place, report.attempt))
                    continue
                if ordinary.may_start_at_once(state, report):
                    place = state.places[report.place]
                    entries.append(ordinary.start_step(state, place, report.worker, report.host, report.at))
                    pending.is_ordinary = False
                    continue
            end = None
            if type(report) is r.TaskEnded or type(report) is r.CallsMade:
                end = ordinary.end_step(state, report, self.evaluator, entries)
            if end is not None:
                if not end.rest:
                    if end.queued:
                        self._take_entered(pending, end.queued, now)
                    continue
                pending.is_ordinary = False
                for place in end.queued:
                    pending.fresh[place.key] = self._localized(ordinary.task_of(state, place))
                following = follow_rest(end)
            else:
                # The calls of a program that goes on are like ends of ordinary steps: nothing follows but tasks.
                pending.is_ordinary = pending.is_ordinary and type(report) is r.CallsMade
                following = follow_at_length(state, report, self.evaluator)
            for entry in following:
                entries.append(entry)
                if entry.seq <= state.run.forked_at:
                    # It happened in the run that was forked, perhaps by a clock that was ahead of ours.
                    if entry.at > now and self.is_exclusive:
                        self.ahead += entry.at - now
                        now = entry.at
                    continue
                fact = entry.fact
                rule = rules.get(type(fact))
                if rule is not None:
                    for effect in rule(state, fact):
                        _CARRY_OUT[type(effect)](self, pending, effect, now)
                elif type(fact) in _ENDS:
                    self._end(pending, now)
            # A run that was stopped for a corrected program goes on in the same turn.
            pending.is_last = pending.is_last and self.has_ended
            if pending.fresh:
                self._take(pending, now)

    def _take_entered(self, pending: PendingTurn, places: Sequence[Place], now: datetime) -> None:
        """Give the tasks of ordinary steps that this turn has entered to our executor, as `_take` does.

        From the first that it does not take at once, `_take` decides.
        """
        executor = self.executor
        is_ours = self.state.run.due is None and (self.is_alone or len(places) == 1)
        for place in places:
            task = ordinary.task_of(self.state, place)
            if self.ahead:
                task = self._localized(task)
            if executor is None or pending.fresh or not is_ours or not self._may_start(task, executor):
                pending.fresh[place.key] = task
                continue
            executor.reserve(task)
            pending.taken[place.key, place.attempt] = task
            pending.entries.append(ordinary.start_step(self.state, place, executor.name, executor.host_of(task), now))
        if pending.fresh:
            pending.is_ordinary = False
            self._take(pending, now)

    def _may_start(self, task: Task, executor: TaskCapacity) -> bool:
        """Whether our executor takes it at once. False leaves the question to `_take`."""
        if task.guard is not None or task.host or task.avoids is not None or not executor.can_ever_fit(task):
            return False
        if self.is_alone:
            return executor.fits(task) or executor.may_hold(task)
        return task.home not in executor.offer().lacks and executor.fits(task)

    def _take(self, pending: PendingTurn, now: datetime) -> None:
        """Give the tasks that this turn has scheduled to our executor while they fit; queue the rest."""
        # If the time of the run is up, it is stopped in this turn, and what does not go on is dropped.
        is_paused = self.is_paused or is_time_up(self.state, now)
        small_max = self._small_tasks_max(len(pending.fresh))
        for key, task in pending.fresh.items():
            # Alone, all of them are ours.
            is_small = small_max < inf and may_be_held(task)
            is_left = is_small and small_max <= 0
            if is_paused or is_left or not self._may_run_here(task) or not self._is_ours(task):
                pending.queued[key] = task
            else:
                small_max -= is_small
                self._take_or_refuse(pending, task, now)
        pending.fresh.clear()

    def _small_tasks_max(self, scheduled: int) -> float:
        """How many small tasks of a turn our executor may take, so that others that have a slot get enough."""
        if self.is_alone or self.executor is None or scheduled == 1:
            return inf
        offer = self.executor.offer()
        return offer.tasks_max + ahead_share(scheduled - offer.tasks_max, scheduled)

    def _may_run_here(self, task: Task) -> bool:
        """Whether it may run on this host. If not, it is queued: the store knows whether its own host has workers.

        If there are no other workers, every task may.
        """
        if self.executor is None:
            return True
        is_avoided = task.avoids is not None and self.executor.host in task.avoids.hosts
        is_there = self.is_alone or task.home not in self.executor.offer().lacks
        is_meant = task.host in ("", self.executor.host) and not is_avoided and is_there
        return is_meant or (self.is_alone and not self._has_others())

    def _is_ours(self, task: Task) -> bool:
        """Whether our executor takes it: it fits, or we have to fail it because it can never fit.

        A guarded task is leased from the store, which asks its breaker.
        """
        if self.executor is None:
            return False
        has_room = task.guard is None and self._has_room(task)
        is_ours = self.is_exclusive and self.is_alone
        return has_room or (is_ours and not self.executor.can_ever_fit(task) and not self._others_take_part())

    def _has_room(self, task: Task) -> bool:
        """Whether our executor can start it or, if nobody else could, hold it until a slot is free."""
        assert self.executor is not None
        return self.executor.fits(task) or (self.is_alone and self.executor.may_hold(task))

    def _take_or_refuse(self, pending: PendingTurn, task: Task, now: datetime) -> None:
        assert self.executor is not None
        if not self.executor.can_ever_fit(task):
            outcome = Outcome(
                code="NO_CAPACITY",
                message=f"no worker here can ever take it: it asks for {self.executor.missing_resources(task)}",
            )
            pending.stopped.append(fx.StopTask(task.place, task.attempt, 0.0))
            pending.next.append(r.TaskEnded(now, task.place, task.attempt, outcome))
            return
        self.executor.reserve(task)
        pending.taken[task.place, task.attempt] = task
        pending.next.append(
            r.TaskStarted(now, *task.key, self.executor.name, self.executor.host_of(task), task.turn_number)
        )

    def _is_too_late(self, pending: PendingTurn, started: r.TaskStarted) -> bool:
        """Whether a task that this turn has taken was ended before it could start: by a timer that was due, say."""
        task_key = (started.place, started.attempt)
        return task_key in pending.taken and not self._is_ready(*task_key)

    def _give_back(self, pending: PendingTurn, task_key: tuple[str, int]) -> None:
        """Do not start a task that this turn has taken."""
        assert self.executor is not None
        self.executor.unreserve(pending.taken.pop(task_key))

    def _is_stopped_in_time(self, pending: PendingTurn, stop: fx.StopTask) -> bool:
        """Whether this turn has started the task that it stops: its process has not begun, and need not."""
        place = self.state.places.get(stop.place)
        is_started = place is not None and place.status == "running" and place.phase != "stopped"
        return is_started and stop.grace_seconds is not None and (stop.place, stop.attempt) in pending.taken

    def _end(self, pending: PendingTurn, now: datetime) -> None:
        """End the round, and report the result to the attempt of the parent run that waits for it."""
        pending.is_last = True
        record = self.record
        if record.parent_run_id is None:
            return
        report = child_end(self.state, record.parent_place, record.parent_attempt, now)
        pending.outgoing.append((record.parent_run_id, report))

    def _refuse_round(
        self, pending: PendingTurn, report: r.RoundRequested, error: MulliganError, now: datetime
    ) -> None:
        """A child run cannot open the round that its parent waits for: the attempt of the parent has failed."""
        record = self.record
        if record.parent_run_id is not None:
            ended = r.ChildEnded(
                at=now,
                place=record.parent_place,
                attempt=report.attempt,
                child_run_id=self.run_id,
                status="failed",
                reason=f"it cannot be continued: {error.message}",
                round=report.round,
                is_refused=True,
                undo_failed=undo_failed_in(self.state) if isinstance(error, UndoFailed) else (),
            )
            pending.outgoing.append((record.parent_run_id, ended))

    # -- what is written ---------------------------------------------------------------------------------------------

    def build_commit(self) -> Commit | None:
        """What the open turn has to write; None if there is none."""
        pending, run = self._pending, self.state.run
        if pending is None:
            return None
        notices = self._notices(pending.entries) if self.state.workflow.notify or run.notify else ()
        if pending.has_only_ends and not notices:
            return Commit(
                turn=self.turn,
                after=pending.after,
                entries=pending.entries,
                rows=changes(self.state),
                status=run.status,
                round=run.round,
                at=run.at,
                degraded=run.degraded,
                reason=run.reason,
                taken=list(pending.taken.values()),
                ended=pending.ended,
                is_ordinary=True,
            )
        return Commit(
            turn=self.turn,
            after=pending.after,
            entries=pending.entries,
            rows=changes(self.state) if pending.entries else (),
            status=run.status,
            round=run.round,
            at=run.at,
            degraded=run.degraded,
            reason=run.reason,
            queued=list(pending.queued.values()),
            taken=list(pending.taken.values()),
            ended=pending.ended,
            stopped=pending.stopped,
            timers=pending.timers,
            drained=pending.drained,
            children=pending.children,
            outgoing=pending.outgoing,
            child_reports=pending.child_reports,
            is_last=pending.is_last,
            counted=pending.counted,
            failures=self._failures() if pending.is_last else None,
            notices=notices,
        )

    def _notices(self, entries: Sequence[e.Entry]) -> Sequence[NoticeRecord]:
        """The notices of the turn. Most runs have none, so what makes them is imported when one does."""
        records: Sequence[NoticeRecord]
        new = [entry for entry in entries if entry.seq > self.state.run.forked_at]
        from mulligan.engine.run_notices import notice_records

        records = notice_records(self.state, new, self.record.project)
        return records

    def _failures(self) -> RunFailures | None:
        """What the run is found by when a round has ended; None if that is as it was."""
        run = self.state.run
        if run.status == "failed":
            return run_failures(unhandled(self.state))
        return RunFailures() if run.round > 1 else None

    @property
    def going_on(self) -> Mapping[int, tuple[Delivery, ...]]:
        """The programs that go on in their turns when the open turn is written: see `PendingTurn`."""
        return {} if self._pending is None else self._pending.going_on

    def confirm(self) -> list[e.Entry]:
        """Make the turn permanent: its commit is written. Return its entries, of those that a fork keeps the first."""
        pending = self._pending
        assert pending is not None, "there is no open turn"
        self.state.commit()
        if pending.queued:
            # A guarded task waits in the store, unless no worker can ever take it: then we have to fail it.
            waiting = (task for task in pending.queued.values() if task.guard is None or self._is_ours(task))
            for task in waiting:
                self.queue.append((task.place, task.attempt), waits=task.waits)
        if pending.drained:
            self.delivered.difference_update(message_id for message_id, _ in pending.drained)
        if self.set_aside and not self.is_paused:
            self.reports.extendleft(reversed(self.set_aside))
            self.set_aside.clear()
        self.starts.extend(pending.starts)
        self._pending = None
        kept = self.state.run.forked_at
        return [entry for entry in pending.entries if entry.seq == 1 or entry.seq > kept] if kept else pending.entries

    def roll_back(self) -> None:
        """Undo the turn: its commit was not written. Its reports wait again."""
        pending = self._pending
        if pending is None:
            return
        self.state.rollback()
        self.reports.extendleft(reversed(pending.processed))
        self.starts.extendleft(reversed(pending.entered))
        for task_key in reversed(pending.claimed):
            self.queue.append_first(task_key, waits=self._waits(task_key[0]))
        for task in pending.taken.values():
            assert self.executor is not None
            self.executor.unreserve(task)
        self._pending = None


def _may_start_something(queued: QueuedReport) -> bool:
    """Whether an attempt may start after a report, for which nobody waits."""
    may_start = r.LeaseExpired | r.TaskInterrupted | r.TimerFired | r.ResumeRequested
    return isinstance(queued.report, may_start) and not queued.is_asking


_ENDS = frozenset({e.RunCompleted, e.RunFailed, e.RunCancelled})


# -- effects ---------------------------------------------------------------------------------------------------------


def _queue(driver: RunDriver, pending: PendingTurn, effect: fx.QueueTask, now: datetime) -> None:
    if pending.stopped:
        # A step that was paused and resumed in one turn: its task stays where it is.
        task_key = (effect.place, effect.attempt)
        pending.stopped[:] = [stop for stop in pending.stopped if (stop.place, stop.attempt) != task_key]
    pending.fresh[effect.place] = driver._task(effect.place)


def _stop(driver: RunDriver, pending: PendingTurn, effect: fx.StopTask, now: datetime) -> None:
    """Drop the task if this turn has queued or started it. The store may have it too, from before a pause."""
    for tasks in (pending.fresh, pending.queued):
        task = tasks.get(effect.place)
        if task is not None and task.attempt == effect.attempt:
            del tasks[effect.place]
    if driver._is_stopped_in_time(pending, effect):
        driver._give_back(pending, (effect.place, effect.attempt))
        pending.next.append(r.TaskInterrupted(now, effect.place, effect.attempt))
    pending.stopped.append(effect)


def _set_timer(driver: RunDriver, pending: PendingTurn, effect: fx.SetTimer, now: datetime) -> None:
    # A time of day is compared with the wall clock, by the store.
    if effect.kind != "until" and effect.due <= driver.state.run.at:
        pending.next.append(r.TimerFired(driver.state.run.at, effect.kind, effect.place, effect.number))
    else:
        pending.timers.append(effect)


def _enter_more(driver: RunDriver, pending: PendingTurn, effect: fx.EnterMore, now: datetime) -> None:
    pending.starts.append(effect.begin)


_CARRY_OUT: dict[type[fx.Effect], Callable[[RunDriver, PendingTurn, Any, datetime], None]] = {
    fx.QueueTask: _queue,
    fx.StopTask: _stop,
    fx.SetTimer: _set_timer,
    fx.StartChild: start_child,
    fx.ContinueChild: continue_child,
    fx.StopChild: stop_child,
    fx.EnterMore: _enter_more,
    fx.PauseChildren: pause_children,
    fx.ResumeChildren: resume_children,
}
