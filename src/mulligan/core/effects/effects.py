"""The effects of a fact, by a table: tasks, timers, child runs. They are written in the same transaction as the fact.

The engine carries them out; the core never waits for one. Each is idempotent: a task is identified by place and
attempt, a timer by kind, place and number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, dataclass_transform

import msgspec

from mulligan.core.deciding.flow import remaining_start_batches
from mulligan.core.evolve.evolve_fork import is_scheduled_again
from mulligan.core.evolve.evolve_places import holds_conversation, is_engine_action, waits_until
from mulligan.core.evolve.evolve_programs import WAITING
from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.reports import TimerKind
from mulligan.core.model.workflow import CANCEL_GRACE_SECONDS
from mulligan.core.state.deadlines import deadline_of
from mulligan.core.state.held_steps import held_places, is_on_hold
from mulligan.core.state.state import Place, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.workspace import awaits_worktree, lacks_worktree, opens_worktree


@dataclass_transform(frozen_default=True)
class Effect(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Something for the engine to do."""


class QueueTask(Effect):
    """Queue this attempt for a worker. The workflow says what it runs; the fact has the values."""

    place: str
    attempt: int


class StopTask(Effect):
    """Remove the task from the queue, or have its worker end it: SIGTERM, grace, SIGKILL. None: let it finish."""

    place: str
    attempt: int
    grace_seconds: float | None = None


class SetTimer(Effect):
    kind: TimerKind
    due: datetime
    place: str = ""
    number: int = 0


class StartChild(Effect):
    """Start a run of the pinned workflow `file`; its end is reported as `ChildEnded`."""

    place: str
    attempt: int


class ContinueChild(Effect):
    """Ask the child run for its next round; the end of that round is reported as `ChildEnded`."""

    place: str
    attempt: int
    run_id: int
    round: int


class StopChild(Effect):
    """Cancel the child run; with `now` like `cancel --now`. `run_id`: of one that the attempt continues."""

    place: str
    attempt: int
    now: bool = False
    run_id: int = 0


class EnterMore(Effect):
    """Send `StartsDue` for the next batch of start steps, from index `begin` on."""

    begin: int


class PauseChildren(Effect):
    """Pause the child runs that have not ended, and those that are asked to continue."""

    continued: tuple[int, ...] = ()


class ResumeChildren(Effect):
    """Resume them."""

    continued: tuple[int, ...] = ()


def effects(state: State, fact: e.Fact) -> Iterable[Effect]:
    """The effects of a fact that was applied to the state."""
    rule = RULES.get(type(fact))
    return () if rule is None else rule(state, fact)


def _scheduled(state: State, fact: e.AttemptScheduled) -> Iterable[Effect]:
    place = state.places.get(fact.place)
    if place is None:
        return ()
    is_queued = not (is_engine_action(place.spec) or is_on_hold(state, place))
    task = (QueueTask(fact.place, fact.attempt),) if is_queued else ()
    due = deadline_of(state, place)
    if due is None:
        return task
    # Set for each attempt: a timer that fired during a delay, a handler or a triage had no effect.
    return (*task, SetTimer("deadline", due, fact.place, place.visit))


def _started(state: State, fact: e.AttemptStarted) -> Iterable[Effect]:
    place = state.places.get(fact.place)
    if place is None:
        # A wait or an approval that was ended in the same turn.
        return ()
    kind: TimerKind = "until" if waits_until(place.spec) else "attempt"
    timer = () if fact.due is None else (SetTimer(kind, fact.due, fact.place, fact.attempt),)
    if not traits_of(place.spec.action).calls_run:
        return timer
    if fact.continues is None:
        return (StartChild(fact.place, fact.attempt), *timer)
    return (ContinueChild(fact.place, fact.attempt, fact.continues.run_id, fact.continues.round), *timer)


def _stopping(state: State, fact: e.AttemptStopping) -> Iterable[Effect]:
    place = state.places.get(fact.place)
    # After a handler timeout a separate fact stops the command of the handler.
    if place is None or place.spec.action is None or fact.reason == "handler_timeout":
        return
    if holds_conversation(place.spec):
        # A separate fact stops the question or the call below it.
        return
    if traits_of(place.spec.action).calls_run:
        last = place.last_child
        run_id = last.run_id if last is not None and last.attempt == fact.attempt else 0
        yield StopChild(fact.place, fact.attempt, state.run.stop is not None and state.run.stop.now, run_id)
    else:
        yield StopTask(fact.place, fact.attempt, _grace(state, place))


def _grace(state: State, place: Place) -> float | None:
    if state.is_left_to_finish(place):
        return None
    grace = state.workflow.cancel_grace
    return CANCEL_GRACE_SECONDS if grace is None else grace


def _cancelled(state: State, fact: e.AttemptCancelled) -> Iterable[Effect]:
    yield StopTask(fact.place, fact.attempt, 0.0)


