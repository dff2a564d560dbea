"""What a retry or a fork runs and what it keeps, as plain data for every face."""

from __future__ import annotations

import msgspec

from mulligan.core.deciding.fork import Fork
from mulligan.core.deciding.resource_usage import Proposal, adjustments_of
from mulligan.core.deciding.rounds import items_to_rerun, rerun_reasons
from mulligan.core.model.events import Adjusted
from mulligan.core.model.file_records import StaleFile
from mulligan.core.state.state import State
from mulligan.service.corrections import Correction, PlannedRound


class RoundPlan(msgspec.Struct, frozen=True):
    """A round of a run: the steps that run again and why, of maps which items, what is kept, what gets more."""

    run_id: int
    round: int
    steps: tuple[str, ...]
    why: dict[str, str]
    # Of map steps that do not run whole: the items that run, as long as the list is the same.
    items: dict[str, tuple[int, ...]]
    kept: tuple[str, ...]
    adjusted: dict[str, Adjusted]
    # The same in words, by step.
    adjustments: dict[str, list[str]]
    # Files of steps that would have been kept, and that are gone or have changed: these steps run again.
    stale: tuple[StaleFile, ...]
    # Where a corrected file was given.
    correction: Correction | None = None


class ForkPlan(msgspec.Struct, frozen=True):
    """A fork of a run: the steps that it runs, whose results it keeps, and where its file is another."""

    run_id: int
    from_step: str
    steps: tuple[str, ...]
    kept: tuple[str, ...]
    # Kept, although the file now says something else of them.
    changed: tuple[str, ...]
    # Steps of the old run that the file no longer has.
    dropped: tuple[str, ...]
    # Files of steps that would have been kept, and that are gone or have changed: these steps run.
    stale: tuple[StaleFile, ...] = ()


def fork_plan(old: State, from_step: str, fork: Fork) -> ForkPlan:
    kept = tuple(one.step for one in fork.kept)
    return ForkPlan(old.run.run_id, from_step, fork.runs, kept, fork.changed, fork.dropped, fork.stale)


def round_plan(found: PlannedRound) -> RoundPlan:
    """The round that would follow: to be asked before it is opened."""
    state, planned = found.state, found.round
    again = frozenset(planned.steps)
    return RoundPlan(
        state.run.run_id,
        state.run.round + 1,
        planned.steps,
        rerun_reasons(state, planned, found.difference),
        items_to_rerun(state, planned),
        tuple(name for name in state.graph.nodes if name not in again),
        adjustments_of(planned.proposals),
        _in_words(planned.proposals),
        planned.stale,
        found.correction,
    )


def _in_words(found: tuple[Proposal, ...]) -> dict[str, list[str]]:
    words: dict[str, list[str]] = {}
    for one in found:
        words.setdefault(one.step, []).append(one.text)
    return words
