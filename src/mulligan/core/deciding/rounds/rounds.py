"""Another round of an ended run: which steps run again, and when a round is refused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from mulligan.core.deciding.agents.budgets import check_raised_budgets
from mulligan.core.deciding.flow import readiness
from mulligan.core.deciding.rounds.child_failure import undo_failed_below
from mulligan.core.deciding.rounds.child_rounds import check_child_rounds
from mulligan.core.deciding.rounds.dependents import dependents
from mulligan.core.deciding.rounds.kept_approvals import approvals_among, approvals_relied_on
from mulligan.core.deciding.rounds.program_rounds import dropped_calls
from mulligan.core.deciding.workers.resource_usage import Proposal, proposals
from mulligan.core.evolve.arrivals import is_met
from mulligan.core.evolve.evolve_places import steps_starting_fresh
from mulligan.core.evolve.evolve_programs import calls_to_undo, keeps_result
from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.evolve.revision import Difference, make_revision, workflow_from_plain
from mulligan.core.model.event_types import ChildRound
from mulligan.core.model.events import Entry, RunCancelled, RunRevised, RunStopping
from mulligan.core.model.file_records import FileRecord, StaleFile, last_writers
from mulligan.core.model.graph import Graph
from mulligan.core.model.reports import RetryRequested
from mulligan.core.model.text.formatting import quote_names
from mulligan.core.state.state import Items, Place, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.state.verdict import unhandled
from mulligan.errors import NothingToRetry, Refused, RunNotFinished, UndoFailed, UnknownStep

_A_PROGRAM = {True: "a program", False: "a workflow that is no program"}
# A refusal names at most this many steps.
NAMES_MAX = 5
# How an approval has settled that somebody has given.
_ANSWERED = ("completed", "stood_in")


class Round(msgspec.Struct, frozen=True):
    """What a new round runs: steps, perhaps only some items of the map step `from_step`, and larger limits."""

    steps: tuple[str, ...]
    from_step: str
    items: tuple[int, ...]
    proposals: tuple[Proposal, ...]
    # Files of otherwise kept steps that have changed or are gone.
    stale: tuple[StaleFile, ...] = ()
    # Maps that start with a new list, and steps with `join: each` that are visited for all arrivals.
    fresh: tuple[str, ...] = ()
    # Whether completed steps keep their results although a step that they depend on runs again.
    keep_completed: bool = False
    # Whether steps run again although their undo has failed.
    is_forced: bool = False
    # The calls of a program that are made again.
    dropped: tuple[str, ...] = ()
    # Those of them that are undone before, in this order.
    undone_first: tuple[str, ...] = ()


def plan_revision(state: State, report: RetryRequested) -> tuple[RunRevised, Difference] | None:
    """What the corrected definition of a `retry` changes; None without one, or if it changes nothing.

    Raises if the round that follows would be refused.
    """
    if report.revised is None:
        return None
    graph = Graph(workflow_from_plain(report.revised.definition))
    if bool(graph.program) is not bool(state.graph.program):
        ours, other = _A_PROGRAM[bool(state.graph.program)], _A_PROGRAM[bool(graph.program)]
        raise Refused(
            f"run {state.run.run_id} is a run of {ours}, and the file has {other}",
            hint=f"to run the file anew: mulligan run {report.revised.file or 'FILE'}",
        )
    if graph.program != state.graph.program:
        message = f"run {state.run.run_id} is a run of the program '{state.graph.program}'"
        raise Refused(f"{message}, and the file has '{graph.program}'", hint="give the function its name again")
    refuse_round(state, report, state.graph if graph.program else graph)
    if graph.program and report.revised.kept_round != compared_round(state):
        # What it keeps was found in another state.
        message = f"run {state.run.run_id} has gone on since the corrected program was compared with it"
        raise Refused(message, hint="retry it again with the file")
    if report.items is not None:
        raise Refused("items can only be retried with the definition that the run has, not with a corrected one")
    return make_revision(state, report.revised, graph, report.by)


def compared_round(state: State) -> int:
    """What a correction of a program says of the state in which it was made: the round, less than 0 if it is open."""
    return state.run.round if state.run.status in RUN_ENDED else -state.run.round


def is_correctable(state: State, report: RetryRequested) -> bool:
    """Whether the run is open and goes on with a corrected program when all that runs was stopped."""
    is_open = state.run.status not in RUN_ENDED and state.run.stop is None
    return is_open and report.revised is not None and state.graph.program != ""


def stop_to_correct(state: State, report: RetryRequested) -> RunStopping:
    """Stop what runs, and undo nothing: what the corrected program does not call any more is undone by its round."""
    run = state.run
    return RunStopping(
        "cancelled", by=report.by, reason=report.reason, held=run.held, unstarted=run.unstarted, correction=report
    )


def with_stopped_run(state: State, report: RetryRequested) -> RetryRequested:
    """Let the copy of a state be as if all was stopped that runs; return what is asked for then."""
    for fact in (stop_to_correct(state, report), RunCancelled(state.run.round, evaluated_by_end_step=False)):
        evolve(state, Entry(state.run.seq + 1, state.run.at, 0, fact))
    return after_stop(state, report)


def after_stop(state: State, report: RetryRequested) -> RetryRequested:
    """The correction of an open run, now that all that ran was stopped."""
    assert report.revised is not None
    return msgspec.structs.replace(
        report, revised=msgspec.structs.replace(report.revised, kept_round=compared_round(state))
    )


def plan_round(state: State, report: RetryRequested, revised: Difference | None = None) -> Round:
    """What `retry` runs again. Raises if there is nothing to retry or the run has not ended.

    `revised`: how the definition, which the run already uses, differs from that of the previous round.
    """
    refuse_round(state, report, state.graph)
    named = () if report.items is None else _items_to_retry(state, report.from_step, report.items)
    keep_completed = keeps_completed(report)
    asked = _Asked(
        report.from_step, bool(named), keep_completed=keep_completed, is_forced=report.force, revised=revised
    )
    if revised is not None and report.revised is not None and state.graph.program:
        asked = msgspec.structs.replace(asked, kept_calls=report.revised.kept_calls or ())
    if named and not asked.keep_completed:
        _refuse_items_behind_rerun(state, asked)
    without = frozenset(_steps_to_rerun(state, asked))
    # A corrected definition may no longer have the step.
    stale = tuple(one for one in report.stale if one.step in state.graph.nodes and one.step not in without)
    asked = msgspec.structs.replace(asked, stale=stale)
    steps = _steps_to_rerun(state, asked)
    if not asked.is_forced:
        refuse_failed_undos(state, steps, report)
        refuse_after_failed_undo(state, report)
    fresh = _steps_starting_fresh(state, asked, steps)
    dropped = _dropped(state, asked) if state.graph.program else ()
    check_child_rounds(state, report, steps)
    return Round(
        steps,
        report.from_step,
        # If the list of the map may change, none of its items is kept.
        items=() if report.from_step in fresh else named,
        proposals=proposals(state, steps, report.peaks) if report.adjust else (),
        stale=stale,
        fresh=tuple(name for name in steps if name in fresh and _can_start_fresh(state, name)),
        keep_completed=asked.keep_completed,
        is_forced=asked.is_forced,
        dropped=dropped,
        undone_first=calls_to_undo(state, dropped)[::-1],
    )


# -- steps whose undo has failed ---------------------------------------------------------------------------------------


def failed_undos(state: State, steps: Iterable[str]) -> Iterator[str]:
    """Those of the steps that must not run again unasked: they could not be undone.

    Also those whose child run, such as the last try of a group, could not undo all that it did.
    """
    places = ((name, state.places[name]) for name in steps if name in state.places)
    return (name for name, place in places if place.undo_failed or undo_failed_below(state, place))


def refuse_failed_undos(state: State, steps: Iterable[str], report: RetryRequested) -> None:
    """Raise if one of the steps that are to run again could not be undone.

    With triage a person decides about it in the round, see `flow`.
    """
    names = _not_asked_about(state, steps)
    if not names:
        return
    run_id, few = state.run.run_id, names[:NAMES_MAX]
    more = f" and {len(names) - len(few)} more" if len(names) > len(few) else ""
    said = ("step", "its undo", "it") if len(names) == 1 else ("steps", "the undo of each", "they")
    if not any(state.places[name].undo_failed for name in names):
        said = (said[0], "an undo in its child run" if len(names) == 1 else "undos in their child runs", "that")
    raise UndoFailed(
        f"{said[0]} {quote_names(few)}{more} of run {run_id} would run again, but {said[1]} failed: what {said[2]} did "
        "may still be in effect",
        hint=f"check it first; to run it again anyway: {_forced(run_id, report)}",
        steps=names,
    )


def refuse_after_failed_undo(state: State, report: RetryRequested) -> None:
    """Raise if the last round of a program could not undo a call that it has dropped."""
    if label := _call_not_undone(state):
        raise UndoFailed(
            f"'{label}' of run {state.run.run_id} could not be undone: what it did may still be in effect",
            hint=f"check it first; to go on without it: {_forced(state.run.run_id, report)}",
            steps=[label],
        )


def _call_not_undone(state: State) -> str:
    program = state.places.get(state.graph.program)
    return "" if program is None or program.program is None else program.program.not_undone


def _not_asked_about(state: State, steps: Iterable[str]) -> list[str]:
    """Those of the steps that could not be undone and have no triage, in which a person would decide about them."""
    return [
        name
        for name in failed_undos(state, steps)
        if not state.places[name].has_failed_undo or state.step(name).triage is None
    ]


def needs_force(state: State) -> bool:
    """Whether `retry` of an ended run would be refused because of a failed undo."""
    if _call_not_undone(state):
        return True
    if next(failed_undos(state, state.graph.nodes), None) is None:
        return False
    return bool(_not_asked_about(state, _steps_to_rerun(state, _Asked())))


def _forced(run_id: int, report: RetryRequested) -> str:
    """The command that asks for the same round by force; of the child run that was asked for."""
    asked: RetryRequested | ChildRound = report
    while asked.child is not None:
        asked = asked.child
        run_id = asked.run_id
    words = ["mulligan", "retry", str(run_id)]
    words += ["--from", asked.from_step] if asked.from_step and asked.items is None else []
    words += ["--file", report.revised.file or "FILE"] if report.revised is not None else []
    words += ["--adjust"] if asked.adjust else []
    words += ["--keep-completed"] if report.keep_completed else []
    words += ["--from-start"] if asked.from_start else []
    return " ".join([*words, "--force"])


def keeps_completed(report: RetryRequested) -> bool:
    """Whether completed steps keep their results although a step that they depend on runs again."""
    return report.keep_completed or (report.revised is not None and report.revised.keeps_completed)


def kept_files(
    state: State, from_step: str, *, has_items: bool = False, keep_completed: bool = False
) -> Iterator[tuple[str, FileRecord]]:
    """The files that a round would keep, each with the step that wrote it last."""
    asked = _Asked(from_step, has_items, keep_completed=keep_completed)
    again = frozenset(_steps_to_rerun(state, asked)) if from_step in ("", *state.graph.nodes) else frozenset()
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


# -- steps -----------------------------------------------------------------------------------------------------------


class _Asked(msgspec.Struct, frozen=True):
    """What decides which steps a round runs, besides the state."""

    from_step: str = ""
    # Whether only some items of the map `from_step` run.
    has_items: bool = False
    keep_completed: bool = False
    # Whether a step whose undo has failed runs as if it was undone.
    is_forced: bool = False
    stale: tuple[StaleFile, ...] = ()
    revised: Difference | None = None
    # The calls that a corrected program keeps; None if it was not corrected.
    kept_calls: tuple[str, ...] | None = None


def _steps_to_rerun(state: State, asked: _Asked) -> tuple[str, ...]:
    """The steps that a new round runs: those that have to, and every step that depends on one of them."""
    if state.graph.program:
        dropped = frozenset(_dropped(state, asked))
        return tuple(name for name in state.graph.nodes if name in dropped or name == state.graph.program)
    if asked.keep_completed:
        again = _unfinished_steps(state, asked)
    else:
        again = {*(first := _first_steps(state, asked)), *_behind(state, first, asked.from_step)}
    return tuple(name for name in state.graph.nodes if name in again)


def _dropped(state: State, asked: _Asked) -> tuple[str, ...]:
    return dropped_calls(state, asked.from_step, is_forced=asked.is_forced, kept=asked.kept_calls)


def _behind(state: State, steps: Collection[str], from_step: str) -> dict[str, str]:
    """For each step that depends on one of `steps`: the one that it was found from.

    A worktree that a fork opens once more, since it could not be opened, is a copy: what completed in the other one is
    in it, and is no older than it. Unless the round is to start there.
    """
    if state.graph.program:
        # Its calls depend on the program alone: see `program_rounds`.
        return {}
    workspace = state.workflow.workspace
    opens = workspace.opens if workspace is not None else ""
    if opens not in steps or opens == from_step:
        return dependents(state, state.graph, steps)
    behind = dependents(state, state.graph, [opens])
    left = {name: opens for name in behind if state.places[name].settled in ("", "skipped", "cancelled")}
    return {**left, **dependents(state, state.graph, [*(name for name in steps if name != opens), *left])}


def _first_steps(state: State, asked: _Asked) -> list[str]:
    """The steps that run again by themselves, not because of a step that they depend on; `from_step` first.

    Failed unhandled, cancelled, undone, with files that have changed, new or changed in a corrected definition. A
    skipped step stays skipped unless something before it runs, or its condition may have another answer now.
    """
    again = {record.step for record in unhandled(state)} | {one.step for one in asked.stale}
    again |= {*_undone(state, asked), *(place.key for place in state.steps() if place.status == "cancelled")}
    skipped = [place for place in state.steps() if place.status == "skipped"]
    again |= {place.key for place in skipped if _may_be_entered_now(state, place)}
    if asked.revised is not None:
        again |= {*asked.revised.added, *_outdated(state, asked.revised)}
        if asked.revised.removed:
            again |= {place.key for place in skipped if _is_released(state, place)}
    first = [asked.from_step] if asked.from_step else []
    return [*first, *(name for name in state.graph.nodes if name in again and name != asked.from_step)]


def _undone(state: State, asked: _Asked) -> list[str]:
    return [place.key for place in state.steps() if place.is_undone or (asked.is_forced and place.has_failed_undo)]


def _may_be_entered_now(state: State, place: Place) -> bool:
    """Whether a step was skipped for a reason that no step before it has: its `when` reads the round or a variable."""
    workspace = state.workflow.workspace
    if workspace is not None and place.key == workspace.closes:
        return True
    reads = () if (when := state.step(place.key).when) is None else when.reads
    return any(name.partition(".")[0] in ("run", "env") for name in reads) and readiness(state, place) == "enter"


def _is_released(state: State, place: Place) -> bool:
    """Whether a skipped step could start now that a corrected definition has removed what kept it from that."""
    node = state.graph.nodes[place.key]
    arcs = [state.arcs.get(arc.key) == "taken" for arc in node.arrivals]
    has_arrived = not arcs or (all(arcs) if node.step.join == "all" else any(arcs))
    are_met = all(is_met(on, state.places[source].settled) for source, on in node.needs)
    return (
        node.step.when is None and has_arrived and are_met and not any(any(state.barriers[b.key]) for b in node.waits)
    )


def _unfinished_steps(state: State, asked: _Asked) -> set[str]:
    """With `keep_completed`: only what failed unhandled, was cancelled, skipped or undone, and all from `from_step` on.

    Also the steps behind them that kept the result of an earlier pass of a loop; the steps between an undone step and
    one of these, since what they depend on is gone; and every step whose files have changed, with all steps behind it.
    """
    again = {record.step for record in unhandled(state)}
    if asked.from_step:
        again |= {asked.from_step} if asked.has_items else state.graph.region(asked.from_step)
    undone = _undone(state, asked)
    again |= {*undone, *(place.key for place in state.steps() if place.status in ("cancelled", "skipped"))}
    again |= state.graph.between(undone, again)
    # If a loop failed, the steps after that keep the result of an earlier pass, which is older than what they need.
    again |= {name for name in state.graph.behind(again) if state.places[name].settled == "skipped"}
    again |= state.graph.behind(one.step for one in asked.stale)
    if asked.revised is not None:
        again = _with_revised(state, again, asked.revised)
    # An approval is no result that could be kept for another question. What stands between it and a step that runs
    # again would let that one go on without an answer.
    outdated = _outdated_approvals(state, asked, again)
    return again | outdated | state.graph.between(outdated, again)


def _outdated_approvals(state: State, asked: _Asked, again: set[str]) -> set[str]:
    """With `keep_completed`: the approvals whose question has changed, or stands behind a step that runs again."""
    kept = (place.key for place in state.steps() if place.key not in again and place.settled in _ANSWERED)
    approvals = approvals_relied_on(state.graph, kept, again)
    if not approvals:
        return set()
    changed = frozenset(asked.revised.different if asked.revised is not None else ())
    behind = _behind(state, again, asked.from_step)
    return {name for name in approvals if name in changed or name in behind}


def _steps_starting_fresh(state: State, asked: _Asked, steps: tuple[str, ...]) -> frozenset[str]:
    """The steps of a round that start as if for the first time, since what they are made of may be different."""
    from_step = "" if asked.has_items else asked.from_step
    fresh = frozenset(steps_starting_fresh(state, from_step, steps, asked.stale))
    return fresh if asked.keep_completed else fresh | _behind(state, steps, asked.from_step).keys()


def _can_start_fresh(state: State, name: str) -> bool:
    place = state.places[name]
    return place.items is not None or state.step(name).join == "each"


def _with_revised(state: State, steps: set[str], revised: Difference) -> set[str]:
    """Add the steps that a corrected definition makes run again, and all steps behind them.

    A step that now needs one of them and did not before runs again too: its result is older than what it needs.
    Repeated until nothing new is found.
    """
    again = {*steps, *state.graph.behind((*revised.added, *_outdated(state, revised)))}
    before = -1
    while len(again) != before:
        before = len(again)
        again |= state.graph.behind(name for name, sources in revised.gained.items() if sources & again)
    return again


def _outdated(state: State, revised: Difference) -> list[str]:
    """The changed steps whose results are not kept: they would differ, or the step did not complete by itself."""
    changed = ((name, state.places[name]) for name in revised.changed)
    renewed = frozenset(revised.renewed)
    return [name for name, at in changed if name in renewed or at.status != "completed" or at.recovered_by]


def rerun_reasons(state: State, plan: Round, revised: Difference | None = None) -> dict[str, str]:
    """Why each step of the round runs again, in a few words."""
    failed = {record.step for record in unhandled(state)}
    own = {name: _own_reason(state, plan, failed, name) for name in plan.steps}
    if revised is not None:
        own |= {name: _with_revision(state, name, own[name], revised) for name in plan.steps}
    if state.graph.program:
        own[state.graph.program] = own[state.graph.program] or "it runs again over what is kept"
        # The first of the dropped calls that was made.
        origin = next((name for name, reason in own.items() if reason and name in state.calls), state.graph.program)
        follows = _NOT_KEPT if revised is not None else f"it comes after {quote_names([origin])}"
        return {name: reason or f"{follows}{_if_kept(state, plan, name)}" for name, reason in own.items()}
    # The step that was named comes first; a skipped one is named only if there is no other: it runs because of one.
    with_reason = sorted((name for name, reason in own.items() if reason), key=lambda name: name != plan.from_step)
    origins = _behind(state, with_reason, plan.from_step)
    origins |= _behind(state, [name for name in with_reason if state.status_of(name) != "skipped"], plan.from_step)
    return {name: reason or f"it comes after {quote_names([origins[name]])}" for name, reason in own.items()}


_NOT_KEPT = "the corrected program may not call it in the same way"


def _if_kept(state: State, plan: Round, name: str) -> str:
    is_kept = name in state.calls and not plan.from_step and keeps_result(state, name)
    return "; if it is called in the same way, it keeps its result" if is_kept else ""


def _with_revision(state: State, name: str, reason: str, revised: Difference) -> str:
    """The reason with what the corrected definition adds to it."""
    if name in revised.added:
        return "it is new"
    changed = f"it changed: {', '.join(revised.changed[name])}" if name in revised.changed else ""
    return f"{reason}, and {changed}" if reason and changed else reason or changed


def _own_reason(state: State, plan: Round, failed: set[str], name: str) -> str:
    """Why a step runs again by itself; "" if only because of a step that it depends on."""
    place = state.places[name]
    if name == plan.from_step:
        return f"the round starts here{_BUT_STANDS if place.undo_failed else ''}"
    if place.undo_failed:
        return f"forced{_BUT_STANDS}" if plan.is_forced else f"if a person says so{_BUT_STANDS}"
    if place.is_undone:
        return "it was undone"
    if name in failed:
        return f"it failed{_BUT_CHILD_STANDS if undo_failed_below(state, place) else ''}"
    if found := [one.text for one in plan.stale if one.step == name]:
        return "; ".join(found)
    if place.status in ("cancelled", "skipped"):
        return f"it was {place.status}"
    if plan.keep_completed and place.status == "completed" and place.settled == "skipped":
        return "its result is from an earlier pass of the loop"
    if plan.keep_completed and place.status == "completed" and approvals_among([name], state.graph):
        return "a person is asked again: what the approval was given for may be different now"
    return ""


_BUT_STANDS = ", though its undo failed and what it did may still be in effect"
_BUT_CHILD_STANDS = ", though an undo in its child run failed and what that did may still be in effect"


def items_to_rerun(state: State, plan: Round) -> dict[str, tuple[int, ...]]:
    """The items that run, for each map step that does not run as a whole, provided its list stays the same."""
    found = {plan.from_step: plan.items} if plan.items else {}
    fresh = frozenset(plan.fresh)
    for place in (state.places[name] for name in plan.steps if name not in fresh and name not in found):
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
            else f"if nothing is running it: mulligan resume {run.run_id}; to stop it: mulligan cancel {run.run_id}"
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
    return fork_hint(state, from_step)


def fork_hint(state: State, from_step: str = "") -> str:
    """How a run that has ended is run again from one of its steps; one of a program, from one of its events."""
    run_id = state.run.run_id
    if state.graph.program:
        return f"to go on from one of its events in a new run: mulligan fork {run_id} --at EVENT"
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


def _refuse_items_behind_rerun(state: State, asked: _Asked) -> None:
    """Refuse to run only some items of a map that depends on a step that runs again: its list may change."""
    step, run_id = asked.from_step, state.run.run_id
    source = _behind(state, _first_steps(state, asked), asked.from_step).get(step)
    if source is not None:
        raise Refused(
            f"step '{step}' of run {run_id} comes after '{source}', which runs again: none of its items can be kept",
            hint=f"to run the whole step again: mulligan retry {run_id}; to keep its other items: --keep-completed",
            step=step,
        )


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
