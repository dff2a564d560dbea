"""Child runs as their parent sees them: the uid, from the place that called it, and what starts it and its rounds."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from mulligan.core.deciding.agents.budgets import remaining_budget
from mulligan.core.effects.effects import ContinueChild, StartChild
from mulligan.core.effects.reuse import forced_child_steps
from mulligan.core.model.actions import called_workflow, is_carried
from mulligan.core.model.event_types import ChildRound
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.reports import Revised, RoundRequested, RunRequested
from mulligan.core.model.workflow import Workflow
from mulligan.core.state.notice_rules import rules_for_child
from mulligan.core.state.state import Place, Run, State
from mulligan.core.state.workspace import WORKER_FOLDER, folder_of
from mulligan.errors import InputInvalid

# How many child runs may call each other, one below the other.
DEPTH_MAX = 16


def child_uid(parent: Run, place: str, attempt: int) -> str:
    """The uid of the run that an attempt calls; "" if its parent has none."""
    return f"{parent.uid}.{place}.{attempt}" if parent.uid else ""


def calling_place(parent: str, child: str) -> str:
    """The place of the parent that called the child, from their uids; "" if unknown."""
    called = child.removeprefix(f"{parent}.")
    return called.rpartition(".")[0] if parent and called != child else ""


def workflow_of_child(state: State, place: Place) -> Workflow:
    """The definition of the run that a place calls. `InputInvalid` if that is too deep: a program may call itself."""
    # Each call adds its place and its attempt to the uid. What a file includes is counted when it is read.
    if is_carried(place.spec.action) and state.run.uid.count(".") >= 2 * DEPTH_MAX:
        raise InputInvalid(f"child runs are nested {DEPTH_MAX} deep, which is the limit")
    found = called_workflow(place.spec.action, state.workflow)
    assert found is not None, f"'{place.key}' calls no run"
    if state.workflow.source and not found.source:
        # It was published with its parent. One of the catalogue has files of its own.
        found = msgspec.structs.replace(found, source=state.workflow.source)
    return found


def run_request(
    state: State, effect: StartChild, at: datetime, child: Workflow, inputs: dict[str, Any], version: str
) -> RunRequested:
    """What starts the child run that an attempt calls."""
    place, run = state.places[effect.place], state.run
    return RunRequested(
        at=at,
        run_id=0,
        inputs=inputs,
        version=version,
        by=f"run {run.run_id}",
        parent_run_id=run.run_id,
        # A published workflow works with its own files, wherever it is called from.
        cwd=WORKER_FOLDER if child.source not in ("", state.workflow.source) else folder_of(state, place),
        uid=child_uid(run, effect.place, effect.attempt),
        changed_only=run.changed_only,
        forced=forced_child_steps(state, place, child),
        callers_budget=remaining_budget(state, place),
        notify=rules_for_child(state),
    )


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
