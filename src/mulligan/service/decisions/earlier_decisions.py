"""What was decided earlier about the same error, and how it ended: for whoever decides now.

Every decision has two rows: under workflow, step and code, and under code and exit code. Both are found by the index of
tags, the newest first, so that a look costs the same however many runs there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

import msgspec

from mulligan.core.effects.snapshot import decision_tag, read_decision, read_place
from mulligan.core.state.state import Place
from mulligan.errors import CodecError
from mulligan.ports import Store

# How many decisions are shown about the same step, and how many about the same error in other steps.
SAME_STEP_MAX, SAME_ERROR_MAX = 5, 5


class EarlierDecision(msgspec.Struct, frozen=True):
    """A decision about the same error, and what became of it."""

    run_id: int
    workflow: str
    step: str
    # Whether it was about the same step of the same workflow, or about the same code and exit code elsewhere.
    about: Literal["same_step", "same_error"]
    code: str
    exit_code: int | None
    attempt: int
    verdict: str
    reason: str
    by: str
    at: datetime
    # Nobody decided in time.
    is_default: bool
    # Whether the step completed in the end; None if that is not known yet.
    worked: bool | None
    # How it ended, in words.
    ended: str


def find_earlier(store: Store, workflow: str, step: str, code: str, exit_code: int | None) -> list[EarlierDecision]:
    """The newest decisions about this error of this step, then about the same code and exit code anywhere else."""
    same_step = store.tagged_rows(decision_tag(code, workflow=workflow, step=step), SAME_STEP_MAX)
    known = {(run_id, key) for run_id, _, key, _ in same_step}
    # Those about the same step may be the newest ones under this tag too.
    anywhere = store.tagged_rows(decision_tag(code, exit_code), SAME_ERROR_MAX + 2 * SAME_STEP_MAX)
    others = [row for row in anywhere if (row[0], row[2]) not in known]
    workflows = {one.run_id: one.workflow for one in store.lists.records({row[0] for row in (*same_step, *others)})}
    others = [row for row in others if (workflows.get(row[0]), row[2].partition(":")[2]) != (workflow, step)]
    rows = [("same_step", row) for row in same_step] + [("same_error", row) for row in others[:SAME_ERROR_MAX]]
    places = _places(store, ((row[0], row[2].partition(":")[2]) for _, row in rows))
    return sorted(
        (
            _earlier(about, row, workflows.get(row[0], ""), places)  # type: ignore[arg-type]
            for about, row in rows
        ),
        key=lambda one: (one.about != "same_step", -one.at.timestamp()),
    )


def _places(store: Store, keys: Iterable[tuple[int, str]]) -> dict[tuple[int, str], Place]:
    """The places as they are now; one that cannot be read is left out, `show` of its run reports it."""
    found = {}
    for run_id, key, data in store.lists.places({*keys}):
        try:
            found[run_id, key] = read_place(key, data)
        except CodecError:
            continue
    return found


def _earlier(
    about: Literal["same_step", "same_error"],
    row: tuple[int, str, str, bytes],
    workflow: str,
    places: dict[tuple[int, str], Place],
) -> EarlierDecision:
    run_id, run_status, key, data = row
    step, decision = read_decision(key, data)
    place = places.get((run_id, step))
    worked, ended = _outcome(decision.verdict, decision.attempt, place, run_status)
    return EarlierDecision(
        run_id=run_id,
        workflow=workflow,
        step=step,
        about=about,
        code=decision.code,
        exit_code=decision.exit_code,
        attempt=decision.attempt,
        verdict=decision.verdict,
        reason=decision.reason,
        by=decision.by,
        at=decision.at,
        is_default=decision.is_default,
        worked=worked,
        ended=ended,
    )


def _outcome(verdict: str, attempt: int, place: Place | None, run_status: str) -> tuple[bool | None, str]:
    """Whether the step completed in the end, and how it ended."""
    run = f"the run {_RUN_WORDS.get(run_status, 'goes on')}"
    if place is None:
        return None, run
    code = f" with {place.failure.code}" if place.failure else ""
    if place.status == "completed":
        how = f", recovered by its {place.recovered_by} handler" if place.recovered_by else ""
        return True, f"completed on attempt {place.attempt}{how}"
    if place.status == "pending_failed":
        return False, f"parked again{code} after attempt {place.attempt}"
    if place.status == "failed":
        again = " again" if verdict == "retry" and place.attempt > attempt else ""
        return False, f"failed{again}{code}; {run}"
    return None, f"the step is {place.status.replace('_', ' ')}"


_RUN_WORDS = {"completed": "completed", "failed": "failed", "cancelled": "was cancelled", "paused": "is paused"}
