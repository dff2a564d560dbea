"""The edges of a step that has ended: which were taken, and why the others were not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mulligan.core.deciding.conditions import describe_edge
from mulligan.core.model.event_types import Passed
from mulligan.core.model.events import StepFailed
from mulligan.core.model.workflow import END, Edge, Step


def edges_after_success(step: Step, taken: Sequence[int]) -> Iterator[str]:
    """The reasons why success edges were not taken, and the `always` edges that were."""
    chosen = [edge for edge in step.edges if edge.index in taken and edge.on == "success"]
    for edge in step.edges:
        if edge.on == "success" and edge.index not in taken:
            yield f"edge to '{edge.to}' not taken: {_why_not_taken(step, edge, chosen)}"
    yield from _always_edges(step, taken)


def _why_not_taken(step: Step, edge: Edge, chosen: list[Edge]) -> str:
    first = chosen[0] if chosen else None
    if step.take == "first" and first is not None and _order(first) < _order(edge):
        return f"the edge to '{first.to}' comes first"
    if edge.when is not None:
        return f"condition not met: {edge.when.source}"
    return f"the loop edge to '{first.to}' is taken alone" if first else "a loop edge is taken alone"


def _order(edge: Edge) -> tuple[float, int]:
    """Lower priority first, those without one last, then the order of the file."""
    return float("inf") if edge.priority is None else edge.priority, edge.index


def _always_edges(step: Step, taken: Sequence[int]) -> Iterator[str]:
    for edge in step.edges:
        if edge.on == "always" and edge.index in taken and edge.to != END:
            yield f"edge to '{edge.to}' taken: on always; it handles no failure"


def describe_route(fact: StepFailed, step: Step | None) -> str:
    """The step that a failure is routed to, and what follows; why it is not routed, or ""."""
    route = fact.route
    if not route.is_sent:
        return _NOT_ROUTED.get(route.reason, "")
    then = step.edges[route.edge].then if step is not None and route.edge is not None else None
    if then == "rerun":
        return f"routed to '{route.to}'; '{fact.step}' will run again when it completes"
    if then == "continue":
        return f"routed to '{route.to}', which will replace '{fact.step}'"
    return f"routed to '{route.to}'"


_NOT_ROUTED = {"stopping": "not routed: the run is stopping", "no_edge_fits": "no failure edge matches"}


def edges_after_failure(fact: StepFailed, step: Step | None) -> Iterator[str]:
    """The reasons why failure edges were not taken, and the other edges that were."""
    for passed in fact.route.passed:
        edge = step.edges[passed.edge] if step is not None else None
        yield f"edge to '{passed.to}' not taken: {_why_not_chosen(passed, edge, fact.route.to or '')}"
    if step is None or fact.route.status == "skipped_terminal":
        return
    for edge in step.edges:
        if edge.on == "failure" and not edge.handles and edge.to != END:
            yield _describe_alert(edge, fact)
    yield from _always_edges(step, fact.taken)


def _why_not_chosen(passed: Passed, edge: Edge | None, chosen: str) -> str:
    words = {
        "not_first": f"the edge to '{chosen}' comes first",
        "loop_limit": "max_visits reached",
        "already_entered": f"'{passed.to}' was already entered",
    }
    if passed.reason in words:
        return words[passed.reason]
    return f"it matches only {describe_edge(edge)}" if edge else passed.reason.replace("_", " ")


def _describe_alert(edge: Edge, fact: StepFailed) -> str:
    if edge.index in fact.taken:
        return f"edge to '{edge.to}' also taken; it handles no failure"
    wanted = describe_edge(edge)
    return f"edge to '{edge.to}' not taken: {f'it matches only {wanted}' if wanted else 'max_visits reached'}"
