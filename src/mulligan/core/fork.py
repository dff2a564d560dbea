"""Fork: a new run that keeps what an old one had done, up to a step."""

from __future__ import annotations

from ..errors import UnknownStep
from .events import Kept
from .graph import Graph
from .state import Place, State
from .workflow import END


def kept_results(old: State, graph: Graph, from_step: str) -> tuple[Kept, ...]:
    """What a fork of `old` from `from_step` takes over into the workflow of `graph`.

    Steps are matched by name. Kept is what completed (or was stood in for) and cannot be reached from the step:
    whatever could be touched by running it again runs again.
    """
    if from_step not in graph.nodes:
        raise UnknownStep(f"'{from_step}' is not a step of the workflow to run", step=from_step)
    again = _touched(old, graph, from_step)
    places = (old.places[name] for name in graph.nodes if name in old.places and name not in again)
    return tuple(_kept(old, place) for place in places if place.settled in ("completed", "stood_in", "skipped"))


def _touched(old: State, graph: Graph, from_step: str) -> set[str]:
    """What running the step again can touch: all behind it, and all behind a source that it stood in for."""
    touched = set(graph.region(from_step))
    # What was undone is not there any more, and neither is what was built on it.
    for name, place in old.places.items():
        if place.is_undone and name in graph.nodes:
            touched |= graph.region(name)
    for record in old.failures:
        stands_in = record.then == "continue" and record.target in touched and record.step in graph.nodes
        if stands_in and old.places[record.step].settled == "stood_in":
            touched |= graph.region(record.step)
    return touched


def _kept(old: State, place: Place) -> Kept:
    """Edges are matched by their target: the fork's file may list them in another order."""
    arcs = old.graph.nodes[place.key].arcs
    taken = {arc.to for arc in arcs if arc.to == END or old.arcs.get(arc.key) == "taken"}
    status = "skipped" if place.settled == "skipped" else "completed"
    return Kept(place.key, status, place.output, tuple(sorted(taken)))
