"""What is true after a fact: `evolve(state, entry)` changes the state in place, and nothing else happens.

One function per kind of fact. A replay of the log runs this module alone, so nothing here may ask a policy:
what was decided is in the fact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..errors import Unlawful
from . import events as e
from .arrivals import arrive, move, next_visit, put_back, requeue, set_status, settle
from .failure import Failure
from .graph import Arc
from .state import NO_CLIMB, FailureRecord, Items, Loop, Past, Place, State, Stop, Undoable, undo_key
from .transitions import PLACE, RUN
from .workflow import END, ENGINE_ACTIONS, Command

_replace = msgspec.structs.replace
_ITEM = Command()


def evolve(state: State, entry: e.Entry) -> None:
    """Make the fact true. An unlawful one raises before anything has changed."""
    fact = entry.fact
    _HANDLERS[type(fact)](state, fact, entry)
    state.run.seq = entry.seq
    state.run.at = entry.at


def is_lawful(state: State, fact: e.Fact) -> bool:
    """Whether the table knows this fact for the status that its place, or its run, has now."""
    kind = type(fact)
    if kind in RUN:
        return state.run.status in RUN[kind]
    if kind not in PLACE:
        return True
    place = state.places.get(_subject(fact))
    return (place.status if place else "new") in PLACE[kind]


def _subject(fact: Any) -> str:
    key: str = fact.place if hasattr(fact, "place") else fact.step
    return key


def _enter(state: State, key: str, fact: e.Fact) -> Place:
    """The place, touched and moved on as the table says."""
    place = state.places.get(key)
    moves = PLACE[type(fact)]
    if place is None or place.status not in moves:
        raise Unlawful(
            f"{type(fact).__name__} cannot follow for '{key}', which is {place.status if place else 'not there'}"
        )
    place = state.touch(key)
    move(state, place, type(fact))
    return place


def _enter_run(state: State, fact: e.Fact) -> None:
    moves = RUN[type(fact)]
    if state.run.status not in moves:
        raise Unlawful(f"{type(fact).__name__} cannot follow in a run that is {state.run.status}")
    state.run.status = moves[state.run.status]


# -- the run ------------------------------------------------------------------------------


def _run_started(state: State, fact: e.RunStarted, entry: e.Entry) -> None:
    _enter_run(state, fact)
    run = state.run
    run.run_id, run.inputs, run.version, run.due = fact.run_id, fact.inputs, fact.version, fact.due
    run.parent_run_id, run.started_at, run.waiting = fact.parent_run_id, entry.at, len(state.graph.nodes)
    for name, node in state.graph.nodes.items():
        place = Place(name, "step", node.step, "waiting")
        place.open_needs = len(node.needs) + len(node.waits)
        place.open_arrivals = len(node.arrivals)
        state.add(place)
    state.add(Place(END, "step", state.workflow.end, "waiting"))
    for key, barrier in state.graph.barriers.items():
        state.put(state.barriers, key, (len(barrier.members), 0))
    for kept in fact.kept:
        _keep(state, kept)


def _keep(state: State, kept: e.Kept) -> None:
    """A result taken over by a fork: as if the step had ended here."""
    place = state.touch(kept.step)
    set_status(state, place, kept.status)
    place.output = kept.output
    taken = [arc.edge.index for arc in state.graph.nodes[kept.step].arcs if arc.to in kept.taken]
    settle(state, kept.step, kept.status, taken)


def _run_paused(state: State, fact: e.RunPaused, entry: e.Entry) -> None:
    _enter_run(state, fact)
    state.run.paused_at = entry.at
    state.run.reason = fact.reason


def _run_resumed(state: State, fact: e.RunResumed, entry: e.Entry) -> None:
    _enter_run(state, fact)
    state.run.paused_at = None
    state.run.due = fact.due
    state.run.held = ()
    state.run.unstarted = ()


def _run_stopping(state: State, fact: e.RunStopping, entry: e.Entry) -> None:
    _enter_run(state, fact)
    run = state.run
    before = run.stop
    # An operator's word outweighs the engine's own reasons; the first reason stands among equals.
    if before is None or (fact.cause == "cancelled" and before.cause != "cancelled"):
        run.stop = Stop(fact.cause, fact.now, fact.by, fact.reason)
    else:
        run.stop = _replace(before, now=before.now or fact.now)
    run.is_time_up = run.is_time_up or fact.cause == "timed_out"
    run.paused_at, run.loops, run.held, run.unstarted = None, {}, (), ()


def _run_reopened(state: State, fact: e.RunReopened, entry: e.Entry) -> None:
    _enter_run(state, fact)
    run = state.run
    run.round, run.due, run.stop, run.is_time_up, run.has_undone = fact.round, fact.due, None, False, False
    run.outputs, run.degraded, run.reason = {}, False, ""
    steps = set(fact.put_back)
    for record in [r for r in state.failures if r.step in steps or r.step == END]:
        state.set_at(state.failures, record.index, _replace(record, is_closed=True))
    for index, undoable in enumerate(state.undoables):
        if undoable.outcome != "done" and undoable.step not in steps and undoable.outcome:
            state.set_at(state.undoables, index, _replace(undoable, outcome=""))
    put_back(state, steps)
    for name in steps:
        place = state.touch(name)
        place.is_undone, place.visits_before, place.last_status = False, place.visit, ""
        requeue(state, name)
    end = state.touch(END)
    state.put(state.past, (END, end.visit), Past(end.status, end.failure_index))
    set_status(state, end, "waiting")


def _run_ended(state: State, fact: e.RunCompleted, entry: e.Entry) -> None:
    _enter_run(state, fact)
    state.run.outputs, state.run.degraded, state.run.reason = fact.outputs, fact.degraded, fact.reason
    state.run.paused_at, state.run.held = None, ()


def _timer_held(state: State, fact: e.TimerHeld, entry: e.Entry) -> None:
    state.run.held = (*state.run.held, (fact.kind, fact.place, fact.number))


# -- steps in the graph ------------------------------------------------------------------------------


def _step_entered(state: State, fact: e.StepEntered, entry: e.Entry) -> None:
    place = _enter(state, fact.step, fact)
    if not _takes_up(state, place):
        place.items = None
    place.visit = fact.visit
    place.entered_at, place.entered_seq = entry.at, entry.seq
    place.climb, place.failure, place.output = NO_CLIMB, None, None
    place.recovered_by, place.phase, place.last_status, place.arrival = "", "", "", ""
    place.no_route, place.failure_index, place.warnings, place.loop_edge = False, None, (), None
    if place.queue and state.graph.nodes[fact.step].step.join == "each":
        place.arrival, place.queue = place.queue[0], place.queue[1:]


def _takes_up(state: State, place: Place) -> bool:
    """Whether a visit may keep what the items of the last one have done: only if that one came to no good."""
    past = state.past.get((place.key, place.visit))
    return past is not None and past.status in ("failed", "cancelled")


def _step_skipped(state: State, fact: e.StepSkipped, entry: e.Entry) -> None:
    _pass_over(state, _enter(state, fact.step, fact))


def _step_restored(state: State, fact: e.StepRestored, entry: e.Entry) -> None:
    place = _enter(state, fact.step, fact)
    set_status(state, place, place.last_status)
    _pass_over(state, place)


def _pass_over(state: State, place: Place) -> None:
    """It is not entered, for none of the arrivals that wait: what kept one out keeps out all."""
    place.last_status, place.queue = "", ()
    settle(state, place.key, "skipped")


def _step_completed(state: State, fact: e.StepCompleted, entry: e.Entry) -> None:
    place = _enter(state, fact.step, fact)
    place.output, place.recovered_by, place.phase, place.no_route = fact.output, fact.recovered_by, "", fact.no_route
    place.due = None
    if fact.step == END:
        return
    _remember_loop(state, place, fact.taken)
    if state.graph.nodes[fact.step].step.undo:
        state.append(state.undoables, Undoable(fact.step, fact.visit, fact.output))
    if fact.is_final:
        settle(state, fact.step, "completed", fact.taken)
    else:
        arrive(state, fact.step, fact.taken, is_decided=False)


def _remember_loop(state: State, place: Place, taken: tuple[int, ...]) -> None:
    arcs = state.graph.nodes[place.key].arcs
    place.loop_edge = next((index for index in taken if arcs[index].is_loop), None)


def _step_failed(state: State, fact: e.StepFailed, entry: e.Entry) -> None:
    place = _enter(state, fact.step, fact)
    place.failure, place.phase, place.due = fact.failure, "", None
    place.failure_index = len(state.failures)
    _record_failure(state, place, fact, entry)
    if fact.step == END:
        return
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
        max_retries=sum(rule.max_retries for rule in place.spec.rules),
        reason=place.climb.verdict,
        target=target,
        target_visit=route.visit,
        then=then or "",
        is_allowed=fact.is_allowed,
    )
    state.append(state.failures, record)
    if target:
        key = (target, route.visit)
        state.put(state.routed, key, (*state.routed.get(key, ()), record.index))
    for index in fact.taken:
        _inform(state, state.graph.arc(fact.step, index), record.index)


def _inform(state: State, arc: Arc, index: int) -> None:
    """Whoever a failure edge leads to gets the failure's context, whether it handles it or only rings a bell."""
    if arc.edge.on == "failure" and arc.to != END:
        key = (arc.to, next_visit(state, arc.to))
        state.put(state.informed, key, (*state.informed.get(key, ()), index))


