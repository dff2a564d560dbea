"""A run at one moment, for programs: its state, its failures, its values; and its status in one word."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mulligan.core.model.failure import Failure
from mulligan.core.state.scope import failed_visits
from mulligan.core.state.state import Place, State
from mulligan.core.state.verdict import is_handled
from mulligan.history.phrases import describe_failure
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.views.run_list import summarize_runs

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


class RunSnapshot(msgspec.Struct, frozen=True):
    """A run at one moment: its state, and its values, of which what is kept in artifacts was fetched."""

    run_id: int
    state: State
    inputs: dict[str, Any]
    outputs: dict[str, Any]

    @property
    def failures(self) -> list[FailedVisit]:
        """The visits that failed, or that a handler recovered."""
        return [
            FailedVisit(
                record.step,
                record.visit,
                record.failure,
                not record.recovered_by and is_handled(self.state, record) is True,
                record.recovered_by,
            )
            for record in failed_visits(self.state)
        ]

    def place(self, name: str) -> Place:
        """A step. A run that no worker has taken yet has no places, but its workflow has steps."""
        return self.state.places.get(name) or Place("step", "waiting", key=name)


def take_snapshot(reader: RunReader, run_id: int) -> RunSnapshot:
    """The run as it is now."""
    state, fetch = reader.state(run_id), reader.fetch_value
    inputs = state.run.inputs if state.places else reader.inputs(run_id) or {}
    return RunSnapshot(run_id, state, fetch(inputs), fetch(state.run.outputs))


def find_status(reader: RunReader, run_id: int) -> RunStatus:
    """The status of a run; `waiting` if only a person, or time, can move it: an approval, a parked step."""
    found = _SETTLED.get(reader.record(run_id).status)
    if found is not None:
        return found
    (line,) = summarize_runs(reader, [run_id])
    is_held_up = line.asks and not any(reason.kind in _MOVES for reason in line.waiting_for)
    return "waiting" if is_held_up else "running"
