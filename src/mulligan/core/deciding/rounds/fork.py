"""Fork: a new run that keeps the results of an old one up to a step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from mulligan.core.deciding.rounds.dependents import dependents
from mulligan.core.deciding.rounds.kept_approvals import asked_again_in_fork
from mulligan.core.deciding.rounds.rounds import failed_undos
from mulligan.core.evolve.revision import compare_definitions
from mulligan.core.model.agents.conversation import SessionPart
from mulligan.core.model.event_types import Kept, WorktreeOrigin
from mulligan.core.model.file_records import StaleFile
from mulligan.core.model.graph import Graph
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.run_data import DataValue
from mulligan.core.model.text.formatting import quote_names
from mulligan.core.model.workflow import END
from mulligan.core.state.state import Place, State
from mulligan.errors import Refused, UnknownStep

_KEEPABLE = ("completed", "stood_in", "skipped")


class Fork(msgspec.Struct, frozen=True):
    """What a fork keeps and what it runs, in file order; and how the file has changed."""

    kept: tuple[Kept, ...]
    runs: tuple[str, ...]
    # Kept although their definition has changed.
    changed: tuple[str, ...] = ()
    # Steps of the old run that are not in the file any more.
    dropped: tuple[str, ...] = ()
    # Files of otherwise kept steps that have changed or are gone.
    stale: tuple[StaleFile, ...] = ()
    # What the worktree of the fork is copied from, if kept results are in that of the old run.
    worktree: WorktreeOrigin | None = None
    # Steps whose undo has failed in the old run: what they did may still be in effect, also if the fork runs them.
    undo_failed: tuple[str, ...] = ()
    # Why steps run after all that would have been kept: what a person has approved is not what the fork does.
    asked_again: dict[str, str] = {}


def plan_fork(
    old: State,
    graph: Graph,
    from_step: str,
    stale: tuple[StaleFile, ...] = (),
    *,
    inputs: Mapping[str, Any] | None = None,
    keep_completed: bool = False,
) -> Fork:
    """Plan a fork of `old` from `from_step` in the workflow of `graph`; "" keeps every result that there is.

    `inputs`: of the new run, by default those of the old one.
    """
    _refuse_program(old, graph)
    if stale:
        would_keep = {one.step for one in kept_results(old, graph, from_step, keep_completed=keep_completed)}
        stale = tuple(one for one in stale if one.step in would_keep)
    inputs = old.run.inputs if inputs is None else inputs
    asked_again: dict[str, str] = {}
    while True:
        again = (*(one.step for one in stale), *asked_again)
        kept = kept_results(old, graph, from_step, again, keep_completed=keep_completed)
        names = {one.step for one in kept}
        # What runs because of one of them may be a reason for others.
        found = outdated_approvals(old, graph, inputs, names)
        if not found:
            break
        asked_again |= found
    return Fork(
        kept=kept,
        runs=tuple(name for name in graph.nodes if name not in names),
        changed=tuple(one.step for one in kept if graph.nodes[one.step].step != old.graph.nodes[one.step].step),
        dropped=tuple(name for name in old.graph.nodes if name not in graph.nodes),
        stale=stale,
        worktree=None if _opens(old) == from_step else worktree_origin(old),
        undo_failed=tuple(failed_undos(old, graph.nodes)),
        asked_again=asked_again,
    )


def outdated_approvals(old: State, graph: Graph, inputs: Mapping[str, Any], kept: Collection[str]) -> dict[str, str]:
    """The steps that a fork with these inputs may not keep, since a person has to be asked again, and why."""
    is_same = graph.workflow is old.workflow or graph.workflow == old.workflow
    changed = () if is_same else compare_definitions(old.graph, graph).different
    return asked_again_in_fork(old, graph, inputs, kept, changed)


def own_kept(old: State, graph: Graph, kept: Iterable[Kept]) -> Iterator[Kept]:
    """The results that a fork keeps, as the old run has them, whatever somebody says they were."""
    for one in kept:
        place = old.places.get(one.step) if one.step in graph.nodes else None
        if place is None or place.settled not in _KEEPABLE:
            raise Refused(f"'{one.step}' of run {old.run.run_id} has no result that a fork could keep", step=one.step)
        yield _keep(old, place)


def worktree_origin(old: State) -> WorktreeOrigin | None:
    """What a fork of this run copies its worktree from; None if the run has none."""
    if not _opens(old) or not old.run.workspace:
        # A fork that has not copied it yet.
        return old.run.worktree_origin
    place = old.places[_opens(old)]
    return WorktreeOrigin(place.output, host=place.host) if isinstance(place.output, dict) else None


def _opens(old: State) -> str:
    """The step that opens the worktree of a run; "" if none does."""
    return old.workflow.workspace.opens if old.workflow.workspace is not None else ""


def kept_results(
    old: State, graph: Graph, from_step: str, again: Iterable[str] = (), *, keep_completed: bool = False
) -> tuple[Kept, ...]:
    """The results that a fork of `old` from `from_step` takes over into the workflow of `graph`.

    Steps are matched by name. A result is kept if the step completed (or a remediation replaced it) or was skipped,
    and depends on no step that runs. `again`: steps that must run because their files have changed. With
    `keep_completed` a completed step is kept unless it depends on `from_step`, on one of these or on an undone step.
    The step that opens a worktree always runs again: a fork has its own.
    """
    if from_step and from_step not in graph.nodes:
        raise UnknownStep(f"'{from_step}' is not a step of the workflow to run", step=from_step)
    undone = (name for name, place in old.places.items() if place.is_undone and name in graph.nodes)
    first = [*filter(None, (from_step,)), *again, *undone]
    touched = {*first, *dependents(old, graph, first)}
    places = (old.places[name] for name in graph.nodes if name in old.graph.nodes and name not in touched)
    kept = {place.key: place for place in places if place.settled in _KEEPABLE}
    too_old = dependents(old, graph, [name for name in graph.nodes if name not in kept])
    is_kept = {
        one.key: one.key not in too_old or (keep_completed and one.settled != "skipped") for one in kept.values()
    }
    if graph.workflow.workspace is not None:
        is_kept[graph.workflow.workspace.opens] = False
    return tuple(_keep(old, one) for one in kept.values() if is_kept[one.key])


def _refuse_program(old: State, graph: Graph) -> None:
    """Refuse to fork a program from a step: of what it calls nothing is known before it runs."""
    run_id = old.run.run_id
    if old.graph.program:
        raise Refused(
            f"run {run_id} is a run of a program, whose steps are known only while it runs",
            hint=f"to go on from one of its events: mulligan fork {run_id} --at EVENT; "
            f"to make a call and what follows it again: mulligan retry {run_id} --from CALL",
        )
    if graph.program:
        raise Refused(
            f"the file holds a program, and run {run_id} is a run of steps that a file lists: it can keep no results",
            hint="start a run of the program: mulligan run FILE",
        )


def run_reasons(old: State, graph: Graph, from_step: str, planned: Fork) -> dict[str, str]:
    """Why each step of the fork runs, in a few words."""
    own = {name: _own_reason(old, from_step, planned, name) for name in planned.runs}
    with_reason = [name for name, reason in own.items() if reason]
    # The named step first: it is the cause that people know.
    origins = dependents(old, graph, sorted(with_reason, key=lambda name: name != from_step))
    if graph.workflow.workspace is not None and (opens := graph.workflow.workspace.opens) in own:
        # It runs in any case, and is no cause for what works in it.
        own[opens] = own[opens] or "each fork has a worktree of its own"
    return {name: reason or f"it comes after {quote_names([origins[name]])}" for name, reason in own.items()}


def _own_reason(old: State, from_step: str, planned: Fork, name: str) -> str:
    """Why a step runs by itself; "" if only because of a step that it depends on."""
    if name == from_step:
        return "the fork starts here"
    if name not in old.graph.nodes:
        return "it is new"
    place = old.places[name]
    if place.is_undone:
        return "it was undone"
    if found := [one.text for one in planned.stale if one.step == name]:
        return "; ".join(found)
    if name in planned.asked_again:
        return f"a person is asked again: {planned.asked_again[name]}"
    if place.settled in _KEEPABLE:
        return ""
    return {"failed": "it failed", "cancelled": "it was cancelled"}.get(place.status, "it had not ended")


def _keep(old: State, place: Place) -> Kept:
    """The kept result. Edges are recorded by their target, since the new file may list them in another order."""
    arcs = old.graph.nodes[place.key].arcs
    taken = {arc.to for arc in arcs if arc.to == END or old.arcs.get(arc.key) == "taken"}
    status = "skipped" if place.settled == "skipped" else "completed"
    is_whole = place.settled == "completed" and not place.recovered_by and not place.has_failed_undo
    return Kept(
        step=place.key,
        status=status,
        output=place.output,
        taken=tuple(sorted(taken)),
        files=place.files,
        fingerprint=place.fingerprint if is_whole else "",
        run_id=(place.result_run_id or old.run.run_id) if is_whole and place.fingerprint else 0,
    )


def kept_data(state: State, kept: Iterable[Kept]) -> dict[str, DataValue]:
    """The data of the run that a fork takes over: what the kept steps have set."""
    steps = {one.step for one in kept}
    return {name: one for name, one in state.run.data.items() if one.place and step_name(one.place) in steps}


def kept_sessions(state: State, kept: Iterable[Kept]) -> dict[str, tuple[SessionPart, ...]]:
    """The sessions that a fork takes over: what the agents of the kept steps said."""
    steps = {one.step for one in kept}
    own = {name: tuple(p for p in parts if step_name(p.place) in steps) for name, parts in state.run.sessions.items()}
    return {name: parts for name, parts in own.items() if parts}
