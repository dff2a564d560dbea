"""Whether the tables of a run are what its log says."""

from __future__ import annotations

from itertools import takewhile

import msgspec

from mulligan.core.effects.snapshot import restore
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import decode
from mulligan.core.state.state import STATE_TABLES
from mulligan.core.turn import fold
from mulligan.engine.integrity import differing_columns
from mulligan.service.runs.stored.run_reader import RunReader


class ReplayResult(msgspec.Struct, frozen=True):
    """Whether a run's tables equal the fold of its log: the tables that differ, none if all is well."""

    run_id: int
    ok: bool
    events: int
    differing: tuple[str, ...] = ()


def verify(reader: RunReader, run_id: int) -> ReplayResult:
    """Fold the log again, and compare the result with the tables and with the run's row in the list.

    A run that goes on meanwhile is compared as its tables were when they were read.
    """
    reader.record(run_id)
    loaded = reader.store.load(run_id)
    first = Graph(decode(loaded.workflow))
    kept = restore(first.workflow, loaded.rows, first, may_lack_steps=True)
    log = takewhile(lambda entry: entry.seq <= kept.run.seq, reader.events(run_id))
    folded = fold(first.workflow, log, first)
    # Older releases kept no decisions besides the last one of each step.
    folded.decisions = {key: one for key, one in folded.decisions.items() if key in kept.decisions}
    differing = tuple(name for name in STATE_TABLES if getattr(kept, name) != getattr(folded, name))
    if kept.workflow != folded.workflow:
        differing += ("definition",)
    # The log may have more than the tables, unless the run went on meanwhile.
    if not differing and any(reader.events(run_id, kept.run.seq)) and reader.store.run(run_id).seq == kept.run.seq:
        differing = ("run",)
    differing += tuple(f"list.{name}" for name in differing_columns(loaded.record, kept))
    return ReplayResult(run_id, not differing, folded.run.seq, differing)
