"""Apply what a program says: the steps that it calls, its turns, its end. Part of `evolve`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from datetime import datetime, timedelta

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.program_calls import CallKind
from mulligan.core.state.dropped_calls import forget_results, note_dropped, offer_results, take_result
from mulligan.core.state.program_progress import (
    NO_PROGRESS,
    DroppedCall,
    ProgramEnd,
    ProgramProgress,
    RecordedCall,
    is_raised_with,
)
from mulligan.core.state.state import Place, State, UndoableVisit

_replace = msgspec.structs.replace

# What a waiting program has in `phase`, and one whose open calls are being cancelled.
WAITING, ENDING = "waiting", "ending"


def step_defined(state: State, fact: e.StepDefined, entry: e.Entry) -> None:
    state.put(state.definitions, fact.digest, fact.definition)


def step_added(state: State, fact: e.StepAdded, entry: e.Entry) -> None:
    program, _ = _add_call(state, fact, fact.kind)
    _count(state, program, fact.name, fact.step)
    before = take_result(state, fact.step) if state.dropped else None
    place = Place("step", "waiting", key=fact.step, spec=state.definitions[fact.definition])
    if before is not None:
        place.visit = place.visits_before = before.visit
        place.attempt = before.attempt
    if fact.is_kept:
        assert before is not None
        place.status = place.settled = "completed"
        place.output, place.files, place.given = before.output, before.files, (entry.seq, entry.at)
        state.add(place)
        count_delivery(state, place, entry.at)
        return
    state.add(place)
    state.run.waiting += 1


def step_ran(state: State, fact: e.StepRan, entry: e.Entry) -> None:
    """The whole of an inline step: it is added, it has run, and its program gets the end in this turn or later."""
    program, progress = _add_call(state, fact, "inline")
    if state.dropped:
        take_result(state, fact.step)
    place = Place("step", "completed", key=fact.step, spec=state.definitions[fact.definition])
    place.visit, place.attempt, place.visits_before = fact.visit, fact.attempt, fact.visit - 1
    place.entered_at, place.entered_seq = entry.at - timedelta(seconds=fact.seconds), entry.seq
    place.output, place.given, place.settled = fact.output, (entry.seq, entry.at), "completed"
    state.add(place)
    if state.definitions[fact.definition].undo is not None:
        state.append(state.undoables, UndoableVisit(fact.step, place.visit, fact.output))
    number = progress.last + 1
    place.delivery = (number, entry.at - progress.behind)
    state.put(state.deliveries, number, fact.step)
    ends = {"announced": progress.announced + 1} if fact.is_known else {"ended": progress.ended + 1}
    _count(state, program, fact.name, fact.step, **ends)


def _add_call(state: State, fact: e.StepAdded | e.StepRan, kind: CallKind) -> tuple[Place, ProgramProgress]:
    """Add the call; return the place of its program, and how far that was before."""
    place = state.touch(fact.program)
    progress = place.program or NO_PROGRESS
    call = RecordedCall(
        progress.made,
        fact.program,
        fact.branch,
        fact.ordinal,
        name=fact.name,
        kind=kind,
        definition=fact.definition,
        arguments=fact.arguments,
        digest=fact.digest,
        file=fact.file,
        line=fact.line,
        key=fact.key,
        position=fact.position,
        known=progress.delivered + progress.announced,
    )
    state.add_call(fact.step, call)
    return place, progress


def value_recorded(state: State, fact: e.ValueRecorded, entry: e.Entry) -> None:
    program = state.places[fact.place].program or NO_PROGRESS
    call = RecordedCall(
        program.made,
        fact.place,
        fact.branch,
        fact.ordinal,
        name=fact.name,
        kind="value",
        file=fact.file,
        line=fact.line,
        output=fact.output,
        known=program.known,
    )
    state.add_call(fact.value, call)
    _count(state, state.touch(fact.place), fact.name, fact.value)


def _count(state: State, place: Place, name: str, label: str, **ends: int) -> None:
    """A program has made a call; `ends` are counts of ends of calls that have changed."""
    progress = place.program or NO_PROGRESS
    numbers = progress.numbers
    if label not in state.dropped:
        numbers = {**numbers, name: numbers.get(name, 0) + 1}
    place.program = _replace(progress, made=progress.made + 1, numbers=numbers, **ends)
    _note_progress(place)


def _note_progress(place: Place) -> None:
    """What workers were lost before does not count any more: a program may outlive many of them."""
    if place.climb.losses or place.climb.time_ends:
        place.climb = _replace(place.climb, losses=0, time_ends=0, seconds_min=0.0)


def program_waiting(state: State, place: Place, fact: e.ProgramWaiting, entry: e.Entry) -> None:
    progress = place.program or NO_PROGRESS
    place.phase = WAITING
    if fact.published is not None:
        state.run.published = fact.published
    cpu, peak = progress.cpu + fact.cpu, max(progress.peak, fact.peak)
    place.program = _replace(progress, delivered=progress.known, announced=0, unseen=0, at=fact.at, cpu=cpu, peak=peak)
    _note_progress(place)


def program_resumed(state: State, place: Place, fact: e.ProgramResumed, entry: e.Entry) -> None:
    progress = place.program or NO_PROGRESS
    place.phase = ""
    announced = len(fact.ended)
    place.program = _replace(
        progress, turn=fact.turn, announced=announced, ended=progress.ended - announced, is_later=True
    )


def turn_started(state: State, place: Place, fact: e.TurnStarted, entry: e.Entry) -> None:
    place.worker, place.host = fact.worker, fact.host


def program_ended(state: State, place: Place, fact: e.ProgramEnded, entry: e.Entry) -> None:
    progress = place.program or NO_PROGRESS
    place.phase = ENDING
    if fact.published is not None:
        state.run.published = fact.published
    end = ProgramEnd(fact.output, fact.failure, fact.call)
    cpu, peak = progress.cpu + fact.cpu, max(progress.peak, fact.peak)
    place.program = _replace(
        progress, delivered=progress.known, announced=0, unseen=0, at=fact.at, end=end, cpu=cpu, peak=peak
    )


def note_caught(state: State, program: Place) -> None:
    """A program has failed: note which failures of its calls it had caught, since something else made it fail."""
    end = program.program.end if program.program is not None else None
    if end is None:
        return
    escaped = state.calls.get(end.call)
    for record in state.failures_routed_to(program.key, program.visit):
        call = state.calls.get(record.step)
        if call is not None and record.step != end.call and not is_raised_with(call, escaped):
            state.set_at(state.failures, record.index, _replace(record, is_caught=True))


def begin_program(place: Place) -> None:
    """An attempt of a program begins: its turns are counted on, and all that has ended is its history."""
    if (progress := place.program) is not None:
        place.program = _replace(
            progress,
            turn=progress.turn + 1,
            delivered=progress.last,
            announced=0,
            unseen=progress.last - progress.delivered + progress.unseen,
            ended=0,
            end=None,
            is_later=False,
            cpu=0.0,
            peak=0,
        )


def call_cancelled(state: State, fact: e.CallCancelled, entry: e.Entry) -> None:
    state.touch(fact.step).is_unwanted = True


def count_delivery(state: State, place: Place, at: datetime | None = None) -> None:
    """The step of a call has ended: note that for its program, which gets it in a later turn."""
    call = state.calls.get(place.key)
    if call is None or place.delivery is not None:
        return
    program = state.touch(call.program)
    progress = program.program or NO_PROGRESS
    # What has brought the end is of the same time.
    number = progress.last + 1
    place.delivery = (number, (at or state.run.at) - progress.behind)
    state.put(state.deliveries, number, place.key)
    program.program = _replace(progress, ended=progress.ended + 1)


def reopen_program(state: State, labels: Collection[str], *, keeps_results: bool = True) -> None:
    """A round makes these calls again: their steps are removed, and the ends of the others are numbered anew.

    If it is made in the same way, a completed call that does not have to be undone keeps its result; with
    `keeps_results`, which also says whether those are kept that earlier rounds have dropped.

    The failures of the others are exceptions of the next visit of the program. Steps that are undone first stay until
    they are: see `leave_call`.
    """
    program = state.touch(state.graph.program)
    progress = _with_clock(program)
    gone, leaving = frozenset(labels), calls_to_undo(state, labels)
    if not keeps_results:
        forget_results(state)
    offered: list[str] = []
    for label in labels:
        call, place = state.calls[label], state.places.get(label)
        visit, attempt = (0, 0) if place is None else (place.visit, place.attempt)
        dropped = DroppedCall(call.branch, call.ordinal, visit, attempt, call.digest)
        if keeps_results and place is not None and keeps_result(state, label):
            dropped = _replace(dropped, output=place.output, files=place.files, has_result=True)
            offered.append(label)
        note_dropped(state, label, dropped)
        if label not in leaving:
            state.drop_call(label)
    offer_results(state, offered)
    for records in (state.failures, state.recoveries):
        for record in [one for one in records if one.step in gone and not one.is_closed]:
            state.set_at(records, record.index, _replace(record, is_closed=True))
    for record in [one for one in state.failures if one.target == program.key and not one.is_closed]:
        state.set_at(state.failures, record.index, _replace(record, target_visit=program.visit + 1))
    for label in leaving:
        state.touch(label).delivery = None
    olds = _number_anew(state, gone)
    for label, call in list(state.calls.items()):
        known = bisect_right(olds, call.known)
        if known != call.known:
            state.put(state.calls, label, _replace(call, known=known))
    program.program = _replace(
        progress, delivered=len(olds), announced=0, unseen=0, ended=0, end=None, leaving=leaving, not_undone=""
    )


def fork_program(state: State, passed: timedelta) -> None:
    """A program goes on in a fork: no time passes by its clock, and what the other run was to undo is left to that."""
    program = state.touch(state.graph.program)
    progress = _with_clock(program)
    being_undone = {one.step for one in state.undoables}
    for label in progress.leaving:
        if label not in being_undone:
            state.drop_call(label)
    leaving = tuple(label for label in progress.leaving if label in being_undone)
    program.program = _replace(progress, behind=progress.behind + passed, leaving=leaving, not_undone="")


def _with_clock(program: Place) -> ProgramProgress:
    """The progress of a program with the time at which its clock began, which a replay begins with."""
    progress = program.program or NO_PROGRESS
    return progress if progress.begun is not None else _replace(progress, begun=program.entered_at)


def keeps_result(state: State, label: str) -> bool:
    """Whether a dropped call keeps its result, if it is made again in the same way.

    The process of the program has run an inline step before it says so. A person is asked anew, and an event that was
    taken is there once more.
    """
    call = state.calls[label]
    if call.kind != "step" or not (place := state.places[label]).status == place.settled == "completed":
        return False
    definition = state.definitions[call.definition]
    action = traits_of(definition.action)
    return definition.undo is None and not (action.asks_person or action.awaits_event)


def _number_anew(state: State, gone: Collection[str]) -> list[int]:
    """Number the ends of the calls that are kept from 1 on; return the numbers that they had, in order."""
    kept = [(number, label) for number, label in sorted(state.deliveries.items()) if label not in gone]
    for number in list(state.deliveries):
        state.drop(state.deliveries, number)
    for new, (_, label) in enumerate(kept, 1):
        place = state.touch(label)
        assert place.delivery is not None
        place.delivery = (new, place.delivery[1])
        state.put(state.deliveries, new, label)
    return [old for old, _ in kept]


def calls_to_undo(state: State, labels: Collection[str]) -> tuple[str, ...]:
    """Those of the calls that a round drops which are undone before, in the order in which they completed.

    One whose undo has failed is dropped only by force: somebody has said what becomes of it.
    """
    wanted = frozenset(labels)
    found = (one.step for one in state.undoables if one.step in wanted and not one.failed_round)
    return tuple(dict.fromkeys(label for label in found if state.graph.nodes[label].step.undo is not None))


def leave_call(state: State, label: str, *, is_undone: bool) -> None:
    """The undo of a visit has ended: drop the call if that was the last one, and the round begins without it."""
    progress = state.places[state.graph.program].program if state.calls else None
    if progress is None or label not in progress.leaving:
        return
    round_ = state.run.round
    if any(one.step == label and one.failed_round != round_ for one in state.undoables):
        return
    state.drop_call(label)
    leaving = tuple(one for one in progress.leaving if one != label)
    not_undone = progress.not_undone if is_undone else label
    state.touch(state.graph.program).program = _replace(progress, leaving=leaving, not_undone=not_undone)