def _step_cancelled(state: State, fact: e.StepCancelled, entry: e.Entry) -> None:
    place = _enter(state, fact.step, fact)
    place.phase, place.due = "", None
    if fact.step != END:
        settle(state, fact.step, "cancelled")


def _step_parked(state: State, fact: e.StepParked, entry: e.Entry) -> None:
    place = _enter(state, fact.step, fact)
    place.failure = fact.failure
    place.climb = _replace(place.climb, parked_due=fact.due)


def _step_classified(state: State, fact: e.StepClassified, entry: e.Entry) -> None:
    place = _enter(state, fact.step, fact)
    climb = place.climb
    place.climb = _replace(
        climb,
        parked_due=None,
        adjusted=fact.adjusted or climb.adjusted,
        defaults_used=climb.defaults_used + fact.is_default,
    )


def _step_put_back(state: State, fact: e.StepPutBack, entry: e.Entry) -> None:
    place = state.places[fact.step]
    if place.status not in PLACE[e.StepPutBack]:
        raise Unlawful(f"StepPutBack cannot follow for '{fact.step}', which is {place.status}")
    put_back(state, (fact.step,))
    if fact.cause == "rerun":
        _send_again(state, place)
        requeue(state, fact.step)


def _send_again(state: State, place: Place) -> None:
    """What the failed visit was to repair and was told of, the visit that takes its place is."""
    before, after = (place.key, place.visit), (place.key, place.visit + 1)
    for table in (state.routed, state.informed):
        if before in table:
            state.put(table, after, (*table[before], *table.get(after, ())))


