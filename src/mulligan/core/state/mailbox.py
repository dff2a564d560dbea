"""The events that were sent to a run: those that nobody has taken yet, and what waits for one.

Events of one name are taken in the order in which they arrived; of the steps that wait for one and can use it, the one
that was entered first takes it. `EventDelivered` is the only fact by which one is taken, so none is taken twice.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from mulligan.core.model.actions import traits_of
from mulligan.core.model.event_types import ReceivedEvent
from mulligan.core.model.workflow import Command
from mulligan.core.state.scope import fill_params
from mulligan.core.state.state import Place, State
from mulligan.errors import IllegalTransition


def awaits_event(spec: Command) -> bool:
    """Whether it waits for an event."""
    return traits_of(spec.action).awaits_event


def is_open_wait(place: Place | None) -> bool:
    """Whether it waits for an event now."""
    return place is not None and place.status == "running" and not place.phase and awaits_event(place.spec)


def open_waits(state: State, name: str) -> list[Place]:
    """The places that wait for an event of this name, those that were entered first before the others."""
    places = state.places
    waiting = (places[key] for key, awaited in state.event_waits.items() if awaited == name and key in places)
    return sorted(filter(is_open_wait, waiting), key=lambda one: (one.entered_seq, one.key))


def first_free(state: State, name: str) -> int:
    """The number of the first event of this name that nobody has taken; 0 if there is none."""
    return next(iter(state.free_events.get(name, ())), 0)


def free_events(state: State) -> list[tuple[int, ReceivedEvent]]:
    """The events that nobody has taken, in the order in which they arrived."""
    numbers = sorted(number for numbers in state.free_events.values() for number in numbers)
    return [(number, state.received[str(number)]) for number in numbers]


# -- writing, for `evolve` -------------------------------------------------------------------------------------------


def receive(state: State, number: int, event: ReceivedEvent) -> None:
    """Keep an event until somebody takes it."""
    state.put(state.received, str(number), event)
    state.put(state.free_events, event.name, (*state.free_events.get(event.name, ()), number))
    if event.key:
        state.put(state.event_keys, event.key, number)


def take(state: State, number: int, place: Place, *, is_usable: bool = True) -> None:
    """A place takes an event, and does not wait any more. One that it cannot use is not given back, to no step."""
    event, step = state.received.get(str(number)), state.step_of(place).key if is_usable else ""
    if event is None or not event.is_free:
        raise IllegalTransition(f"event {number} is not there to be taken by '{place.key}'")
    taken = msgspec.structs.replace(event, step=step, place=place.key, attempt=place.attempt)
    state.put(state.received, str(number), taken)
    state.put(state.free_events, event.name, tuple(one for one in state.free_events[event.name] if one != number))
    state.drop(state.event_waits, place.key)


def give_back(state: State, steps: Collection[str]) -> None:
    """These steps run again: the events with which they have completed are there for them once more.

    Not the event that a step has failed with: it would fail with it again.
    """
    for number, event in list(state.received.items()):
        if event.step in steps and event.place == event.step:
            place = state.places.get(event.place)
            if place is not None and place.status == "completed" and place.attempt == event.attempt:
                _free(state, number, event)


def give_back_of_items(state: State, steps: Collection[str]) -> None:
    """The same for what was taken below these steps, but for items that keep their results."""
    for number, event in list(state.received.items()):
        if event.step in steps and event.place != event.step:
            item = state.places.get(f"{event.place.partition(']')[0]}]")
            if item is None or item.status != "completed":
                _free(state, number, event)


def spend(state: State, step: str) -> None:
    """A step was undone, and what its events stood for: if it runs again, others have to come."""
    for number, event in list(state.received.items()):
        if event.step == step:
            state.put(state.received, number, msgspec.structs.replace(event, step=""))


def _free(state: State, number: str, event: ReceivedEvent) -> None:
    state.put(state.received, number, msgspec.structs.replace(event, step="", place="", attempt=0))
    free = sorted((*state.free_events.get(event.name, ()), int(number)))
    state.put(state.free_events, event.name, tuple(free))


def awaited_name(place: Place) -> str:
    """The name of the event that an attempt waits for."""
    assert place.spec.action is not None
    return str(fill_params(place.spec.action, place.bindings)["event"])


def restore_waits(state: State) -> None:
    """Index the places that wait for an event, when they were read from rows."""
    for place in state.places.values():
        if place.status == "running" and is_open_wait(place):
            state.event_waits[place.key] = awaited_name(place)


def restore_events(state: State) -> None:
    """Index what was read from rows."""
    for number, event in sorted(state.received.items(), key=lambda one: int(one[0])):
        if event.is_free:
            state.free_events[event.name] = (*state.free_events.get(event.name, ()), int(number))
        if event.key:
            state.event_keys[event.key] = int(number)
