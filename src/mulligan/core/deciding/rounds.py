"""Another round: what of a run that has ended runs again, and where that makes no sense."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from mulligan.core.deciding.budgets import check_raised_budgets
from mulligan.core.deciding.resource_usage import Proposal, proposals
from mulligan.core.evolve.places import steps_starting_fresh
from mulligan.core.evolve.revision import Difference, make_revision, workflow_from_plain
from mulligan.core.model.events import RunRevised
from mulligan.core.model.file_records import FileRecord, StaleFile, last_writers
from mulligan.core.model.formatting import quote_names
from mulligan.core.model.graph import Graph
from mulligan.core.model.reports import RetryRequested
from mulligan.core.state.state import Items, Place, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.verdict import unhandled
from mulligan.errors import NothingToRetry, Refused, RunNotFinished, UnknownStep

# Of so many changed steps it is asked what is behind each of them.
SOURCES_NAMED_MAX = 10


class Round(msgspec.Struct, frozen=True):
    """What a new round runs again: steps; of the map step `from_step` perhaps only some items; with more of what."""

    steps: tuple[str, ...]
    from_step: str
    items: tuple[int, ...]
    proposals: tuple[Proposal, ...]
    # Files of steps that would have been kept, and that are not what these had written.
    stale: tuple[StaleFile, ...] = ()


def plan_revision(state: State, report: RetryRequested) -> tuple[RunRevised, Difference] | None:
    """What the corrected definition that comes with a `retry` changes; None where none comes, or it changes nothing.

    Raises where the round that follows would be refused.
    """
    if report.revised is None:
        return None
    graph = Graph(workflow_from_plain(report.revised.definition))
    refuse_round(state, report, graph)
    if report.items is not None:
        raise Refused("items are run again by the definition that the run has, not by a corrected one")
    return make_revision(state, report.revised, graph, report.by)


def plan_round(state: State, report: RetryRequested, revised: Difference | None = None) -> Round:
    """What `retry` brings about for the run as it is now. Raises where it makes no sense.

    `revised`: where the definition, which the run goes by already, is another than that of the round before.
    """
    refuse_round(state, report, state.graph)
    without = frozenset(_steps_to_rerun(state, report.from_step, (), revised))
    # A corrected definition may have no such step any more.
    stale = tuple(one for one in report.stale if one.step in state.graph.nodes and one.step not in without)
    steps = _steps_to_rerun(state, report.from_step, stale, revised)
    items = () if report.items is None else _items_to_retry(state, report.from_step, report.items)
    if report.from_step in state.graph.behind(one.step for one in stale):
        # The list of the map may be another one: none of its items is kept.
        items = ()
    found = proposals(state, steps, report.peaks) if report.adjust else ()
    return Round(steps, report.from_step, items, found, stale)


def kept_files(state: State, from_step: str) -> Iterator[tuple[str, FileRecord]]:
    """The files that a round would keep: of each the step that wrote it last, and what it wrote."""
    again = frozenset(steps_to_retry(state, from_step)) if from_step in ("", *state.graph.nodes) else frozenset()
    return written_files(state, (name for name in state.graph.nodes if name not in again))


def written_files(state: State, steps: Iterable[str]) -> Iterator[tuple[str, FileRecord]]:
    """What these steps have written, as far as they completed: of each path the step that did so last."""
    return last_writers(
        (place.given[0], place.key, record)
        for place in (state.places[name] for name in steps if name in state.places)
        if place.settled == "completed" and place.given is not None
        for record in _file_records(state, place)
    )


def _file_records(state: State, place: Place) -> Iterable[FileRecord]:
    """Its files as they were recorded; from a log that has no records, their paths alone."""
    known = {record.name: record for record in place.files}
    for name in place.spec.writes:
        if name in known:
            yield known[name]
        elif name not in place.spec.file_paths:
            yield FileRecord(name, state.workflow.files.get(name, name))


def steps_to_retry(state: State, from_step: str, stale: Iterable[StaleFile] = ()) -> tuple[str, ...]:
    """What a new round runs again: failed unhandled, cancelled, skipped, undone; and everything from a step on.

    And what lies between a step that was undone and another of these: it was built on what is no longer there.
    Also every step whose files are not what it wrote, and everything behind it.
    """
    again = {record.step for record in unhandled(state)}
    again |= state.graph.region(from_step) if from_step else frozenset()
    again |= {place.key for place in state.steps() if place.is_undone or place.status in ("cancelled", "skipped")}
    undone = [place.key for place in state.steps() if place.is_undone]
    again |= state.graph.between(undone, again)
    for step in {one.step for one in stale}:
        again |= state.graph.region(step)
    return tuple(name for name in state.graph.nodes if name in again)


def _steps_to_rerun(
    state: State, from_step: str, stale: Iterable[StaleFile], revised: Difference | None
) -> tuple[str, ...]:
    steps = steps_to_retry(state, from_step, stale)
    return steps if revised is None else _with_revised(state, steps, revised)


def _with_revised(state: State, steps: tuple[str, ...], revised: Difference) -> tuple[str, ...]:
    """With them what a corrected definition makes run again, and everything behind that.

    So does a step that needs one of them now and did not before: its result is older than what it needs. One pass
    after the other, until nothing new is found.
    """
    again = {*steps, *state.graph.behind((*revised.added, *_outdated(state, revised)))}
    before = -1
    while len(again) != before:
        before = len(again)
        again |= state.graph.behind(name for name, sources in revised.gained.items() if sources & again)
    return tuple(name for name in state.graph.nodes if name in again)


def _outdated(state: State, revised: Difference) -> list[str]:
    """The changed steps whose results do not stand: they would be others, or there were none without help."""
    renewed = frozenset(revised.renewed)
    return [name for name in revised.changed if name in renewed or not _is_plainly_completed(state.places[name])]


def _is_plainly_completed(place: Place) -> bool:
    return place.status == "completed" and not place.recovered_by


def rerun_reasons(state: State, plan: Round, revised: Difference | None = None) -> dict[str, str]:
    """Why each of its steps runs again, in a few words."""
    failed = {record.step for record in unhandled(state)}
    found = {name: _rerun_reason(state, plan, failed, name) for name in plan.steps}
    if revised is not None:
        found |= dict(_revision_reasons(state, revised, found))
    return found


def _revision_reasons(state: State, revised: Difference, found: dict[str, str]) -> Iterator[tuple[str, str]]:
    """What the corrected definition has to do with it, in place of the reason without it or beside it."""
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
        return "the round starts here"
    if place.is_undone:
        return "it was undone"
    if name in failed:
        return "it failed"
    if found := [one.text for one in plan.stale if one.step == name]:
        return "; ".join(found)
    if place.status in ("cancelled", "skipped"):
        return f"it was {place.status}"
    if plan.from_step and name in state.graph.region(plan.from_step):
        return f"it is behind '{plan.from_step}'"
    source = next((one.step for one in plan.stale if name in state.graph.region(one.step)), "")
    if source:
        return f"it is behind '{source}'"
    return _UNDONE_UPSTREAM


# What is left where nothing else is the reason.
_UNDONE_UPSTREAM = "what it was built on was undone"


def items_to_rerun(state: State, plan: Round) -> dict[str, tuple[int, ...]]:
    """Of its map steps that do not run whole: the items that run, as long as the list is the same."""
    found = {plan.from_step: plan.items} if plan.items else {}
    anew = frozenset(steps_starting_fresh(state, plan.from_step, plan.steps, plan.stale))
    for place in (state.places[name] for name in plan.steps if name not in anew):
        if place.items is not None and place.status in ("failed", "cancelled"):
            found[place.key] = tuple(_not_done(state, place))
    return found


def _not_done(state: State, place: Place) -> Iterator[int]:
    return (i for i, item in enumerate(state.items_of(place)) if item is None or item.status != "completed")


def refuse_round(state: State, report: RetryRequested, graph: Graph) -> None:
    """Raise where another round makes no sense. `graph`: of the definition that it goes by."""
    run = state.run
    if run.status not in RUN_ENDED:
        is_paused = run.status == "paused"
        hint = (
            f"to resume it: mulligan resume {run.run_id}"
            if is_paused
            else f"if nobody drives it: mulligan resume {run.run_id}; to stop it: mulligan cancel {run.run_id}"
        )
        raise RunNotFinished(f"run {run.run_id} is {run.status}: it can be retried when it has ended", hint=hint)
    if report.from_step and report.from_step not in graph.nodes:
        raise UnknownStep(f"'{report.from_step}' is not a step of run {run.run_id}", step=report.from_step)
    check_raised_budgets(state, report.budgets, graph)
    if run.status == "completed" and report.items is None and not report.stale:
        raise NothingToRetry(
            f"run {run.run_id} completed, so there is nothing to retry", hint=_alternative_hint(state, report.from_step)
        )


def _alternative_hint(state: State, from_step: str) -> str:
    """What can be done with a run that completed: its failed items may go again, or a fork from a step."""
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
    """Those that are named, else all that failed; and what never came to an end: without it the step has none."""
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
            hint="to run one again all the same, name it: --item I",
        )
    return tuple(sorted(chosen))


def _unfinished(state: State, place: Place) -> Iterator[int]:
    items = enumerate(state.items_of(place))
    return (i for i, item in items if item is None or item.status not in ("completed", "failed"))


def _retryable_items(state: State, place: Place) -> Items:
    run_id, step = state.run.run_id, place.key
    if state.step(step).map is None:
        raise Refused(f"step '{step}' of run {run_id} is no map: it has no items", step=step)
    whole = f"to run what failed again: mulligan retry {run_id}"
    if place.items is None or not place.items.values:
        raise NothingToRetry(f"step '{step}' of run {run_id} has no items, so there is nothing to retry", hint=whole)
    if step in state.graph.behind(one.key for one in state.steps() if one.is_undone):
        raise Refused(
            f"step '{step}' of run {run_id} was undone, or what it was built on: none of its items can be kept",
            hint=f"to run all of it again: mulligan retry {run_id} --from {step}",
        )
    return place.items
