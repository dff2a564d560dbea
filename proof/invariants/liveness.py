"""Invariant 10, liveness: a run ends, or waits for something that will come."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from mulligan.core.deciding.flow import readiness
from mulligan.core.evolve.evolve_places import is_engine_action, waits_until
from mulligan.core.evolve.evolve_programs import ENDING, WAITING
from mulligan.core.model.actions import traits_of
from mulligan.core.model.events import Entry
from mulligan.core.model.place_keys import item_key
from mulligan.core.model.workflow import END
from mulligan.core.state.held_steps import is_on_hold
from mulligan.core.state.state import Place, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.workspace import awaits_worktree, opens_worktree
from mulligan.history.story import story
from mulligan.history.views import list_waits

Key = tuple[str, int]


class PendingWork(msgspec.Struct):
    """What is pending for a run: tasks and child runs by place and attempt, timers by name."""

    tasks: Collection[Key] = ()
    children: Collection[Key] = ()
    timers: Mapping[tuple[str, str, int], datetime] = {}


def promise_10_every_place_has_a_waker(state: State, pending: PendingWork) -> None:
    """Every active place waits for a task, a timer, a child run or a person; and some place is active."""
    run = state.run
    if run.status not in ("running", "paused"):
        return
    active = [place for place in (*state.steps(), state.places[END]) if place.is_active]
    if run.active != len(active):
        raise AssertionError(f"promise 10: {run.active} steps are said to be active, and {len(active)} are")
    for place in active:
        _expect_waker(state, place, pending)
    if run.undoing:
        _expect_waker(state, state.places[run.undoing], pending)
    is_moving = run.status == "running" and _has_room(state) and not awaits_worktree(state)
    for loop in run.loops.values() if is_moving else ():
        if not loop.busy and not _will_fire(state, pending, "loop", place=loop.step, number=loop.edge):
            raise AssertionError(f"promise 10: the loop of '{loop.step}' waits, and no timer is set for it")
    if not (active or run.undoing or run.loops) and run.status == "running":
        raise AssertionError("promise 10: the run is at rest and has not ended")


def _expect_waker(state: State, place: Place, pending: PendingWork) -> None:
    if awaits_worktree(state) and not opens_worktree(state, state.step_of(place).key):
        # It goes on when the worktree of the run is open.
        _expect_opening(state)
    elif place.child:
        _expect_waker(state, state.places[place.child], pending)
    elif place.items is not None and place.status == "running":
        _expect_items(state, place, pending)
    elif not _has_waker(state, place, pending):
        attempt = f"attempt {place.attempt}, phase '{place.phase}'"
        raise AssertionError(f"promise 10: '{place.key}' is {place.status} ({attempt}), and nothing will wake it")


def _expect_opening(state: State) -> None:
    if state.run.status == "paused":
        # If it could not be opened, the run is stopped as it is resumed.
        return
    opens = "" if state.workflow.workspace is None else state.workflow.workspace.opens
    if not opens or not state.places[opens].is_active:
        raise AssertionError("promise 10: steps wait for the worktree of the run, and nothing opens it")


def _expect_items(state: State, place: Place, pending: PendingWork) -> None:
    assert place.items is not None
    items = [state.places.get(item_key(place.key, index)) for index in place.items.todo[: place.items.next]]
    running = [item for item in items if item is not None and item.status == "running"]
    if not running or len(running) != place.items.running:
        raise AssertionError(f"promise 10: {place.items.running} items of '{place.key}' run, and {len(running)} do")
    for item in running:
        _expect_waker(state, item, pending)


def _has_waker(state: State, place: Place, pending: PendingWork) -> bool:
    if place.status == "backing_off":
        return not place.climb.is_script_open and _will_fire(
            state, pending, "retry", place=place.key, number=place.attempt + 1
        )
    if place.status == "pending_failed":
        return place.climb.parked_due is None or _will_fire(
            state, pending, "triage", place=place.key, number=place.attempt
        )
    if place.status not in ("ready", "running"):
        return False
    if place.status == "ready" and is_on_hold(state, place):
        # A person has to resume it.
        return True
    if place.phase in (WAITING, ENDING):
        # A program goes on when a call of it has ended.
        return any(not state.places[label].has_ended for label in state.calls if label in state.places)
    if not is_engine_action(place.spec):
        return (place.key, place.attempt) in pending.tasks
    if place.status == "ready":
        return state.run.status == "paused" and place.key in state.run.unstarted
    if traits_of(place.spec.action).calls_run and (place.key, place.attempt) not in pending.children:
        return False
    is_timed = place.due is not None and not place.phase
    timer = "until" if waits_until(place.spec) else "attempt"
    return place.spec.action is not None and (
        not is_timed or _will_fire(state, pending, timer, place=place.key, number=place.attempt)
    )


def _will_fire(state: State, pending: PendingWork, kind: str, place: str, number: int) -> bool:
    return (kind, place, number) in pending.timers or (kind, place, number) in state.run.held


def _has_room(state: State) -> bool:
    """Whether another step may start; if not, the end of a running one is awaited."""
    most = state.workflow.max_parallel
    return most is None or sum(place.is_active for place in state.steps()) < most


def promise_10_no_step_is_forgotten(state: State, pending: PendingWork) -> None:
    """No step waits that could start now, or that will never start."""
    if state.run.status != "running" or state.run.stop is not None:
        return
    has_room = _has_room(state)
    for place in state.steps():
        answer = readiness(state, place) if place.status == "waiting" else ""
        if place.pause is not None and answer == "enter" and state.workflow.max_parallel is not None:
            # It does not start while something else is in progress.
            continue
        if answer and (has_room or answer != "enter"):
            raise AssertionError(f"promise 10: '{place.key}' waits, and the answer is there: {answer}")


def promise_10_a_run_has_a_story(log: Sequence[Entry]) -> None:
    """The story and what the run waits for follow from the events alone."""
    if not [line for line in story(iter(log)) if line.text.strip()]:
        raise AssertionError(f"promise 10: a run of {len(log)} events has no story")


def promise_10_a_run_that_waits_says_for_what(state: State) -> None:
    """Of one that has not ended, when nothing is on its way any more: a person is waited for, and named."""
    if state.run.status not in RUN_ENDED and not any(wait.is_for_a_person and wait.text for wait in list_waits(state)):
        waits = [wait.text for wait in list_waits(state)]
        raise AssertionError(f"promise 10: run {state.run.run_id} is {state.run.status} and waits for nothing: {waits}")


def promise_10_the_engine_has_met_no_bug(state: State) -> None:
    """A run is paused when its turn crashes repeatedly: in a simulation that is a bug."""
    if state.run.reason.startswith("engine_error"):
        raise AssertionError(f"promise 10: run {state.run.run_id} was paused because of a bug: {state.run.reason}")
