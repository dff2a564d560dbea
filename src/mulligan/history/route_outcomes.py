"""What became of a failed visit of a step, in words: allowed, routed and handled, or not handled."""

from __future__ import annotations

from typing import Literal

from mulligan.core.model.workflow import END
from mulligan.core.state.state import FailureRecord, State
from mulligan.core.state.verdict import is_handled

# Open: not handled. Left: not handled, and the run continues or ends without it. Mended: the work is done, by the place
# itself or by another step. In the order in which they are listed.
Fate = Literal["open", "left", "under_way", "mended"]


def format_times(number: int) -> str:
    """` twice`, ` 3 times`; "" for once."""
    return {1: "", 2: " twice"}.get(number, f" {number} times")


def describe_route_outcome(state: State, record: FailureRecord) -> tuple[str, Fate]:
    """The outcome of a failed visit that no later round has run again."""
    if record.is_allowed:
        return "allowed to fail", "left"
    if not record.target and state.run.status == "completed":
        return "not handled, but end returned completed", "left"
    if not record.target:
        return ("not handled: the run fails" if record.step != END else "the run fails"), "open"
    handled, status = is_handled(state, record), _target_status(state, record)
    if handled and status == "failed":
        return f"routed to '{record.target}', which failed and was handled in turn", "mended"
    if handled:
        return f"routed to '{record.target}', which completed{_THEN.get(record.then, '')}", "mended"
    if handled is None:
        return f"routed to '{record.target}', which is {status}", "under_way"
    if status == "completed":
        became = f"routed to '{record.target}', which completed, and failed again in the loop: not handled"
        return (
            (f"{became}, but end returned completed", "left") if state.run.status == "completed" else (became, "open")
        )
    became = f"routed to '{record.target}', which {'failed' if status == 'failed' else f'was {status}'}: not handled"
    return (f"{became}, but end returned completed", "left") if state.run.status == "completed" else (became, "open")


def _target_status(state: State, record: FailureRecord) -> str:
    """The status of the visit that a failure was routed to."""
    past = state.past.get((record.target, record.target_visit))
    return past.status if past is not None else state.places[record.target].status


_THEN = {"continue": " and stood in for it", "rerun": "; then it ran again"}
