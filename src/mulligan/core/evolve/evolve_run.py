"""Apply a fact: `evolve(state, entry)` changes the state in place and does nothing else.

There is one function per kind of fact: for the run and its steps here, for attempts, commands and items in `places`.
If the fact changes the status of a place by the table of `transitions`, the function gets the place after that change.
A replay of the log runs `evolve` alone, so nothing here may decide by a policy: every decision is in the fact.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from itertools import chain, count, takewhile
from typing import Any

import msgspec

from mulligan.core.evolve.apply_transition import SUBJECTS, check_transition, move_run
from mulligan.core.evolve.arrivals import (
    arrive,
    cancel_waiting,
    next_visit,
    put_back,
    reopen_arrivals,
    requeue,
    set_status,
    settle,
)
from mulligan.core.evolve.evolve_fork import run_forked
from mulligan.core.evolve.evolve_places import (
    PLACE_HANDLERS,
    PLACE_MOVE_HANDLERS,
    fresh_climb,
    is_engine_action,
    remove_undoable,
    reset_items,
    steps_starting_fresh,
)
from mulligan.core.evolve.evolve_programs import note_caught, reopen_program
from mulligan.core.evolve.revision import revise
from mulligan.core.evolve.spending_ledger import SPENDING_HANDLERS, add_to_budget, raise_budgets
from mulligan.core.evolve.tallies import TALLY_HANDLERS
from mulligan.core.model import events as e
from mulligan.core.model.event_types import Kept, ReceivedEvent
from mulligan.core.model.graph import Arc
from mulligan.core.model.place_keys import item_key, lasting_key
from mulligan.core.model.run_data import DataValue
from mulligan.core.model.workflow import END
from mulligan.core.state.held_steps import begin_stepping, held_places, release
from mulligan.core.state.mailbox import give_back, give_back_of_items, receive
from mulligan.core.state.not_begun import steps_not_begun
from mulligan.core.state.notice_rules import next_lateness
from mulligan.core.state.state import (
    NOTHING_TRIED,
    FailureRecord,
    Loop,
    PastVisit,
    Place,
    RecordedDecision,
    Run,
    State,
    StepPause,
    Stop,
    Suggestion,
    TriageDecision,
    UndoableVisit,
)
from mulligan.core.state.transitions import PLACE
from mulligan.core.state.verdict import will_go_back
from mulligan.core.state.workspace import opened_folder, opens_worktree

_replace = msgspec.structs.replace


def evolve(state: State, entry: e.Entry) -> None:
    """Apply the fact of an entry. A fact that is not allowed raises before anything has changed."""
    fact = entry.fact
    move = _MOVES.get(type(fact))
    if move is None:
        check_transition(state, fact)
        if (count := TALLY_HANDLERS.get(type(fact))) is not None:
            count(state, fact, entry)
        _HANDLERS[type(fact)](state, fact, entry)
    else:
        # Nearly all facts: one lookup says whether the place may move, and where to.
        subject, moves, handler, count = move
        key = subject(fact)
        place = state.places.get(key)
        if place is None or place.status not in moves:
            check_transition(state, fact)
        if count is not None:
            count(state, fact, entry)
        place = state.touch(key)
        status = moves[place.status]
        if status != place.status:
            set_status(state, place, status)
        handler(state, place, fact, entry)
    run = state.run
    run.seq, run.at = entry.seq, entry.at


# -- the run ------------------------------------------------------------------------------


def _run_started(state: State, fact: e.RunStarted, entry: e.Entry) -> None:
    move_run(state, fact)
    run = state.run
    run.run_id, run.inputs, run.version, run.due = fact.run_id, fact.inputs, fact.version, fact.due
    run.parent_run_id, run.cwd, run.uid, run.waiting = fact.parent_run_id, fact.cwd, fact.uid, len(state.graph.nodes)
    run.changed_only, run.forced = fact.changed_only, fact.forced
    run.callers_budget, run.notify, run.sessions = fact.callers_budget, fact.notify, fact.sessions
    run.forked_at, run.worktree_origin = fact.forked_at, fact.worktree
    _begin_lateness(state, entry)
    if state.workflow.data or fact.data:
        run.data = {**{name: DataValue(value) for name, value in state.workflow.data.items()}, **fact.data}
    for name, node in state.graph.nodes.items():
        place = Place("step", "waiting", key=name, spec=node.step)
        place.open_needs = len(node.needs) + len(node.waits)
        place.open_arrivals = len(node.arrivals)
        state.add(place)
    state.add(Place("step", "waiting", key=END, spec=state.workflow.end))
    for key, barrier in state.graph.barriers.items():
        state.put(state.barriers, key, (len(barrier.members), 0))
    _keep(state, fact.kept, entry)


def _keep(state: State, kept: Collection[Kept], entry: e.Entry) -> None:
    """Take over the results of a fork as if the steps had ended here, with the edges between them taken."""
    steps = {one.step for one in kept}
    for one in kept:
        place = state.touch(one.step)
        set_status(state, place, one.status)
        place.output, place.given = one.output, (entry.seq, entry.at)
        place.files, place.fingerprint, place.kept_run_id = one.files, one.fingerprint, one.run_id
        _remember_workspace(state, one.step, one.output)
        for arc in state.graph.nodes[one.step].arcs:
            if arc.to in steps and arc.to in one.taken:
                state.put(state.arcs, arc.key, "taken")
    for one in kept:
        taken = [arc.edge.index for arc in state.graph.nodes[one.step].arcs if arc.to in one.taken]
        settle(state, one.step, one.status, taken)


def _remember_workspace(state: State, step: str, output: Any) -> None:
    """The run works in the worktree that this step has opened, if it is the step that opens it.

    In a fork the items go on in the copies of their worktrees.
    """
    if not opens_worktree(state, step):
        return
    state.run.workspace = opened_folder(output)
    copies = output.get("items") if state.run.worktree_origin is not None and isinstance(output, dict) else None
    if isinstance(copies, dict):
        for place in list(state.places.values()):
            if place.role == "item" and place.outputs and isinstance(place.outputs[0], dict):
                copy = copies.get(str(place.outputs[0].get("worktree")))
                if copy is not None:
                    item = state.touch(place.key)
                    item.outputs = (copy, *item.outputs[1:])


def _run_paused(state: State, fact: e.RunPaused, entry: e.Entry) -> None:
    move_run(state, fact)
    state.run.paused_at = entry.at
    state.run.reason = fact.reason


def _run_resumed(state: State, fact: e.RunResumed, entry: e.Entry) -> None:
    move_run(state, fact)
    run = state.run
    run.due = fact.due
    _lift_pause(run)
    if fact.steps:
        begin_stepping(state, fact.steps, fact.released)


def _lift_pause(run: Run) -> None:
    """Clear everything that belongs to a pause."""
    run.paused_at, run.reason, run.held, run.unstarted, run.stepping = None, "", (), (), None


def _step_paused(state: State, fact: e.StepPaused, entry: e.Entry) -> None:
    state.touch(fact.step).pause = StepPause(fact.by, fact.reason, entry.at)
    if fact.step not in state.run.paused_steps:
        state.run.paused_steps = (*state.run.paused_steps, fact.step)


def _step_resumed(state: State, fact: e.StepResumed, entry: e.Entry) -> None:
    step, run = state.touch(fact.step), state.run
    step.pause = None
    run.paused_steps = tuple(name for name in run.paused_steps if name != fact.step)
    if step.is_active:
        release(state, step)
    if run.status == "paused":
        # They start when the run is resumed.
        _note_unstarted(state, held_places(state, step))


def _note_unstarted(state: State, places: Iterable[Place]) -> None:
    """Note the actions of the engine that are ready and start when the run is resumed."""
    run = state.run
    held = (one.key for one in places if one.status == "ready" and one.attempt and is_engine_action(one.spec))
    run.unstarted = (*run.unstarted, *(key for key in held if key not in run.unstarted))


def _resume_all_steps(state: State) -> None:
    """End the pauses of all steps: the run stops, or its round is over."""
    for name in state.run.paused_steps:
        state.touch(name).pause = None
    state.run.paused_steps = ()


def _run_stopping(state: State, fact: e.RunStopping, entry: e.Entry) -> None:
    move_run(state, fact)
    _resume_all_steps(state)
    run = state.run
    before = run.stop
    # A cancellation by an operator replaces a cause of the engine; otherwise the first cause stays.
    if before is None or (fact.cause == "cancelled" and before.cause != "cancelled"):
        run.stop = Stop(fact.cause, fact.now, fact.by, fact.reason, fact.correction)
    else:
        # Who cancels a run that is about to be corrected wants no correction.
        run.stop = _replace(before, now=before.now or fact.now, correction=None)
    if run.worktree_origin is not None:
        run.stops += 1
    run.is_time_up = run.is_time_up or fact.cause == "timed_out"
    run.loops = {}
    _lift_pause(run)
    if fact.not_begun:
        cancel_waiting(state, steps_not_begun(state))


def _run_reopened(state: State, fact: e.RunReopened, entry: e.Entry) -> None:
    move_run(state, fact)
    run = state.run
    run.round, run.due, run.stop, run.is_time_up, run.has_undone = fact.round, fact.due, None, False, False
    run.outputs, run.degraded, run.reason = {}, False, ""
    run.items_of, run.adjustments = fact.from_step if fact.indexes else "", fact.adjustments
    run.is_forced, run.stops = fact.is_forced, 0
    raise_budgets(run, fact.budgets)
    _begin_child_rounds(state, fact)
    _begin_lateness(state, entry)
    give_back(state, {*fact.put_back, *fact.dropped})
    if state.graph.program in fact.put_back:
        reopen_program(state, fact.dropped, keeps_results=not fact.from_step)
    steps = set(fact.put_back)
    for records in (state.failures, state.recoveries):
        for record in [r for r in records if r.step in steps or r.step == END]:
            state.set_at(records, record.index, _replace(record, is_closed=True))
    put_back(state, steps, keeps_results=fact.keep_completed)
    _reset_maps(state, fact)
    give_back_of_items(state, steps)
    fresh = frozenset(fact.fresh or ())
    for name in steps:
        place = state.touch(name)
        place.is_undone, place.visits_before, place.last_status = False, place.visit, ""
        if fact.fresh is not None and place.output is not None:
            # If it is not entered in this round, it has no output.
            place.before, place.output = place.output, None
        if name in fresh and state.graph.nodes[name].step.join == "each":
            _queue_all_arrivals(state, place)
        else:
            _reroute_to_next_visit(state, place)
            requeue(state, name)
    # A loop counts its visits together: otherwise the step after the one that runs again would have none left.
    for name in {member for step in steps for member in state.graph.loops.get(step, ())} - steps:
        place = state.touch(name)
        place.visits_before = place.visit
    end = state.touch(END)
    state.put(state.past, (END, end.visit), PastVisit(end.status, end.failure_index))
    set_status(state, end, "waiting")


def _queue_all_arrivals(state: State, place: Place) -> None:
    """Visit a step once more for each edge that led to it, each with the failure that it led to it for."""
    arcs = [arc for arc in state.graph.nodes[place.key].arrivals if state.arcs.get(arc.key) == "taken"]
    place.queue = tuple(arc.key for arc in arcs)
    for visit, arc in enumerate(arcs, place.visit + 1):
        index = state.places[arc.source].failure_index
        if arc.edge.on == "failure" and index is not None:
            is_routed = state.failures[index].target == place.key
            for table in (state.informed, state.routed) if is_routed else (state.informed,):
                state.put(table, (place.key, visit), (index,))


def _maps_starting_fresh(state: State, fact: e.RunReopened) -> Iterable[str]:
    if fact.fresh is not None:
        return fact.fresh
    return steps_starting_fresh(state, fact.from_step, fact.put_back, fact.stale)


def _begin_child_rounds(state: State, fact: e.RunReopened) -> None:
    """In a child run: the attempt that called this round. In any: what is asked of the child runs of this round."""
    run, asked = state.run, fact.child
    run.child_round = asked if asked is not None and not asked.from_start else None
    run.keep_completed, run.adjusts = fact.keep_completed, fact.adjusts
    if fact.attempt:
        run.called_attempt, run.spent_before = fact.attempt, run.spent
        run.callers_budget = None if fact.callers_budget is None else add_to_budget(fact.callers_budget, run.spent)
    if fact.from_start:
        for key in [key for key, place in state.places.items() if place.last_child is not None]:
            state.touch(key).last_child = None
    elif asked is not None and asked.from_start and (key := lasting_key(asked.place)) in state.places:
        state.touch(key).last_child = None


def _reset_maps(state: State, fact: e.RunReopened) -> None:
    """Reset the maps that start with a new list, and the items named."""
    if fact.indexes:
        reset_items(state, fact.from_step, fact.indexes)
    for name in _maps_starting_fresh(state, fact):
        if name != state.run.items_of and state.places[name].items is not None:
            reset_items(state, name)
            state.touch(name).items = None


def _run_ended(state: State, fact: e.RunCompleted, entry: e.Entry) -> None:
    move_run(state, fact)
    _resume_all_steps(state)
    state.run.outputs, state.run.degraded, state.run.reason = fact.outputs, fact.degraded, fact.reason
    state.run.paused_at, state.run.held, state.run.stepping = None, (), None


def _begin_lateness(state: State, entry: e.Entry) -> None:
    """A round begins: when it will be late for the first time."""
    run = state.run
    run.late_due, run.late_after = None, 0.0
    if (first := next_lateness(state, 0.0)) is not None:
        run.late_due, run.late_after = entry.at + timedelta(seconds=first), first


def _event_received(state: State, fact: e.EventReceived, entry: e.Entry) -> None:
    receive(state, entry.seq, ReceivedEvent(fact.name, entry.at, fact.value, fact.by, fact.key))


def _run_late(state: State, fact: e.RunLate, entry: e.Entry) -> None:
    run, following = state.run, next_lateness(state, fact.after)
    if following is None or run.late_due is None:
        run.late_due = None
    else:
        run.late_due += timedelta(seconds=following - run.late_after)
        run.late_after = following


def _timer_held(state: State, fact: e.TimerHeld, entry: e.Entry) -> None:
    state.run.held = (*state.run.held, (fact.kind, fact.place, fact.number))


# -- steps in the graph ------------------------------------------------------------------------------


def _step_entered(state: State, place: Place, fact: e.StepEntered, entry: e.Entry) -> None:
    if place.items is not None and not _keeps_items(state, place):
        place.items = None
    place.visit = fact.visit
    place.entered_at, place.entered_seq = entry.at, entry.seq
    if place.output is not None:
        place.before = place.output
    place.climb, place.failure, place.output = NOTHING_TRIED, None, None
    if place.files or place.fingerprint:
        place.files, place.fingerprint, place.reused_run_id, place.kept_run_id = (), "", 0, 0
    place.conversation = None
    if state.run.adjustments:
        place.climb = fresh_climb(state, place.key, place.spec)
    place.recovered_by, place.phase, place.last_status, place.arrival = "", "", "", ""
    place.no_route, place.failure_index, place.warnings, place.loop_edge = False, None, (), None
    if place.queue:
        place.arrival, place.queue = place.queue[0], place.queue[1:]
    if fact.step != END:
        reopen_arrivals(state, fact.step)
        release(state, place)


def _keeps_items(state: State, place: Place) -> bool:
    """Whether a visit keeps the items of the last one: that one did not complete, or some of its items run again."""
    if _continues_items(state, place, place.visit):
        return True
    past = state.past.get((place.key, place.visit))
    return past is not None and past.status in ("failed", "cancelled")


def _continues_items(state: State, place: Place, visit: int) -> bool:
    """Whether the items of `visit` continue in the next visit: the round was opened for some of them."""
    return place.key == state.run.items_of and visit == place.visits_before


def _remove_undoable(state: State, step: str, visit: int) -> None:
    """Remove the undoable visit whose items are now part of the completed visit, so that they are undone once."""
    if any((one.step, one.visit) == (step, visit) for one in state.undoables):
        remove_undoable(state, state.undoable_index(step, visit))


def _step_skipped(state: State, place: Place, fact: e.StepSkipped, entry: e.Entry) -> None:
    _skip(state, place)


def _step_restored(state: State, place: Place, fact: e.StepRestored, entry: e.Entry) -> None:
    set_status(state, place, place.last_status)
    _skip(state, place)


def _skip(state: State, place: Place) -> None:
    """Settle a step that is not entered, for all of its queued arrivals: the reason applies to all of them."""
    place.last_status, place.queue = "", ()
    if state.failures:
        _pass_over(state, place)
    settle(state, place.key, "skipped")


def _pass_over(state: State, place: Place) -> None:
    """No failure that was routed to the next visits of a step is handled by it, unless a loop leads back to it."""
    for behind in range(1, len(state.graph.nodes[place.key].arrivals) + 1):
        for record in state.failures_routed_to(place.key, place.visit + behind):
            # Not one whose own visit has happened: it was only rerouted to a further one.
            is_waiting = record.target_visit > place.visit and not record.is_closed
            if is_waiting and not will_go_back(state, record):
                state.set_at(state.failures, record.index, _replace(record, is_target_skipped=True))


def _step_completed(state: State, place: Place, fact: e.StepCompleted, entry: e.Entry) -> None:
    place.output, place.recovered_by, place.phase, place.no_route = fact.output, fact.recovered_by, "", fact.no_route
    place.due, place.given, place.last_child = None, (entry.seq, entry.at), None
    if not fact.recovered_by:
        # A retry succeeded: the step has no failure any more.
        place.failure = None
    if fact.step == END:
        return
    if state.run.status == "paused" and opens_worktree(state, fact.step):
        # They start when the run is resumed.
        _note_unstarted(state, state.places.values())
    _remember_workspace(state, fact.step, fact.output)
    _remember_loop(state, place, fact.taken)
    if place.failure is not None:
        _record_recovery(state, place, fact, entry)
    # A result taken over from an earlier run is not undone by this one.
    if state.graph.nodes[fact.step].step.undo and not place.reused_run_id:
        if _continues_items(state, place, fact.visit - 1):
            _remove_undoable(state, fact.step, fact.visit - 1)
        state.append(state.undoables, UndoableVisit(fact.step, fact.visit, fact.output))
    if fact.is_final:
        settle(state, fact.step, "completed", fact.taken)
    else:
        arrive(state, fact.step, fact.taken, is_decided=False)


def _record_recovery(state: State, place: Place, fact: e.StepCompleted, entry: e.Entry) -> None:
    assert place.failure is not None
    record = FailureRecord(
        index=len(state.recoveries),
        step=fact.step,
        visit=fact.visit,
        failure=place.failure,
        seq=entry.seq,
        at=entry.at,
        entered_seq=place.entered_seq,
        attempt=fact.attempt,
        recovered_by=fact.recovered_by,
    )
    state.append(state.recoveries, record)


def _remember_loop(state: State, place: Place, taken: tuple[int, ...]) -> None:
    arcs = state.graph.nodes[place.key].arcs
    place.loop_edge = next((index for index in taken if arcs[index].is_loop), None) if taken else None


def _step_failed(state: State, place: Place, fact: e.StepFailed, entry: e.Entry) -> None:
    place.failure, place.phase, place.due = fact.failure, "", None
    place.failure_index = len(state.failures)
    _record_failure(state, place, fact, entry)
    if fact.step == END:
        return
    if place.program is not None:
        note_caught(state, place)
    _remember_loop(state, place, fact.taken)
    if fact.is_final:
        is_sent = bool(state.failures[-1].target)
        settle(state, fact.step, "allowed" if fact.is_allowed and not is_sent else "failed", fact.taken)
    else:
        arrive(state, fact.step, fact.taken, is_decided=True)


def _record_failure(state: State, place: Place, fact: e.StepFailed, entry: e.Entry) -> None:
    route = fact.route
    target = route.to if route.status == "selected" and route.to and route.to != END else ""
    then = state.graph.arc(fact.step, route.edge).edge.then if target and route.edge is not None else None
    record = FailureRecord(
        index=len(state.failures),
        step=fact.step,
        visit=fact.visit,
        failure=fact.failure,
        seq=entry.seq,
        at=entry.at,
        entered_seq=place.entered_seq,
        attempt=fact.attempt,
        retries_used=sum(place.climb.retries.values()),
        max_retries=place.spec.retries_max,
        reason=place.climb.verdict,
        target=target,
        target_visit=route.visit,
        then=then or "",
        is_allowed=fact.is_allowed,
        route=route,
        summary=place.climb.summary,
    )
    state.append(state.failures, record)
    if target and target != state.graph.program:
        key = (target, route.visit)
        state.put(state.routed, key, (*state.routed.get(key, ()), record.index))
    for index in fact.taken:
        _inform(state, state.graph.arc(fact.step, index), record.index)


def _inform(state: State, arc: Arc, index: int) -> None:
    """Give the context of the failure to the target of a failure edge, also if the edge only alerts."""
    if arc.edge.on == "failure" and arc.to != END:
        key = (arc.to, next_visit(state, arc.to))
        state.put(state.informed, key, (*state.informed.get(key, ()), index))


def _step_cancelled(state: State, place: Place, fact: e.StepCancelled, entry: e.Entry) -> None:
    place.phase, place.due, place.output = "", None, None
    if fact.step != END:
        settle(state, fact.step, "cancelled")


def _step_parked(state: State, place: Place, fact: e.StepParked, entry: e.Entry) -> None:
    place.failure = fact.failure
    place.climb = _replace(
        place.climb, parked_due=fact.due, parked_at=entry.at, parked_for=fact.reason, suggestion=None
    )


def _triage_suggested(state: State, place: Place, fact: e.TriageSuggested, entry: e.Entry) -> None:
    suggestion = Suggestion(
        fact.agent,
        fact.why_not,
        detail=fact.detail,
        verdict=fact.verdict,
        confidence=fact.confidence,
        reason=fact.reason,
        memory=fact.memory,
        timeout=fact.timeout,
        rule=fact.rule,
    )
    place.climb = _replace(place.climb, suggestion=suggestion, parked_due=fact.due)


def _step_classified(state: State, place: Place, fact: e.StepClassified, entry: e.Entry) -> None:
    climb, decision = place.climb, _triage_decision(place, fact)
    raise_budgets(state.run, fact.budgets)
    recorded = RecordedDecision(**msgspec.structs.asdict(decision), at=entry.at, is_default=fact.is_default)
    state.put(state.decisions, (place.key, entry.seq), recorded)
    place.climb = _replace(
        climb,
        parked_due=None,
        adjusted=fact.adjusted or climb.adjusted,
        defaults_used=climb.defaults_used + fact.is_default,
        parked_at=None,
        parked_for="",
        ruling=decision,
        suggestion=None,
    )
    if fact.is_triagers:
        state.run.agent_decisions += 1


def _triage_decision(place: Place, fact: e.StepClassified) -> TriageDecision:
    code, exit_code = (place.failure.code, place.failure.exit_code) if place.failure else ("", None)
    return TriageDecision(
        fact.verdict, fact.by, reason=fact.reason, code=code, exit_code=exit_code, attempt=fact.attempt
    )


def _step_put_back(state: State, fact: e.StepPutBack, entry: e.Entry) -> None:
    place = state.places[fact.step]
    if place.loop_edge is not None:
        _reroute_awaited(state, place, (fact.step,))
    put_back(state, (fact.step,))
    if fact.cause == "rerun":
        _reroute_to_next_visit(state, place)
        requeue(state, fact.step)


def _reroute_to_next_visit(state: State, place: Place) -> None:
    """Route the failures of the last visit, and their contexts, to the visit that replaces it."""
    before, after = (place.key, place.visit), (place.key, place.visit + 1)
    for table in (state.routed, state.informed):
        if before in table:
            # Each once: it may already be there, for a visit that did not happen.
            state.put(table, after, tuple(dict.fromkeys((*table[before], *table.get(after, ())))))


def _step_replaced(state: State, place: Place, fact: e.StepReplaced, entry: e.Entry) -> None:
    place.output, place.no_route, place.given = fact.output, fact.no_route, (entry.seq, entry.at)
    _remember_loop(state, place, fact.taken)
    if place.loop_edge is None:
        settle(state, fact.step, "stood_in", fact.taken)


def _step_settled(state: State, place: Place, fact: e.StepSettled, entry: e.Entry) -> None:
    if fact.failure is not None and place.failure_index is not None:
        # The remediation could not replace it: its failure is not routed any more.
        place.failure = fact.failure
        record = _replace(state.failures[place.failure_index], failure=fact.failure, target="", then="")
        state.set_at(state.failures, place.failure_index, record)
    settle(state, fact.step, fact.outcome)


def _loop_taken(state: State, fact: e.LoopTaken, entry: e.Entry) -> None:
    key = state.graph.arc(fact.step, fact.edge).key
    busy = sum(state.places[name].is_active for name in state.graph.region(fact.to))
    state.run.loops = {**state.run.loops, key: Loop(fact.step, fact.edge, to=fact.to, due=fact.due, busy=busy)}
    state.run.loops_taken = {**state.run.loops_taken, key: fact.number}


def _loop_fired(state: State, fact: e.LoopFired, entry: e.Entry) -> None:
    region = state.graph.region(fact.to)
    # Loops of steps that go back to waiting are void.
    state.run.loops = {key: loop for key, loop in state.run.loops.items() if loop.step not in region}
    for name in region:
        _reroute_awaited(state, state.places[name], region)
        _forget_children(state, name)
    put_back(state, region, is_loop=True)


def _forget_children(state: State, step: str) -> None:
    """Continue no child run of an earlier visit, of the step or of its items; those that were entered come first."""
    keys = chain((step,), (item_key(step, index) for index in count()))
    for key in takewhile(state.places.__contains__, keys):
        if state.places[key].last_child is not None:
            state.touch(key).last_child = None


def _reroute_awaited(state: State, fix: Place, region: Collection[str]) -> None:
    """A remediation goes back in a loop: sources outside the loop wait for its next visit."""
    for index in state.routed.get((fix.key, fix.visit), ()):
        record = state.failures[index]
        source = state.places[record.step]
        if record.then and record.step not in region and source.visit == record.visit and not source.settled:
            after = (fix.key, fix.visit + 1)
            for table in (state.routed, state.informed):
                state.put(table, after, (*table.get(after, ()), index))


_MOVE_HANDLERS: dict[type[e.Fact], Callable[[State, Place, Any, e.Entry], None]] = {
    e.StepEntered: _step_entered,
    e.StepSkipped: _step_skipped,
    e.StepRestored: _step_restored,
    e.StepCompleted: _step_completed,
    e.StepFailed: _step_failed,
    e.StepCancelled: _step_cancelled,
    e.StepParked: _step_parked,
    e.StepClassified: _step_classified,
    e.TriageSuggested: _triage_suggested,
    e.StepReplaced: _step_replaced,
    e.StepSettled: _step_settled,
    **PLACE_MOVE_HANDLERS,
}


def _bookkeeping(kind: type[e.Fact]) -> Callable[[State, Any, e.Entry], None] | None:
    """The function that counts tallies and books spending before a fact is applied; None if there is neither."""
    count, book = TALLY_HANDLERS.get(kind), SPENDING_HANDLERS.get(kind)
    if count is None or book is None:
        return count or book

    def count_and_book(state: State, fact: e.Fact, entry: e.Entry) -> None:
        count(state, fact, entry)
        book(state, fact, entry)

    return count_and_book


# Per fact: the key of its place, the allowed moves, the function that applies it, and the bookkeeping.
_MOVES = {kind: (SUBJECTS[kind], PLACE[kind], handler, _bookkeeping(kind)) for kind, handler in _MOVE_HANDLERS.items()}

_HANDLERS: dict[type[e.Fact], Callable[[State, Any, e.Entry], None]] = {
    e.RunStarted: _run_started,
    e.RunForked: run_forked,
    e.RunPaused: _run_paused,
    e.RunResumed: _run_resumed,
    e.StepPaused: _step_paused,
    e.StepResumed: _step_resumed,
    e.RunStopping: _run_stopping,
    e.RunRevised: revise,
    e.RunReopened: _run_reopened,
    e.RunCompleted: _run_ended,
    e.RunFailed: _run_ended,
    e.RunCancelled: _run_ended,
    e.RunLate: _run_late,
    e.EventReceived: _event_received,
    e.TimerHeld: _timer_held,
    e.StepPutBack: _step_put_back,
    e.LoopTaken: _loop_taken,
    e.LoopFired: _loop_fired,
    **PLACE_HANDLERS,
}
