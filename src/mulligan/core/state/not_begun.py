"""The steps of a large run that were never entered when it stops: its stop cancels them, not a fact for each."""

from __future__ import annotations

from mulligan.core.state.state import Place, State


def steps_not_begun(state: State) -> list[Place]:
    """The steps that wait for their first visit, in file order, without those that a failure was routed to.

    Nothing follows from their end in a run that stops: no step starts any more, and nobody waits for a remediation.
    """
    routed = state.routed
    waiting = (place for place in state.steps() if place.status == "waiting" and not place.visit)
    return [place for place in waiting if not routed or (place.key, 1) not in routed]


def count_not_begun(state: State) -> int:
    """How many of them a run that stops now cancels at once; 0 if they are few, and each gets a fact of its own."""
    if state.run.waiting <= state.graph.starts_at_once:
        return 0
    count = len(steps_not_begun(state))
    return count if count > state.graph.starts_at_once else 0