def _failed(state: State, fact: e.AttemptFailed) -> Iterable[Effect]:
    """Dequeue an attempt that timed out in the queue, or that a budget no longer allows."""
    if fact.failure.code in ("TIMEOUT", "BUDGET_EXCEEDED") and not fact.usage:
        yield StopTask(fact.place, fact.attempt, 0.0)


def _resumed(state: State, fact: e.ProgramResumed) -> Iterable[Effect]:
    place = state.places[fact.place]
    return () if is_on_hold(state, place) else (QueueTask(fact.place, fact.attempt),)


def _waiting(state: State, fact: e.ProgramWaiting) -> Iterable[Effect]:
    """Set the timer of its deadline again: while a worker has a turn, that one sees to it."""
    place = state.places[fact.place]
    due = None if place.spec.deadline is None else deadline_of(state, place)
    return () if due is None else (SetTimer("deadline", due, fact.place, place.visit),)


def _retry(state: State, fact: e.RetryScheduled) -> Iterable[Effect]:
    yield SetTimer("retry", fact.due, fact.place, fact.attempt)


def _handler(state: State, fact: e.HandlerStarted) -> Iterable[Effect]:
    if fact.due is not None:
        yield SetTimer("handler", fact.due, fact.place, fact.attempt)


def _parked(state: State, fact: e.StepParked | e.TriageSuggested) -> Iterable[Effect]:
    if fact.due is not None:
        yield SetTimer("triage", fact.due, fact.step, fact.attempt)


def _loop(state: State, fact: e.LoopTaken) -> Iterable[Effect]:
    yield SetTimer("loop", fact.due, fact.step, fact.edge)


# A timer may fire while the run still waits for something else, whose end may be reported by a clock that is behind.
# So the timer is set again at that end: the wait ends whichever clock is right.


def _step_completed(state: State, fact: e.StepCompleted) -> Iterable[Effect]:
    """When a fork has its worktree, what the other run waited for is due for this one, too."""
    if state.run.worktree_origin is not None and opens_worktree(state, fact.step):
        return open_timers(state)
    return _step_ended(state, fact)


def _step_ended(state: State, fact: e.StepCompleted | e.StepFailed) -> Iterable[Effect]:
    """Set the timers of the loops that waited for this step. A run may have thousands of other loops.

    With `max_parallel` any loop may have waited for the slot.
    """
    loops, is_bounded = state.run.loops, state.workflow.max_parallel is not None
    if not loops:
        return ()
    ours = (
        loop for loop in loops.values() if loop.busy == 0 and (is_bounded or fact.step in state.graph.region(loop.to))
    )
    return (SetTimer("loop", loop.due, loop.step, loop.edge) for loop in ours)


def _idle_loops(state: State) -> Iterable[Effect]:
    for loop in state.run.loops.values():
        if loop.busy == 0:
            yield SetTimer("loop", loop.due, loop.step, loop.edge)


_AT_ONCE = timedelta(milliseconds=1)


def _command_ended(state: State, fact: Any) -> Iterable[Effect]:
    if fact.role == "triager":
        # Its deadline has no effect any more, so it may pass: a process leaves a run that waits for a person alone only
        # if no time is near.
        yield SetTimer("deadline", state.run.at + _AT_ONCE, fact.place, 1)
    parent = state.places.get(fact.parent) if fact.role == "script" else None
    if parent is not None and parent.status == "backing_off" and parent.climb.due is not None:
        yield SetTimer("retry", parent.climb.due, parent.key, parent.attempt + 1)


def _run_due(state: State, fact: Any) -> Iterable[Effect]:
    if fact.due is not None:
        yield SetTimer("run", fact.due, "", state.run.round)
    if not isinstance(fact, e.RunResumed):
        yield from _late(state, fact)
    else:
        yield ResumeChildren(_continued_children(state))
        yield from _idle_loops(state)
        if fact.steps or fact.after_steps:
            for step in state.steps():
                yield from _queue_or_hold(state, step)


def _queue_or_hold(state: State, step: Place) -> Iterable[Effect]:
    """Queue the ready tasks of a step that may run now, and dequeue those of any other."""
    for place in held_places(state, step):
        if not is_engine_action(place.spec):
            is_held = is_on_hold(state, place)
            yield StopTask(place.key, place.attempt) if is_held else QueueTask(place.key, place.attempt)


def _late(state: State, fact: e.Fact) -> Iterable[Effect]:
    """Set the timer for the next notice that the run is late. Runs without such a notice have none."""
    if state.run.late_due is not None:
        yield SetTimer("late", state.run.late_due, "", state.run.round)


def _run_started(state: State, fact: e.RunStarted) -> Iterable[Effect]:
    yield from _run_due(state, fact)
    graph = state.graph
    for begin in range(graph.starts_at_once, len(graph.starts), graph.starts_at_once):
        yield EnterMore(begin)


