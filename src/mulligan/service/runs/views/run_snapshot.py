"""A run at one moment, as typed data: its status, its steps, its failures, its outputs."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mulligan.core.model.artifacts import fetch_references
from mulligan.core.model.failure import Failure
from mulligan.core.model.workflow import END
from mulligan.core.state.scope import failed_visits
from mulligan.core.state.state import FailureRecord, Place, State
from mulligan.core.state.verdict import is_handled
from mulligan.history.phrases import describe_failure
from mulligan.ports import RunRecord
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.views.run_list import summarize_runs
from mulligan.service.runs.views.run_view import step_fields

RunStatus = Literal["running", "waiting", "paused", "completed", "failed", "cancelled"]

# The statuses that the store knows and that need no closer look.
_SETTLED: dict[str, RunStatus] = {
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "paused": "paused",
}
# What a run waits for if it moves without a person: a task that runs, or that a worker will take.
_MOVES = frozenset({"task", "worker"})


class FailedVisit(msgspec.Struct, frozen=True):
    """A visit of a step that failed, or that a handler recovered."""

    step: str
    visit: int
    failure: Failure
    # A failure edge led to a step that dealt with it, or the run was allowed to go on without it.
    is_handled: bool
    # The strategy of the handler that recovered it; "" if the visit failed.
    recovered_by: str = ""

    @property
    def code(self) -> str:
        """The code of the failure, such as `EXIT_NONZERO` or `TIMEOUT`."""
        return self.failure.code

    @property
    def message(self) -> str:
        """What the step said, or what happened to it."""
        return self.failure.message

    @property
    def exit_code(self) -> int | None:
        """The exit code of its command; None if that is not why it failed."""
        return self.failure.exit_code

    def __repr__(self) -> str:
        answered = (
            f", recovered by {self.recovered_by}" if self.recovered_by else ", handled" if self.is_handled else ""
        )
        return f"<FailedVisit of {self.step!r}: {describe_failure(self.failure)}{answered}>"


class StepSnapshot(msgspec.Struct, frozen=True):
    """A step at one moment."""

    name: str
    status: str = "waiting"
    visits: int = 0
    attempts: int = 0
    # Parts that are kept in artifacts are references: `Service.output` fetches them.
    output: Any = None
    failure: Failure | None = None
    is_handled: bool = False
    recovered_by: str = ""
    warnings: tuple[Failure, ...] = ()
    is_map: bool = False
    # The run whose result was taken over; None if the step ran itself.
    up_to_date_since: int | None = None
    is_undone: bool = False
    # A visit could not be undone: what it did may still be in effect.
    undo_failed: bool = False
    # The function that it calls, as `module:name`; "" if it does something else.
    call: str = ""
    # Whether the source of that function is kept with the run, since it is one of a script or of a notebook.
    is_pinned: bool = False


class RunSnapshot(msgspec.Struct, frozen=True):
    """A run at one moment. `seq` is the number of its last event: with the same number nothing has changed."""

    run_id: int
    seq: int
    workflow: str
    inputs: dict[str, Any]
    # Whole: what is kept in artifacts was fetched.
    outputs: dict[str, Any]
    steps: dict[str, StepSnapshot]
    # What ran last; None if the run has not started.
    end: StepSnapshot | None
    failures: tuple[FailedVisit, ...]
    # The names of the steps of each matrix.
    matrices: dict[str, tuple[str, ...]]


def take_snapshot(reader: RunReader, run_id: int) -> RunSnapshot:
    """The run as it is now."""
    state = reader.state(run_id)
    fetch = reader.store.artifacts.fetch
    return RunSnapshot(
        run_id=run_id,
        seq=state.run.seq,
        workflow=state.workflow.name,
        inputs=fetch_references(state.run.inputs if state.places else reader.inputs(run_id) or {}, fetch),
        outputs=fetch_references(state.run.outputs, fetch),
        # A run that no worker has taken yet has no places.
        steps={
            name: _step(state, state.places[name]) if state.places else StepSnapshot(name) for name in state.graph.nodes
        },
        end=_step(state, state.places[END]) if state.places else None,
        failures=tuple(_failed_visit(state, record) for record in failed_visits(state)),
        matrices={name: tuple(steps) for name, steps in state.graph.matrices.items()},
    )


def _failed_visit(state: State, record: FailureRecord) -> FailedVisit:
    handled = not record.recovered_by and is_handled(state, record) is True
    return FailedVisit(record.step, record.visit, record.failure, handled, record.recovered_by)


def _step(state: State, place: Place) -> StepSnapshot:
    called = _called(state, place.key)
    return StepSnapshot(
        **step_fields(state, place.key),
        output=place.output,
        failure=place.failure,
        warnings=tuple(place.warnings),
        is_map=place.key != END and state.step(place.key).map is not None,
        call=called.get("call", ""),
        is_pinned="source" in called,
    )


def _called(state: State, name: str) -> dict[str, Any]:
    """What a step says of the function that it calls, or that it calls for each item; empty if there is none."""
    if name == END:
        return {}
    step = state.step(name)
    action = step.do[0].action if len(step.do) == 1 else step.action
    return action.params if action is not None and isinstance(action.params.get("call"), str) else {}


def find_status(reader: RunReader, run_id: int) -> RunStatus:
    """The status of a run; `waiting` if only a person, or time, can move it: an approval, a parked step."""
    record = reader.record(run_id)
    found = _SETTLED.get(record.status)
    if found is not None:
        return found
    return "waiting" if _waits_for_a_person(reader, record) else "running"


def _waits_for_a_person(reader: RunReader, record: RunRecord) -> bool:
    (line,) = summarize_runs(reader, [record.run_id])
    return bool(line.asks) and not any(reason.kind in _MOVES for reason in line.waiting_for)
