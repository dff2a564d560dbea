"""The edges of a step that has ended, in words: which were taken, and of each other why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mulligan.core.deciding.conditions import describe_edge
from mulligan.core.model.events import Passed, StepFailed
from mulligan.core.model.workflow import END, Edge, Step


def after_success(step: Step, taken: Sequence[int]) -> Iterator[str]:
    """What is worth a word where not every success edge was taken."""
    chosen = [edge for edge in step.edges if edge.index in taken and edge.on == "success"]
    for edge in step.edges:
        if edge.on == "success" and edge.index not in taken:
            yield f"edge to '{edge.to}' not taken: {_untaken(step, edge, chosen)}"
    yield from _always(step, taken)


def _untaken(step: Step, edge: Edge, chosen: list[Edge]) -> str:
    first = chosen[0] if chosen else None
    if step.take == "first" and first is not None and _comes_before(first, edge):
        return f"the one to '{first.to}' comes first"
    if edge.when is not None:
        return f"{edge.when.source} does not hold"
    return f"the one to '{first.to}' leads back, and goes alone" if first else "an edge that leads back goes alone"


def _comes_before(one: Edge, other: Edge) -> bool:
    return _order(one) < _order(other)


def _order(edge: Edge) -> tuple[float, int]:
    """Lower priority first, those without one last, then the order of the file."""
    return float("inf") if edge.priority is None else edge.priority, edge.index


def _always(step: Step, taken: Sequence[int]) -> Iterator[str]:
    for edge in step.edges:
        if edge.on == "always" and edge.index in taken and edge.to != END:
            yield f"edge to '{edge.to}' taken: it is for every end, and handles nothing"


def takes_over(fact: StepFailed, step: Step | None) -> str:
    """Who deals with a failure, and what comes after that; empty where nobody does."""
    route = fact.route
    if not route.is_sent:
        return _NOBODY.get(route.reason, "")
    then = step.edges[route.edge].then if step is not None and route.edge is not None else None
    return f"'{route.to}' takes over{_THEN[then]}"


_NOBODY = {"stopping": "the run is stopping", "no_edge_fits": "no failure edge fits"}
_THEN = {None: "", "rerun": ", and then it goes again", "continue": " and is to stand in for it"}


def after_failure(fact: StepFailed, step: Step | None) -> Iterator[str]:
    """Why the failure edges were not chosen that were not, and which edges were taken beside."""
    for passed in fact.route.passed:
        edge = step.edges[passed.edge] if step is not None else None
        yield f"edge to '{passed.to}' not taken: {_unchosen(passed, edge, fact.route.to or '')}"
    if step is None or fact.route.status == "skipped_terminal":
        return
    for edge in step.edges:
        if edge.on == "failure" and not edge.handles and edge.to != END:
            yield _beside(edge, fact)
    yield from _always(step, fact.taken)


def _unchosen(passed: Passed, edge: Edge | None, chosen: str) -> str:
    words = {
        "not_first": f"the one to '{chosen}' comes first",
        "loop_limit": "max_visits is used up",
        "already_entered": f"'{passed.to}' has been entered already",
    }
    if passed.reason in words:
        return words[passed.reason]
    return f"it is for {describe_edge(edge)}" if edge else passed.reason.replace("_", " ")


def _beside(edge: Edge, fact: StepFailed) -> str:
    if edge.index in fact.taken:
        return f"edge to '{edge.to}' taken beside: it handles nothing"
    wanted = describe_edge(edge)
    return f"edge to '{edge.to}' not taken: {f'it is for {wanted}' if wanted else 'max_visits is used up'}"
