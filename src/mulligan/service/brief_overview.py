"""A large run in brief, without reading its log: how many steps are in each status, and those that need attention."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from mulligan.core.model.workflow import END
from mulligan.core.state.state import Place, State
from mulligan.core.state.verdict import is_handled
from mulligan.history.matrices import ATTENTION
from mulligan.history.views import run_brief_json
from mulligan.service.artifacts import KeptFile, kept_files, with_artifact_paths
from mulligan.service.attempt_progress import progress_finder
from mulligan.service.breakers import find_breaker_waits
from mulligan.service.overview import add_facts, called_runs, children_by_step, listed, name_waits
from mulligan.service.run_reader import RunReader
from mulligan.service.workers import find_worker_pool

# A run with more events is shown in brief: reading its log takes seconds.
WHOLE_EVENTS_MAX = 20_000
# How many steps of each matrix, and of the steps that belong to none, are listed. If there are no more, all are.
MATRIX_STEPS_MAX, STEPS_MAX = 8, 20
# How many failures, and how many steps that wait for a worker, are described.
ENTRIES_MAX = 50
# The beginning of what an attempt kept, in its event.
_KEPT = '"artifacts":['


def is_large(reader: RunReader, run_id: int) -> bool:
    """Whether a run is shown in brief, unless everything is asked for."""
    return reader.record(run_id).seq > WHOLE_EVENTS_MAX


def brief_overview(reader: RunReader, run_id: int) -> dict[str, Any]:
    """The run as `overview` has it, with the steps that need attention alone and without what the steps cost.

    `step_counts`: how many steps there are in each status. `listed`: by the name of its matrix, or "" for none, the
    steps that are among `steps`. `matrix_of`: the matrices of the paused steps that would run.
    """
    record = reader.record(run_id)
    children = called_runs(reader, run_id)
    state, store = reader.state(run_id), reader.store
    chosen = _chosen(state)
    names = [name for some in chosen.values() for name in some]
    pool = find_worker_pool(reader.home, store, state)
    view = run_brief_json(state, find_breaker_waits(store, state), pool, names=names, entries_max=ENTRIES_MAX)
    shown: dict[str, Any] = with_artifact_paths(store.artifacts, view)
    shown["artifacts"] = msgspec.to_builtins(_kept(reader, run_id))
    called, progress_of = children_by_step(children), progress_finder(reader.home.folders, run_id)
    for name, step in (*shown["steps"].items(), *([(END, shown["end"])] if shown["end"] else [])):
        add_facts(state, name, step, progress_of, {}, called.get(name, []))
    for group in shown["matrices"].values():
        group["attempts"], group["usage"] = 0, None
    name_waits(shown, children)
    line = {**listed(reader, record), "labels": reader.labels(run_id)}
    held = (wait["place"] for wait in shown["waiting_for"] if wait["kind"] == "step_pause")
    matrix_of = {name: state.step(name).matrix_name for name in held if name in state.graph.nodes}
    return {
        **line,
        **shown,
        "listed": chosen,
        "matrix_of": {name: matrix for name, matrix in matrix_of.items() if matrix},
        "children": children,
    }


def _chosen(state: State) -> dict[str, list[str]]:
    """The steps to list, by the name of their matrix, or "" for none: in the order of the file."""
    members = {name for group in state.graph.matrices.values() for name in group}
    plain = [name for name in state.graph.nodes if name not in members]
    found = {name: _listed(state, group, MATRIX_STEPS_MAX) for name, group in state.graph.matrices.items()}
    return {**found, "": _listed(state, plain, STEPS_MAX)}


def _listed(state: State, names: Iterable[str], most: int) -> list[str]:
    """These steps, or if they are too many the first of those that need attention, unhandled failures first."""
    places = [state.places[name] for name in names] if state.places else []
    if len(places) <= most:
        return [place.key for place in places]
    wanted = [(place, number) for number, place in enumerate(places) if place.status in ATTENTION]
    wanted.sort(key=lambda one: (_rank(state, one[0]), one[1]))
    return [place.key for place, _ in sorted(wanted[:most], key=lambda one: one[1])]


def _rank(state: State, place: Place) -> int:
    if place.status != "failed":
        return ATTENTION.index(place.status)
    record = None if place.failure_index is None else state.failures[place.failure_index]
    return len(ATTENTION) if record is not None and is_handled(state, record) is True else 0


def _kept(reader: RunReader, run_id: int) -> list[KeptFile]:
    """The files that the attempts kept. The store finds their events."""
    found = reader.store.search_log(run_id, (_KEPT,))
    return [kept for entry in found for kept in kept_files(entry, reader.store.artifacts)]


def unlisted_counts(run: dict[str, Any]) -> dict[str, int]:
    """Of a run in brief: how many steps that belong to no matrix are not listed, by status."""
    left = dict(run["step_counts"])
    for group in run["matrices"].values():
        for status, count in group["statuses"].items():
            left[status] -= count
    for name in run["listed"][""]:
        left[run["steps"][name]["status"]] -= 1
    return {status: count for status, count in left.items() if count}
