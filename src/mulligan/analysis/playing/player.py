"""Plays a run in memory, with its child runs. The core decides, `Outcomes` say how things end, time jumps.

    player = Player(workflow, evaluator=evaluator, outcomes=InjectedOutcomes(()))
    ending = player.play()

At the same time, timers fire and runs report to each other before tasks end and people decide; each in the order in
which it was asked for, as in an engine. No command is executed, and there is no clock and no chance: the same
arguments give the same log. A worker is always free, circuit breakers are closed, and tasks are cut off at their
timeout and their deadline, as a worker would do.

Many cases from one prefix: `branch`, play on, `rollback`. Branches nest. A branch costs what is played in it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from mulligan.analysis.playing.outcomes import Assumed, AssumedChild, Decision, Outcomes
from mulligan.core.deciding.agents.budgets import remaining_budget
from mulligan.core.deciding.rounds.child_failure import child_end
from mulligan.core.effects import effects as fx
from mulligan.core.effects.child_runs import child_uid, round_request
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.actions import called_workflow, traits_of
from mulligan.core.model.event_types import ChildRun
from mulligan.core.model.graph import Graph
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.workflow import Workflow, with_callers_secrets
from mulligan.core.state.deadlines import deadline_of
from mulligan.core.state.held_steps import is_on_hold
from mulligan.core.state.mailbox import is_open_wait
from mulligan.core.state.scope import Evaluator, fill_params
from mulligan.core.state.state import Mark, Place, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.workspace import folder_of
from mulligan.core.turn import follow
from mulligan.errors import InputInvalid, NotFound, Refused

START = datetime(2026, 1, 1, tzinfo=UTC)
WORKER, HOST = "player", "here"
# Longer times are cut: dates stay representable.
SECONDS_MAX = 100 * 365 * 86400.0
# A play with more events than this is given up: no bound of the workflow ends it in reasonable time.
ENTRIES_MAX = 1_000_000
# What the core raises for a report that is not possible now, before it has changed anything.
_REFUSALS = (Refused, NotFound, InputInvalid)
_ENDS = (e.RunCompleted, e.RunFailed, e.RunCancelled)
_CHILD_STOPPED = "its parent asked it to end"


class Ending(msgspec.Struct, frozen=True):
    """How a play ended: the status of the run, `waiting` if it waits for a person for ever, `endless` if cut off."""

    status: Literal["completed", "failed", "cancelled", "waiting", "endless"]
    # From the start of the run to its last event.
    seconds: float
    is_degraded: bool
    # The places that wait for a person: parked steps and approvals.
    waits_for: tuple[str, ...] = ()
    reason: str = ""


class PlayedRun:
    """One run of the tree: its state, its log, and its tasks that have not ended."""

    def __init__(self, state: State, parent: PlayedRun | None = None, place: str = "", attempt: int = 0) -> None:
        self.state = state
        self.entries: list[e.Entry] = []
        # The place and the attempt that called it.
        self.parent = parent
        self.place = place
        self.attempt = attempt
        # The attempts that are running, by place: the number of the event that ends each.
        self.tasks: dict[str, tuple[int, int]] = {}

    @property
    def has_ended(self) -> bool:
        return self.state.run.status in RUN_ENDED


# When, its rank among what is due at the same time, its number, the run it is for, and what is reported to it.
_Due = tuple[datetime, int, int, PlayedRun, r.Report]
# Timers fire and runs report to each other before tasks end and people decide.
_TASK_RANK = 1
_FROM_OUTSIDE = (r.TaskEnded, r.LeaseExpired, r.ApprovalGiven, r.Classified)
_RANKS: dict[type[r.Report], int] = dict.fromkeys(_FROM_OUTSIDE, _TASK_RANK)
# Called for every entry; True stops the play at once, in the middle of a turn: only `rollback` is possible then.
Watch = Callable[[PlayedRun, e.Entry], bool]


class _Saved(msgspec.Struct, frozen=True):
    """What `rollback` restores, besides the states."""

    now: datetime
    due: list[_Due]
    numbers: int
    run_ids: int
    runs: int
    # By run: its mark, the length of its log, and its tasks.
    of_runs: list[tuple[Mark, int, dict[str, tuple[int, int]]]]


class Player:
    """Plays one run and the child runs that it calls."""

    def __init__(
        self,
        workflow: Workflow,
        *,
        evaluator: Evaluator,
        outcomes: Outcomes,
        inputs: Mapping[str, Any] | None = None,
        at: datetime = START,
        graph: Graph | None = None,
        request: r.RunRequested | None = None,
        child_inputs: Callable[[Workflow, dict[str, Any]], dict[str, Any]] = lambda child, given: given,
        entries_max: int = ENTRIES_MAX,
    ) -> None:
        self.evaluator = evaluator
        self.outcomes = outcomes
        self.now = at
        self.root = PlayedRun(State(workflow, graph))
        # All runs of the tree, in the order of their ids.
        self.runs: list[PlayedRun] = [self.root]
        self.watch: Watch | None = None
        self.is_stopped = False
        self._request = request or r.RunRequested(at, run_id=1, inputs=dict(inputs or {}), uid="run")
        # What a child run gets for the inputs that its caller gives; may raise InputInvalid.
        self._child_inputs = child_inputs
        self._entries_max = entries_max
        self._due: list[_Due] = []
        self._numbers = 0
        # The id of the last run; also those that are assumed have one.
        self._run_ids = 1
        self._saved: list[_Saved] = []
        # Graphs of child workflows, which are called again with every attempt.
        self._graphs: dict[int, tuple[Workflow, Graph]] = {}

    @property
    def state(self) -> State:
        return self.root.state

    @property
    def entries(self) -> list[e.Entry]:
        return self.root.entries

    # -- playing -----------------------------------------------------------------------------------------------------

    def play(self) -> Ending:
        """Play to the end of the run, or until it waits for a person for ever."""
        if self.state.run.status == "new":
            self.start()
        while not (self.is_stopped or self.is_over) and self.step():
            pass
        return self.ending()

    def start(self) -> None:
        self.report(self._request)
        self.settle()

    def step(self) -> bool:
        """Let the next thing happen that is due: a task ends, a timer fires. False if nothing is due any more.

        Timers that are due at the same time, and what runs then report to each other, belong to it.
        """
        has_happened = self._take_next()
        if has_happened:
            self.settle()
        return has_happened

    def plan(self, report: r.Report) -> None:
        """Let something be reported to the root at its time."""
        self._add(report.at, self.root, report)

    def settle(self) -> None:
        """Let everything happen that is due now, up to the next report from outside."""
        while not self.is_stopped and self._due and self._due[0][0] <= self.now and self._due[0][1] < _TASK_RANK:
            self._take_next()

    def _take_next(self) -> bool:
        while self._due:
            at, _, number, run, report = heapq.heappop(self._due)
            if isinstance(report, r.TaskEnded | r.LeaseExpired | r.ChildEnded):
                task = run.tasks.get(report.place)
                if task is None or task[1] != number:
                    continue  # It was stopped.
                del run.tasks[report.place]
            self.now = max(self.now, at)
            with suppress(*_REFUSALS):
                # A decision that comes too late, or the cancelling of a child run that has ended.
                self.report(report, run)
            return True
        return False

    def report(self, report: r.Report, run: PlayedRun | None = None) -> None:
        """Report something to a run now, by default to the root: what follows is played, up to the next due time.

        Raises what the core raises if the report is a verb that is not possible now.
        """
        run = run or self.root
        reports = deque([report])
        fresh: dict[str, fx.QueueTask] = {}
        while reports and not self.is_stopped:
            self._follow(run, reports, fresh)

    def ending(self) -> Ending:
        """How it ended, or where it is now."""
        run = self.state.run
        is_over = run.status in RUN_ENDED
        status: Any = run.status if is_over else "endless" if self._is_endless else "waiting"
        begun = self.entries[0].at if self.entries else run.at
        last = max((one.state.run.at for one in self.runs), default=run.at)
        return Ending(
            status,
            seconds=((run.at if is_over else last) - begun).total_seconds(),
            is_degraded=run.degraded,
            waits_for=() if is_over else tuple(self.waiting_for_people()),
            reason=run.reason,
        )

    def waiting_for_people(self) -> list[str]:
        """What waits for a person or an event, in all runs; that of a child run after the path of its callers."""
        found = []
        for run in self.runs:
            if run.has_ended:
                continue
            for place in run.state.places.values():
                if place.status == "pending_failed" or place.is_open_approval or is_open_wait(place):
                    found.append("/".join((*_path(run), place.key)))
        return found

    @property
    def next_due(self) -> datetime | None:
        """When the next thing happens; None if nothing is due."""
        return self._due[0][0] if self._due else None

    @property
    def is_over(self) -> bool:
        """Whether nothing more is played: the run has ended, or there are too many events."""
        return self.root.has_ended or self._is_endless

    @property
    def _is_endless(self) -> bool:
        return len(self.entries) > self._entries_max or len(self.runs) > self._entries_max // 100

    # -- branches ----------------------------------------------------------------------------------------------------

    def branch(self) -> None:
        """Begin a branch: `rollback` returns to this moment."""
        self._saved.append(
            _Saved(
                now=self.now,
                due=self._due.copy(),
                numbers=self._numbers,
                run_ids=self._run_ids,
                runs=len(self.runs),
                of_runs=[(run.state.mark(), len(run.entries), run.tasks.copy()) for run in self.runs],
            )
        )

    def rollback(self) -> None:
        """Return to the moment of the last `branch` that was not rolled back."""
        saved = self._saved.pop()
        self.now, self._due, self._numbers, self.is_stopped = saved.now, saved.due, saved.numbers, False
        self._run_ids = saved.run_ids
        del self.runs[saved.runs :]
        for run, (mark, length, tasks) in zip(self.runs, saved.of_runs, strict=True):
            run.state.return_to(mark)
            del run.entries[length:]
            run.tasks = tasks

    def running(self, run: PlayedRun, step: str) -> list[str]:
        """The places of a step whose tasks are running, without child runs and waits for events."""
        places = run.state.places
        keys = (key for key in run.tasks if key.startswith(step) and step_name(key) == step)
        actions = ((key, places[key].spec.action) for key in keys if key in places)
        found = ((key, traits_of(action)) for key, action in actions if action is not None)
        return [key for key, one in found if not (one.calls_run or one.awaits_event)]

    def ask_again(self, run: PlayedRun, keys: Iterable[str], *, holds_others: bool = False) -> None:
        """Ask once more how tasks end that have just started: in a branch with other outcomes.

        `holds_others`: nothing else happens in this branch, except what follows from these tasks.
        """
        numbers = {key: run.tasks[key] for key in keys}
        replaced = {number for _, number in numbers.values()}
        self._due = [] if holds_others else [due for due in self._due if due[2] not in replaced]
        heapq.heapify(self._due)
        for key, (attempt, number) in numbers.items():
            self._start_task(run, fx.QueueTask(key, attempt), number)

    def lose_all(self) -> None:
        """Lose the worker of all running tasks now."""
        for run in list(self.runs):
            for key, (attempt, _) in list(run.tasks.items()):
                place = run.state.places.get(key)
                action = None if place is None else place.spec.action
                # What follows from an earlier loss may have ended it.
                is_running = run.tasks.get(key, (0, 0))[0] == attempt
                found = traits_of(action)
                if action is not None and not (found.calls_run or found.awaits_event) and is_running:
                    del run.tasks[key]
                    self.report(r.LeaseExpired(self.now, key, attempt, WORKER), run)

    # -- one report --------------------------------------------------------------------------------------------------

    def _follow(self, run: PlayedRun, reports: deque[r.Report], fresh: dict[str, fx.QueueTask]) -> None:
        """Take the next report. As in an engine: due timers follow in the same turn, then the tasks of it start."""
        state, watch = run.state, self.watch
        report = reports.popleft()
        if report.at < self.now:
            report = msgspec.structs.replace(report, at=self.now)
        for entry in follow(state, report, self.evaluator):
            run.entries.append(entry)
            fact = entry.fact
            for effect in fx.effects(state, fact):
                self._carry_out(run, effect, reports, fresh)
            kind = type(fact)
            if kind in _ASKS_OUTSIDE:
                self._ask_outside(run, fact)
            elif kind in _ENDS:
                self._end(run)
            if watch is not None and watch(run, entry):
                self.is_stopped = True
                return
        for task in fresh.values():
            program = state.places[task.place].program
            turn = 0 if program is None else program.turn
            reports.append(r.TaskStarted(self.now, task.place, task.attempt, WORKER, HOST, turn))
            self._start_task(run, task)
        fresh.clear()

    def _carry_out(
        self, run: PlayedRun, effect: fx.Effect, reports: deque[r.Report], fresh: dict[str, fx.QueueTask]
    ) -> None:
        kind = type(effect)
        if kind is fx.QueueTask:
            fresh[effect.place] = effect  # type: ignore[attr-defined, assignment]
        elif kind is fx.SetTimer:
            self._set_timer(run, effect, reports)  # type: ignore[arg-type]
        elif kind is fx.StopTask:
            self._stop_task(run, effect, fresh)  # type: ignore[arg-type]
        elif kind is fx.StartChild:
            self._start_child(run, effect, reports)  # type: ignore[arg-type]
        elif kind is fx.ContinueChild:
            self._continue_child(run, effect, reports)  # type: ignore[arg-type]
        elif kind is fx.EnterMore:
            self._add(self.now, run, r.StartsDue(self.now, effect.begin))  # type: ignore[attr-defined]
        elif kind is fx.StopChild:
            now = effect.now  # type: ignore[attr-defined]
            by = f"run {run.state.run.run_id}"
            for child in self._children(run, effect):  # type: ignore[arg-type]
                self._add(self.now, child, r.CancelRequested(self.now, by, _CHILD_STOPPED, now))
            self._stop_assumed_child(run, effect.place, effect.attempt)  # type: ignore[attr-defined]
        else:
            self._pass_on(run, effect)

    def _add(self, at: datetime, run: PlayedRun, report: r.Report, number: int = 0) -> int:
        if not number:
            self._numbers += 1
            number = self._numbers
        heapq.heappush(self._due, (at, _RANKS.get(type(report), 0), number, run, report))
        return number

    def _set_timer(self, run: PlayedRun, timer: fx.SetTimer, reports: deque[r.Report]) -> None:
        at = run.state.run.at
        # A wait until a time of day goes by the wall clock, which an engine looks at in its next turn.
        if timer.due <= at and timer.kind != "until":
            reports.append(r.TimerFired(at, timer.kind, timer.place, timer.number))
        else:
            self._add(timer.due, run, r.TimerFired(timer.due, timer.kind, timer.place, timer.number))

    # -- tasks -------------------------------------------------------------------------------------------------------

    def _start_task(self, run: PlayedRun, task: fx.QueueTask, number: int = 0) -> None:
        """Plan the end of a task. `number`: that of the end which it replaces."""
        place = run.state.places[task.place]
        self._plan_end(run, place, self.outcomes.of_task(run.state, place, task, self.now), number)

    def _plan_end(self, run: PlayedRun, place: Place, assumed: Assumed, number: int = 0) -> None:
        seconds, outcome = _cut_off(run.state, place, assumed, self.now)
        due, key, attempt = self.now + timedelta(seconds=seconds), place.key, place.attempt
        report: r.Report
        if outcome is None:
            report = r.LeaseExpired(due, key, attempt, WORKER)
        else:
            report = r.TaskEnded(
                due,
                key,
                attempt,
                outcome,
                assumed.output,
                usage=assumed.usage,
                data=assumed.data,
                turn=assumed.turn,
            )
        run.tasks[key] = (attempt, self._add(due, run, report, number))

    def _stop_task(self, run: PlayedRun, effect: fx.StopTask, fresh: dict[str, fx.QueueTask]) -> None:
        """Drop a task that has not started or whose end does not count any more; end one that is asked to end."""
        if effect.place in fresh and fresh[effect.place].attempt == effect.attempt:
            del fresh[effect.place]
            return
        running = run.tasks.get(effect.place)
        if running is None or running[0] != effect.attempt:
            return
        place = run.state.places.get(effect.place)
        if place is not None and place.attempt == effect.attempt and place.status == "running":
            if effect.grace_seconds is not None:
                stopped = r.TaskEnded(self.now, effect.place, effect.attempt, Outcome(signal=15, is_stopped=True))
                run.tasks[effect.place] = (effect.attempt, self._add(self.now, run, stopped))
        elif place is None or place.status != "ready" or is_on_hold(run.state, place):
            del run.tasks[effect.place]

    # -- child runs --------------------------------------------------------------------------------------------------

    def _continue_child(self, run: PlayedRun, effect: fx.ContinueChild, reports: deque[r.Report]) -> None:
        child = next((one for one in self.runs if one.state.run.run_id == effect.run_id), None)
        if child is None:
            # Its end was assumed.
            self._start_child(run, effect, reports)
        else:
            self._add(self.now, child, round_request(run.state, effect, self.now))

    def _start_child(self, run: PlayedRun, effect: fx.StartChild | fx.ContinueChild, reports: deque[r.Report]) -> None:
        place = run.state.places[effect.place]
        assert place.spec.action is not None
        params = fill_params(place.spec.action, place.bindings)
        child = called_workflow(place.spec.action, run.state.workflow)
        try:
            inputs = None if child is None else self._child_inputs(child, params.get("inputs") or {})
        except InputInvalid as error:
            outcome = Outcome(code="INPUT_INVALID", message=error.message)
            reports.append(r.TaskEnded(self.now, effect.place, effect.attempt, outcome))
            return
        empty = Workflow(name=str(params["file"]), steps=(), end=run.state.workflow.end)
        assumed = self.outcomes.of_child(run.state, place, child or empty, self.now)
        if assumed is None and child is None:
            assumed = AssumedChild()
        if isinstance(effect, fx.StartChild):
            self._run_ids += 1
            called = ChildRun(self._run_ids)
        else:
            called = ChildRun(effect.run_id, effect.round)
        if assumed is not None:
            self._end_child(run, effect, assumed, called)
            return
        assert child is not None and inputs is not None
        caller = run.state.run
        request = r.RunRequested(
            at=self.now,
            run_id=called.run_id,
            inputs=inputs,
            by=f"run {caller.run_id}",
            parent_run_id=caller.run_id,
            cwd=folder_of(run.state, place),
            uid=child_uid(caller, effect.place, effect.attempt),
            callers_budget=remaining_budget(run.state, place),
        )
        state = State(*self._child_graph(child, run.state.workflow))
        played = PlayedRun(state, run, effect.place, effect.attempt)
        self.runs.append(played)
        self._add(self.now, played, request)

    def _child_graph(self, child: Workflow, caller: Workflow) -> tuple[Workflow, Graph]:
        found = self._graphs.get(id(child))
        if found is None:
            workflow = with_callers_secrets(child, caller)
            # The key is the identity of a child that its caller keeps alive.
            found = self._graphs[id(child)] = (workflow, Graph(workflow))
        return found

    def _end_child(
        self, run: PlayedRun, effect: fx.StartChild | fx.ContinueChild, assumed: AssumedChild, called: ChildRun
    ) -> None:
        due = self.now + timedelta(seconds=min(assumed.seconds, SECONDS_MAX))
        report = r.ChildEnded(
            due,
            effect.place,
            effect.attempt,
            child_run_id=called.run_id,
            status=assumed.status,
            outputs=assumed.outputs,
            failures=assumed.failures,
            usage=assumed.usage,
            reason=assumed.reason,
            round=called.round,
        )
        run.tasks[effect.place] = (effect.attempt, self._add(due, run, report))

    def _stop_assumed_child(self, run: PlayedRun, place: str, attempt: int) -> None:
        running = run.tasks.get(place)
        if running is not None and running[0] == attempt:
            report = r.ChildEnded(self.now, place, attempt, child_run_id=0, status="cancelled")
            run.tasks[place] = (attempt, self._add(self.now, run, report))

    def _end(self, run: PlayedRun) -> None:
        """A round of the run has ended: its tasks are gone, and its caller gets a report."""
        run.tasks.clear()
        caller = run.parent
        if caller is None:
            return
        report = child_end(run.state, run.place, run.attempt, self.now)
        caller.tasks[run.place] = (report.attempt, self._add(self.now, caller, report))

    def _children(self, run: PlayedRun, effect: fx.StopChild | fx.PauseChildren | fx.ResumeChildren) -> list[PlayedRun]:
        """The child runs that an effect is for: those that have not ended, and those that are asked to continue."""
        called = [child for child in self.runs if child.parent is run]
        if not isinstance(effect, fx.StopChild):
            return [one for one in called if not one.has_ended or one.state.run.run_id in effect.continued]
        if effect.run_id:
            return [one for one in called if one.state.run.run_id == effect.run_id]
        at = (effect.place, effect.attempt)
        return [one for one in called if not one.has_ended and (one.place, one.attempt) == at]

    def _pass_on(self, run: PlayedRun, effect: fx.Effect) -> None:
        """Pause or resume the child runs with their caller."""
        by = f"run {run.state.run.run_id}"
        if isinstance(effect, fx.PauseChildren):
            for child in self._children(run, effect):
                self._add(self.now, child, r.PauseRequested(self.now, by, "its parent was paused"))
        elif isinstance(effect, fx.ResumeChildren):
            for child in self._children(run, effect):
                if child.state.run.status == "paused" or child.state.run.run_id in effect.continued:
                    self._add(self.now, child, r.ResumeRequested(self.now, by))

    # -- people and events ---------------------------------------------------------------------------------------------

    def _ask_outside(self, run: PlayedRun, fact: Any) -> None:
        """Ask how what waits for a person or an event ends. An event comes at once, as a task succeeds at once."""
        key = fact.place if isinstance(fact, e.AttemptStarted) else fact.step
        place = run.state.places.get(key)
        if place is not None and is_open_wait(place):
            assumed = self.outcomes.of_event(run.state, place, self.now)
            if assumed is not None:
                self._plan_end(run, place, assumed)
            return
        # About a parked step a person is asked only while no agent is.
        is_asked = isinstance(fact, e.TriageSuggested) or (isinstance(fact, e.StepParked) and not fact.agent)
        if place is None or not (place.is_open_approval or (is_asked and place.status == "pending_failed")):
            return
        decision = self.outcomes.of_person(run.state, place, self.now)
        if decision is not None:
            due = self.now + timedelta(seconds=min(decision.seconds, SECONDS_MAX))
            self._add(due, run, _decision_report(place, decision, due))


_ASKS_OUTSIDE = frozenset({e.StepParked, e.TriageSuggested, e.AttemptStarted})


def _decision_report(place: Place, decision: Decision, at: datetime) -> r.Report:
    if decision.verdict == "approve" or decision.verdict == "refuse":
        return r.ApprovalGiven(at, place.key, decision.verdict == "approve", decision.by, decision.reason)
    return r.Classified(
        at,
        place.key,
        decision.verdict,
        decision.by,
        decision.reason,
        memory=decision.memory,
        timeout=decision.timeout,
        attempt=place.attempt,
    )


def attempt_limit(state: State, place: Place, at: datetime) -> tuple[float | None, bool]:
    """After how many seconds a worker ends the attempt, None for never; and whether its deadline is the reason."""
    adjusted = place.climb.adjusted.timeout if place.climb.adjusted else None
    limit = place.spec.timeout if adjusted is None else adjusted
    # The deadline of a script is that of its place.
    timed = state.places[place.parent] if place.role == "script" else place
    deadline = deadline_of(state, timed)
    if deadline is None:
        return limit, False
    left = max(0.0, (deadline - at).total_seconds())
    return (left, True) if limit is None or left < limit else (limit, False)


def _cut_off(state: State, place: Place, assumed: Assumed, at: datetime) -> tuple[float, Outcome | None]:
    """When and how the attempt ends, within its limit; None for how if its worker is lost."""
    seconds = min(assumed.seconds, SECONDS_MAX)
    limit, is_deadline = attempt_limit(state, place, at)
    if limit is not None and seconds > limit:
        return limit, Outcome(exit_code=None, is_timed_out=True, is_past_deadline=is_deadline)
    return seconds, None if assumed.is_lost else assumed.outcome


def _path(run: PlayedRun) -> list[str]:
    """The places that called the run, from the root on."""
    return [] if run.parent is None else [*_path(run.parent), run.place]
