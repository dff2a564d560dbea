"""How often a step may be visited in a round: `max_visits`, and one visit more, which fails without running."""

from __future__ import annotations

from mulligan.core.state.state import FailureRecord, Place, State


def can_be_entered(state: State, name: str) -> bool:
    """Whether a step has a visit left: max_visits per round, and one more that fails with LOOP_LIMIT."""
    place = state.places[name]
    return place.visit - place.visits_before + len(place.queue) <= state.graph.nodes[name].step.max_visits


def is_beyond_limit(state: State, place: Place) -> bool:
    """Whether the current visit is beyond max_visits: it fails with LOOP_LIMIT and never runs."""
    node = state.graph.nodes.get(place.key) if place.role == "step" else None
    return node is not None and place.visit - place.visits_before > node.step.max_visits


def last_failure_of_loop(state: State, place: Place) -> FailureRecord | None:
    """The failure because of which a loop came back to a step: the latest one of a last visit inside; None without one.

    A step whose latest visit went well has no failure that counts. Without a loop of edges, a remediation with
    `then: rerun` leads back to the step itself.
    """
    members = state.graph.loops.get(place.key, (place.key,))
    for record in reversed(state.failures):
        if record.is_closed or record.step not in members:
            continue
        # The visit that has just been entered has no failure yet.
        latest = place.visit - 1 if record.step == place.key else state.places[record.step].visit
        if record.visit == latest:
            return record
    return None
