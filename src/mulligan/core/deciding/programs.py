"""Programs: the calls that a turn of one has made become steps, and their ends become its next turn.

A program is the only step of its workflow. A turn of it is an ordinary task, which ends when the program can not go on
before a call of it has ended. So a waiting program has no task, no slot and no process. When a call has ended, whatever
way, the next turn is queued, which says to the program all that ended since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mulligan.core.deciding.classify import failure_of_program
from mulligan.core.deciding.lifecycle import NOTHING, Facts, add_location, enter_and_fail
from mulligan.core.deciding.stopping import stop_place
from mulligan.core.evolve.evolve_programs import ENDING, WAITING
from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.failure import Failure, failure, number_or_zero
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.program_calls import (
    BRANCH_CHARS_MAX,
    CALLS_MAX,
    PLACE_CHARS_MAX,
    PUBLISHED_BYTES_MAX,
    ProgramCall,
    TurnEnd,
    by_number,
    free_label,
    is_name,
    key_problem,
)
from mulligan.core.model.reports import CallsMade, TaskEnded
from mulligan.core.state.dropped_calls import label_of_result
from mulligan.core.state.held_steps import is_on_hold
from mulligan.core.state.program_progress import NEVER_MADE, NO_PROGRESS
from mulligan.core.state.scope import DecisionContext
from mulligan.core.state.state import Place, State

NONDETERMINISTIC = "NONDETERMINISTIC"

_COMPLETED = Outcome()
# What a call and the fact of it have in common, besides the arguments.
_DESCRIBING = ("branch", "ordinal", "name", "definition", "digest", "file", "line", "key", "position")


def end_turn(now: DecisionContext, place: Place, report: TaskEnded, turn: TurnEnd) -> Facts:
    """A worker has reported what the program has called in a turn, and whether it waits or has ended."""
    state, key = now.state, place.key
    if not traits_of(place.spec.action).is_program:
        yield from refuse_turn(now, place, report, "the report says what a program has called, and this is none")
        return
    progress = place.program or NO_PROGRESS
    if turn.turn != progress.turn or place.phase in (WAITING, ENDING):
        yield e.ReportRefused(key, report.attempt, "stale_turn")
        return
    if place.status != "running":
        yield e.ReportRefused(key, report.attempt, "not_started")
        return
    if turn.goes_on:
        turn = _without_recorded(state, turn)
    if problem := turn_problem(state, turn):
        yield from refuse_turn(now, place, report, problem)
        return
    yield from define(state, place, turn)
    yield from finish_turn(now, place, report, turn, turn.calls)


def finish_turn(
    now: DecisionContext, place: Place, report: TaskEnded, turn: TurnEnd, calls: Sequence[ProgramCall]
) -> Facts:
    """The rest of a turn, from these calls on."""
    state, key, attempt = now.state, place.key, place.attempt
    for call in calls:
        has_run = call.kind == "inline" and call.failure is None
        if not has_run and _is_stopped(now, place):
            # What the process has run already is recorded all the same: it may have to be undone.
            continue
        added = added_call(now, place, call)
        yield added
        if isinstance(added, e.StepAdded) and call.failure is not None:
            # It climbs the ladder, and a worker runs the retries as it runs those of other steps.
            yield from enter_and_fail(now, state.places[added.step], failure_of_program(call.failure))
    if _is_stopped(now, place):
        yield e.AttemptCancelled(key, attempt, report.usage)
        return
    if turn.how:
        raised = None if turn.failure is None else add_location(now, place, _raised(state, turn, turn.failure))
        cpu, peak = used_in_turn(report)
        yield e.ProgramEnded(
            key,
            attempt,
            turn.turn,
            turn.how,
            output=report.output,
            failure=raised,
            at=turn.at,
            call=turn.call,
            cpu=cpu,
            peak=peak,
            published=turn.published,
        )
        return
    for branch, ordinal in turn.cancelled:
        step = state.places.get(state.labels.get((branch, ordinal), ""))
        if step is not None and not step.has_ended and not step.is_unwanted:
            yield e.CallCancelled(step.key)
    if _is_stopped(now, place):
        yield e.AttemptCancelled(key, attempt, report.usage)
    else:
        cpu, peak = used_in_turn(report)
        yield e.ProgramWaiting(key, attempt, turn.turn, turn.at, turn.goes_on, turn.published, cpu, peak)


def _raised(state: State, turn: TurnEnd, found: Failure) -> Failure:
    """What a program has raised: the code is one of the engine only if the call has it that it has let through."""
    call = state.places.get(turn.call)
    of_call = "" if call is None else "CANCELLED" if call.failure is None else call.failure.code
    return failure_of_program(found, "LOOP_LIMIT", of_call)


def used_in_turn(report: TaskEnded) -> tuple[float, int]:
    """The processor time of a turn, and the most memory that the process of the program has used."""
    if not report.usage:
        return 0.0, 0
    cpu, peak = report.usage.get("cpu_seconds"), report.usage.get("peak_memory")
    return round(number_or_zero(cpu), 6), int(number_or_zero(peak))


def usage_of_attempt(place: Place, report: TaskEnded) -> dict[str, Any]:
    """What an attempt has used that this ends; of a program with the turns before."""
    progress = place.program
    if progress is None or not progress.peak:
        return report.usage
    cpu, peak = used_in_turn(report)
    return {**report.usage, "cpu_seconds": round(progress.cpu + cpu, 6), "peak_memory": max(progress.peak, peak)}


def goes_on(state: State, report: CallsMade) -> bool:
    """Whether a program may go on in its turn once these calls are recorded. Otherwise this ends its turn.

    It may not if something waits for the end of the turn: a pause, a stop, ends of calls that it does not know. The end
    of an inline step is the next one that it gets, so nothing else is called with it.
    """
    run, place, turn = state.run, state.places.get(report.place), report.turn
    if place is None or place.status != "running" or place.phase or place.attempt != report.attempt:
        return False
    if run.status != "running" or run.stop is not None or run.stepping is not None or is_on_hold(state, place):
        return False
    progress = place.program or NO_PROGRESS
    if turn.turn != progress.turn or turn.how or turn.cancelled or not turn.goes_on or turn.published is not None:
        return False
    inline = [call for call in turn.calls if call.kind == "inline"]
    if not inline:
        return True
    return not progress.ended and len(turn.calls) == 1 and inline[0].failure is None


def record_calls(now: DecisionContext, place: Place, report: CallsMade) -> Facts:
    """A program goes on in its turn: record what it has called."""
    state, turn = now.state, _without_recorded(now.state, report.turn)
    if problem := turn_problem(state, turn):
        yield from refuse_turn(now, place, report.as_end, problem)
        return
    yield from define(state, place, turn)
    for call in turn.calls:
        if _is_stopped(now, place):
            return
        yield added_call(now, place, call, is_known=True)


def _without_recorded(state: State, turn: TurnEnd) -> TurnEnd:
    """Without the calls that a commit has recorded, to which the store gave no answer: they are reported again."""
    calls = tuple(call for call in turn.calls if not _is_recorded(state, call))
    return turn if len(calls) == len(turn.calls) else msgspec.structs.replace(turn, calls=calls)


def _is_recorded(state: State, call: ProgramCall) -> bool:
    recorded = state.calls.get(state.labels.get((call.branch, call.ordinal), ""))
    return recorded is not None and (recorded.kind, recorded.digest) == (call.kind, call.digest)


def define(state: State, place: Place, turn: TurnEnd) -> Facts:
    """The definitions of steps that the program has not called before."""
    for digest, definition in turn.definitions.items():
        if digest not in state.definitions:
            yield e.StepDefined(place.key, digest, definition)


def lacks_turn(place: Place, report: TaskEnded) -> bool:
    """Whether a program is said to have completed, and not what it has called."""
    is_program = traits_of(place.spec.action).is_program
    return is_program and not report.reused_run_id and report.outcome == _COMPLETED


def refuse_turn(now: DecisionContext, place: Place, report: TaskEnded, problem: str) -> Facts:
    yield e.AttemptFailed(
        place.key, place.attempt, add_location(now, place, failure("OUTPUT_INVALID", problem)), report.usage
    )


def _is_stopped(now: DecisionContext, place: Place) -> bool:
    return place.phase == "stopping" or not now.may_start(place)


def turn_problem(state: State, turn: TurnEnd) -> str:
    """Why a turn cannot be what a program has said; "" if it can. No worker is believed."""
    if turn.how == "raised" and turn.failure is None:
        return "the program has raised an exception, and the report does not say which"
    if turn.call and turn.call not in state.graph.nodes:
        return f"the program has raised the failure of '{turn.call[:100]}', which it has not called"
    new: set[tuple[str, int]] = set()
    for call in turn.calls:
        identity = (call.branch, call.ordinal)
        if identity in state.labels or identity in new:
            where = f", at {call.file.rpartition('/')[2]}:{call.line}" if call.file else ""
            return (
                f"the worker reports the call of '{call.name[:100]}'{where}, which is recorded already: "
                "stop that worker, then retry the run, which replays the program from what is recorded"
            )
        new.add(identity)
        if (
            call.kind != "value"
            and call.definition not in state.definitions
            and call.definition not in turn.definitions
        ):
            return f"the definition of '{call.name}' is not known"
        if call.failure is not None and call.kind != "inline":
            return f"'{call.name[:100]}' is not inline, and the report says that the process of the program has run it"
        if len(call.branch) > BRANCH_CHARS_MAX or len(call.file) > PLACE_CHARS_MAX:
            return f"the branch or the file of a call of '{call.name[:100]}' is too long"
        if not is_name(call.name):
            return f"'{call.name[:100]}' is no name of a step"
        if call.key and (problem := key_problem(call.key)):
            return f"the key '{call.key[:100]}' of '{call.name}' {problem}"
    if len(turn.at) > PLACE_CHARS_MAX:
        return "the place where the program waits is too long"
    if turn.published is not None and len(msgspec.json.encode(turn.published)) > PUBLISHED_BYTES_MAX:
        return f"the program has published more than {PUBLISHED_BYTES_MAX:,} bytes"
    if len(state.calls) + len(new) > CALLS_MAX:
        return f"the program has made more than {CALLS_MAX:,} calls: let it call programs that make some of them"
    return ""


def added_call(
    now: DecisionContext, place: Place, call: ProgramCall, *, is_known: bool = False
) -> e.StepAdded | e.StepRan | e.ValueRecorded:
    """What a call adds to the run."""
    kept_label = _label_of_result(now.state, call)
    label = kept_label or _free_label(now.state, place, call)
    if call.kind == "value":
        return e.ValueRecorded(
            place.key,
            label,
            call.branch,
            call.ordinal,
            name=call.name,
            output=call.output,
            file=call.file,
            line=call.line,
        )
    about: dict[str, Any] = {name: getattr(call, name) for name in _DESCRIBING}
    about["arguments"] = {
        name: now.keep(place, f"argument-{label}-{name}", value) for name, value in call.arguments.items()
    }
    if call.kind == "inline" and call.failure is None:
        before = now.state.dropped.get(label, NEVER_MADE)
        output = now.keep(place, f"output-{label}", call.output)
        visit, attempt = before.visit + 1, before.attempt + 1
        return e.StepRan(
            label,
            place.key,
            **about,
            visit=visit,
            attempt=attempt,
            output=output,
            seconds=call.seconds,
            is_known=is_known,
        )
    return e.StepAdded(label, place.key, **about, kind=call.kind, is_kept=kept_label != "")


def _label_of_result(state: State, call: ProgramCall) -> str:
    """The dropped call that has the result for this one; "" if there is none."""
    return label_of_result(state, (call.branch, call.name, call.digest)) if call.kind == "step" else ""


def _free_label(state: State, place: Place, call: ProgramCall) -> str:
    """The label of a call. The process of a program computes it too, see `mulligan.programs.call_labels`."""
    progress = place.program or NO_PROGRESS
    again = max(state.dropped_labels.get((call.branch, call.ordinal, call.name), ()), key=by_number, default="")
    if again and again not in state.calls and not state.dropped[again].has_result:
        return again
    number = progress.numbers.get(call.name, 0) + 1
    return free_label(
        call.name, number, call.key, lambda one: one in state.places or one in state.calls or one in state.dropped
    )


def after_turn(now: DecisionContext, fact: e.ProgramWaiting) -> Facts:
    """The program waits: say at once what has ended meanwhile."""
    return resume_program(now, now.state.places[fact.place], goes_on=fact.goes_on)


def after_call(now: DecisionContext, name: str) -> Facts:
    """The step of a call has ended: its program goes on, or ends after its last open call."""
    call = now.state.calls[name]
    return resume_program(now, now.state.places[call.program])


def resume_program(now: DecisionContext, place: Place, *, goes_on: bool = False) -> Facts:
    """Queue the next turn of a program that waits, if a call of it has ended; end it after its last open call."""
    progress = place.program
    if progress is None or place.status != "running" or not now.may_start(place):
        return
    if place.phase == WAITING and (progress.ended or goes_on):
        numbers = range(progress.known + 1, progress.last + 1)
        ended = tuple(now.state.deliveries[number] for number in numbers)
        yield e.ProgramResumed(place.key, place.attempt, progress.turn + 1, ended)
    elif place.phase == ENDING and not now.state.has_open_calls:
        yield _attempt_ended(place)


def cancel_open_calls(now: DecisionContext) -> Facts:
    """The program has ended: nobody waits for its open calls any more."""
    for call in _open_calls(now.state):
        if not (call.has_ended or call.is_unwanted):
            yield e.CallCancelled(call.key)


def _attempt_ended(place: Place) -> e.Fact:
    progress = place.program
    assert progress is not None and progress.end is not None
    end = progress.end
    if end.failure is not None:
        return e.AttemptFailed(place.key, place.attempt, end.failure, progress.usage)
    return e.AttemptSucceeded(place.key, place.attempt, end.output, progress.usage)


def end_waiting(now: DecisionContext, place: Place, found: Failure) -> Facts:
    """The program has waited too long: it ends where it is, as if it had raised."""
    progress = place.program or NO_PROGRESS
    yield e.ProgramEnded(place.key, place.attempt, progress.turn, "raised", failure=found, at=progress.at)


def _open_calls(state: State) -> list[Place]:
    """The steps of calls that have not ended. It is asked once, when the program has ended."""
    found = (state.places[label] for label, call in state.calls.items() if call.kind != "value")
    return [place for place in found if not place.has_ended]


def after_program(now: DecisionContext, place: Place) -> Facts:
    """The program has returned or raised: cancel its open calls, then end its attempt."""
    yield from cancel_open_calls(now)
    yield from resume_program(now, place)


def cancel_call(now: DecisionContext, step: Place) -> Facts:
    """The program does not want a call any more: ask it to end."""
    if step.status == "waiting":
        return iter((e.StepCancelled(step.key, step.visit, "unwanted"),))
    return stop_place(now, step) if step.is_active else NOTHING


def has_let_through(place: Place) -> bool:
    """Whether a program has failed with the failure of a call: it is recorded, so another attempt would get it too."""
    end = None if place.program is None else place.program.end
    return end is not None and bool(end.call)


def is_difference(place: Place, found: Failure) -> bool:
    """Whether a program has done something else than it did before: a person decides what is right."""
    return place.program is not None and found.code == NONDETERMINISTIC
