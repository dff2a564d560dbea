"""Paused steps: what a pause keeps from starting, and what starts when the step is resumed.

A paused step is still entered when it is ready, and stays `ready`: it counts as active, and `end` and the loops around
it wait for it. Its task is not queued. A running attempt may finish, with its handlers, recovery script and check;
another attempt, or the next command of an item, does not start.
"""

from __future__ import annotations

from collections.abc import Iterator

from mulligan.core.model.place_keys import item_key
from mulligan.core.state.state import Place, State

# The roles that a pause keeps from starting. Everything else belongs to an attempt that has started.
_HELD_ROLES = ("step", "do")


def is_on_hold(state: State, place: Place) -> bool:
    """Whether an attempt at this place must wait until its step is resumed."""
    if not state.run.paused_steps or place.role not in _HELD_ROLES:
        return False
    return state.step_of(place).pause is not None


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