def _step_stood_in(state: State, fact: e.StepStoodIn, entry: e.Entry) -> None:
    place = _enter(state, fact.step, fact)
    place.output = fact.output
    _remember_loop(state, place, fact.taken)
    if place.loop_edge is None:
        settle(state, fact.step, "stood_in", fact.taken)


def _step_settled(state: State, fact: e.StepSettled, entry: e.Entry) -> None:
    _enter(state, fact.step, fact)
    settle(state, fact.step, fact.outcome)


def _loop_taken(state: State, fact: e.LoopTaken, entry: e.Entry) -> None:
    key = state.graph.arc(fact.step, fact.edge).key
    busy = sum(state.places[name].is_active for name in state.graph.region(fact.to))
    state.run.loops = {**state.run.loops, key: Loop(fact.step, fact.edge, fact.to, fact.due, busy)}
    state.run.loops_taken = {**state.run.loops_taken, key: fact.number}


def _loop_fired(state: State, fact: e.LoopFired, entry: e.Entry) -> None:
    region = state.graph.region(fact.to)
    # Loops of steps that go back to waiting are void: their edge was not taken after all.
    state.run.loops = {key: loop for key, loop in state.run.loops.items() if loop.step not in region}
    put_back(state, region, is_loop=True)


# -- the life of a place ------------------------------------------------------------------------------


def _attempt_scheduled(state: State, fact: e.AttemptScheduled, entry: e.Entry) -> None:
    place = _enter(state, fact.place, fact)
    _number(state, place, fact.attempt)
    place.phase, place.bindings = "", fact.bindings
    if place.climb is not NO_CLIMB:
        place.climb = _replace(place.climb, due=None, handler_due=None)
    if state.run.status == "paused" and is_engines_own(place.spec):
        state.run.unstarted = (*state.run.unstarted, place.key)


