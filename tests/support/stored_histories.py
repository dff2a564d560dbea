"""Puts the logs of generated runs into a store, as an engine would have written them."""

from __future__ import annotations

from collections.abc import Iterable

from mulligan.core.effects.snapshot import changes
from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.model import events as e
from mulligan.core.model.reports import RunRequested
from mulligan.core.model.workflow import Workflow, encode, version
from mulligan.core.state.state import State
from mulligan.ports.records import Commit, NewRun, WorkerRecord
from mulligan.service.service import Service

WORKER = "generated"


def store_runs(service: Service, definition: Workflow, runs: Iterable[list[e.Entry]]) -> list[int]:
    """The runs, in this order, the oldest first."""
    # A home that is not there yet is one without runs.
    service.home.folder.mkdir(parents=True, exist_ok=True)
    service.reader.store.register(WorkerRecord(WORKER, "here", 1))
    return [_store_run(service, definition, entries) for entries in runs]


def _store_run(service: Service, definition: Workflow, entries: list[e.Entry]) -> int:
    store, data = service.reader.store, encode(definition)
    request = RunRequested(entries[0].at, run_id=0, by="ada")
    (turn,) = store.create([NewRun(data, version(data), definition.name, request)], WORKER)
    state = State(definition)
    # One turn for the whole log: all rows are new.
    state.begin()
    for entry in entries:
        evolve(state, entry)
    commit = Commit(
        turn=turn,
        after=0,
        entries=entries,
        rows=changes(state),
        status=state.run.status,
        round=state.run.round,
        at=entries[-1].at,
        is_last=state.run.status in ("completed", "failed", "cancelled"),
    )
    store.commit([commit])
    return turn.run_id
