"""Findings about routes: remediations that never run, routes that are never taken, or that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator

from mulligan.analysis.coverage.finding_codes import Found
from mulligan.analysis.coverage.possible_codes import PossibleCodes
from mulligan.core.deciding.conditions import describe_edge, edge_mismatch
from mulligan.core.model.failure import Failure, failure
from mulligan.core.model.graph import Arc, Graph, Node
from mulligan.core.model.workflow import END, Edge

# What a process that exits with a code fails with.
_EXIT = "EXIT_NONZERO"
_FIRST_SIGNAL_EXIT = 129


def route_findings(graph: Graph, codes: PossibleCodes) -> Iterator[Found]:
    """What is wrong with the edges of each step."""
    never: dict[str, list[tuple[Arc, Found]]] = {}
    for node in graph.nodes.values():
        routes = [arc for arc in node.by_priority if arc.edge.on == "failure"]
        chosen = [arc for arc in routes if arc.edge.handles]
        for arc in routes:
            reason = _why_impossible(node, arc.edge, codes)
            if reason:
                hint = "remove the route, or name a failure that can happen"
                found = _found(node, arc, "route_never_taken", f"{_title(node, arc)} is never taken: {reason}", hint)
                never.setdefault(arc.to, []).append((arc, found))
            elif arc.edge.then == "rerun" and node.step.max_visits == 1:
                message = f"'{arc.to}' never repairs '{node.step.name}': 'max_visits: 1' leaves no visit for the rerun"
                yield _found(node, arc, "remediation_never_runs", message, "raise 'max_visits' of the step")
        if node.step.name not in codes.revisited:
            yield from _conflicts(node, graph, [arc for arc in chosen if not _why_impossible(node, arc.edge, codes)])
        yield from _success_conflicts(node)
    yield from _without_way_in(graph, never)


def _without_way_in(graph: Graph, never: dict[str, list[tuple[Arc, Found]]]) -> Iterator[Found]:
    """Routes that are never taken; where nothing else leads to their target, it is a remediation that never runs."""
    for target, routes in never.items():
        arcs = graph.nodes[target].arrivals if target in graph.nodes else []
        impossible = {arc.key for arc, _ in routes}
        is_dead = target != END and all(arc.key in impossible for arc in arcs)
        for _, found in routes:
            if not is_dead:
                yield found
            else:
                message = f"'{target}' never runs: {found.message}"
                yield Found("remediation_never_runs", message, found.step, found.hint, found.failure, found.path)


def _found(node: Node, arc: Arc, code: str, message: str, hint: str, failure: str = "") -> Found:
    return Found(code, message, node.step, hint, failure, ("next", arc.edge.index))


def _title(node: Node, arc: Arc) -> str:
    filters = describe_edge(arc.edge)
    return f"the route of '{node.step.name}' to '{arc.to}'" + (f" for {filters}" if filters else "")


def _why_impossible(node: Node, edge: Edge, codes: PossibleCodes) -> str:
    """Why no failure of the step matches the filters of a route; "" if one may."""
    if edge.exit_codes and (reason := codes.why_no_exit_code(node.step)):
        return reason
    reasons = [codes.why_never(node.step, code, is_route=True) for code in edge.codes]
    return ", and ".join(dict.fromkeys(reasons)) if reasons and all(reasons) else ""


# -- two routes ---------------------------------------------------------------------------


def _conflicts(node: Node, graph: Graph, arcs: list[Arc]) -> Iterator[Found]:
    """Routes that an earlier one leaves nothing for, and pairs of which each is for failures of the other.

    Not asked about steps that are visited again: once the visits of a remediation are spent, the next route is taken.
    """
    # A target with `join: first` that was entered already is skipped.
    routes = [arc for arc in arcs if arc.to == END or graph.nodes[arc.to].step.join != "first"]
    for index, arc in enumerate(routes):
        samples = _samples(arc.edge)
        left = [one for one in samples if not any(_matches(other.edge, one) for other in routes[:index])]
        if samples and not left:
            takers = [other for other in routes[:index] if any(_matches(other.edge, one) for one in samples)]
            message = f"{_title(node, arc)} is never taken: {_takes(takers)}"
            yield _found(node, arc, "route_never_taken", message, "put the narrower route first, or remove one")
            continue
        for other in routes[:index]:
            if found := _contradiction(node, other, arc):
                yield found


def _takes(takers: list[Arc]) -> str:
    first = takers[0]
    filters = describe_edge(first.edge)
    if len(takers) > 1:
        return "earlier routes take all of its failures"
    return f"the earlier route to '{first.to}' takes {filters or 'every failure'}"


def _contradiction(node: Node, first: Arc, second: Arc) -> Found | None:
    """Both match a failure, each has failures that the other has not, and nobody said which comes first."""
    if first.to == second.to and first.edge.then == second.edge.then:
        return None
    if first.edge.priority is not None or second.edge.priority is not None:
        return None
    ones, others = _samples(first.edge), _samples(second.edge)
    both = [one for one in others if _matches(first.edge, one)] or [one for one in ones if _matches(second.edge, one)]
    is_narrower = bool(ones) and all(_matches(second.edge, one) for one in ones)
    if not both or is_narrower:
        return None
    shared = _describe(both[0])
    message = (
        f"two routes of '{node.step.name}' are for {shared}: to '{first.to}', which is taken, and to '{second.to}'"
    )
    return _found(
        node, second, "routes_contradict", message, "name it in one of them, or give both a 'priority'", shared
    )


def _describe(one: Failure) -> str:
    """A failure as a message names it: `TIMEOUT`, `exit code 11`."""
    return one.code if one.exit_code is None or one.code != _EXIT else f"exit code {one.exit_code}"


def _samples(edge: Edge) -> list[Failure]:
    """A failure for each code, or each exit code, that the route names; for a route without filters a new one."""
    if edge.exit_codes:
        named = edge.codes or ("",)
        return [_failure(code, number) for code in named for number in edge.exit_codes]
    if edge.codes:
        return [_failure(code, 1 if code == _EXIT else None) for code in edge.codes]
    return [failure("A_CODE_THAT_NOBODY_NAMES")]


def _failure(code: str, exit_code: int | None) -> Failure:
    if not code:
        code = "SIGNALED" if exit_code is not None and exit_code >= _FIRST_SIGNAL_EXIT else _EXIT
    if code == "HANDLER_FAILED":
        return failure(_EXIT, exit_code=exit_code, handler_failure=failure("HANDLER_FAILED"))
    return failure(code, exit_code=exit_code)


def _matches(edge: Edge, one: Failure) -> bool:
    return not edge_mismatch(edge, one)


# -- edges after a success ----------------------------------------------------------------


def _success_conflicts(node: Node) -> Iterator[Found]:
    """With `take: first`, edges after one without a condition are never taken."""
    if node.step.take != "first":
        return
    always: Arc | None = None
    for arc in node.by_priority:
        if arc.edge.on != "success":
            continue
        if always is not None:
            message = (
                f"the edge of '{node.step.name}' to '{arc.to}' is never taken: the one to '{always.to}' has no "
                "condition, and only the first is taken"
            )
            yield _found(node, arc, "route_never_taken", message, "put the edge without a condition last")
        elif arc.edge.when is None:
            always = arc
