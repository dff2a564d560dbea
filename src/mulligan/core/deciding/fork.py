"""Fork: a new run that keeps the results of an old one up to a step."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mulligan.core.model.conversation import SessionPart
from mulligan.core.model.fact_parts import Kept
from mulligan.core.model.file_records import StaleFile
from mulligan.core.model.graph import Graph
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.run_data import DataValue
from mulligan.core.model.workflow import END
from mulligan.core.state.state import Place, State
from mulligan.errors import UnknownStep

_KEEPABLE = ("completed", "stood_in", "skipped")


class Fork(msgspec.Struct, frozen=True):
    """What a fork keeps and what it runs, in file order; and how the file has changed."""

    kept: tuple[Kept, ...]
    runs: tuple[str, ...]
    # Kept although their definition has changed.
    changed: tuple[str, ...] = ()
    # Steps of the old run that are not in the file any more.
    dropped: tuple[str, ...] = ()
    # Files of otherwise kept steps that have changed or are gone.
    stale: tuple[StaleFile, ...] = ()
    # Steps whose undo has failed in the old run: what they did may still stand, also if the fork runs them.
    undo_failed: tuple[str, ...] = ()


def plan_fork(old: State, graph: Graph, from_step: str, stale: tuple[StaleFile, ...] = ()) -> Fork:
    """Plan a fork of `old` from `from_step` in the workflow of `graph`; "" keeps every result that there is."""
    if stale:
        would_keep = {one.step for one in kept_results(old, graph, from_step)}
        stale = tuple(one for one in stale if one.step in would_keep)
    kept = kept_results(old, graph, from_step, (one.step for one in stale))
    names = {one.step for one in kept}
    return Fork(
        kept=kept,
        runs=tuple(name for name in graph.nodes if name not in names),
        changed=tuple(one.step for one in kept if graph.nodes[one.step].step != old.graph.nodes[one.step].step),
        dropped=tuple(name for name in old.graph.nodes if name not in graph.nodes),
        stale=stale,
        undo_failed=tuple(name for name in graph.nodes if name in old.places and old.places[name].undo_failed),
    )


def kept_results(old: State, graph: Graph, from_step: str, again: Iterable[str] = ()) -> tuple[Kept, ...]:
    """The results that a fork of `old` from `from_step` takes over into the workflow of `graph`.

    Steps are matched by name. A result is kept if the step completed (or a remediation stood in for it) and cannot be
    reached from `from_step`. A skipped step runs again if anything before it does, since it may have been skipped for
    that failure. `again`: other steps that must run because their files have changed. Without `from_step` every step
    keeps the result that it has.
    """
    if from_step and from_step not in graph.nodes:
        raise UnknownStep(f"'{from_step}' is not a step of the workflow to run", step=from_step)
    touched = _affected_steps(old, graph, (*filter(None, (from_step,)), *again))
    if graph.workflow != old.workflow:
        touched = _with_rerouted(old, graph, touched)
    places = (old.places[name] for name in graph.nodes if name in old.graph.nodes and name not in touched)
    kept = {place.key: place for place in places if place.settled in _KEEPABLE}
    open_ = graph.behind(name for name in graph.nodes if name not in kept)
    return tuple(_keep(old, one) for one in kept.values() if one.settled != "skipped" or one.key not in open_)


def _affected_steps(old: State, graph: Graph, steps: Iterable[str]) -> set[str]:
    """The steps affected by running these: those behind them, and behind steps that one of them stood in for."""
    touched = set(graph.behind(steps))
    # The result of an undone step is gone, and so are those that depend on it.
    for name, place in old.places.items():
        if place.is_undone and name in graph.nodes:
            touched |= graph.region(name)
    for record in old.failures:
        stands_in = record.then == "continue" and record.target in touched and record.step in graph.nodes
        if stands_in and old.places[record.step].settled == "stood_in":
            touched |= graph.region(record.step)
    return touched


def _with_rerouted(old: State, graph: Graph, again: set[str]) -> set[str]:
    """Add the steps that a corrected file puts behind a step that runs: their results are too old.

    Passes over all steps until nothing new is found.
    """
    found, before = set(again), -1
    while len(found) != before:
        before = len(found)
        for name in graph.nodes:
            if name not in found and any(_runs(old, found, one) for one in _new_sources(old, graph, name)):
                found |= graph.region(name)
    return found


def _new_sources(old: State, graph: Graph, name: str) -> frozenset[str]:
    """The steps directly before this one that were not before it in the old run."""
    return graph.sources(name) - old.graph.sources(name) if name in old.graph.nodes else frozenset()


def _runs(old: State, again: set[str], name: str) -> bool:
    return name in again or name not in old.graph.nodes or old.places[name].settled not in _KEEPABLE


def _keep(old: State, place: Place) -> Kept:
    """The kept result. Edges are recorded by their target, since the new file may list them in another order."""
    arcs = old.graph.nodes[place.key].arcs
    taken = {arc.to for arc in arcs if arc.to == END or old.arcs.get(arc.key) == "taken"}
    status = "skipped" if place.settled == "skipped" else "completed"
    is_whole = place.settled == "completed" and not place.recovered_by and not place.has_failed_undo
    return Kept(
        step=place.key,
        status=status,
        output=place.output,
        taken=tuple(sorted(taken)),
        files=place.files,
        fingerprint=place.fingerprint if is_whole else "",
        run_id=(place.result_run_id or old.run.run_id) if is_whole and place.fingerprint else 0,
    )


def kept_data(state: State, kept: Iterable[Kept]) -> dict[str, DataValue]:
    """The data of the run that a fork takes over: what the kept steps have set."""
    steps = {one.step for one in kept}
    return {name: one for name, one in state.run.data.items() if one.place and step_name(one.place) in steps}


def kept_sessions(state: State, kept: Iterable[Kept]) -> dict[str, tuple[SessionPart, ...]]:
    """The sessions that a fork takes over: what the agents of the kept steps said."""
    steps = {one.step for one in kept}
    own = {name: tuple(p for p in parts if step_name(p.place) in steps) for name, parts in state.run.sessions.items()}
    return {name: parts for name, parts in own.items() if parts}