def is_engines_own(spec: Command) -> bool:
    """A wait, an approval, a sub-workflow, a map: no worker is leased for it."""
    return spec.action is None or spec.action.kind in ENGINE_ACTIONS


def _number(state: State, place: Place, attempt: int) -> None:
    """Attempts of a command of an item are numbered over the item."""
    place.attempt = attempt
    if place.role == "do":
        state.touch(place.parent).attempt = attempt


def _attempt_started(state: State, fact: e.AttemptStarted, entry: e.Entry) -> None:
    place = _enter(state, fact.place, fact)
    place.worker, place.host, place.due = fact.worker, fact.host, fact.due


def _attempt_succeeded(state: State, fact: e.AttemptSucceeded, entry: e.Entry) -> None:
    place = _enter(state, fact.place, fact)
    place.output = fact.output
    _end_attempt(place)
    if fact.warnings:
        place.warnings = (*place.warnings, *fact.warnings)


def _attempt_failed(state: State, fact: e.AttemptFailed, entry: e.Entry) -> None:
    place = _enter(state, fact.place, fact)
    _number(state, place, fact.attempt)
    place.warnings = (*place.warnings, *fact.warnings)
    _fail(place, fact.failure)


def _fail(place: Place, failure: Failure) -> None:
    place.failure, place.output = failure, None
    _end_attempt(place)
    place.climb = _replace(place.climb, tries=place.climb.tries + 1)


def _end_attempt(place: Place) -> None:
    place.due, place.bindings = None, {}
    if place.items is not None:
        place.items = _replace(place.items, is_judged=True)


def _attempt_lost(state: State, fact: e.AttemptLost, entry: e.Entry) -> None:
    place = _enter(state, fact.place, fact)
    place.climb = _replace(place.climb, losses=place.climb.losses + 1)


def _attempt_ended_early(state: State, fact: e.AttemptInterrupted, entry: e.Entry) -> None:
    _enter(state, fact.place, fact).due = None


def _attempt_stopping(state: State, fact: e.AttemptStopping, entry: e.Entry) -> None:
    place = _enter(state, fact.place, fact)
    if fact.reason == "handler_timeout":
        place.climb = _replace(place.climb, is_handler_late=True)
    else:
        place.phase = fact.reason


def _attempt_cancelled(state: State, fact: e.AttemptCancelled, entry: e.Entry) -> None:
    place = _enter(state, fact.place, fact)
    place.phase = "stopped"
    _end_attempt(place)


def _result_rejected(state: State, fact: e.ResultRejected, entry: e.Entry) -> None:
    place = _enter(state, fact.place, fact)
    place.phase = ""
    _fail(place, fact.failure)


def _rung_passed(state: State, fact: e.RungPassed, entry: e.Entry) -> None:
    if fact.rung == "retry":
        place = state.touch(fact.place)
        place.climb = _replace(place.climb, verdict=fact.reason)


def _retry_scheduled(state: State, fact: e.RetryScheduled, entry: e.Entry) -> None:
    place = _enter(state, fact.place, fact)
    place.climb = _replace(
        place.climb,
        retries={**place.climb.retries, fact.rule: fact.number},
        due=fact.due,
        is_script_open=fact.has_script,
        adjusted=fact.adjusted,
        verdict="",
    )


def _handler_started(state: State, fact: e.HandlerStarted, entry: e.Entry) -> None:
    place = _enter(state, fact.place, fact)
    climb = place.climb
    place.climb = _replace(
        climb,
        handled_times=climb.handled_times + 1,
        handled_attempt=fact.attempt,
        handler_due=fact.due,
        handler_output=None,
        is_handler_late=False,
        due=None,
    )


def _handler_succeeded(state: State, fact: e.HandlerSucceeded, entry: e.Entry) -> None:
    place = _enter(state, fact.place, fact)
    climb = place.climb
    is_rerun = bool(place.spec.on_failure and place.spec.on_failure.rerun)
    place.climb = _replace(climb, handler_output=fact.output, handler_due=None, reruns=climb.reruns + is_rerun)


