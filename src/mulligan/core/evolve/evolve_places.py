"""Apply the facts of a place: its attempts, handler, commands, items and undo. Part of `evolve`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import msgspec

from mulligan.core.evolve.apply_transition import move_place
from mulligan.core.evolve.evolve_conversations import (
    CONVERSATION_ROLES,
    begin_turns,
    end_turn_command,
    session_kept,
    tool_answered,
    tool_called,
)
from mulligan.core.evolve.evolve_programs import (
    begin_program,
    call_cancelled,
    leave_call,
    program_ended,
    program_resumed,
    program_waiting,
    step_added,
    step_defined,
    step_ran,
    turn_started,
    value_recorded,
)
from mulligan.core.model import events as e
from mulligan.core.model.actions import AGENT, is_added, traits_of
from mulligan.core.model.clusters.worker_time import seconds_needed
from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.failure import Failure
from mulligan.core.model.failure_context import RetrySummary
from mulligan.core.model.file_records import StaleFile
from mulligan.core.model.place_keys import item_key, undo_key
from mulligan.core.model.run_data import DataValue
from mulligan.core.model.workflow import MCP_CALL, Action, Command, Step, triager_of
from mulligan.core.state.held_steps import is_held_role, release
from mulligan.core.state.mailbox import awaited_name, awaits_event, spend, take
from mulligan.core.state.state import NOTHING_TRIED, Items, LastChild, Place, RecoveryProgress, State
from mulligan.errors import IllegalTransition

_replace = msgspec.structs.replace
# Prefixes of the bindings that hold the paths of a step's files, and the folders that these must stay in.
_FILE_BINDINGS = ("file.", "folder.file.")


def _attempt_scheduled(state: State, place: Place, fact: e.AttemptScheduled, entry: e.Entry) -> None:
    _set_attempt(state, place, fact.attempt)
    place.phase, place.bindings = "", fact.bindings
    if place.data:
        place.data = {}
    if place.spec.file_paths:
        place.paths = {name: value for name, value in fact.bindings.items() if name.startswith(_FILE_BINDINGS)}
    if place.climb is not NOTHING_TRIED:
        place.climb = _replace(place.climb, due=None, summary=_summary(place, fact, entry))
    if holds_conversation(place.spec):
        begin_turns(place)
    if place.program is not None:
        begin_program(place)
    if state.run.stepping is not None and is_held_role(place):
        # A visit that had waited for an answer goes on only now, so it counts now.
        release(state, state.step_of(place))
    if state.run.status == "paused" and is_engine_action(place.spec):
        state.run.unstarted = (*state.run.unstarted, place.key)


def _summary(place: Place, fact: e.AttemptScheduled, entry: e.Entry) -> RetrySummary | None:
    if not fact.summary or place.failure is None:
        return None
    return RetrySummary(
        seq=entry.seq,
        source_attempt=place.failure.attempt,
        target_attempt=fact.attempt,
        failure_seq=place.climb.failure_seq,
        created_at=entry.at,
        content=fact.summary,
    )


def is_engine_action(spec: Command) -> bool:
    """Whether the engine carries it out without a worker: a wait, an approval, a child run, a map, a fake.

    Also an agent with tools or a session: workers ask its model and call its tools, as places below it.
    """
    return traits_of(spec.action).runs_in == "engine" or holds_conversation(spec)


def holds_conversation(spec: Command) -> bool:
    """Whether it is an agent that is asked turn by turn: it has tools, or keeps its messages in a session."""
    return (spec.tools is not None or spec.session != "") and traits_of(spec.action).is_agent


def waits_until(spec: Command) -> bool:
    """Whether it is a wait until a time, which goes by the wall clock, and not a wait for a duration."""
    return spec.action is not None and traits_of(spec.action).is_timer and "until" in spec.action.params


def is_agent(spec: Command) -> bool:
    """Whether it runs an agent."""
    return traits_of(spec.action).is_agent


def is_agent_call(spec: Command) -> bool:
    """Whether an attempt of it is a call of an agent. A conversation is not: each question to its model is."""
    return is_agent(spec) and not holds_conversation(spec)


def _set_attempt(state: State, place: Place, attempt: int) -> None:
    """Set the attempt number. Attempts of an item's commands are numbered over the item.

    The first attempt of a command that a reader added does not count. Further ones do, so that no number comes twice.
    """
    place.attempt = attempt
    if place.role == "do":
        item = state.touch(place.parent)
        item.attempt = max(item.attempt, attempt - 1) if is_added(place.spec) else attempt


def _attempt_started(state: State, place: Place, fact: e.AttemptStarted, entry: e.Entry) -> None:
    place.worker, place.host, place.due = fact.worker, fact.host, fact.due
    if place.last_child is not None:
        _call_child(state, place, fact)
    if not fact.worker and awaits_event(place.spec):
        state.put(state.event_waits, place.key, awaited_name(place))
    if place.role == "do":
        # The later commands of the item run on the same host.
        state.touch(place.parent).host = fact.host
    elif place.role == "tool" and not state.places[place.parent].host:
        # The later tools of the attempt run on the same host.
        state.touch(place.parent).host = fact.host


def _call_child(state: State, place: Place, fact: e.AttemptStarted) -> None:
    """The attempt continues the last child run, or starts a new one, whose number is known when it has ended."""
    assert place.last_child is not None
    if fact.continues is None:
        place.last_child = None
    else:
        visit, called = state.step_of(place).visit, fact.continues
        place.last_child = _replace(place.last_child, round=called.round, visit=visit, attempt=fact.attempt)


def _end_child(state: State, place: Place, fact: e.AttemptFailed | e.AttemptCancelled, entry: e.Entry) -> None:
    """Remember a child run that did not complete, for the next attempt; forget one that could not be continued."""
    if fact.child is not None:
        called = fact.child
        place.last_child = LastChild(
            called.run_id,
            called.round,
            called.called_with,
            visit=state.step_of(place).visit,
            attempt=fact.attempt,
            seq=entry.seq,
            undo_failed=called.undo_failed,
        )
    elif place.last_child is not None and place.last_child.attempt == fact.attempt:
        place.last_child = None


def _attempt_succeeded(state: State, place: Place, fact: e.AttemptSucceeded, entry: e.Entry) -> None:
    place.output, place.last_child = fact.output, None
    if place.program is not None:
        place.phase = ""
    _end_attempt(place)
    if fact.files or fact.fingerprint:
        _record_result(state, place, fact)
    if fact.warnings:
        place.warnings = (*place.warnings, *fact.warnings)
    if fact.data:
        place.data = fact.data


def _record_result(state: State, place: Place, fact: e.AttemptSucceeded) -> None:
    """Record files and fingerprint. Files belong to who declares them, also if a validator or handler checked them."""
    for record in fact.files:
        owner = state.touch(state.owner_of_file(place, record.name).key)
        owner.files = (*(one for one in owner.files if one.name != record.name), record)
    if fact.fingerprint:
        place.fingerprint, place.reused_run_id, place.kept_run_id = fact.fingerprint, fact.reused_run_id, 0


def _attempt_failed(state: State, place: Place, fact: e.AttemptFailed, entry: e.Entry) -> None:
    _set_attempt(state, place, fact.attempt)
    if place.program is not None:
        place.phase = ""
    place.warnings = (*place.warnings, *fact.warnings)
    _end_child(state, place, fact, entry)
    _fail(place, fact.failure, entry)


def _fail(place: Place, failure: Failure, entry: e.Entry) -> None:
    place.failure, place.output, place.fingerprint = failure, None, ""
    if place.data:
        place.data = {}
    _end_attempt(place)
    tries = place.climb.tries + 1
    place.climb = _replace(place.climb, tries=tries, failure_seq=entry.seq, advice=None, rejected=None)


def _end_attempt(place: Place) -> None:
    place.due, place.bindings = None, {}
    if place.items is not None:
        place.items = _replace(place.items, is_judged=True)


def _attempt_lost(state: State, place: Place, fact: e.AttemptLost, entry: e.Entry) -> None:
    if fact.ending == "time":
        assert fact.job is not None
        _count_end_of_time(place, None, fact.job.job.life_seconds)
    elif not fact.ending:
        place.climb = _replace(place.climb, losses=place.climb.losses + 1)


def _attempt_ended_early(state: State, place: Place, fact: e.AttemptInterrupted, entry: e.Entry) -> None:
    place.due = None
    if fact.life_seconds is not None:
        _count_end_of_time(place, fact.ran_seconds, fact.life_seconds)


def _count_end_of_time(place: Place, ran_seconds: float | None, life_seconds: float | None) -> None:
    """The time of its worker was over: the next one must have more."""
    times = place.climb.time_ends + 1
    needed = seconds_needed(times, ran_seconds, life_seconds, place.climb.seconds_min)
    place.climb = _replace(place.climb, time_ends=times, seconds_min=needed)


def _attempt_stopping(state: State, place: Place, fact: e.AttemptStopping, entry: e.Entry) -> None:
    if fact.reason == "handler_timeout":
        place.climb = _replace(place.climb, is_handler_late=True)
    else:
        place.phase = fact.reason


def _attempt_cancelled(state: State, place: Place, fact: e.AttemptCancelled, entry: e.Entry) -> None:
    place.phase = "stopped"
    _end_child(state, place, fact, entry)
    _end_attempt(place)


def _result_rejected(state: State, place: Place, fact: e.ResultRejected, entry: e.Entry) -> None:
    given = place.output
    place.phase = ""
    _fail(place, fact.failure, entry)
    if given is not None:
        place.climb = _replace(place.climb, rejected=given)


def _rung_passed(state: State, fact: e.RungPassed, entry: e.Entry) -> None:
    if fact.rung == "retry":
        place = state.touch(fact.place)
        place.climb = _replace(place.climb, verdict=fact.reason)


def _retry_scheduled(state: State, place: Place, fact: e.RetryScheduled, entry: e.Entry) -> None:
    place.climb = _replace(
        place.climb,
        retries={**place.climb.retries, fact.rule: fact.number},
        due=fact.due,
        is_script_open=fact.has_script,
        adjusted=fact.adjusted,
        verdict="",
        avoids=fact.avoids,
    )
    if place.conversation is not None and place.spec.rules[fact.rule].restarts_conversation:
        place.conversation = None


def _handler_started(state: State, place: Place, fact: e.HandlerStarted, entry: e.Entry) -> None:
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


def _handler_succeeded(state: State, place: Place, fact: e.HandlerSucceeded, entry: e.Entry) -> None:
    climb = place.climb
    is_rerun = bool(place.spec.on_failure and place.spec.on_failure.rerun)
    place.climb = _replace(climb, handler_output=fact.output, handler_due=None, reruns=climb.reruns + is_rerun)


def _handler_failed(state: State, place: Place, fact: e.HandlerFailed, entry: e.Entry) -> None:
    place.climb = _replace(place.climb, handler_due=None, is_handler_late=False)
    if place.failure:
        place.failure = _replace(place.failure, handler_failure=fact.failure)


def _command_entered(state: State, fact: e.CommandEntered, entry: e.Entry) -> None:
    parent = state.touch(fact.parent)
    spec = command_spec(state, parent, fact.role, fact.index)
    # Attempt numbers of an item's commands continue from the number of the item; those of an undo, from earlier rounds.
    attempt = parent.attempt if fact.role == "do" else 0
    if fact.role == "undo":
        attempt = state.undoables[state.visit_being_undone].attempt
    place = Place(fact.role, "ready", fact.parent, fact.index, visit=1, attempt=attempt, key=fact.place, spec=spec)
    if fact.role == "do" and state.run.adjustments:
        place.climb = fresh_climb(state, parent.parent, spec)
    elif fact.role == "tool" and parent.conversation is not None:
        place.call = parent.conversation.open
    if fact.role == "do" and fact.index == 0:
        place.last_child, parent.last_child = parent.last_child, None
    place.entered_at, place.entered_seq = entry.at, entry.seq
    state.add(place)
    parent.child = fact.place
    if fact.role == "validator":
        parent.phase = "validating"
    elif fact.role == "success":
        parent.phase = "finishing"


def fresh_climb(state: State, step: str, spec: Command) -> RecoveryProgress:
    """The ladder state at the start of a visit: empty, unless this round gives the step larger limits."""
    adjusted = state.run.adjustments.get(step)
    return (
        NOTHING_TRIED
        if adjusted is None or spec.action is None
        else RecoveryProgress(adjusted=_raise_adjusted(spec, adjusted))
    )


def _raise_adjusted(spec: Command, adjusted: Adjusted) -> Adjusted:
    """The larger limits, never less than the command declares; no timeout for a command without one."""
    asked = spec.resources.memory if spec.resources and spec.resources.memory else 0
    return Adjusted(
        memory=max(adjusted.memory, asked) if adjusted.memory else None,
        timeout=max(adjusted.timeout, spec.timeout) if adjusted.timeout and spec.timeout else None,
    )


# The definition of a command by its role, from the definitions of its parent and its step, and its index.
_SPECS: dict[str, Callable[[Command, Step, int], Command | None]] = {
    "do": lambda parent, step, index: step.do[index],
    "handler": lambda parent, step, index: parent.on_failure.commands[index] if parent.on_failure else None,
    "success": lambda parent, step, index: parent.on_success[index],
    "script": lambda parent, step, index: parent.rules[index].recovery_script,
    "validator": lambda parent, step, index: parent.validator,
    "undo": lambda parent, step, index: step.undo,
    "lister": lambda parent, step, index: step.map.lister if step.map else None,
    "triager": lambda parent, step, index: triager_of(step),
    "model": lambda parent, step, index: _model_spec(parent),
    "tool": lambda parent, step, index: parent.tools.commands[index] if parent.tools else None,
    "tool_list": lambda parent, step, index: _tool_list_spec(parent, index),
}


def _model_spec(agent: Command) -> Command | None:
    """The definition of a question to the model: its failures are those of the agent, whose rules decide about them."""
    if agent.action is None or not holds_conversation(agent):
        return None
    handles_loss = any("WORKER_LOST" in rule.codes for rule in agent.rules)
    # Its values are those of the agent's attempt, so that each turn has the same prompt.
    return Command(
        action=Action(AGENT, agent.action.params),
        resources=agent.resources,
        on_lost="fail" if handles_loss else agent.on_lost,
        # A request may be sent from anywhere; its tools share a host.
        affinity="any",
        # With the agent's key, if it has one: that is among the values of its attempt.
        breaker=agent.breaker,
    )


def _tool_list_spec(agent: Command, index: int) -> Command | None:
    """The definition of the command that lists the tools of a server: as it calls one, without a tool to call."""
    if agent.tools is None or index >= len(agent.tools.servers):
        return None
    command = agent.tools.servers[index].command
    assert command.action is not None
    params = {name: value for name, value in command.action.params.items() if name not in ("tool", "arguments")}
    bindings = {name: one for name, one in command.action.bindings.items() if name not in MCP_CALL}
    return _replace(command, action=_replace(command.action, params=params, bindings=bindings))


def command_spec(state: State, parent: Place, role: str, index: int) -> Command:
    """The definition of a command below `parent`."""
    found = spec_below(parent.spec, state.step(state.step_of(parent).key), role, index)
    if found is None:
        raise IllegalTransition(f"'{parent.key}' has no {role} command {index}")
    return found


def spec_below(parent: Command, step: Step, role: str, index: int) -> Command | None:
    """The definition of a command, from those of its parent and its step; None if there is none."""
    return _SPECS[role](parent, step, index)


def _command_ended(state: State, fact: Any, entry: e.Entry) -> None:
    ended = state.touch(fact.place)
    state.drop(state.places, fact.place)
    parent = state.touch(fact.parent)
    parent.child = ""
    if fact.role == "script":
        parent.climb = _replace(parent.climb, is_script_open=False, advice=_advice(parent, ended, fact))
    elif fact.role == "handler" and isinstance(fact, e.CommandCompleted):
        parent.climb = _replace(parent.climb, handler_output=fact.output)
    elif fact.role in CONVERSATION_ROLES:
        end_turn_command(parent, fact)
    elif fact.role == "do":
        _set_item_output(parent, fact)
        if fact.index == 0:
            parent.last_child = None if isinstance(fact, e.CommandCompleted) else ended.last_child
        # Only if a command is the whole item may its result be reused.
        is_whole = isinstance(fact, e.CommandCompleted)
        parent.fingerprint, parent.reused_run_id = (ended.fingerprint, ended.reused_run_id) if is_whole else ("", 0)
        if ended.files:
            parent.files = ended.files if is_whole else ()
    elif fact.role == "undo":
        index = state.visit_being_undone
        state.set_at(state.undoables, index, _replace(state.undoables[index], attempt=ended.attempt))


def _advice(place: Place, script: Place, fact: Any) -> Any:
    """What an agent in the recovery script answered, for the next attempt of an agent."""
    is_advice = is_agent(place.spec) and is_agent(script.spec) and isinstance(fact, e.CommandCompleted)
    return fact.output if is_advice else None


def _set_item_output(item: Place, fact: Any) -> None:
    """Set what the next commands of the item read as `output` and `outputs`."""
    given = None
    if isinstance(fact, e.CommandCompleted):
        item.recovered_by = fact.recovered_by or item.recovered_by
        item.output = given = fact.output
    item.outputs = (*item.outputs, given)


def _command_skipped(state: State, fact: e.CommandSkipped, entry: e.Entry) -> None:
    item = state.touch(fact.parent)
    item.output = None
    item.outputs = (*item.outputs, None)


def _map_expanded(state: State, place: Place, fact: e.MapExpanded, entry: e.Entry) -> None:
    if fact.items is not None:
        reset_items(state, fact.place)
        place.items = Items(place.visit, values=fact.items, todo=tuple(range(len(fact.items))), names=fact.names)
    elif place.items is not None and fact.todo is not None:
        place.items = Items(place.visit, values=place.items.values, todo=fact.todo, names=place.items.names)


def reset_items(state: State, step: str, indexes: Iterable[int] | None = None) -> None:
    """Reset items of an earlier list. They keep their attempt numbers, which count over the whole run.

    Resets all items, or those with these indexes, in order. Items that were never entered have no place and come last.
    """
    for index in count() if indexes is None else indexes:
        if (key := item_key(step, index)) not in state.places:
            return
        item = state.touch(key)
        item.status, item.output, item.failure, item.recovered_by = "waiting", None, None, ""


def steps_starting_fresh(
    state: State, from_step: str, put_back: Iterable[str], stale: Iterable[StaleFile] = ()
) -> list[str]:
    """The steps of a round that start as if for the first time.

    Those from `from_step` on, behind undone steps and those that could not be undone, and behind steps whose files have
    changed.
    """
    steps = list(put_back)
    undone = [name for name in steps if state.places[name].is_undone or state.places[name].has_failed_undo]
    undone += [one.step for one in stale]
    behind = state.graph.behind([from_step, *undone] if from_step else undone)
    return [name for name in steps if name in behind]


def _item_entered(state: State, fact: e.ItemEntered, entry: e.Entry) -> None:
    parent = state.touch(fact.parent)
    if parent.items is None:
        raise IllegalTransition(f"ItemEntered cannot follow for '{fact.place}': '{fact.parent}' has no items")
    if fact.place in state.places:
        place = move_place(state, fact.place, fact)
        place.failure, place.recovered_by, place.output = None, "", None
        place.files, place.fingerprint, place.reused_run_id, place.kept_run_id = (), "", 0, 0
    else:
        place = Place("item", "running", fact.parent, fact.index, key=fact.place)
        state.add(place)
    place.visit = parent.visit
    place.entered_at, place.entered_seq = entry.at, entry.seq
    parent.items = _replace(parent.items, next=parent.items.next + 1, running=parent.items.running + 1)


def _item_completed(state: State, fact: e.ItemCompleted, entry: e.Entry) -> None:
    place = move_place(state, fact.place, fact)
    place.output, place.outputs, place.recovered_by = fact.output, (), fact.recovered_by
    _leave_item(state, fact.parent, has_failed=False)


def _item_failed(state: State, fact: e.ItemFailed, entry: e.Entry) -> None:
    item = move_place(state, fact.place, fact)
    item.failure, item.output, item.outputs = fact.failure, None, ()
    # A command of it may have been recovered, but the item was not.
    item.recovered_by = ""
    _leave_item(state, fact.parent, has_failed=True, is_critical=fact.failure.severity == "critical")


def _item_cancelled(state: State, fact: e.ItemCancelled, entry: e.Entry) -> None:
    item = move_place(state, fact.place, fact)
    item.output, item.outputs = None, ()
    _leave_item(state, fact.parent, has_failed=False)


def _leave_item(state: State, parent_key: str, *, has_failed: bool, is_critical: bool = False) -> None:
    parent = state.touch(parent_key)
    items = parent.items
    if items is not None:
        parent.items = _replace(
            items,
            running=items.running - 1,
            failed=items.failed + has_failed,
            critical=items.critical + is_critical,
        )


def _undo_started(state: State, fact: e.UndoStarted, entry: e.Entry) -> None:
    state.run.undoing = undo_key(fact.step, fact.visit)


def _undo_ended(state: State, fact: Any, entry: e.Entry) -> None:
    index, place = state.undoable_index(fact.step, fact.visit), state.touch(fact.step)
    state.run.undoing, state.run.has_undone = "", True
    if isinstance(fact, e.UndoFailed):
        place.warnings = (*place.warnings, fact.failure)
        if fact.is_kept:
            # It stays where it is: a later round undoes it in the same order.
            state.set_at(state.undoables, index, _replace(state.undoables[index], failed_round=state.run.round))
            place.is_undone, place.has_failed_undo = False, True
            leave_call(state, fact.step, is_undone=False)
            return
    elif place.has_failed_undo:
        place.warnings = tuple(one for one in place.warnings if not _is_failed_undo(one, fact.visit))
    remove_undoable(state, index)
    if place.has_failed_undo:
        place.has_failed_undo = any(one.step == fact.step and one.failed_round for one in state.undoables)
    place.is_undone = not place.has_failed_undo
    if place.is_undone and state.received:
        spend(state, fact.step)
    leave_call(state, fact.step, is_undone=not isinstance(fact, e.UndoFailed))


def _is_failed_undo(warning: Failure, visit: int) -> bool:
    return warning.code == "UNDO_FAILED" and warning.visit == visit


def remove_undoable(state: State, index: int) -> None:
    """Remove a visit from `undoables`. Nearly always it is the last one."""
    later = state.undoables[index + 1 :]
    for _ in range(len(later) + 1):
        state.take_last(state.undoables)
    for undoable in later:
        state.append(state.undoables, undoable)


def _warning_recorded(state: State, fact: e.WarningRecorded, entry: e.Entry) -> None:
    place = state.touch(fact.place)
    place.warnings = (*place.warnings, fact.failure)


def _event_delivered(state: State, fact: e.EventDelivered, entry: e.Entry) -> None:
    take(state, fact.event, state.places[fact.place], is_usable=not fact.problem)


def _data_set(state: State, fact: e.DataSet, entry: e.Entry) -> None:
    place = state.touch(fact.place)
    place.data = {name: value for name, value in place.data.items() if name != fact.name}
    new = DataValue(fact.value, fact.version, fact.place, fact.attempt)
    state.run.data = {**state.run.data, fact.name: new}


def _no_change(state: State, fact: e.Fact, entry: e.Entry) -> None:
    """A fact for the record that changes nothing."""


# Facts that change the status of a place: these functions get the place after that change.
PLACE_MOVE_HANDLERS: dict[type[e.Fact], Callable[[State, Place, Any, e.Entry], None]] = {
    e.AttemptScheduled: _attempt_scheduled,
    e.AttemptStarted: _attempt_started,
    e.AttemptSucceeded: _attempt_succeeded,
    e.AttemptFailed: _attempt_failed,
    e.AttemptLost: _attempt_lost,
    e.AttemptInterrupted: _attempt_ended_early,
    e.AttemptStopping: _attempt_stopping,
    e.AttemptCancelled: _attempt_cancelled,
    e.ResultRejected: _result_rejected,
    e.RetryScheduled: _retry_scheduled,
    e.HandlerStarted: _handler_started,
    e.HandlerSucceeded: _handler_succeeded,
    e.HandlerFailed: _handler_failed,
    e.MapExpanded: _map_expanded,
    e.ProgramWaiting: program_waiting,
    e.ProgramResumed: program_resumed,
    e.ProgramEnded: program_ended,
    e.TurnStarted: turn_started,
    e.ToolCalled: tool_called,
    e.ToolAnswered: tool_answered,
}

PLACE_HANDLERS: dict[type[e.Fact], Callable[[State, Any, e.Entry], None]] = {
    e.RungPassed: _rung_passed,
    e.CommandEntered: _command_entered,
    e.CommandCompleted: _command_ended,
    e.CommandFailed: _command_ended,
    e.CommandCancelled: _command_ended,
    e.CommandSkipped: _command_skipped,
    e.ItemEntered: _item_entered,
    e.ItemCompleted: _item_completed,
    e.ItemFailed: _item_failed,
    e.ItemCancelled: _item_cancelled,
    e.UndoStarted: _undo_started,
    e.UndoCompleted: _undo_ended,
    e.UndoFailed: _undo_ended,
    e.WarningRecorded: _warning_recorded,
    e.DataSet: _data_set,
    e.EventDelivered: _event_delivered,
    e.SessionKept: session_kept,
    e.StepDefined: step_defined,
    e.StepAdded: step_added,
    e.StepRan: step_ran,
    e.ValueRecorded: value_recorded,
    e.CallCancelled: call_cancelled,
    e.ReportRefused: _no_change,
}
