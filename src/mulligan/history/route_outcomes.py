"""What became of a failed visit of a step, in words: allowed, routed and handled, or not handled."""

from __future__ import annotations

from enum import StrEnum

from mulligan.core.model.workflow import END
from mulligan.core.state.state import FailureRecord, State
from mulligan.core.state.verdict import is_handled


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


def describe_route_outcome(state: State, record: FailureRecord) -> tuple[str, FailureOutcome]:
    """The outcome of a failed visit that no later round has run again."""
    if record.is_allowed:
        return "allowed to fail", FailureOutcome.ALLOWED
    if not record.target and state.run.status == "completed":
        return "not handled, but end returned completed", FailureOutcome.ALLOWED
    if not record.target:
        return ("not handled: the run fails" if record.step != END else "the run fails"), FailureOutcome.UNHANDLED
    handled, status = is_handled(state, record), _target_status(state, record)
    if handled and status == "failed":
        return f"routed to '{record.target}', which failed and was handled in turn", FailureOutcome.REPAIRED
    if handled:
        return f"routed to '{record.target}', which completed{_THEN.get(record.then, '')}", FailureOutcome.REPAIRED
    if handled is None:
        return f"routed to '{record.target}', which is {status}", FailureOutcome.IN_PROGRESS
    if status == "completed":
        became = f"routed to '{record.target}', which completed, and failed again in the loop: not handled"
        return (
            (f"{became}, but end returned completed", FailureOutcome.ALLOWED)
            if state.run.status == "completed"
            else (became, FailureOutcome.UNHANDLED)
        )
    became = f"routed to '{record.target}', which {'failed' if status == 'failed' else f'was {status}'}: not handled"
    return (
        (f"{became}, but end returned completed", FailureOutcome.ALLOWED)
        if state.run.status == "completed"
        else (became, FailureOutcome.UNHANDLED)
    )


def _target_status(state: State, record: FailureRecord) -> str:
    """The status of the visit that a failure was routed to."""
    past = state.past.get((record.target, record.target_visit))
    return past.status if past is not None else state.places[record.target].status


_THEN = {"continue": " and replaced it", "rerun": "; then it ran again"}