def _handler_failed(state: State, fact: e.HandlerFailed, entry: e.Entry) -> None:
    place = _enter(state, fact.place, fact)
    place.climb = _replace(place.climb, handler_due=None, is_handler_late=False)
    if place.failure:
        place.failure = _replace(place.failure, handler_failure=fact.failure)


def _command_entered(state: State, fact: e.CommandEntered, entry: e.Entry) -> None:
    if fact.place in state.places:
        raise Unlawful(f"CommandEntered cannot follow for '{fact.place}', which is there already")
    parent = state.touch(fact.parent)
    spec = command_spec(state, parent, fact.role, fact.index)
    # Attempts of a command of an item go on from the item's number.
    attempt = parent.attempt if fact.role == "do" else 0
    place = Place(fact.place, fact.role, spec, "ready", fact.parent, fact.index, visit=1, attempt=attempt)
    place.entered_at, place.entered_seq = entry.at, entry.seq
    state.add(place)
    parent.child = fact.place
    if fact.role == "validator":
        parent.phase = "validating"
    elif fact.role == "success":
        parent.phase = "finishing"


def command_spec(state: State, parent: Place, role: str, index: int) -> Command:
    """What the workflow says of a command below `parent`."""
    spec = parent.spec
    step = state.step(state.step_of(parent).key)
    found = (
        step.do[index]
        if role == "do"
        else spec.on_failure.commands[index]
        if role == "handler" and spec.on_failure
        else spec.on_success[index]
        if role == "success"
        else spec.rules[index].recovery_script
        if role == "script"
        else spec.validator
        if role == "validator"
        else step.undo
        if role == "undo"
        else step.map.lister
        if role == "lister" and step.map
        else None
    )
    if found is None:
        raise Unlawful(f"'{parent.key}' has no {role} command {index}")
    return found


def _command_ended(state: State, fact: Any, entry: e.Entry) -> None:
    place = state.places.get(fact.place)
    if place is None or place.status not in PLACE[type(fact)]:
        raise Unlawful(f"{type(fact).__name__} cannot follow for '{fact.place}'")
    state.touch(fact.place)
    state.drop(state.places, fact.place)
    parent = state.touch(fact.parent)
    parent.child = ""
    if fact.role == "script":
        parent.climb = _replace(parent.climb, is_script_open=False)
    elif fact.role == "handler" and isinstance(fact, e.CommandCompleted):
        parent.climb = _replace(parent.climb, handler_output=fact.output)
    elif fact.role == "do" and isinstance(fact, e.CommandCompleted):
        parent.recovered_by = fact.recovered_by or parent.recovered_by


def _map_expanded(state: State, fact: e.MapExpanded, entry: e.Entry) -> None:
    place = _enter(state, fact.place, fact)
    if fact.items is not None:
        _reset_items(state, fact.place)
        place.items = Items(fact.items, place.visit, tuple(range(len(fact.items))))
    elif place.items is not None and fact.todo is not None:
        place.items = Items(place.items.values, place.visit, fact.todo)


def _reset_items(state: State, step: str) -> None:
    """Items of an earlier list are as new, but for their numbers: attempts are counted over the whole run."""
    index = 0
    while (key := f"{step}[{index}]") in state.places:
        item = state.touch(key)
        item.status, item.output, item.failure, item.recovered_by = "waiting", None, None, ""
        index += 1


def _item_entered(state: State, fact: e.ItemEntered, entry: e.Entry) -> None:
    parent = state.touch(fact.parent)
    if parent.items is None:
        raise Unlawful(f"ItemEntered cannot follow for '{fact.place}': '{fact.parent}' has no items")
    if fact.place in state.places:
        place = _enter(state, fact.place, fact)
        place.failure, place.recovered_by = None, ""
    else:
        place = Place(fact.place, "item", _ITEM, "running", fact.parent, fact.index)
        state.add(place)
    place.visit = parent.visit
    place.entered_at, place.entered_seq = entry.at, entry.seq
    parent.items = _replace(parent.items, next=parent.items.next + 1, running=parent.items.running + 1)


def _item_completed(state: State, fact: e.ItemCompleted, entry: e.Entry) -> None:
    place = _enter(state, fact.place, fact)
    place.output, place.recovered_by = fact.output, fact.recovered_by
    _leave_item(state, fact.parent, has_failed=False)


