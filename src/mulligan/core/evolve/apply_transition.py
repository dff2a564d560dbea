"""Check a fact against the table of transitions before anything changes, and apply the new status."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from mulligan.core.evolve.arrivals import set_status
from mulligan.core.model import events as e
from mulligan.core.state.state import Place, State
from mulligan.core.state.transitions import PLACE, RUN
from mulligan.errors import IllegalTransition

# Facts about a place that may be gone or may never have existed.
_ALWAYS_ALLOWED = frozenset({e.TimerHeld, e.ReportRefused})

# The subject of a fact: the key of a place, or the name of a step.
SUBJECTS: dict[type[e.Fact], Callable[[Any], str]] = {
    kind: attrgetter("place" if "place" in kind.__struct_fields__ else "step") for kind in e.FACTS if kind not in RUN
}
_HAVE_PARENTS = frozenset(kind for kind in e.FACTS if "parent" in kind.__struct_fields__)


def check_transition(state: State, fact: Any) -> None:
    """Raise `IllegalTransition` unless the fact is allowed for the current status of its run or place."""
    kind = type(fact)
    if kind in RUN:
        if state.run.status not in RUN[kind]:
            raise IllegalTransition(f"{kind.__name__} cannot follow in a run that is {state.run.status}")
    elif kind not in _ALWAYS_ALLOWED:
        _check_place(state, fact, kind)


def _check_place(state: State, fact: Any, kind: type[e.Fact]) -> None:
    key = SUBJECTS[kind](fact)
    place = state.places.get(key)
    if kind in PLACE:
        is_allowed = (place.status if place is not None else "new") in PLACE[kind]
    else:
        is_allowed = place is not None
    if not is_allowed:
        raise IllegalTransition(
            f"{kind.__name__} cannot follow for '{key}', which is {place.status if place else 'not there'}"
        )
    if kind in _HAVE_PARENTS and fact.parent not in state.places:
        raise IllegalTransition(f"{kind.__name__} cannot follow for '{key}': there is no '{fact.parent}'")


def move_place(state: State, key: str, fact: e.Fact) -> Place:
    """Move a place to its next status by the table. `check_transition` was called before."""
    place = state.touch(key)
    set_status(state, place, PLACE[type(fact)][place.status])
    return place


def move_run(state: State, fact: e.Fact) -> None:
    state.run.status = RUN[type(fact)][state.run.status]
