"""Which results are too old when a step runs again: those of every step that depends on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from mulligan.core.model.graph import Arc, Graph
from mulligan.core.state.state import State


def dependents(state: State, graph: Graph, steps: Iterable[str]) -> dict[str, str]:
    """For each step that depends on one of `steps`, directly or through others: the one that it was found from.

    A step depends on what it needs, in any way, on the sources of its edges (so on all that it can read), and on the
    remediation that replaced it. One of `steps` is only found if it depends on another. `graph` may be that of a
    corrected definition, for which `state` has the results.
    """
    origins = {step: step for step in steps}
    replaced = _replaced_by(state, graph)
    found: dict[str, str] = {}
    # A list that grows while it is walked.
    vertices = list(origins)
    for vertex in vertices:
        origin = origins[vertex]
        for target in (*_targets(state, graph, vertex), *replaced.get(vertex, ())):
            if target not in origins:
                origins[target] = origin
                vertices.append(target)
            if target != origin and target in graph.nodes:
                found.setdefault(target, origin)
    return found


def _targets(state: State, graph: Graph, vertex: str) -> Iterable[str]:
    for hop in graph.hops(vertex):
        if not isinstance(hop, Arc):
            yield hop
        elif not hop.is_loop and not _was_ignored(state, graph, hop):
            yield hop.to


def _was_ignored(state: State, graph: Graph, arc: Arc) -> bool:
    """Whether the target ran for an earlier arrival, with `join: first`: it does not depend on this source."""
    source, target = state.graph.nodes.get(arc.source), state.graph.nodes.get(arc.to)
    if graph.nodes[arc.to].step.join != "first" or source is None or target is None:
        return False
    if source.step.edges != graph.nodes[arc.source].step.edges or state.places[arc.to].settled in ("", "skipped"):
        return False
    came = state.arcs.get(arc.key)
    return came == "dead" or (came is None and not state.places[arc.source].settled)


def _replaced_by(state: State, graph: Graph) -> Mapping[str, list[str]]:
    """The steps whose result is that of a remediation, by this remediation."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for record in state.failures:
        source = state.places[record.step]
        is_result = record.then == "continue" and source.settled == "stood_in" and source.visit == record.visit
        if is_result and record.step in graph.nodes:
            found[record.target].append(record.step)
    return found
