"""Whether failures are handled, and the status of the run that follows from it. The only place that decides this."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from mulligan.core.model.artifacts import find_dropped
from mulligan.core.model.workflow import END
from mulligan.core.state.state import FailureRecord, State
from mulligan.core.state.transitions import ENDED
from mulligan.core.state.visit_limits import can_be_entered


def is_handled(state: State, record: FailureRecord) -> bool | None:
    """Whether a failure is handled; None while the visit that it was routed to is still open.

    It is handled if that visit completes, or fails and is handled in turn. It is not handled if there was no route,
    or if the visit was skipped, cancelled, or failed with `continue_on_error`. A failure that went round in a loop is
    handled if the last failure of that loop is.
    """
    while record.target and not record.is_target_skipped:
        place = state.places[record.target]
        past = state.past.get((record.target, record.target_visit))
        if past is not None:
            status, index = past.status, past.failure_index
        elif place.visit < record.target_visit:
            # Not entered: it may still be, or it was skipped.
            is_open = place.status == "waiting" or place.is_active or place.queue or will_go_back(state, record)
            return None if is_open and state.run.stop is None else False
        else:
            status, index = place.status, place.failure_index
        if status not in ENDED:
            return None
        if record.is_caught:
            return True
        if status != "failed" or index is None:
            following = _decided_in_loop(state, record) if status == "completed" else False
            if not isinstance(following, FailureRecord):
                return following
            record = following
            continue
        if state.failures[index].is_allowed:
            return False
        record = state.failures[index]
    return False


def _decided_in_loop(state: State, record: FailureRecord) -> FailureRecord | bool | None:
    """What decides about a failure whose remediation has completed. True, unless that led back in a loop.

    Then it is the last failure since, if there is one. Without one, None while the loop goes on; False if its limit
    kept the remediation from leading back.
    """
    if record.is_closed or record.then == "continue":
        return True
    is_rerun = record.then == "rerun"
    members = (record.step,) if is_rerun else state.graph.loops.get(record.step, ())
    if not is_rerun and record.target not in members:
        return True
    targets = members if is_rerun else _loop_targets(state, members)
    since = max(state.places[name].entered_seq for name in targets)
    later = _last_failure(state, members, since) if since > record.seq else None
    if later is not None:
        return later
    is_open = any(not state.places[name].has_ended and state.places[name].visit for name in members)
    if state.run.stop is None and (is_open or any(loop.step in members for loop in state.run.loops.values())):
        return None
    return since > record.seq or is_rerun or not _is_kept_from_leading_back(state, record)


def _loop_targets(state: State, members: Iterable[str]) -> list[str]:
    """The steps that the edges of a loop lead back to."""
    return [arc.to for name in members for arc in state.graph.nodes[name].arcs if arc.is_loop]


def _last_failure(state: State, members: Collection[str], since: int) -> FailureRecord | None:
    for record in reversed(state.failures):
        if record.seq < since:
            return None
        if record.step in members and not record.is_allowed:
            return record
    return None


def _is_kept_from_leading_back(state: State, record: FailureRecord) -> bool:
    """Whether the remediation took no edge, because the step that it leads back to has no visit left."""
    remediation = state.places[record.target]
    if remediation.visit != record.target_visit or not remediation.no_route:
        return False
    return any(
        arc.is_loop and arc.edge.on == "success" and not can_be_entered(state, arc.to)
        for arc in state.graph.nodes[record.target].arcs
    )


def will_go_back(state: State, record: FailureRecord) -> bool:
    """Whether a loop will put back the step that the failure was routed to."""
    source = state.places[record.step]
    if source.visit == record.visit and source.loop_edge is not None:
        return True
    return any(record.target in state.graph.region(loop.to) for loop in state.run.loops.values())


def open_failures(state: State) -> Iterator[FailureRecord]:
    """The failed visits that no later round runs again."""
    return (record for record in state.failures if not record.is_closed)


def unhandled(state: State) -> Iterator[FailureRecord]:
    """The failures that fail the run in its current state: not handled and not allowed (without those of `end`)."""
    return (r for r in open_failures(state) if not r.is_allowed and r.step != END and not is_handled(state, r))


def verdict(state: State) -> str:
    """The status of the run unless `end` changes it: completed, failed or cancelled."""
    stop = state.run.stop
    if stop and stop.cause == "cancelled":
        return "cancelled"
    if state.run.is_time_up or next(unhandled(state), None) is not None:
        return "failed"
    return "completed"


def is_degraded(state: State) -> bool:
    """Whether a failure was recovered, handled or allowed, or an output is missing because it was too large."""
    if any(True for _ in open_failures(state)):
        return True
    for place in state.places.values():
        if place.recovered_by and place.role in ("step", "item"):
            return True
        if place.role == "item" and place.status == "failed":
            return True
    return any(True for _ in dropped_outputs(state))


def dropped_outputs(state: State) -> Iterator[str]:
    """The steps and items whose outputs were too large to be kept. A map has the outputs of its items in its own."""
    for place in state.places.values():
        # Most have none, or a text: then there is nothing to look at.
        may_drop = isinstance(place.output, dict | list) and place.role in ("step", "item") and place.items is None
        if may_drop and find_dropped(place.output) is not None:
            yield place.key
