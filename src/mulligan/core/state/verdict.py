"""What is handled, and what the run's status would be. One function answers, and everybody asks it."""

from __future__ import annotations

from collections.abc import Iterator

from mulligan.core.model.workflow import END
from mulligan.core.state.state import FailureRecord, Place, State
from mulligan.core.state.transitions import ENDED


def is_handled(state: State, record: FailureRecord) -> bool | None:
    """Whether a failure is handled; None while the visit it was routed to is still open.

    It is, if that visit completes, or fails and is handled in turn. It is not, if there was no route, or the
    visit was skipped, cancelled, or failed as `continue_on_error`.
    """
    while record.target:
        place = state.places[record.target]
        past = state.past.get((record.target, record.target_visit))
        if past is not None:
            status, index = past.status, past.failure_index
        elif place.visit < record.target_visit:
            # Not entered: it still may be, or it was passed over.
            is_open = place.status == "waiting" or place.is_active or place.queue or _will_go_back(state, record)
            return None if is_open and state.run.stop is None else False
        else:
            status, index = place.status, place.failure_index
        if status not in ENDED:
            return None
        if status != "failed" or index is None:
            return status == "completed"
        if state.failures[index].is_allowed:
            return False
        record = state.failures[index]
    return False


def _will_go_back(state: State, record: FailureRecord) -> bool:
    """Whether a loop is about to put back the step that a failure was sent to: the failure's own edge, or another."""
    source = state.places[record.step]
    if source.visit == record.visit and source.loop_edge is not None:
        return True
    return any(record.target in state.graph.region(loop.to) for loop in state.run.loops.values())


def open_failures(state: State) -> Iterator[FailureRecord]:
    """The failed visits of this run that no later round has given another chance."""
    return (record for record in state.failures if not record.is_closed)


def unhandled(state: State) -> Iterator[FailureRecord]:
    """Failures that fail the run as things stand: not handled, not allowed (`end`'s own apart)."""
    return (r for r in open_failures(state) if not r.is_allowed and r.step != END and not is_handled(state, r))


def verdict(state: State) -> str:
    """What the run's status would be if `end` said nothing: completed, failed or cancelled."""
    stop = state.run.stop
    if stop and stop.cause == "cancelled":
        return "cancelled"
    if state.run.is_time_up or next(unhandled(state), None) is not None:
        return "failed"
    return "completed"


def is_degraded(state: State) -> bool:
    """Completed, but not as written: something was recovered, handled or allowed to fail."""
    if any(True for _ in open_failures(state)):
        return True
    return any(
        place.recovered_by or (place.role == "item" and place.status == "failed") for place in _steps_and_items(state)
    )


def _steps_and_items(state: State) -> Iterator[Place]:
    return (place for place in state.places.values() if place.role in ("step", "item"))
