"""Paused steps: what a pause keeps from starting, and what starts when the step is resumed.

A paused step is still entered when it is ready, and stays `ready`: it counts as active, and `end` and the loops around
it wait for it. Its task is not queued. A running attempt may finish, with its handlers, recovery script and check;
another attempt, or the next command of an item, does not start.

A run whose worktree is not open yet holds everything but the step that opens it.

A run that was resumed for some steps only (`resume --steps`) holds all other steps in the same way. A visit counts when
it starts, and its retries, handlers and items belong to it. Visits that had started before count first.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mulligan.core.model.actions import traits_of
from mulligan.core.model.place_keys import item_key
from mulligan.core.model.workflow import END
from mulligan.core.state.state import Place, State, Stepping
from mulligan.core.state.workspace import awaits_worktree, opens_worktree

# The roles that a pause keeps from starting. Everything else belongs to an attempt that has started.
_HELD_ROLES = ("step", "do")


def is_on_hold(state: State, place: Place) -> bool:
    """Whether an attempt at this place must wait until its step, or the run, is resumed, or its worktree is open."""
    run = state.run
    if state.workflow.workspace is not None and awaits_worktree(state):
        step = state.step_of(place)
        return step.pause is not None or not opens_worktree(state, step.key)
    if (not run.paused_steps and run.stepping is None) or not is_held_role(place):
        return False
    step = state.step_of(place)
    return step.pause is not None or is_beyond_steps(state, step)


def is_held_role(place: Place) -> bool:
    return place.role in _HELD_ROLES


def is_beyond_steps(state: State, step: Place) -> bool:
    """Whether the run was resumed for some steps only, and this visit is not one of them."""
    stepping = state.run.stepping
    if stepping is None or step.key in (END, state.graph.program):
        # A program makes the steps that count.
        return False
    return (step.key, step.visit) not in stepping.visits


def release(state: State, step: Place) -> None:
    """Let this visit run, if the run was resumed for some steps and one of them is left."""
    stepping = state.run.stepping
    if stepping is not None and stepping.left and step.pause is None and is_beyond_steps(state, step):
        visits = tuple(visit for visit in stepping.visits if _is_open(state, *visit))
        state.run.stepping = msgspec.structs.replace(
            stepping, left=stepping.left - 1, visits=(*visits, (step.key, step.visit))
        )


def begin_stepping(state: State, asked: int, released: tuple[str, ...]) -> None:
    """The run is resumed for so many steps, of which these can go on now."""
    visits = tuple((name, state.places[name].visit) for name in released)
    state.run.stepping = Stepping(asked, max(0, asked - len(released)), visits)


def choose_steps(state: State, count: int) -> tuple[str, ...]:
    """The steps that can go on now: all that have started, then those that are ready, in the order of the file.

    A step that waits for an answer of a person, or for an event, has started and does not count: others can be chosen
    meanwhile.
    """
    program = state.graph.program
    active = [step for step in state.steps() if step.is_active and step.pause is None and step.key != program]
    started = [step.key for step in active if step.status != "ready" and not _waits_for_answer(step)]
    ready = [step.key for step in active if step.status == "ready"]
    return (*started, *ready[: max(0, count - len(started))])


def _waits_for_answer(step: Place) -> bool:
    if step.status == "running":
        action = traits_of(step.spec.action)
        return action.asks_person or action.awaits_event
    return step.status == "pending_failed"


def has_run_its_steps(state: State) -> bool:
    """Whether the run was resumed for some steps only, and all of them have ended."""
    stepping = state.run.stepping
    return stepping is not None and not stepping.left and not any(_is_open(state, *visit) for visit in stepping.visits)


def _is_open(state: State, name: str, visit: int) -> bool:
    step = state.places[name]
    return step.visit == visit and step.is_active


def held_places(state: State, step: Place) -> Iterator[Place]:
    """The ready places of a step that its pause holds back: the step itself, or commands of its items."""
    if step.status == "ready":
        yield step
    elif step.items is not None and step.status == "running":
        for index in step.items.todo[: step.items.next]:
            item = state.places[item_key(step.key, index)]
            command = state.places.get(item.child) if item.status == "running" and item.child else None
            if command is not None and command.role == "do" and command.status == "ready":
                yield command
