"""When the visit of a place must have ended."""

from __future__ import annotations

from datetime import datetime, timedelta

from mulligan.core.state.state import Place, State


def deadline_of(state: State, place: Place) -> datetime | None:
    """The end of the time of a visit: by its own `deadline`, or by `item_timeout` of the map whose item it is part of.

    The earlier one counts; None if there is none.
    """
    own = place.spec.deadline
    if own is None and not place.parent:
        return None
    found = [] if own is None else [place.entered_at + timedelta(seconds=own)]
    if place.parent:
        item = next((above for above in state.ancestors(place) if above.role == "item"), None)
        policy = state.step(item.parent).map if item is not None else None
        if item is not None and policy is not None and policy.item_timeout is not None:
            found.append(item.entered_at + timedelta(seconds=policy.item_timeout))
    return min(found, default=None)
