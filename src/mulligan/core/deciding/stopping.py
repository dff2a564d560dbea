"""Stopping a run: it was cancelled, timed out or failed fast. No new work starts; running attempts are asked to end.

A step that was recovering from a failure ends `failed`, any other `cancelled`. Cleanup handlers of both still run
(unless `--now`); undo and `end` come after, in `converge`.
"""

from __future__ import annotations

from datetime import timedelta

from mulligan.core.deciding.lifecycle import Facts, enter_command
from mulligan.core.deciding.routes import route_to_program
from mulligan.core.evolve.evolve_programs import ENDING, WAITING
from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.event_types import Route
from mulligan.core.model.failure import Failure
from mulligan.core.model.place_keys import item_key
from mulligan.core.model.workflow import END, END_TIMEOUT_SECONDS
from mulligan.core.state.scope import DecisionContext
from mulligan.core.state.state import Place

# A program that waits has no task that could be asked to end.
_WITHOUT_TASK = (WAITING, ENDING)


def stop_all(now: DecisionContext, fact: e.RunStopping) -> Facts:
    """Cancel waiting steps and stop active ones. `end` goes on if it is running already."""
    state = now.state
    for step in list(state.steps()):
        if step.status == "waiting":
            yield e.StepCancelled(step.key, step.visit, "stopping")
        elif step.is_active:
            yield from stop_place(now, step)
    if fact.now and state.run.undoing in state.places:
        yield from stop_place(now, state.places[state.run.undoing])


def stop_place(now: DecisionContext, place: Place) -> Facts:
    """Ask a place and everything below it to end. `conclude` ends it when that has happened."""
    if place.status == "pending_failed":
        yield from stop_triager(now, place)
        # With an agent that runs, the step ends after it.
        if place.status == "pending_failed" and not place.child:
            yield e.StepCancelled(place.key, place.visit, "stopping")
    elif place.status == "handling":
        yield from _stop_handler(now, place)
    elif place.child:
        yield from stop_place(now, now.state.places[place.child])
    elif place.status == "backing_off":
        yield from conclude(now, place)
    elif place.items is not None and place.status == "running":
        yield from _stop_items(now, place)
    elif place.status in ("ready", "running"):
        yield from _stop_attempt(now, place)


def _stop_handler(now: DecisionContext, place: Place) -> Facts:
    """A cleanup handler goes on under its own timeout; any other is stopped with the step."""
    if place.child and (place.climb.is_handler_late or not now.may_clean_up(place)):
        yield from stop_place(now, now.state.places[place.child])


def _stop_items(now: DecisionContext, place: Place) -> Facts:
    assert place.items is not None
    for index in place.items.todo[: place.items.next]:
        item = now.state.places[item_key(place.key, index)]
        if item.status == "running" and item.child:
            yield from stop_place(now, now.state.places[item.child])


def _stop_attempt(now: DecisionContext, place: Place) -> Facts:
    """Cancel an attempt that has not started or only waits for a timer, a person or an event; ask any other to end."""
    action = traits_of(place.spec.action)
    stop = now.state.run.stop
    # A child run that is already stopping may be in cleanup or undo: `--now` must reach it too.
    passes_on_now = action.calls_run and place.phase in ("stopping", "timeout") and stop is not None and stop.now
    if place.phase and not passes_on_now and place.phase not in _WITHOUT_TASK:
        return
    if place.status == "ready" or place.phase in _WITHOUT_TASK or action.runs_nothing:
        yield e.AttemptCancelled(place.key, place.attempt)
    else:
        yield e.AttemptStopping(place.key, place.attempt, place.phase or "stopping")


def stop_triager(now: DecisionContext, place: Place) -> Facts:
    """Ask the agent to end that is asked about a parked step, if there is one: its answer is not needed any more."""
    triager = now.state.places.get(place.child)
    if triager is not None and triager.role == "triager":
        yield from stop_place(now, triager)


def conclude(now: DecisionContext, place: Place) -> Facts:
    """Run the cleanup handler of a stopped place if it has one, then end the place."""
    handler = place.spec.on_failure
    if handler is not None and now.may_clean_up(place) and place.climb.handled_attempt != place.attempt:
        due = now.at + timedelta(seconds=handler.timeout or END_TIMEOUT_SECONDS)
        yield e.HandlerStarted(place.key, place.attempt, handler.strategy, due)
        yield from enter_command(now, place, "handler", 0)
        return
    found = None if place.phase == "stopped" else place.failure
    if place.role == "step":
        is_exception = place.is_unwanted and now.state.run.stop is None
        yield _step_ended(place, found, route_to_program(now.state, place) if is_exception else None)
    elif found is not None:
        yield e.CommandFailed(
            place.key,
            place.parent,
            role=place.role,
            failure=found,
            index=place.index,
            is_allowed=place.spec.continue_on_error,
        )
    else:
        yield e.CommandCancelled(place.key, place.parent, place.role, place.index)


def _step_ended(place: Place, found: Failure | None, route: Route | None) -> e.Fact:
    """The end of a step that was stopped. `route`: of a call that its program does not want any more."""
    if found is None:
        return e.StepCancelled(place.key, place.visit, "stopping")
    return e.StepFailed(
        place.key,
        place.visit,
        failure=found,
        attempt=place.attempt,
        route=route or Route("skipped_terminal", reason="stopping"),
        is_allowed=place.spec.continue_on_error and place.key != END,
        routed_to_end=route is None,
        original_failed_step=place.key if route is None else "",
    )
