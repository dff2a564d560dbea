"""When the visit of a place, and the run, must have ended."""

from __future__ import annotations

from datetime import datetime, timedelta

from mulligan.core.model.workflow import END
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


def is_time_up(state: State, at: datetime) -> bool:
    """Whether the `timeout` of the run has passed, and the run is not stopped for it yet. A pause does not count."""
    run = state.run
    return run.status == "running" and run.stop is None and run.due is not None and run.due <= at


def goes_on_when_stopped(state: State, place: Place) -> bool:
    """Whether a place starts and goes on in a stopped run too: part of a cleanup handler, an undo or `end`."""
    return any(
        above.key == END
        or above.role == "undo"
        or (above.role == "handler" and _is_cleanup(state.places[above.parent]))
        for above in state.ancestors(place)
    )


def _is_cleanup(place: Place) -> bool:
    return place.spec.on_failure is not None and place.spec.on_failure.strategy == "cleanup"
