"""Child runs as their parent sees them: the uid, from the place that called it, and the request for another round."""

from __future__ import annotations

from datetime import datetime

from mulligan.core.deciding.budgets import remaining_budget
from mulligan.core.effects.effects import ContinueChild
from mulligan.core.model.fact_parts import ChildRound
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.reports import Revised, RoundRequested
from mulligan.core.state.state import Run, State


def child_uid(parent: Run, place: str, attempt: int) -> str:
    """The uid of the run that an attempt calls; "" if its parent has none."""
    return f"{parent.uid}.{place}.{attempt}" if parent.uid else ""


def calling_place(parent: str, child: str) -> str:
    """The place of the parent that called the child, from their uids; "" if unknown."""
    called = child.removeprefix(f"{parent}.")
    return called.rpartition(".")[0] if parent and called != child else ""


def round_request(state: State, effect: ContinueChild, at: datetime, revised: Revised | None = None) -> RoundRequested:
    """What a parent sends to the child run that an attempt continues."""
    place, asked = state.places[effect.place], state.run.child_round
    ruling = state.step_of(place).climb.ruling
    if asked is None or (asked.run_id, asked.round) != (effect.run_id, effect.round):
        # Once: what failed with more may not get more and more.
        is_more = state.run.adjusts and place.climb.tries == 0
        asked = ChildRound(effect.place, effect.run_id, effect.round, adjust=True) if is_more else None
    return RoundRequested(
        at=at,
        attempt=effect.attempt,
        round=effect.round,
        by=f"run {state.run.run_id}",
        reason=f"attempt {effect.attempt} of '{step_name(effect.place)}'",
        budget=remaining_budget(state, place),
        asked=asked,
        revised=revised,
        keep_completed=state.run.keep_completed,
        force=state.run.is_forced,
        is_decided=ruling is not None and ruling.verdict == "retry",
    )