def open_timers(state: State) -> Iterator[SetTimer]:
    """The timers of the run, then those of its places; none once it has ended. A loop may be busy when it is due.

    Only those of the run while it waits for its worktree.
    """
    run = state.run
    if run.status in (*RUN_ENDED, "new"):
        return
    if run.due is not None and run.stop is None:
        yield SetTimer("run", run.due, "", run.round)
    if run.late_due is not None:
        yield SetTimer("late", run.late_due, "", run.round)
    if awaits_worktree(state):
        return
    for loop in run.loops.values():
        yield SetTimer("loop", loop.due, loop.step, loop.edge)
    for place in state.places.values():
        if not place.has_ended and place.status != "waiting":
            yield from _timers_of_place(state, place)


def _timers_of_place(state: State, place: Place) -> Iterator[SetTimer]:
    climb, key, attempt = place.climb, place.key, place.attempt
    if place.status == "backing_off" and climb.due is not None:
        yield SetTimer("retry", climb.due, key, attempt + 1)
    if place.status == "handling" and climb.handler_due is not None and not climb.is_handler_late:
        yield SetTimer("handler", climb.handler_due, key, attempt)
    if place.status == "pending_failed" and climb.parked_due is not None:
        yield SetTimer("triage", climb.parked_due, key, attempt)
    if place.phase not in ("", WAITING) or place.status not in ("ready", "running"):
        return
    if place.status == "running" and place.due is not None and is_engine_action(place.spec):
        kind: TimerKind = "until" if waits_until(place.spec) else "attempt"
        yield SetTimer(kind, place.due, key, attempt)
    if (deadline := deadline_of(state, place)) is not None:
        yield SetTimer("deadline", deadline, key, place.visit)


def _run_forked(state: State, fact: e.RunForked) -> Iterable[Effect]:
    """Everything that is open: the tasks and timers of the other run belong to that one."""
    yield from open_timers(state)
    # What is scheduled again is queued by that.
    for place in state.places.values():
        is_queued = place.status == "ready" and place.attempt > 0 and not is_engine_action(place.spec)
        if is_queued and not is_scheduled_again(place, fact) and not is_on_hold(state, place):
            yield QueueTask(place.key, place.attempt)
    if fact.worktree is not None:
        return
    for begin in remaining_start_batches(state):
        yield EnterMore(begin)


def _paused(state: State, fact: e.RunPaused) -> Iterable[Effect]:
    yield PauseChildren(_continued_children(state))


def _continued_children(state: State) -> tuple[int, ...]:
    """The child runs that running attempts continue. They may not have opened their round yet, and count as ended."""
    called = (place for place in state.places.values() if place.last_child is not None and place.status == "running")
    return tuple(one.last_child.run_id for one in called if one.last_child and one.last_child.attempt == one.attempt)


def _step_paused(state: State, fact: e.StepPaused) -> Iterable[Effect]:
    """Dequeue the tasks of a paused step. A task that a worker has leased meanwhile may finish."""
    for place in held_places(state, state.places[fact.step]):
        if not is_engine_action(place.spec):
            yield StopTask(place.key, place.attempt, None)


def _step_resumed(state: State, fact: e.StepResumed) -> Iterable[Effect]:
    for place in held_places(state, state.places[fact.step]):
        if not is_engine_action(place.spec) and not is_on_hold(state, place):
            yield QueueTask(place.key, place.attempt)


def _run_stopping(state: State, fact: e.RunStopping) -> Iterable[Effect]:
    """Stopping ends a pause: cleanup or undo may wait for a child run."""
    yield ResumeChildren(_continued_children(state))
    if state.run.worktree_origin is not None and lacks_worktree(state):
        # A fork that does not wait for its worktree any more: `end` may have been begun in the other run.
        yield from open_timers(state)


RULES: dict[type[e.Fact], Callable[[State, Any], Iterable[Effect]]] = {
    e.RunStarted: _run_started,
    e.RunForked: _run_forked,
    e.RunReopened: _run_due,
    e.RunResumed: _run_due,
    e.RunLate: _late,
    e.RunPaused: _paused,
    e.StepPaused: _step_paused,
    e.StepResumed: _step_resumed,
    e.RunStopping: _run_stopping,
    e.AttemptScheduled: _scheduled,
    e.AttemptStarted: _started,
    e.ProgramResumed: _resumed,
    e.ProgramWaiting: _waiting,
    e.AttemptStopping: _stopping,
    e.AttemptCancelled: _cancelled,
    e.AttemptFailed: _failed,
    e.RetryScheduled: _retry,
    e.HandlerStarted: _handler,
    e.StepParked: _parked,
    e.TriageSuggested: _parked,
    e.LoopTaken: _loop,
    e.StepCompleted: _step_completed,
    e.StepFailed: _step_ended,
    e.CommandCompleted: _command_ended,
    e.CommandFailed: _command_ended,
    e.CommandCancelled: _command_ended,
}
