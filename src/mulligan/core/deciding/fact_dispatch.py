"""What follows from a fact: `decide(now, fact)` yields further facts. A live run calls it once; a replay never does.

A generator is resumed only after everything that follows from its last fact is in the state, so that each decision
sees the current state. This module is the table, fact by fact; the rules are in the modules it imports.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from mulligan.core.deciding import fakes
from mulligan.core.deciding.admit import end_open_attempt, fire_held_timer, open_corrected_round
from mulligan.core.deciding.agents.budgets import LIMITED
from mulligan.core.deciding.agents.conversations import after_turn_command, start_conversation
from mulligan.core.deciding.converge import after_undo
from mulligan.core.deciding.end_status import after_end_step
from mulligan.core.deciding.flow import (
    after_end,
    after_passing_over,
    enter,
    fail_fast_after_pause,
    stop_without_worktree,
    waits_for_slot,
    wake,
    wake_after_kept,
    wake_starts,
)
from mulligan.core.deciding.ladder import (
    after_classified,
    after_handler_command,
    after_handler_success,
    after_interruption,
    after_loss,
    after_script,
    after_triager,
    climb,
    climb_after_handler,
)
from mulligan.core.deciding.lifecycle import (
    Facts,
    after_success_command,
    after_validator,
    refuse_queued,
    start_engine_action,
    succeed,
)
from mulligan.core.deciding.maps import after_command, after_lister, expand, run_items
from mulligan.core.deciding.programs import after_program, after_turn, cancel_call
from mulligan.core.deciding.run_events import after_delivery, deliver, deliver_to
from mulligan.core.deciding.stopping import conclude, stop_all
from mulligan.core.evolve.evolve_conversations import CONVERSATION_ROLES
from mulligan.core.evolve.evolve_fork import is_scheduled_again
from mulligan.core.evolve.evolve_places import holds_conversation, is_engine_action
from mulligan.core.evolve.evolve_programs import ENDING, WAITING
from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.workflow import END
from mulligan.core.state.deadlines import is_time_up
from mulligan.core.state.held_steps import held_places, is_on_hold
from mulligan.core.state.mailbox import awaits_event
from mulligan.core.state.scope import DecisionContext
from mulligan.core.state.state import Place
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.workspace import awaits_worktree, lacks_worktree, opens_worktree


def decide(now: DecisionContext, fact: e.Fact) -> Facts | None:
    """The facts that follow; None if this kind of fact never has consequences."""
    rule = _RULES.get(type(fact))
    return None if rule is None else rule(now, fact)


# -- the run ------------------------------------------------------------------------------


def _run_started(now: DecisionContext, fact: e.RunStarted) -> Facts:
    yield from wake_starts(now, 0)
    if fact.kept:
        yield from wake_after_kept(now, [k.step for k in fact.kept])


def _run_forked(now: DecisionContext, fact: e.RunForked) -> Facts:
    """Run again what ran in the other run, and what was queued with values of that one.

    With other inputs an open question is asked again: the answer is about what it says.
    With a worktree the step that opens it comes first, and everything else is left as it is until then.
    """
    if is_time_up(now.state, now.at):
        # It was up at the event at which the fork goes on.
        yield from fire_held_timer(now, "run", "", now.state.run.round)
    workspace = now.state.workflow.workspace
    if fact.inputs is not None:
        for key in [place.key for place in now.state.places.values() if place.is_open_approval]:
            if (place := now.state.places.get(key)) is not None and place.is_open_approval:
                yield from end_open_attempt(now, place)
    if fact.worktree is None or workspace is None:
        yield from _run_again(now, lambda place: _is_in_flight(place) or is_scheduled_again(place, fact))
        return
    opening = now.state.places[workspace.opens]
    if opening.status == "waiting":
        yield from enter(now, opening)
    else:
        yield from _run_again(now, lambda place: place.key == workspace.opens)


def _run_again(now: DecisionContext, is_wanted: Callable[[Place], bool]) -> Facts:
    """End attempts that no worker of this run has, or whose values are of another run; they run again."""
    places = now.state.places
    for key in [place.key for place in places.values() if _may_run_again(place) and is_wanted(place)]:
        # A consequence of an earlier one may have ended it.
        place = places.get(key)
        if place is not None and _may_run_again(place) and is_wanted(place):
            yield from end_open_attempt(now, place)


# Phases in which nothing of an attempt runs, and nothing has to run again; a program that waits has no process either.
_WITHOUT_ATTEMPT = ("validating", "finishing", "stopped")


def _may_run_again(place: Place) -> bool:
    action = place.spec.action
    if action is None or place.phase in (*_WITHOUT_ATTEMPT, WAITING, ENDING):
        return False
    return not is_engine_action(place.spec) or traits_of(action).calls_run


def _is_in_flight(place: Place) -> bool:
    """Whether a task or a child run of the other run worked on this place."""
    return place.status == "running"


def _was_begun(place: Place) -> bool:
    """Whether it ran in the other run, or was queued there."""
    return _is_in_flight(place) or (place.status == "ready" and place.attempt > 0)


def _after_opening(now: DecisionContext, follows: Facts) -> Facts:
    """The run has its worktree: go on with what ran in the other run, in a fork, and with everything that waited."""
    state = now.state
    yield from _run_again(now, _was_begun)
    for place in list(state.places.values()):
        is_ready = place.status == "ready" and place.attempt > 0 and is_engine_action(place.spec)
        if is_ready and state.run.status != "paused" and not is_on_hold(state, place):
            yield from start_engine_action(now, place)
    yield from follows
    for name in state.graph.nodes:
        yield from wake(now, name)


def _run_resumed(now: DecisionContext, fact: e.RunResumed) -> Facts:
    """Do what the pause held back: fail-fast, timers that fired, actions that the engine carries out itself."""
    yield from fail_fast_after_pause(now)
    yield from stop_without_worktree(now)
    yield from _release(now, fact)


def _release(now: DecisionContext, fact: e.RunResumed | e.RunStopping) -> Facts:
    for kind, key, number in fact.held:
        # An earlier consequence, such as fail-fast, may have ended the run.
        if now.state.run.status not in RUN_ENDED:
            yield from fire_held_timer(now, kind, key, number)
    for key in fact.unstarted:
        place = now.state.places.get(key)
        if place is not None and place.status == "ready" and not is_on_hold(now.state, place):
            yield from start_engine_action(now, place)


def _step_resumed(now: DecisionContext, fact: e.StepResumed) -> Facts:
    """Start what needs no worker; the other attempts are queued again as an effect."""
    if now.state.run.status == "paused":
        return
    for place in list(held_places(now.state, now.state.places[fact.step])):
        if place.status == "ready" and is_engine_action(place.spec) and not is_on_hold(now.state, place):
            yield from start_engine_action(now, place)


def _run_stopping(now: DecisionContext, fact: e.RunStopping) -> Facts:
    yield from stop_all(now, fact)
    if lacks_worktree(now.state) and now.state.run.stops == 1:
        # Nothing runs there: they were left as they were in the other run.
        yield from _run_again(now, lambda place: _was_begun(place) and not opens_worktree(now.state, place.key))
    yield from _release(now, fact)


def _run_cancelled(now: DecisionContext, fact: e.RunCancelled) -> Facts | None:
    stop = now.state.run.stop
    return None if stop is None or stop.correction is None else open_corrected_round(now, stop.correction)


def _run_reopened(now: DecisionContext, fact: e.RunReopened) -> Facts:
    for step in list(now.state.steps()):
        if step.loop_edge is not None and step.has_ended:
            yield from after_end(now, step.key, step.visit)
    if not fact.dropped:
        # Otherwise calls may have to be undone first: see `converge`.
        for name in fact.put_back:
            yield from wake(now, name)


# -- steps ------------------------------------------------------------------------------


def _step_ended(now: DecisionContext, fact: e.StepCompleted | e.StepFailed) -> Facts:
    if fact.step == END:
        # In a fork that still opens its worktree, `end` may have waited for a person: the round ends after both.
        return iter(()) if now.state.run.active else after_end_step(now)
    follows = after_end(now, fact.step, fact.visit)
    if not opens_worktree(now.state, fact.step):
        return follows
    if lacks_worktree(now.state):
        return chain(follows, stop_without_worktree(now))
    return _after_opening(now, follows)


def _step_skipped(now: DecisionContext, fact: e.StepSkipped | e.StepRestored) -> Facts:
    return after_passing_over(now, fact.step)


def _step_put_back(now: DecisionContext, fact: e.StepPutBack) -> Facts:
    place = now.state.places[fact.step]
    if fact.cause == "rerun" and not waits_for_slot(now.state, place) and not awaits_worktree(now.state):
        yield from enter(now, place)
    else:
        yield from wake(now, fact.step)


def _step_spread(now: DecisionContext, fact: e.StepReplaced | e.StepSettled) -> Facts:
    place = now.state.places[fact.step]
    return after_end(now, fact.step, place.visit)


def _loop_fired(now: DecisionContext, fact: e.LoopFired) -> Facts:
    """Enter the target of the loop; skip at once the steps of its region that can no longer be entered."""
    nodes = now.state.graph.nodes
    yield from enter(now, now.state.places[fact.to])
    for name in sorted(now.state.graph.region(fact.to), key=lambda name: nodes[name].order):
        yield from wake(now, name)


# -- attempts ------------------------------------------------------------------------------


def _attempt_started(now: DecisionContext, fact: e.AttemptStarted) -> Facts | None:
    place = now.state.places[fact.place]
    if fact.is_faked:
        return iter((fakes.end_attempt(now, place),))
    if holds_conversation(place.spec):
        return start_conversation(now, place)
    if awaits_event(place.spec):
        return deliver_to(now, place)
    if place.spec.action is not None or place.role != "step":
        return None
    if now.state.step(place.key).map is not None:
        return expand(now, place)
    return iter((e.AttemptSucceeded(place.key, place.attempt),))


def _attempt_succeeded(now: DecisionContext, fact: e.AttemptSucceeded) -> Facts:
    place = now.state.places[fact.place]
    follows = succeed(now, place)
    return _then_refuse_queued(now, place, follows) if _reports_spending(fact) else follows


def _attempt_failed(now: DecisionContext, fact: e.AttemptFailed | e.ResultRejected) -> Facts:
    place = now.state.places[fact.place]
    follows = climb(now, place, fact.failure)
    return _then_refuse_queued(now, place, follows) if _reports_spending(fact) else follows


def _reports_spending(fact: Any) -> bool:
    """Whether the fact reports what agents have spent."""
    return type(fact) is not e.ResultRejected and bool(fact.usage) and not fact.usage.keys().isdisjoint(LIMITED)


def _then_refuse_queued(now: DecisionContext, place: Place, follows: Facts) -> Facts:
    """Yield what follows, then fail the queued agents that this one has left no budget."""
    step = now.state.step_of(place)
    yield from follows
    yield from refuse_queued(now, step)


def _attempt_cancelled(now: DecisionContext, fact: e.AttemptCancelled) -> Facts:
    place = now.state.places[fact.place]
    follows = conclude(now, place)
    return _then_refuse_queued(now, place, follows) if _reports_spending(fact) else follows


def _command_ended(now: DecisionContext, fact: Any) -> Facts:
    """A command has ended: continue its parent."""
    parent = now.state.places[fact.parent]
    if fact.role == "do":
        yield from after_command(now, parent, fact, fact.index)
    elif fact.role == "handler":
        yield from after_handler_command(now, parent, fact, fact.index)
    elif fact.role == "script":
        yield from after_script(now, parent, fact)
    elif fact.role == "success":
        yield from after_success_command(now, parent, fact, fact.index)
    elif fact.role == "validator":
        yield from after_validator(now, parent, fact)
    elif fact.role == "triager":
        yield from after_triager(now, parent, fact)
    elif fact.role == "lister":
        yield from after_lister(now, parent, fact)
    elif fact.role in CONVERSATION_ROLES:
        yield from after_turn_command(now, parent, fact)
    else:
        yield from after_undo(now, parent, fact)


def _item_ended(now: DecisionContext, fact: e.ItemCompleted | e.ItemFailed | e.ItemCancelled) -> Facts:
    return run_items(now, now.state.places[fact.parent])


_RULES: dict[type[e.Fact], Callable[[DecisionContext, Any], Facts | None]] = {
    e.RunStarted: _run_started,
    e.RunForked: _run_forked,
    e.RunResumed: _run_resumed,
    e.StepResumed: _step_resumed,
    e.RunStopping: _run_stopping,
    e.RunCancelled: _run_cancelled,
    e.RunReopened: _run_reopened,
    e.EventReceived: lambda now, fact: deliver(now, fact.name),
    e.EventDelivered: after_delivery,
    e.StepCompleted: _step_ended,
    e.StepFailed: _step_ended,
    e.StepSkipped: _step_skipped,
    e.StepRestored: _step_skipped,
    e.StepCancelled: lambda now, fact: after_end(now, fact.step, fact.visit),
    e.StepClassified: lambda now, fact: after_classified(now, now.state.places[fact.step], fact),
    e.StepPutBack: _step_put_back,
    e.StepReplaced: _step_spread,
    e.StepSettled: _step_spread,
    e.LoopFired: _loop_fired,
    e.AttemptStarted: _attempt_started,
    e.AttemptSucceeded: _attempt_succeeded,
    e.AttemptFailed: _attempt_failed,
    e.ResultRejected: _attempt_failed,
    e.AttemptLost: lambda now, fact: after_loss(now, now.state.places[fact.place], fact),
    e.AttemptInterrupted: lambda now, fact: after_interruption(now, now.state.places[fact.place], fact),
    e.AttemptCancelled: _attempt_cancelled,
    e.HandlerSucceeded: lambda now, fact: after_handler_success(now, now.state.places[fact.place], fact),
    e.HandlerFailed: lambda now, fact: climb_after_handler(now, now.state.places[fact.place]),
    e.CommandCompleted: _command_ended,
    e.CommandFailed: _command_ended,
    e.CommandCancelled: _command_ended,
    e.CommandSkipped: _command_ended,
    e.StepAdded: lambda now, fact: None if fact.kind == "inline" or fact.is_kept else wake(now, fact.step),
    e.ProgramWaiting: after_turn,
    e.ProgramEnded: lambda now, fact: after_program(now, now.state.places[fact.place]),
    e.CallCancelled: lambda now, fact: cancel_call(now, now.state.places[fact.step]),
    e.MapExpanded: lambda now, fact: run_items(now, now.state.places[fact.place]),
    e.ItemCompleted: _item_ended,
    e.ItemFailed: _item_ended,
    e.ItemCancelled: _item_ended,
}
