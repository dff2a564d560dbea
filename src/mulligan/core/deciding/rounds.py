"""Another round of an ended run: which steps run again, and when a round is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from mulligan.core.deciding.budgets import check_raised_budgets
from mulligan.core.deciding.child_failure import undo_failed_in_child
from mulligan.core.deciding.resource_usage import Proposal, proposals
from mulligan.core.evolve.evolve_places import steps_starting_fresh
from mulligan.core.evolve.revision import Difference, make_revision, workflow_from_plain
from mulligan.core.model.events import RunRevised
from mulligan.core.model.file_records import FileRecord, StaleFile, last_writers
from mulligan.core.model.formatting import quote_names
from mulligan.core.model.graph import Graph
from mulligan.core.model.reports import RetryRequested
from mulligan.core.state.state import Items, Place, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.verdict import unhandled
from mulligan.errors import NothingToRetry, Refused, RunNotFinished, UndoFailed, UnknownStep

# For at most this many changed steps the reasons name the step that others depend on.
SOURCES_NAMED_MAX = 10
# A refusal names at most this many steps.
NAMES_MAX = 5


class Round(msgspec.Struct, frozen=True):
    """What a new round runs: steps, perhaps only some items of the map step `from_step`, and larger limits."""

    steps: tuple[str, ...]
    from_step: str
    items: tuple[int, ...]
    proposals: tuple[Proposal, ...]
    # Files of otherwise kept steps that have changed or are gone.
    stale: tuple[StaleFile, ...] = ()
    # Whether steps run again although their undo has failed.
    is_forced: bool = False


def plan_revision(state: State, report: RetryRequested) -> tuple[RunRevised, Difference] | None:
    """What the corrected definition of a `retry` changes; None without one, or if it changes nothing.

    Raises if the round that follows would be refused.
    """
    if report.revised is None:
        return None
    graph = Graph(workflow_from_plain(report.revised.definition))
    refuse_round(state, report, graph)
    if report.items is not None:
        raise Refused("items can only be retried with the definition that the run has, not with a corrected one")
    return make_revision(state, report.revised, graph, report.by)


def plan_round(state: State, report: RetryRequested, revised: Difference | None = None) -> Round:
    """What `retry` runs again. Raises if there is nothing to retry or the run has not ended.

    `revised`: how the definition, which the run already uses, differs from that of the previous round.
    """
    refuse_round(state, report, state.graph)
    without = frozenset(_steps_to_rerun(state, report, (), revised))
    # A corrected definition may no longer have the step.
    stale = tuple(one for one in report.stale if one.step in state.graph.nodes and one.step not in without)
    steps = _steps_to_rerun(state, report, stale, revised)
    if not report.force:
        refuse_failed_undos(state, steps)
    items = () if report.items is None else _items_to_retry(state, report.from_step, report.items)
    if report.from_step in state.graph.behind(one.step for one in stale):
        # The list of the map may change: none of its items is kept.
        items = ()
    found = proposals(state, steps, report.peaks) if report.adjust else ()
    return Round(steps, report.from_step, items=items, proposals=found, stale=stale, is_forced=report.force)


# -- steps whose undo has failed ---------------------------------------------------------------------------------------


def failed_undos(state: State, steps: Iterable[str]) -> Iterator[str]:
    """Those of the steps that must not run again unasked: what they did could not be undone, and may still stand.

    Also those whose child run, such as the last try of a group, could not undo all that it did.
    """
    places = ((name, state.places[name]) for name in steps if name in state.places)
    return (name for name, place in places if place.undo_failed or undo_failed_in_child(place, place.failure))


def refuse_failed_undos(state: State, steps: Iterable[str]) -> None:
    """Raise if one of the steps that are to run again could not be undone.

    With triage a person decides about it in the round, see `flow`.
    """
    places = state.places
    asks = {name for name in steps if places[name].has_failed_undo and state.step(name).triage is not None}
    names = [name for name in failed_undos(state, steps) if name not in asks]
    if not names:
        return
    run_id, few = state.run.run_id, names[:NAMES_MAX]
    more = f" and {len(names) - len(few)} more" if len(names) > len(few) else ""
    said = ("step", "its undo", "it") if len(names) == 1 else ("steps", "the undo of each", "they")
    raise UndoFailed(
        f"{said[0]} {quote_names(few)}{more} of run {run_id} would run again, but {said[1]} failed: what {said[2]} did "
        "may still stand",
        hint=f"to run what could not be undone again all the same: mulligan retry {run_id} --force",
        steps=names,
    )


def kept_files(state: State, from_step: str) -> Iterator[tuple[str, FileRecord]]:
    """The files that a round would keep, each with the step that wrote it last."""
    again = frozenset(steps_to_retry(state, from_step)) if from_step in ("", *state.graph.nodes) else frozenset()
    return written_files(state, (name for name in state.graph.nodes if name not in again))


def written_files(state: State, steps: Iterable[str]) -> Iterator[tuple[str, FileRecord]]:
    """The files that these steps wrote if they completed, each path with the step that wrote it last."""
    return last_writers(
        (place.given[0], place.key, record)
        for place in (state.places[name] for name in steps if name in state.places)
        if place.settled == "completed" and place.given is not None
        for record in _file_records(state, place)
    )


def _file_records(state: State, place: Place) -> Iterable[FileRecord]:
    """The recorded files of a step; only their paths if the log has no records."""
    known = {record.name: record for record in place.files}
    for name in place.spec.writes:
        if name in known:
            yield known[name]
        elif name not in place.spec.file_paths:
            yield FileRecord(name, state.workflow.files.get(name, name))


def steps_to_retry(
    state: State, from_step: str, stale: Iterable[StaleFile] = (), *, force: bool = False
) -> tuple[str, ...]:
    """The steps that a new round runs: failed unhandled, cancelled, skipped or undone, and all from `from_step` on.

    Also the steps behind them that kept the result of an earlier pass of a loop; the steps between an undone step and
    one of these, since what they depend on is gone; and every step whose files have changed, with all steps behind it.
    With `force` a step whose undo has failed runs as if it was undone.
    """
    again = {record.step for record in unhandled(state)}
    again |= state.graph.region(from_step) if from_step else frozenset()
    undone = [place.key for place in state.steps() if place.is_undone or (force and place.has_failed_undo)]
    again |= {*undone, *(place.key for place in state.steps() if place.status in ("cancelled", "skipped"))}
    again |= state.graph.between(undone, again)
    # If a loop failed, the steps after that keep the result of an earlier pass, which is older than what they need.
    again |= {name for name in state.graph.behind(again) if state.places[name].settled == "skipped"}
    for step in {one.step for one in stale}:
        again |= state.graph.region(step)
    return tuple(name for name in state.graph.nodes if name in again)


def _steps_to_rerun(
    state: State, report: RetryRequested, stale: Iterable[StaleFile], revised: Difference | None
) -> tuple[str, ...]:
    steps = steps_to_retry(state, report.from_step, stale, force=report.force)
    return steps if revised is None else _with_revised(state, steps, revised)


def _with_revised(state: State, steps: tuple[str, ...], revised: Difference) -> tuple[str, ...]:
    """Add the steps that a corrected definition makes run again, and all steps behind them.

    A step that now needs one of them and did not before runs again too: its result is older than what it needs.
    Repeated until nothing new is found.
    """
    again = {*steps, *state.graph.behind((*revised.added, *_outdated(state, revised)))}
    before = -1
    while len(again) != before:
        before = len(again)
        again |= state.graph.behind(name for name, sources in revised.gained.items() if sources & again)
    return tuple(name for name in state.graph.nodes if name in again)


def _outdated(state: State, revised: Difference) -> list[str]:
    """The changed steps whose results are not kept: they would differ, or the step did not complete by itself."""
    changed = ((name, state.places[name]) for name in revised.changed)
    renewed = frozenset(revised.renewed)
    return [name for name, at in changed if name in renewed or at.status != "completed" or at.recovered_by]


def rerun_reasons(state: State, plan: Round, revised: Difference | None = None) -> dict[str, str]:
    """Why each step of the round runs again, in a few words."""
    failed = {record.step for record in unhandled(state)}
    found = {name: _rerun_reason(state, plan, failed, name) for name in plan.steps}
    if revised is not None:
        found |= dict(_revision_reasons(state, revised, found))
    return found


def _revision_reasons(state: State, revised: Difference, found: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The reasons that come from the corrected definition, replacing or extending the others."""
    sources = (*_outdated(state, revised), *revised.added)
    behind = {name: source for source in sources[:SOURCES_NAMED_MAX] for name in state.graph.behind((source,))}
    for name, reason in found.items():
        changed = f"it changed: {', '.join(revised.changed[name])}" if name in revised.changed else ""
        if name in revised.added:
            yield name, "it is new"
        elif changed:
            yield name, changed if reason == _UNDONE_UPSTREAM else f"{reason}, and {changed}"
        elif reason == _UNDONE_UPSTREAM:
            yield name, f"it is behind {quote_names([behind[name]]) if name in behind else 'a step that runs again'}"


