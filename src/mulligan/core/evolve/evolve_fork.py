"""A fork goes on from an event of another run: what `RunForked` changes in the state that its kept history describes.

The time between that event and the fork has not passed for the new run: what was to happen in ten minutes happens in
ten minutes. What the other run did is not undone by this one. What its agents spent counts against the budgets, as in a
further round. Its worktree is that of the other run, so its own is opened before anything goes on.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from mulligan.core.evolve.apply_transition import move_run
from mulligan.core.evolve.arrivals import put_back
from mulligan.core.evolve.evolve_places import waits_until
from mulligan.core.evolve.evolve_programs import fork_program
from mulligan.core.model import events as e
from mulligan.core.model.event_types import WorktreeOrigin
from mulligan.core.model.workflow import Command
from mulligan.core.state.state import NOTHING_TRIED, Place, RecoveryProgress, Run, State
from mulligan.core.state.workspace import lacks_worktree

_replace = msgspec.structs.replace
# The times of a climb that move with the run.
_CLIMB_TIMES = ("due", "handler_due", "parked_due", "trying_since")


def run_forked(state: State, fact: e.RunForked, entry: e.Entry) -> None:
    """Move what is open to the time of the fork, and leave to the other run what is its own."""
    move_run(state, fact)
    run, passed = state.run, entry.at - state.run.at
    if fact.inputs is not None:
        run.inputs = fact.inputs
    _move_run_times(run, passed)
    # What is being undone is undone to its end.
    undoing = [state.undoables[state.visit_being_undone]] if run.undoing else []
    for _ in range(len(state.undoables)):
        state.take_last(state.undoables)
    for one in undoing:
        state.append(state.undoables, one)
    if state.graph.program:
        fork_program(state, passed)
    for decided in list(state.decisions):
        state.drop(state.decisions, decided)
    if fact.worktree is not None:
        _leave_worktree(state, fact.worktree)
    elif lacks_worktree(state):
        # The other run was about to open its own again.
        run.workspace = ""
    for key in list(state.places):
        _take_over(state.touch(key), fact.run_id, passed)


def _leave_worktree(state: State, origin: WorktreeOrigin) -> None:
    """The step that opens the worktree runs again, if it had ended."""
    workspace = state.workflow.workspace
    assert workspace is not None
    state.run.workspace, state.run.worktree_origin = "", origin
    place = state.places[workspace.opens]
    if place.has_ended:
        put_back(state, {place.key})
        place = state.touch(place.key)
        # As in a new round: visits that happened in other runs do not count.
        place.visits_before, place.last_status = place.visit, ""


def is_scheduled_again(place: Place, fact: e.RunForked) -> bool:
    """Whether a queued attempt has values of the other run: its number, or inputs that this run has changed."""
    is_queued = place.status == "ready" and place.attempt > 0
    return is_queued and (fact.inputs is not None or fact.worktree is not None or _reads_run(place.spec))


def _reads_run(spec: Command) -> bool:
    action = spec.action
    templates = (*(action.bindings.values() if action else ()), *spec.env.values(), spec.cwd)
    return any(template is not None and "run" in template.reads for template in templates)


def _move_run_times(run: Run, passed: timedelta) -> None:
    run.due, run.late_due, run.paused_at = (_later(one, passed) for one in (run.due, run.late_due, run.paused_at))
    run.loops = {key: _replace(loop, due=loop.due + passed) for key, loop in run.loops.items()}


def _take_over(place: Place, run_id: int, passed: timedelta) -> None:
    # Its child runs belong to the other run.
    place.last_child = None
    if place.fingerprint and not place.result_run_id:
        place.kept_run_id = run_id
    if place.has_ended:
        return
    place.entered_at += passed
    if not waits_until(place.spec):
        place.due = _later(place.due, passed)
    if place.climb is not NOTHING_TRIED:
        place.climb = _moved_climb(place.climb, passed)


def _moved_climb(climb: RecoveryProgress, passed: timedelta) -> RecoveryProgress:
    return _replace(climb, **{name: _later(getattr(climb, name), passed) for name in _CLIMB_TIMES})


def _later(at: datetime | None, passed: timedelta) -> datetime | None:
    return None if at is None else at + passed
