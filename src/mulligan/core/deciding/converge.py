"""Rung 5: every run reaches `end`. When nothing runs or can run: undo, `end`, and the final event of the round."""

from __future__ import annotations

from msgspec.structs import replace

from mulligan.core.deciding.end_status import after_end_step
from mulligan.core.deciding.flow import (
    enter,
    enter_free_slots,
    is_at_max_parallel,
    may_enter,
    remaining_start_batches,
    skip_step,
    wake,
    wake_starts,
)
from mulligan.core.deciding.lifecycle import Facts, enter_and_fail, enter_command, make_failure, schedule
from mulligan.core.model import events as e
from mulligan.core.model.failure import failure
from mulligan.core.model.place_keys import undo_key
from mulligan.core.model.text.formatting import pluralize
from mulligan.core.model.workflow import END
from mulligan.core.state.deadlines import is_time_up
from mulligan.core.state.held_steps import has_run_its_steps
from mulligan.core.state.program_progress import NO_PROGRESS
from mulligan.core.state.scope import DecisionContext
from mulligan.core.state.state import Place, State, UndoableVisit
from mulligan.core.state.verdict import verdict
from mulligan.core.state.workspace import awaits_worktree, lacks_worktree


def converge(now: DecisionContext) -> Facts:
    """Called when nothing more follows in a turn: fire due loops, fill free slots, undo, enter `end`."""
    run = now.state.run
    if run.status != "running" or is_time_up(now.state, now.at):
        # If its time is up, it is stopped first: that is reported next.
        return
    if run.stepping is not None and has_run_its_steps(now.state) and _has_more_to_start(now.state):
        yield e.RunPaused(reason=f"{pluralize(run.stepping.asked, 'step')} ran, as asked")
        return
    yield from _fire_loops(now)
    yield from enter_free_slots(now)
    if run.active or run.loops or run.undoing:
        return
    program = now.state.places.get(now.state.graph.program)
    if program is not None and program.status == "waiting" and run.stop is None:
        yield from _begin_program(now, program)
        return
    if run.waiting and run.stop is None:
        # What follows may change which steps wait, so `converge` is called again after it.
        late = remaining_start_batches(now.state)
        yield from wake_starts(now, late[0]) if late else _resolve_deadlock(now)
        return
    end = now.state.places[END]
    if end.has_ended:
        yield from after_end_step(now)
    elif end.status == "waiting":
        undoable = _next_undo(now.state)
        if undoable is not None:
            yield from _undo(now, undoable)
        else:
            yield from _enter_end(now)


def _has_more_to_start(state: State) -> bool:
    """Whether a step is held, is ready to start, or comes again in a loop; otherwise the run comes to its end."""
    run = state.run
    if run.active or run.loops:
        return True
    return any(may_enter(state, step) or _has_arrival(state, step) for step in state.steps())


def _fire_loops(now: DecisionContext) -> Facts:
    """Fire loops in the order they were taken: each when it is due and no step of its region is active."""
    if awaits_worktree(now.state):
        return
    for key, loop in list(now.state.run.loops.items()):
        current = now.state.run.loops.get(key)
        is_due = current is not None and current.busy == 0 and current.due <= now.at
        if is_due and now.state.run.stop is None and not is_at_max_parallel(now.state):
            yield e.LoopFired(loop.step, loop.edge, loop.to)


def _resolve_deadlock(now: DecisionContext) -> Facts:
    """Steps wait for each other, or for a remediation that waits for them: nothing else can happen.

    Enter a step that has an arrival, if there is one: the arrivals it still waits for depend on it. Otherwise skip
    the waiting steps.
    """
    arrived = next((step for step in now.state.steps() if _has_arrival(now.state, step)), None)
    if arrived is not None:
        yield from enter(now, arrived)
        return
    for step in list(now.state.steps()):
        if now.state.run.active or now.state.run.loops:
            return
        if step.status == "waiting":
            yield skip_step(step, "unreachable")


def _has_arrival(state: State, step: Place) -> bool:
    is_free = step.status == "waiting" and not step.open_needs and not step.has_dead_need
    return is_free and step.taken_arrivals > 0 and state.step(step.key).join == "any"


# -- programs --------------------------------------------------------------------------


def _begin_program(now: DecisionContext, place: Place) -> Facts:
    """Another round of a program begins: undo the calls that it drops, the last one first, then let it begin."""
    progress = place.program or NO_PROGRESS
    leaving = (one for one in reversed(now.state.undoables) if one.step in progress.leaving)
    last = next((one for one in leaving if _may_be_undone(now.state, one)), None)
    if last is not None:
        yield from _undo(now, last)
    elif progress.not_undone:
        message = f"'{progress.not_undone}' could not be undone, so that what it did may still be in effect"
        yield from enter_and_fail(now, place, failure("UNDO_FAILED", message))
    else:
        yield from wake(now, place.key)


# -- undo ------------------------------------------------------------------------------


def _next_undo(state: State) -> UndoableVisit | None:
    """The last completed visit that is not undone yet, if the run is going to fail or be cancelled.

    Each is tried once in a round: one whose undo has failed is tried again in the next, if that fails too.
    """
    stop = state.run.stop
    if stop is not None and (stop.now or stop.correction is not None):
        return None
    if not state.undoables or lacks_worktree(state) or verdict(state) == "completed":
        return None
    return next((one for one in reversed(state.undoables) if _may_be_undone(state, one)), None)


def _undo(now: DecisionContext, one: UndoableVisit) -> Facts:
    yield e.UndoStarted(one.step, one.visit)
    yield from enter_command(now, now.state.places[one.step], "undo", 0, undo_key(one.step, one.visit))


def _may_be_undone(state: State, one: UndoableVisit) -> bool:
    """Whether its undo was not tried in this round. A corrected definition may no longer have the step or its undo."""
    node = state.graph.nodes.get(one.step)
    return one.failed_round != state.run.round and node is not None and node.step.undo is not None


def after_undo(now: DecisionContext, place: Place, fact: e.Fact) -> Facts:
    """Record how an undo ended. The other undos go on in any case."""
    visit = int(now.state.run.undoing.rpartition("@")[2])
    if isinstance(fact, e.CommandCompleted):
        yield e.UndoCompleted(place.key, visit)
    else:
        cause = (fact.failure,) if isinstance(fact, e.CommandFailed) else ()
        message = cause[0].message if cause else "the undo was stopped"
        found = replace(make_failure(now, place, "UNDO_FAILED", message, cause=cause), visit=visit)
        yield e.UndoFailed(place.key, visit, found, is_kept=True)


# -- end ------------------------------------------------------------------------------


def _enter_end(now: DecisionContext) -> Facts:
    end = now.state.places[END]
    yield e.StepEntered(END, end.visit + 1)
    if end.spec.action is None:
        yield e.StepCompleted(END, end.visit)
    else:
        yield from schedule(now, end, "entered")