def _rerun_reason(state: State, plan: Round, failed: set[str], name: str) -> str:
    place = state.places[name]
    if name == plan.from_step:
        return f"the round starts here{_BUT_STANDS if place.undo_failed else ''}"
    if place.undo_failed:
        return f"forced{_BUT_STANDS}" if plan.is_forced else f"if a person says so{_BUT_STANDS}"
    if place.is_undone:
        return "it was undone"
    if name in failed:
        return f"it failed{_BUT_STANDS}" if undo_failed_in_child(place, place.failure) else "it failed"
    if found := [one.text for one in plan.stale if one.step == name]:
        return "; ".join(found)
    if place.status in ("cancelled", "skipped"):
        return f"it was {place.status}"
    if plan.from_step and name in state.graph.region(plan.from_step):
        return f"it is behind '{plan.from_step}'"
    if place.status == "completed" and place.settled == "skipped":
        return "its result is from an earlier pass of the loop"
    source = next((one.step for one in plan.stale if name in state.graph.region(one.step)), "")
    if source:
        return f"it is behind '{source}'"
    return _UNDONE_UPSTREAM


_BUT_STANDS = ", though its undo failed and what it did may still stand"
# The reason if no other applies.
_UNDONE_UPSTREAM = "a step before it was undone"


def items_to_rerun(state: State, plan: Round) -> dict[str, tuple[int, ...]]:
    """The items that run, for each map step that does not run as a whole, provided its list stays the same."""
    found = {plan.from_step: plan.items} if plan.items else {}
    anew = frozenset(steps_starting_fresh(state, plan.from_step, plan.steps, plan.stale))
    for place in (state.places[name] for name in plan.steps if name not in anew):
        if place.items is not None and place.status in ("failed", "cancelled"):
            items = enumerate(state.items_of(place))
            found[place.key] = tuple(i for i, item in items if item is None or item.status != "completed")
    return found


