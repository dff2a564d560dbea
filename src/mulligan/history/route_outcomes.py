"""What became of a failed visit of a step, in words: allowed, routed and handled, or not handled."""

from __future__ import annotations

from enum import StrEnum

from mulligan.core.model.workflow import END
from mulligan.core.state.state import FailureRecord, State
from mulligan.core.state.verdict import is_handled
from mulligan.history.called_steps import handled_at


class FailureOutcome(StrEnum):
    """What became of a failure, in the order in which failures are listed. JSON has the values."""

    UNHANDLED = "open"
    # Not handled, and the run continues or ends without the work.
    ALLOWED = "left"
    IN_PROGRESS = "under_way"
    # The work is done: by the place itself, or by another step.
    REPAIRED = "mended"


def format_times(number: int) -> str:
    """` twice`, ` 3 times`; "" for once."""
    return {1: "", 2: " twice"}.get(number, f" {number} times")


# What became of a failure: in words, and in one.
Ending = tuple[str, FailureOutcome]

# What is said of a place whose failure nobody could report.
LOST = "its worker was lost"
UNDONE_LATER: Ending = "undone in a later round", FailureOutcome.REPAIRED
REMOVED: Ending = "no longer in the workflow", FailureOutcome.ALLOWED
NOT_CALLED: Ending = "not called again", FailureOutcome.ALLOWED
ANOTHER_ROUND: Ending = "ran again in a later round", FailureOutcome.ALLOWED
# By the status of a place that has failed, or whose worker was lost.
ENDINGS: dict[str, Ending] = {
    "completed": ("then completed", FailureOutcome.REPAIRED),
    "failed": ("then failed", FailureOutcome.ALLOWED),
    "cancelled": ("then cancelled", FailureOutcome.ALLOWED),
    "skipped": ("then skipped", FailureOutcome.ALLOWED),
    "pending_failed": ("parked for a decision", FailureOutcome.UNHANDLED),
    "backing_off": ("its next attempt is scheduled", FailureOutcome.IN_PROGRESS),
    "handling": ("its handler is running", FailureOutcome.IN_PROGRESS),
    "running": ("running again", FailureOutcome.IN_PROGRESS),
    "ready": ("about to run again", FailureOutcome.IN_PROGRESS),
    "waiting": ("about to run again", FailureOutcome.IN_PROGRESS),
}
_RECOVERED = {"rerun": "completed on the rerun after its handler", "recovery": "recovered by its handler"}


def describe_recovery(strategy: str) -> Ending:
    """How a handler recovered a place."""
    return _RECOVERED.get(strategy, f"recovered by its {strategy} handler"), FailureOutcome.REPAIRED


def describe_outcome(state: State, record: FailureRecord) -> Ending:
    """The outcome of a visit that failed or was recovered."""
    if record.recovered_by:
        return describe_recovery(record.recovered_by)
    return ANOTHER_ROUND if record.is_closed else describe_route_outcome(state, record)


def describe_route_outcome(state: State, record: FailureRecord) -> Ending:
    """The outcome of a failed visit that no later round has run again."""
    if record.is_allowed:
        return "allowed to fail", FailureOutcome.ALLOWED
    if not record.target and state.run.status == "completed":
        return "not handled, but end returned completed", FailureOutcome.ALLOWED
    if not record.target:
        return ("not handled: the run fails" if record.step != END else "the run fails"), FailureOutcome.UNHANDLED
    handled, status = is_handled(state, record), _target_status(state, record)
    if record.step in state.calls:
        return _describe_raised(state, record, handled, status)
    if handled and status == "failed":
        return f"routed to '{record.target}', which failed and was handled in turn", FailureOutcome.REPAIRED
    if handled:
        return f"routed to '{record.target}', which completed{_THEN.get(record.then, '')}", FailureOutcome.REPAIRED
    if handled is None:
        return f"routed to '{record.target}', which is {status}", FailureOutcome.IN_PROGRESS
    if status == "completed":
        how = "completed, and failed again in the loop"
    else:
        how = "failed" if status == "failed" else f"was {status}"
    became = f"routed to '{record.target}', which {how}: not handled"
    if state.run.status == "completed":
        return f"{became}, but end returned completed", FailureOutcome.ALLOWED
    return became, FailureOutcome.UNHANDLED


def _describe_raised(state: State, record: FailureRecord, handled: bool | None, status: str) -> Ending:
    """The outcome of the failure of a call, which its program may catch."""
    if handled:
        at = handled_at(state, record.step)
        return f"handled at {at}" if at else f"handled by '{record.target}'", FailureOutcome.REPAIRED
    raised = f"raised in '{record.target}', which"
    if handled is None:
        return f"{raised} is {status}", FailureOutcome.IN_PROGRESS
    return f"{raised} {'failed' if status == 'failed' else f'was {status}'}: not handled", FailureOutcome.UNHANDLED


def _target_status(state: State, record: FailureRecord) -> str:
    """The status of the visit that a failure was routed to."""
    if record.is_target_skipped:
        return "skipped"
    past = state.past.get((record.target, record.target_visit))
    return past.status if past is not None else state.places[record.target].status


_THEN = {"continue": " and replaced it", "rerun": "; then it ran again"}
