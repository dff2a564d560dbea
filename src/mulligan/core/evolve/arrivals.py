"""How the end of a step spreads through the graph: needs are counted down, edges are taken or die, steps are put back.

Part of `evolve`: it only changes counters. A waiting step always has the number of its open needs and arrivals; any
other step is recounted when it is put back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from mulligan.core.evolve.evolve_programs import count_delivery
from mulligan.core.model.events import StepPutBack
from mulligan.core.model.graph import Arc, Barrier, Node
from mulligan.core.model.workflow import END
from mulligan.core.state.state import PastVisit, Place, State
from mulligan.core.state.transitions import ACTIVE, PLACE
from mulligan.core.state.visit_limits import can_be_entered

_MET = {
    "success": frozenset({"completed", "stood_in", "allowed"}),
    "success_or_skipped": frozenset({"completed", "stood_in", "allowed", "skipped"}),
    "always": frozenset({"completed", "stood_in", "allowed", "skipped", "failed", "cancelled"}),
}


def is_met(on: str, settled: str) -> bool:
    return settled in _MET[on]


def set_status(state: State, place: Place, status: str) -> None:
    """Change the status of a place, and the counters of the run with it. Nothing else changes a status."""
    before = place.status
    place.status = status  # type: ignore[assignment]
    is_active, was_active = status in ACTIVE, before in ACTIVE
    if place.role != "step" or (is_active and was_active):
        return
    run = state.run
    change = is_active - was_active
    run.active += change
    if place.key != END:
        run.waiting += (status == "waiting") - (before == "waiting")
        if change and run.loops:
            _count_in_loops(state, place.key, change)


def _count_in_loops(state: State, step: str, change: int) -> None:
    loops = dict(state.run.loops)
    for key, loop in loops.items():
        if step in state.graph.region(loop.to):
            loops[key] = type(loop)(loop.step, loop.edge, to=loop.to, due=loop.due, busy=loop.busy + change)
    state.run.loops = loops


# -- ends ------------------------------------------------------------------------------


def settle(state: State, name: str, outcome: str, taken: Collection[int] = ()) -> None:
    """The step has ended for good: take or kill its edges, and update the steps that need it."""
    place = state.touch(name)
    place.settled = outcome
    if state.calls:
        count_delivery(state, place)
    node = state.graph.nodes[name]
    _spread(state, node, outcome, taken)
    for barrier in node.barriers:
        count_member(state, barrier, is_met(barrier.on, outcome))


def cancel_waiting(state: State, places: Iterable[Place]) -> None:
    """Cancel steps that wait, as `set_status` and `settle` do it one after the other.

    A group is written once: a stop may cancel 100,000 members of one.
    """
    outcome = "cancelled"
    nodes, broken = state.graph.nodes, Counter[str]()
    for place in places:
        state.touch(place.key)
        set_status(state, place, outcome)
        place.settled = outcome
        node = nodes[place.key]
        if node.arcs or node.dependents:
            _spread(state, node, outcome, ())
        for barrier in node.barriers:
            is_broken = state.barriers[barrier.key][1] > 0
            if is_broken and not is_met(barrier.on, outcome):
                # One more member that did not meet the condition changes nothing else.
                broken[barrier.key] += 1
            else:
                count_member(state, barrier, is_met(barrier.on, outcome))
    for key, count in broken.items():
        unsettled, bad = state.barriers[key]
        state.put(state.barriers, key, (unsettled - count, bad + count))


def _spread(state: State, node: Node, outcome: str, taken: Collection[int]) -> None:
    """Take or kill the edges of a step that has settled, and update the steps that need it alone."""
    for arc in node.arcs:
        if arc.to != END and not arc.is_loop:
            if arc.edge.index in taken:
                _arrive(state, arc)
            _close(state, arc)
    for target, on in node.dependents:
        _count_need(state, target, outcome in _MET[on])


def arrive(state: State, name: str, taken: Collection[int], *, is_decided: bool) -> None:
    """Take edges of a visit that is not the last one; the other edges stay open.

    A failure edge is decided at once (`is_decided`). A success edge of a step that will be visited again for another
    arrival stays open until the last visit.
    """
    for arc in state.graph.nodes[name].arcs:
        if arc.edge.index in taken and arc.to != END and not arc.is_loop:
            _arrive(state, arc)
            if is_decided:
                _close(state, arc)


def _arrive(state: State, arc: Arc) -> None:
    target = state.touch(arc.to)
    join = state.graph.nodes[arc.to].step.join
    if target.status != "waiting":
        if state.arcs.get(arc.key) == "taken":
            # It was already visited for this edge and keeps its result: after an undone source, or in a fork.
            return
        if join != "first" and not _is_out_of_reach(target, join) and can_be_entered(state, arc.to):
            target.queue = (*target.queue, arc.key)
            state.put(state.arcs, arc.key, "arrived")
        return
    if join == "each":
        target.queue = (*target.queue, arc.key)
    elif join == "first":
        target.taken_arrivals += 1
    if state.arcs.get(arc.key) == "dead":
        # Its source was visited again: the dead edge is open until it is closed below.
        target.open_arrivals += 1
        target.dead_arrivals -= 1
    if state.arcs.get(arc.key) != "taken":
        state.put(state.arcs, arc.key, "arrived")


def _is_out_of_reach(place: Place, join: str) -> bool:
    """Whether no further arrival can help: a need is unmet, or `join: all` lacks an edge."""
    return place.has_dead_need or (join == "all" and place.dead_arrivals > 0)


def _close(state: State, arc: Arc) -> None:
    before = state.arcs.get(arc.key)
    if before == "taken" or before == "dead":
        return
    after = "taken" if before == "arrived" else "dead"
    state.put(state.arcs, arc.key, after)
    target = state.touch(arc.to)
    if target.status != "waiting":
        return
    target.open_arrivals -= 1
    if after == "dead":
        target.dead_arrivals += 1
    elif state.graph.nodes[arc.to].step.join in ("any", "all"):
        target.taken_arrivals += 1


def _count_need(state: State, name: str, met: bool) -> None:
    target = state.touch(name)
    if target.status == "waiting":
        if met:
            target.open_needs -= 1
        else:
            target.has_dead_need = True


def count_member(state: State, barrier: Barrier, met: bool) -> None:
    """Count a member of a group that has settled, and update the steps that need the group if that decides it."""
    unsettled, bad = state.barriers[barrier.key]
    state.put(state.barriers, barrier.key, (unsettled - 1, bad if met else bad + 1))
    if not met and bad == 0:
        for target in barrier.targets:
            _count_need(state, target, False)
    elif unsettled == 1 and bad == 0:
        for target in barrier.targets:
            _count_need(state, target, True)


def next_visit(state: State, name: str) -> int:
    """The visit that a new arrival leads to, after those already queued by `join: each`."""
    place = state.places[name]
    queued = len(place.queue) if state.graph.nodes[name].step.join == "each" else 0
    return place.visit + queued + 1


def reopen_arrivals(state: State, name: str) -> None:
    """A step is entered: reopen the edges from sources that already run again, since they will arrive once more."""
    for arc in state.graph.nodes[name].arrivals:
        if state.arcs.get(arc.key) == "taken" and not state.places[arc.source].has_ended:
            state.drop(state.arcs, arc.key)


# -- putting back ------------------------------------------------------------------------------


def put_back(state: State, names: Collection[str], *, is_loop: bool = False, keeps_results: bool = False) -> None:
    """Put steps back to waiting for a new visit. What they decided is open again; everything else stays decided.

    A loop uses up arrivals from outside, so its steps wait for new ones; needs met from outside stay met. Steps that
    were not entered keep their arrivals. `keeps_results`: a step outside that has run is not visited again because one
    of these arrives once more.
    """
    ordered = sorted(names, key=lambda name: state.graph.nodes[name].order)
    for name in ordered:
        _unsettle(state, name, names, keeps_results=keeps_results)
    for name in ordered:
        place = state.touch(name)
        arrived = place.taken_arrivals if place.status == "waiting" else 0
        if place.status != "waiting":
            if place.visit:
                state.put(state.past, (name, place.visit), PastVisit(place.status, place.failure_index))
            place.last_status = place.status if place.visit else ""
            place.loop_edge = None
            set_status(state, place, PLACE[StepPutBack][place.status])
        recount(state, name, kept_arrivals=arrived if is_loop else None)


def _unsettle(state: State, name: str, names: Collection[str], *, keeps_results: bool) -> None:
    """Revoke that a step had settled. A waiting step outside keeps an edge that was taken, so no arrival is lost.

    A step that keeps its result in a new round keeps the edge too: an undone step that runs again is not a new arrival.
    A failure is one: an alert about the last failure says nothing about the next.
    """
    node = state.graph.nodes[name]
    place = state.touch(name)
    is_redone = (place.is_undone or place.has_failed_undo) and place.status == "completed"
    for arc in node.arcs:
        is_kept = is_redone or (keeps_results and arc.edge.on != "failure")
        if arc.to in names or (state.places[arc.to].status != "waiting" and not is_kept):
            state.drop(state.arcs, arc.key)
    settled, place.settled = place.settled, ""
    if not settled:
        return
    for target, _ in node.dependents:
        if state.places[target].status == "waiting":
            _recount_needs(state, target)
    for barrier in node.barriers:
        _unsettle_member(state, barrier, is_met(barrier.on, settled))


def _unsettle_member(state: State, barrier: Barrier, was_met: bool) -> None:
    unsettled, bad = state.barriers[barrier.key]
    state.put(state.barriers, barrier.key, (unsettled + 1, bad if was_met else bad - 1))
    # The steps that need a broken group were skipped.
    if unsettled == 0 and bad == 0:
        for target in barrier.targets:
            if state.places[target].status == "waiting":
                _recount_needs(state, target)


def _recount_needs(state: State, name: str) -> None:
    """Recount the open needs of a waiting step from what is settled now. A dead need may be open again."""
    place, node = state.touch(name), state.graph.nodes[name]
    settled = [(on, state.places[source].settled) for source, on in node.needs]
    barriers = [state.barriers[barrier.key] for barrier in node.waits]
    place.has_dead_need = any(s and not is_met(on, s) for on, s in settled) or any(bad for _, bad in barriers)
    place.open_needs = sum(not s for _, s in settled) + sum(unsettled > 0 for unsettled, _ in barriers)


def recount(state: State, name: str, *, kept_arrivals: int | None = None) -> None:
    """Recount the open needs and arrivals of a waiting step. A loop keeps at most `kept_arrivals` arrivals."""
    place = state.touch(name)
    node = state.graph.nodes[name]
    join = node.step.join
    _recount_needs(state, name)
    arcs = [state.arcs.get(arc.key) for arc in node.arrivals]
    place.open_arrivals = sum(arc is None or arc == "arrived" for arc in arcs)
    place.dead_arrivals = arcs.count("dead")
    place.taken_arrivals = arcs.count("taken")
    if join == "first":
        place.taken_arrivals += arcs.count("arrived")
    if kept_arrivals is not None:
        place.taken_arrivals = min(place.taken_arrivals, kept_arrivals)
    if join != "each":
        place.queue = ()
    elif kept_arrivals is not None:
        # Arrivals from inside the loop were revoked with the visits that brought them.
        place.queue = tuple(key for key in place.queue if key in state.arcs)


def requeue(state: State, name: str) -> None:
    """Queue again the arrival that the last visit was for."""
    place = state.touch(name)
    if place.arrival:
        place.queue = (place.arrival, *place.queue)
