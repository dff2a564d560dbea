"""What a retry or a fork runs and what it keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

import msgspec
from msgspec.structs import replace

from mulligan.analysis.coverage.side_effects import effect_of_another_visit
from mulligan.core.deciding.rounds.child_rounds import PlannedChild, planned_children
from mulligan.core.deciding.rounds.fork import Fork, run_reasons
from mulligan.core.deciding.rounds.kept_approvals import approvals_among, approvals_relied_on
from mulligan.core.deciding.rounds.rounds import failed_undos, items_to_rerun, rerun_reasons
from mulligan.core.deciding.workers.resource_usage import adjustments_of
from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.file_records import StaleFile
from mulligan.core.model.graph import Graph
from mulligan.core.model.reports import RetryRequested
from mulligan.core.model.workflow import Budget, Workflow
from mulligan.core.state.state import State
from mulligan.history.item_names import PlaceNames
from mulligan.service.runs.changes.corrections import CorrectedWorkflow, Correction, PlannedRound


class RoundOptions(TypedDict, total=False):
    """What may be asked of another round of a run."""

    from_step: str
    # Only these items of the map step `from_step`; () means those that failed.
    items: Sequence[int] | None
    # Steps that ran out of memory or time get more.
    adjust: bool
    # Continue with this workflow; changed steps and those after them run again.
    corrected: CorrectedWorkflow | None
    # What agents may spend from now on, by step; "" is the run.
    budgets: Mapping[str, Budget] | None
    # Completed steps keep their results, even if a step that they depend on runs again or is corrected.
    keep_completed: bool
    # Child runs that did not complete are not continued, but start anew; or this run, if it is one.
    from_start: bool
    # Steps whose undo has failed run again, although what they did may still be in effect.
    force: bool


class RetryResult(msgspec.Struct, frozen=True, kw_only=True):
    """The round that was opened, or with `dry_run` would be."""

    run_id: int
    round: int
    steps: tuple[str, ...]
    why: dict[str, str]
    # For map steps of which only some items run: these items, if the list does not change.
    items: dict[str, tuple[int, ...]]
    kept: tuple[str, ...]
    adjusted: dict[str, Adjusted]
    # The adjustments in words, by step.
    adjustments: dict[str, list[str]]
    # Files that are gone or have changed: their steps run again.
    stale: tuple[StaleFile, ...]
    # If a corrected file was given.
    correction: Correction | None = None
    # Steps that have run before and change something outside of the run each time, in words.
    side_effects: dict[str, str] = {}
    # What becomes of the child runs that did not complete.
    children: tuple[PlannedChild, ...] = ()
    # For a child run: the run at the top, which gets another round too; otherwise 0. Whether a new child run starts.
    root_run_id: int = 0
    from_start: bool = False
    # Steps whose undo has failed, so that what they did may still be in effect: kept, or with `force` run again.
    undo_failed: tuple[str, ...] = ()
    # Kept steps in which a person has approved something, and behind which a step runs again.
    approvals: tuple[str, ...] = ()
    # Calls of a program that are dropped, and undone before the program begins again, in this order.
    undone_first: tuple[str, ...] = ()
    dry_run: bool
    status: str


class ForkResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the fork runs and keeps; and its number, once it is started."""

    run_id: int
    from_step: str
    steps: tuple[str, ...]
    kept: tuple[str, ...]
    # Kept, although the file changed them.
    changed: tuple[str, ...]
    # Steps of the old run that the file does not have any more.
    dropped: tuple[str, ...]
    # Files that are gone or have changed: their steps run.
    stale: tuple[StaleFile, ...] = ()
    # Kept steps in which a person has approved something: the fork does not ask again.
    approvals: tuple[str, ...] = ()
    # Why each step runs.
    why: dict[str, str] = {}
    # Steps that the old run has run and that change something outside of the run each time, in words.
    side_effects: dict[str, str] = {}
    # Steps whose undo has failed in the old run: what they did may still be in effect, also if the fork runs them.
    undo_failed: tuple[str, ...] = ()
    dry_run: bool
    fork_run_id: int | None


def fork_plan(old: State, workflow: Workflow, from_step: str, fork: Fork, *, dry_run: bool) -> ForkResult:
    kept = tuple(one.step for one in fork.kept)
    # Also of a skipped one: nobody was asked, and nobody is.
    approvals = tuple(approvals_among(kept, old.graph))
    return ForkResult(
        run_id=old.run.run_id,
        from_step=from_step,
        steps=fork.runs,
        kept=kept,
        changed=fork.changed,
        dropped=fork.dropped,
        stale=fork.stale,
        approvals=approvals,
        why=run_reasons(old, Graph(workflow), from_step, fork),
        side_effects=_side_effects(old, workflow, fork.runs),
        undo_failed=fork.undo_failed,
        dry_run=dry_run,
        fork_run_id=None,
    )


def _side_effects(state: State, workflow: Workflow, again: Iterable[str]) -> dict[str, str]:
    """What steps that have run before change outside of the run if they run once more, as far as that can be seen."""
    have_run = (name for name in again if name in state.places and state.places[name].visit)
    steps = {one.name: one for one in workflow.steps}
    found = ((name, steps.get(name) or state.step(name)) for name in have_run)
    return {name: effect for name, step in found if (effect := effect_of_another_visit(step, workflow))}


def round_plan(found: PlannedRound, report: RetryRequested, status: str) -> RetryResult:
    """The plan of the next round of a run with that status, before it is opened."""
    state, planned = found.state, found.round
    again, names = frozenset(planned.steps), PlaceNames()
    kept = tuple(name for name in state.graph.nodes if name not in again)
    children = planned_children(state, report, planned.steps)
    adjustments: dict[str, list[str]] = {}
    for one in planned.proposals:
        adjustments.setdefault(one.step, []).append(one.text)
    return RetryResult(
        run_id=state.run.run_id,
        round=state.run.round + 1,
        steps=planned.steps,
        why=rerun_reasons(state, planned, found.difference),
        items=items_to_rerun(state, planned),
        kept=kept,
        adjusted=adjustments_of(planned.proposals),
        adjustments=adjustments,
        stale=planned.stale,
        correction=found.correction,
        side_effects=_side_effects(state, state.workflow, planned.steps),
        children=tuple(replace(one, name=names.name(state, one.place)) for one in children),
        undo_failed=tuple(failed_undos(state, state.graph.nodes)),
        approvals=tuple(approvals_relied_on(state.graph, kept, again)),
        undone_first=planned.undone_first,
        dry_run=True,
        status=status,
    )


def in_tree(planned: RetryResult, root_run_id: int, *, from_start: bool) -> RetryResult:
    """The plan of a child run, whose round belongs to one of the run at the top. From the start, all steps run."""
    if not from_start:
        return replace(planned, root_run_id=root_run_id)
    steps = (*planned.steps, *planned.kept)
    return replace(
        planned,
        steps=steps,
        why=dict.fromkeys(steps, "a new child run starts"),
        items={},
        kept=(),
        approvals=(),
        children=(),
        root_run_id=root_run_id,
        from_start=True,
    )
