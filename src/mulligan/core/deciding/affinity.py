"""The host on which an attempt must run."""

from __future__ import annotations

from mulligan.core.state.state import Place, State


def bound_host(state: State, place: Place) -> str:
    """The host of the attempt that this one belongs to; "" if it may run anywhere."""
    if place.spec.affinity == "any":
        return ""
    is_free = place.role == "step" or (place.role == "do" and place.index == 0)
    if is_free:
        # The rerun needs what the handler repaired, on the host where the handler ran.
        return place.host if place.climb.reruns else ""
    return next((above.host for above in state.ancestors(place) if above.host), "")
