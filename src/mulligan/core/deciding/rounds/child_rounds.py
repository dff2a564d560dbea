"""Which child run an attempt continues: a failed or cancelled one gets another round, in which its results are kept.

A new child run starts instead if the last one completed, if it would be called with other inputs or in another folder,
if a step before the calling one has completed again since, as in a loop, or if it is a group, whose steps are tried
again together. A fork continues no child run of the run that it was forked from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator

import msgspec

from mulligan.core.model.actions import is_group
from mulligan.core.model.event_types import ChildRound, ChildRun
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.reports import ChildEnded, RetryRequested, Revised, RoundRequested
from mulligan.core.model.text.formatting import quote_names
from mulligan.core.model.workflow import Command
from mulligan.core.state.scope import fill_params
from mulligan.core.state.state import LastChild, Place, State
from mulligan.core.state.workspace import folder_of
from mulligan.errors import NothingToRetry, Refused

_encode = msgspec.json.Encoder(order="deterministic").encode


def child_to_continue(state: State, place: Place) -> ChildRun | None:
    """The round of a child run with which the attempt that starts now goes on; None if it starts a new child run."""
    last = place.last_child
    if last is None or is_group(place.spec.action):
        return None
    if _has_newer_source(state, place, last) and not _keeps_older(state, place):
        return None
    if _called_with(state, place) != last.called_with:
        return None
    return ChildRun(last.run_id, last.round + 1, last.called_with)


def _has_newer_source(state: State, place: Place, last: LastChild) -> bool:
    """Whether a step before the calling one has completed again since the child run ended."""
    step = state.step_of(place)
    if step.visit == last.visit or step.key not in state.graph.nodes:
        return False
    sources = (state.places[name].given for name in state.graph.sources(step.key))
    return any(given is not None and given[0] > last.seq for given in sources)


def _keeps_older(state: State, place: Place) -> bool:
    """Whether a round keeps what was completed before it, though steps before that run again; not so in a loop."""
    step = state.step_of(place)
    return state.run.keep_completed and step.visit == step.visits_before + 1


def _called_with(state: State, place: Place) -> str:
    assert place.spec.action is not None
    params = fill_params(place.spec.action, place.bindings)
    known_by = (params.get("file"), params.get("inputs"), folder_of(state, place))
    return hashlib.sha256(_encode(known_by)).hexdigest()[:32]


def ended_child(state: State, place: Place, report: ChildEnded) -> ChildRun | None:
    """The child run that has ended and may have another round; None if there is none."""
    undo_failed = bool(report.undo_failed)
    if report.child_run_id <= 0 or report.status == "completed" or (report.is_refused and not undo_failed):
        return None
    # A round that was refused because of a failed undo may be asked for again, by force.
    ended = report.round - report.is_refused
    return ChildRun(report.child_run_id, ended, _called_with(state, place), undo_failed)


# -- in the child run ------------------------------------------------------------------------------------------------


def requested_round(state: State, report: RoundRequested) -> RetryRequested | None:
    """The request for the round that a parent waits for; None if it was opened before. Raises if it is another one."""
    run = state.run
    if (run.round, run.called_attempt) == (report.round, report.attempt):
        return None
    if run.parent_run_id is None or report.round != run.round + 1:
        raise Refused(f"run {run.run_id} is in round {run.round}: round {report.round} cannot follow")
    return asked_round(report, report.asked or ChildRound("", run.run_id, report.round), report.revised)


def asked_round(
    request: RetryRequested | RoundRequested, asked: ChildRound, revised: Revised | None = None
) -> RetryRequested:
    """The request for a round of a child run that follows from the request for one of its caller."""
    return RetryRequested(
        at=request.at,
        by=request.by,
        reason=request.reason,
        from_step=asked.from_step,
        items=asked.items,
        adjust=asked.adjust,
        peaks=asked.peaks,
        revised=revised,
        stale=asked.stale,
        budgets=asked.budgets,
        keep_completed=request.keep_completed,
        child=asked.child,
        force=request.force,
    )


def refuse_child(state: State) -> None:
    """Raise if the run is a child run: the run that called it opens its rounds."""
    run = state.run
    if run.parent_run_id is not None:
        raise Refused(
            f"run {run.run_id} is a child of run {run.parent_run_id}, which starts its rounds",
            hint=f"retry that one: mulligan retry {run.parent_run_id}",
        )


# -- what a round continues ------------------------------------------------------------------------------------------


class PlannedChild(msgspec.Struct, frozen=True):
    """A child run that a round may continue; `why_new`: why it will start anew, if that is known."""

    place: str
    run_id: int
    round: int
    why_new: str = ""
    # The display name of the place, for people.
    name: str = ""


def planned_children(state: State, report: RetryRequested, steps: Collection[str]) -> Iterator[PlannedChild]:
    """What becomes of the child runs that did not complete, of the steps that a round runs again."""
    again = frozenset(steps)
    for place in state.places.values():
        last = place.last_child
        if last is None or (step := state.step_of(place).key) not in again:
            continue
        key = place.key if place.role != "item" else f"{place.key}.0"
        sources = sorted(state.graph.sources(step) & again)
        asked = report.child if report.child is not None and report.child.place == key else None
        why = ""
        if report.from_start or (asked is not None and asked.from_start):
            why = "--from-start"
        elif is_group(_calling_command(state, place).action):
            why = "the steps of a group are tried again together"
        elif sources and not report.keep_completed:
            why = f"{quote_names(sources)} may run again before it"
        yield PlannedChild(key, last.run_id, last.round + 1, why)


def _calling_command(state: State, place: Place) -> Command:
    return state.step(place.parent).do[0] if place.role == "item" else place.spec


def check_child_rounds(state: State, report: RetryRequested, steps: Collection[str]) -> None:
    """Raise if the round is to do something with a child run that it will not run again."""
    run_id = state.run.run_id
    if not (report.from_start or report.child):
        return
    planned = list(planned_children(state, report, steps))
    if report.from_start and not planned:
        raise NothingToRetry(
            f"run {run_id} has no child run that did not complete, so there is none to start anew",
            hint="without --from-start the steps that did not complete run again",
        )
    asked = report.child
    if asked is None:
        return
    found = next((one for one in planned if (one.place, one.run_id) == (asked.place, asked.run_id)), None)
    step = step_name(asked.place)
    if found is None:
        why = "it has called another one since" if step in steps else "its failure was handled, or does not count"
        raise NothingToRetry(
            f"the next round of run {run_id} does not continue run {asked.run_id} at '{asked.place}': {why}",
            hint=f"to run it again with the steps after it: mulligan fork {run_id} --from {step}",
        )
    if found.why_new and not asked.from_start and (asked.from_step or asked.items is not None or asked.child):
        raise Refused(
            f"run {asked.run_id} will not be continued at '{asked.place}' of run {run_id}: {found.why_new}",
            hint=f"to run it anew: mulligan retry {asked.run_id} --from-start",
        )
