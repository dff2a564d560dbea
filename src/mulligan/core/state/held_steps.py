"""Steps that a person holds: what that keeps from starting, and what starts when they are let go.

A step that is held is entered when its time comes, and stands at `ready`: so it counts as under way, `end` waits for
it, and so does every loop around it. Its task is in no queue. What of it runs already may end: its handlers, its
recovery script and its check belong to the attempt and run; another attempt, or the next command of an item, does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from mulligan.core.model.place_keys import item_key
from mulligan.core.state.state import Place, State

# What starts a piece of the step's own work. Everything else belongs to an attempt that has started.
_HELD_ROLES = ("step", "do")


def is_on_hold(state: State, place: Place) -> bool:
    """Whether an attempt at this place has to wait until somebody resumes its step."""
    if not state.run.paused_steps or place.role not in _HELD_ROLES:
        return False
    return state.step_of(place).pause is not None


def held_places(state: State, step: Place) -> Iterator[Place]:
    """What of a step would run if it were not held: itself, or commands of its items. All of them are ready."""
    if step.status == "ready":
        yield step
    elif step.items is not None and step.status == "running":
        for index in step.items.todo[: step.items.next]:
            item = state.places[item_key(step.key, index)]
            command = state.places.get(item.child) if item.status == "running" and item.child else None
            if command is not None and command.role == "do" and command.status == "ready":
                yield command
