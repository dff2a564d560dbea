"""A large run in brief, without reading its log: how many steps are in each status, and those that need attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from mulligan.core.effects.snapshot import read_place
from mulligan.core.model.workflow import END
from mulligan.core.state.state import Place, State
from mulligan.core.state.verdict import is_handled
from mulligan.history.matrices import ATTENTION
from mulligan.history.views import run_brief_json
from mulligan.service.driving.workers import find_worker_pool
from mulligan.service.host.breakers import find_breaker_waits
from mulligan.service.runs.stored.artifacts import with_artifact_paths
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.views.attempt_progress import progress_finder
from mulligan.service.runs.views.overview import (
    add_facts,
    called_runs,
    children_by_step,
    item_counts,
    listed,
    name_waits,
)

# A run with more events is shown in brief: reading its log takes seconds.
WHOLE_EVENTS_MAX = 20_000
# How many steps of each matrix, and of the steps that belong to none, are listed. If there are no more, all are.
MATRIX_STEPS_MAX, STEPS_MAX = 8, 20
# How many failures, and how many steps that wait for a worker, are described.
ENTRIES_MAX = 50


def is_large(reader: RunReader, run_id: int) -> bool:
    """Whether a run is shown in brief, unless everything is asked for."""
    return reader.record(run_id).seq > WHOLE_EVENTS_MAX


def brief_overview(reader: RunReader, run_id: int) -> dict[str, Any]:
    """The run as `overview` has it, with the steps that need attention alone.

    What the steps cost and the files that they kept are left out: only the log knows them.
    `step_counts`: how many steps there are in each status. `listed`: by the name of its matrix, or "" for none, the
    steps that are among `steps`. `matrix_of`: the matrices of the paused steps that would run.
    """
    record = reader.record(run_id)
    children = called_runs(reader, run_id)
    (state, ended), store = reader.brief_state(run_id), reader.store
    items = _ItemCounts(state, ended)
    chosen = _chosen(state)
    names = [name for some in chosen.values() for name in some]
    pool = find_worker_pool(reader.home, store, state)
    view = run_brief_json(state, find_breaker_waits(store, state), pool, names=names, entries_max=ENTRIES_MAX)
    shown: dict[str, Any] = with_artifact_paths(store.artifacts, view)
    shown["artifacts"] = []
    called, progress_of = children_by_step(children), progress_finder(reader.home.folders, run_id)
    for name, step in (*shown["steps"].items(), *([(END, shown["end"])] if shown["end"] else [])):
        add_facts(state, name, step, progress_of, {}, called.get(name, []), items.of)
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
    plain = [name for name, node in state.graph.nodes.items() if not node.step.matrix_name]
    found = {name: _listed(state, group, MATRIX_STEPS_MAX) for name, group in state.graph.matrices.items()}
    return {**found, "": _listed(state, plain, STEPS_MAX)}


def _listed(state: State, names: Iterable[str], most: int) -> list[str]:
    """These steps, or if they are too many the first of those that need attention, unhandled failures first."""
    names = list(names) if state.places else []
    if len(names) <= most:
        return names
    wanted = [(name, number) for number, name in enumerate(names) if state.status_of(name) in ATTENTION]
    wanted.sort(key=lambda one: (_rank(state, one[0]), one[1]))
    return [name for name, _ in sorted(wanted[:most], key=lambda one: one[1])]


def _rank(state: State, name: str) -> int:
    if (status := state.status_of(name)) != "failed":
        return ATTENTION.index(status)
    place = state.places[name]
    record = None if place.failure_index is None else state.failures[place.failure_index]
    return len(ATTENTION) if record is not None and is_handled(state, record) is True else 0


class _ItemCounts:
    """How many items of each map are in each status, without those that have ended in the state."""

    def __init__(self, state: State, ended: Mapping[str, tuple[str, bytes]]) -> None:
        items = (place for place in state.others() if place.role == "item")
        self._live = Counter((place.parent, place.status) for place in items)
        self._ended = Counter((key[: key.rindex("[")], status) for key, (status, _) in ended.items())
        # Items are looked at one by one where some may have taken over the result of another run.
        rows = ended.items() if state.run.changed_only else ()
        reused = (key for key, (_, row) in rows if read_place(key, row).reused_run_id)
        self._up_to_date = Counter(key[: key.rindex("[")] for key in reused)

    def of(self, state: State, place: Place) -> dict[str, int] | None:
        """Those of one step; None if it is no map or has no items yet."""
        if place.items is None:
            return None
        both = self._live + self._ended
        found = Counter({status: count for (step, status), count in both.items() if step == place.key})
        found["waiting"] += max(0, len(place.items.values) - found.total())
        return item_counts(found, self._up_to_date[place.key])


def unlisted_counts(run: dict[str, Any]) -> dict[str, int]:
    """Of a run in brief: how many steps that belong to no matrix are not listed, by status."""
    left = dict(run["step_counts"])
    for group in run["matrices"].values():
        for status, count in group["statuses"].items():
            left[status] -= count
    for name in run["listed"][""]:
        left[run["steps"][name]["status"]] -= 1
    return {status: count for status, count in left.items() if count}
