"""Another round of a program: which of its calls are dropped, so that it makes them again.

A program runs again from its beginning, and gets the ends of the calls that are kept. A call that is dropped takes with
it every call that the program has made since it knew how that one had ended.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from mulligan.core.state.program_progress import NO_PROGRESS
from mulligan.core.state.state import Place, State


def dropped_calls(
    state: State, from_step: str, *, is_forced: bool = False, kept: Collection[str] | None = None
) -> tuple[str, ...]:
    """The calls that a round of a program makes again, values among them, in the order in which they were made.

    `kept`: what a corrected program keeps of those that are not made again anyway. One of them may have been undone
    since the program was compared: then what was made after its end is made again, too.
    """
    program = state.places[state.graph.program]
    roots = calls_to_repeat(state, from_step, is_forced=is_forced)
    progress = program.program or NO_PROGRESS
    unforeseen = roots if kept is None else roots.intersection(kept)
    ends = [number for label in unforeseen if (number := _number(state.places[label])) <= progress.known]
    cut = min(ends, default=math.inf)
    same = None if kept is None else frozenset(kept)
    return tuple(
        label
        for label, call in state.calls.items()
        if label in roots or call.known >= cut or (same is not None and label not in same)
    )


def calls_to_repeat(state: State, from_step: str, *, is_forced: bool = False) -> set[str]:
    """The calls that are made again by themselves: the one that is named, or the failure of which ended the program.

    And those that were undone, that the last round was stopped before it has undone, or that did not complete and the
    program does not know it.
    """
    program = state.places[state.graph.program]
    roots = {
        label for label in state.graph.nodes if label in state.calls and _is_due(state, label, is_forced=is_forced)
    }
    roots.update((program.program or NO_PROGRESS).leaving)
    if from_step in state.calls:
        roots.add(from_step)
    elif (escaped := _escaped(program)) in state.calls:
        roots.add(escaped)
    return roots


def _is_due(state: State, label: str, *, is_forced: bool) -> bool:
    """Whether a call is made again by itself: it was undone, or the program does not know that it did not complete."""
    place = state.places[label]
    if place.is_undone or (is_forced and place.has_failed_undo):
        return True
    is_unknown = _number(place) > (state.places[state.graph.program].program or NO_PROGRESS).known
    return is_unknown and place.status != "completed"


def _escaped(program: Place) -> str:
    """The call whose failure the program has let through; "" if it was none."""
    end = (program.program or NO_PROGRESS).end
    return "" if end is None else end.call


def _number(place: Place) -> float:
    return math.inf if place.delivery is None else place.delivery[0]
