"""On which host an attempt has to run."""

from __future__ import annotations

from mulligan.core.state.state import Place, State


def bound_host(state: State, place: Place) -> str:
    """What belongs to an attempt runs where the attempt ran; an attempt of its own, anywhere: ""."""
    if place.spec.affinity == "any":
        return ""
    is_free = place.role == "step" or (place.role == "do" and place.index == 0)
    if is_free:
        # The handler has made things right for the rerun, where it ran.
        return place.host if place.climb.reruns else ""
    return next((above.host for above in state.ancestors(place) if above.host), "")
