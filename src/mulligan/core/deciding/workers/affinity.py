"""The host on which an attempt must run, and those on which it should not."""

from __future__ import annotations

from mulligan.core.model.event_types import AvoidedHosts
from mulligan.core.state.state import Place, State
from mulligan.core.state.workspace import lacks_worktree, opens_worktree


def bound_host(state: State, place: Place) -> str:
    """The host of the attempt that this one belongs to; "" if it may run anywhere."""
    if place.spec.affinity == "any":
        return ""
    if place.role == "step" and lacks_worktree(state) and opens_worktree(state, place.key):
        # The worktree that it copies is there.
        return state.run.worktree_origin.host if state.run.worktree_origin is not None else ""
    is_free = place.role == "step" or (place.role == "do" and place.index == 0)
    if is_free:
        # The rerun needs what the handler repaired, on the host where the handler ran.
        return place.host if place.climb.reruns else ""
    return next((above.host for above in state.ancestors(place) if above.host), "")


def avoided_hosts(state: State, place: Place) -> AvoidedHosts | None:
    """The hosts that a retry avoids, unless the attempt is bound to a host. The commands of an item go with it."""
    if place.climb.avoids is None and place.role != "do":
        return None
    if bound_host(state, place):
        return None
    return place.climb.avoids or state.places[place.parent].climb.avoids
