"""Checks that a run's row and the tables of its state agree."""

from __future__ import annotations

from mulligan.core.state.state import State
from mulligan.errors import CodecError
from mulligan.ports import RunRecord


def differing_columns(record: RunRecord, state: State) -> tuple[str, ...]:
    """The columns of a run's row that differ from its state. Both must have been read at the same moment."""
    run = state.run
    if run.status == "new":
        expected = {"status": "running", "round": 1, "seq": 0, "degraded": False, "reason": ""}
    else:
        expected = {
            # A corrected definition may have another name: the run is listed under its first one.
            "workflow": state.workflow.name if run.revision is None else record.workflow,
            "version": run.version,
            "status": run.status,
            "round": run.round,
            "seq": run.seq,
            "updated_at": run.at,
            "degraded": run.degraded,
            "reason": run.reason,
            "parent_run_id": run.parent_run_id,
        }
    return tuple(name for name, value in expected.items() if getattr(record, name) != value)


def refuse_damaged(record: RunRecord, state: State) -> None:
    """Raise CodecError if a run cannot be continued because no commit could ever follow its row."""
    if record.seq != state.run.seq:
        message = f"its row ends with event {record.seq}, its state with event {state.run.seq}"
        raise CodecError(f"the tables of run {record.run_id} are damaged: {message}", hint=_HINT)


_HINT = "restore the store from a copy; what the log says: mulligan events RUN"