def refuse_round(state: State, report: RetryRequested, graph: Graph) -> None:
    """Raise if the run cannot have another round. `graph`: of the definition that the round uses."""
    run = state.run
    if run.status not in RUN_ENDED:
        is_paused = run.status == "paused"
        hint = (
            f"to resume it: mulligan resume {run.run_id}"
            if is_paused
            else f"if no process drives it: mulligan resume {run.run_id}; to stop it: mulligan cancel {run.run_id}"
        )
        raise RunNotFinished(f"run {run.run_id} is {run.status}; it can be retried after it has ended", hint=hint)
    if report.from_step and report.from_step not in graph.nodes:
        raise UnknownStep(f"'{report.from_step}' is not a step of run {run.run_id}", step=report.from_step)
    check_raised_budgets(state, report.budgets, graph)
    if run.status == "completed" and report.items is None and not report.stale:
        raise NothingToRetry(
            f"run {run.run_id} completed, so there is nothing to retry", hint=_alternative_hint(state, report.from_step)
        )


def _alternative_hint(state: State, from_step: str) -> str:
    """The hint for a completed run: retry its failed items, or fork it from a step."""
    run_id = state.run.run_id
    step = next((place.key for place in state.steps() if next(failed_items(state, place), None) is not None), "")
    if step and from_step in ("", step):
        return f"to run the failed items of '{step}' again: mulligan items {run_id} {step} --retry"
    return f"to run it again from a step: mulligan fork {run_id} --from {from_step or 'STEP'}"


# -- items -----------------------------------------------------------------------------------------------------------


def failed_items(state: State, place: Place) -> Iterator[int]:
    """The items of a map step that have failed."""
    return (i for i, item in enumerate(state.items_of(place)) if item is not None and item.status == "failed")


def _items_to_retry(state: State, step: str, named: tuple[int, ...]) -> tuple[int, ...]:
    """The named items, or all that failed; and those that never ended, without which the step cannot end."""
    place = state.places[step]
    items = _retryable_items(state, place)
    wrong = next((index for index in named if not 0 <= index < len(items.values)), None)
    if wrong is not None:
        raise Refused(
            f"step '{step}' of run {state.run.run_id} has no item {wrong}",
            hint=f"its items are 0 to {len(items.values) - 1}",
        )
    chosen = {*(named or failed_items(state, place)), *_unfinished(state, place)}
    if not chosen:
        raise NothingToRetry(
            f"no item of step '{step}' of run {state.run.run_id} has failed, so there is nothing to retry",
            hint="to run one anyway, name it: --item I",
        )
    return tuple(sorted(chosen))


def _unfinished(state: State, place: Place) -> Iterator[int]:
    items = enumerate(state.items_of(place))
    return (i for i, item in items if item is None or item.status not in ("completed", "failed"))


def _retryable_items(state: State, place: Place) -> Items:
    run_id, step = state.run.run_id, place.key
    if state.step(step).map is None:
        raise Refused(f"step '{step}' of run {run_id} is not a map: it has no items", step=step)
    whole = f"to run what failed again: mulligan retry {run_id}"
    if place.items is None or not place.items.values:
        raise NothingToRetry(f"step '{step}' of run {run_id} has no items, so there is nothing to retry", hint=whole)
    if step in state.graph.behind(one.key for one in state.steps() if one.is_undone):
        raise Refused(
            f"step '{step}' of run {run_id}, or a step before it, was undone: none of its items can be kept",
            hint=f"to run the whole step again: mulligan retry {run_id} --from {step}",
        )
    return place.items
