"""Which edges a step takes when it ends. Decided once, and recorded in the fact that ends the step."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mulligan.core.deciding.conditions import edge_mismatch
from mulligan.core.evolve.arrivals import next_visit
from mulligan.core.model.event_types import Passed, Route
from mulligan.core.model.failure import Failure
from mulligan.core.model.graph import Arc
from mulligan.core.model.workflow import END, Edge
from mulligan.core.state.scope import DecisionContext
from mulligan.core.state.state import Place, State
from mulligan.core.state.visit_limits import can_be_entered
from mulligan.errors import ExpressionFailed


def success_edges(now: DecisionContext, place: Place, output: object, *, with_always: bool = True) -> tuple[int, ...]:
    """The success and always edges to take; a loop edge is taken alone. May raise `ExpressionFailed`."""
    kinds = ("success", "always") if with_always else ("success",)
    return _only_loop(_open_edges(now, place, kinds, lambda edge: _holds(now, place, edge, output)))


def edges_after_failure(now: DecisionContext, place: Place, *, is_allowed: bool, with_loops: bool) -> tuple[int, ...]:
    """The always edges of a failed step, and its success edges too if it may fail.

    There is no output, so a condition may fail to evaluate: such an edge is not taken.
    """
    kinds = ("success", "always") if is_allowed else ("always",)
    arcs = _open_edges(now, place, kinds, lambda edge: _holds_without_output(now, place, edge))
    return _only_loop([arc for arc in arcs if with_loops or not arc.is_loop])


def _open_edges(now: DecisionContext, place: Place, kinds: tuple[str, ...], holds: Callable[[Edge], bool]) -> list[Arc]:
    node = now.state.graph.nodes[place.key]
    taken: list[Arc] = []
    for arc in node.by_priority:
        is_first_only = arc.edge.on == "success" and node.step.take == "first"
        is_late = is_first_only and any(one.edge.on == "success" for one in taken)
        # No edge leads to a step that has had its visit beyond max_visits.
        is_open = arc.to == END or can_be_entered(now.state, arc.to)
        if arc.edge.on in kinds and not is_late and is_open and holds(arc.edge):
            taken.append(arc)
    return taken


def _only_loop(taken: list[Arc]) -> tuple[int, ...]:
    loop = next((arc for arc in taken if arc.is_loop), None)
    return (loop.edge.index,) if loop else tuple(arc.edge.index for arc in taken)


def takes_loop(state: State, step: str, taken: Iterable[int]) -> bool:
    """Whether one of the edges taken is a loop: the step will be visited again, so this visit is not final."""
    return any(state.graph.arc(step, index).is_loop for index in taken)


def has_no_route(now: DecisionContext, place: Place, taken: tuple[int, ...]) -> bool:
    """Whether the step has success edges and takes none of them."""
    edges = now.state.graph.nodes[place.key].step.edges
    return any(edge.on == "success" for edge in edges) and not any(edges[index].on == "success" for index in taken)


def _holds(now: DecisionContext, place: Place, edge: Edge, output: object) -> bool:
    return edge.when is None or now.condition(edge.when, place, output=output)


def _holds_without_output(now: DecisionContext, place: Place, edge: Edge) -> bool:
    try:
        return _holds(now, place, edge, None)
    except ExpressionFailed:
        return False


# -- failure edges ------------------------------------------------------------------------------


def failure_route(state: State, place: Place, failure: Failure) -> Route:
    """The first failure edge that matches, by priority (lowest first), then file order; and why the others do not."""
    passed: list[Passed] = []
    chosen: Arc | None = None
    for arc in _by_priority(state, place.key, handles=True):
        reason = "not_first" if chosen else _edge_refusal(state, arc, failure)
        if reason:
            passed.append(Passed(arc.edge.index, arc.to, reason))
        else:
            chosen = arc
    if chosen is None:
        return Route("no_route", reason="no_edge" if not passed else "no_edge_fits", passed=tuple(passed))
    visit = 0 if chosen.to == END else next_visit(state, chosen.to)
    return Route("selected", chosen.edge.index, chosen.to, visit, passed=tuple(passed))


def alert_edges(state: State, place: Place, failure: Failure) -> tuple[int, ...]:
    """All matching edges with `handles: false`: they are taken in addition to the chosen one."""
    arcs = _by_priority(state, place.key, handles=False)
    return tuple(arc.edge.index for arc in arcs if not arc.is_loop and not _edge_refusal(state, arc, failure))


def _by_priority(state: State, step: str, *, handles: bool) -> list[Arc]:
    arcs = state.graph.nodes[step].by_priority
    return [arc for arc in arcs if arc.edge.on == "failure" and arc.edge.handles is handles]


def _edge_refusal(state: State, arc: Arc, failure: Failure) -> str:
    edge = arc.edge
    mismatch = edge_mismatch(edge, failure)
    if mismatch or arc.to == END:
        return mismatch
    # A remediation with `then: rerun` is useless if the source has no visits left.
    if not can_be_entered(state, arc.to) or (edge.then == "rerun" and not can_be_entered(state, arc.source)):
        return "loop_limit"
    target = state.places[arc.to]
    if state.graph.nodes[arc.to].step.join == "first" and target.status != "waiting" and not arc.is_loop:
        return "already_entered"
    return ""


def route_to_program(state: State, place: Place) -> Route | None:
    """Where the failure of a call goes: to its program, in which it is an exception. None if it is no call."""
    call = state.calls.get(place.key) if state.calls else None
    if call is None:
        return None
    program = state.places[call.program]
    return Route("selected", to=call.program, visit=program.visit)