def _item_failed(state: State, fact: e.ItemFailed, entry: e.Entry) -> None:
    _enter(state, fact.place, fact).failure = fact.failure
    _leave_item(state, fact.parent, has_failed=True)


def _item_cancelled(state: State, fact: e.ItemCancelled, entry: e.Entry) -> None:
    _enter(state, fact.place, fact)
    _leave_item(state, fact.parent, has_failed=False)


def _leave_item(state: State, parent_key: str, *, has_failed: bool) -> None:
    parent = state.touch(parent_key)
    items = parent.items
    if items is not None:
        parent.items = _replace(items, running=items.running - 1, failed=items.failed + has_failed)


def _undo_started(state: State, fact: e.UndoStarted, entry: e.Entry) -> None:
    state.run.undoing = undo_key(fact.step, fact.visit)


def _undo_ended(state: State, fact: Any, entry: e.Entry) -> None:
    outcome = "done" if isinstance(fact, e.UndoCompleted) else "failed"
    for index, undoable in enumerate(state.undoables):
        if (undoable.step, undoable.visit) == (fact.step, fact.visit):
            state.set_at(state.undoables, index, _replace(undoable, outcome=outcome))
    state.run.undoing, state.run.has_undone = "", True
    place = state.touch(fact.step)
    place.is_undone = True
    if isinstance(fact, e.UndoFailed):
        place.warnings = (*place.warnings, fact.failure)


def _warning_recorded(state: State, fact: e.WarningRecorded, entry: e.Entry) -> None:
    place = state.touch(fact.place)
    place.warnings = (*place.warnings, fact.failure)


def _nothing(state: State, fact: e.Fact, entry: e.Entry) -> None:
    """A fact for the record: it tells the story and changes nothing."""


_HANDLERS: dict[type[e.Fact], Callable[[State, Any, e.Entry], None]] = {
    e.RunStarted: _run_started,
    e.RunPaused: _run_paused,
    e.RunResumed: _run_resumed,
    e.RunStopping: _run_stopping,
    e.RunReopened: _run_reopened,
    e.RunCompleted: _run_ended,
    e.RunFailed: _run_ended,
    e.RunCancelled: _run_ended,
    e.TimerHeld: _timer_held,
    e.StepEntered: _step_entered,
    e.StepSkipped: _step_skipped,
    e.StepRestored: _step_restored,
    e.StepCompleted: _step_completed,
    e.StepFailed: _step_failed,
    e.StepCancelled: _step_cancelled,
    e.StepParked: _step_parked,
    e.StepClassified: _step_classified,
    e.StepPutBack: _step_put_back,
    e.StepStoodIn: _step_stood_in,
    e.StepSettled: _step_settled,
    e.LoopTaken: _loop_taken,
    e.LoopFired: _loop_fired,
    e.AttemptScheduled: _attempt_scheduled,
    e.AttemptStarted: _attempt_started,
    e.AttemptSucceeded: _attempt_succeeded,
    e.AttemptFailed: _attempt_failed,
    e.AttemptLost: _attempt_lost,
    e.AttemptInterrupted: _attempt_ended_early,
    e.AttemptStopping: _attempt_stopping,
    e.AttemptCancelled: _attempt_cancelled,
    e.ResultRejected: _result_rejected,
    e.RungPassed: _rung_passed,
    e.RetryScheduled: _retry_scheduled,
    e.HandlerStarted: _handler_started,
    e.HandlerSucceeded: _handler_succeeded,
    e.HandlerFailed: _handler_failed,
    e.CommandEntered: _command_entered,
    e.CommandCompleted: _command_ended,
    e.CommandFailed: _command_ended,
    e.CommandCancelled: _command_ended,
    e.MapExpanded: _map_expanded,
    e.ItemEntered: _item_entered,
    e.ItemCompleted: _item_completed,
    e.ItemFailed: _item_failed,
    e.ItemCancelled: _item_cancelled,
    e.UndoStarted: _undo_started,
    e.UndoCompleted: _undo_ended,
    e.UndoFailed: _undo_ended,
    e.WarningRecorded: _warning_recorded,
    e.ReportRefused: _nothing,
}
