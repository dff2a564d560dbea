"""A run at one of its events: where its turns begin and end, what came from outside, open timers, what changed.

Everything here works on a state that was folded from the log, as it works on the state of a live run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from mulligan.core.effects.effects import SetTimer, open_timers
from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.text.formatting import format_time_until
from mulligan.core.model.workflow import END
from mulligan.core.state.scope import step_view
from mulligan.core.state.state import Place, State
from mulligan.core.state.verdict import is_handled
from mulligan.history.item_names import PlaceNames
from mulligan.history.phrases import describe_failure
from mulligan.history.story_memory import StoryMemory
from mulligan.history.views import list_step_waits

# -- turns -----------------------------------------------------------------------------------------------------------


def is_at_rest(entry: e.Entry, following: e.Entry | None) -> bool:
    """Whether a turn ended with `entry`: nothing more followed from it, and the run waited for the next report.

    In the middle of a turn some decisions are not made yet, so that no decision can be changed there.
    """
    if following is None or following.at != entry.at:
        return True
    return following.caused_by == 0 and not _belongs_together(entry.fact, following.fact)


def _belongs_together(fact: e.Fact, following: e.Fact) -> bool:
    """Whether one report brought both facts, and the state between them is only half of what it asked for."""
    if isinstance(fact, e.AttemptScheduled) and isinstance(following, e.AttemptStarted | e.AttemptFailed):
        # What needs no worker starts as it is scheduled, or fails.
        return fact.place == following.place
    if isinstance(fact, e.StepAdded) and isinstance(following, e.StepEntered):
        # An inline step has failed in the process of its program: its first attempt comes with the call.
        return fact.step == following.step
    return (
        isinstance(fact, e.RunRevised | e.AttemptStopping | e.StepEntered)
        or (isinstance(fact, e.RunPaused) and isinstance(following, e.RunResumed))
        or (isinstance(fact, e.StepPaused) and isinstance(following, e.StepPaused))
        or (isinstance(fact, e.StepResumed) and isinstance(following, e.StepResumed))
    )


def describe_report(memory: StoryMemory, fact: e.Fact) -> str:
    """What came from outside and began a turn, given the story before it and the first fact of the turn."""
    rule = _REPORTS.get(type(fact))
    return rule(memory, fact) if rule is not None else "a time was reached, and something could continue"


def _by(fact: Any) -> str:
    return fact.by or "somebody"


def _stopping(memory: StoryMemory, fact: e.RunStopping) -> str:
    if fact.correction is not None:
        return f"{_by(fact)} corrected the program"
    if fact.cause == "cancelled":
        return f"{_by(fact)} cancelled the run"
    return "the time of the run was up" if fact.cause == "timed_out" else f"the run was to fail fast: {fact.reason}"


def _attempt(fact: Any) -> str:
    return f"attempt {fact.attempt} of '{fact.place}'"


def _ended(memory: StoryMemory, fact: Any) -> str:
    spec = memory.spec(fact.place)
    action = traits_of(spec.action if spec is not None else None)
    if action.asks_person:
        details = fact.failure.details if isinstance(fact, e.AttemptFailed) else fact.output or {}
        by = details.get("by", "") if isinstance(details, dict) else ""
        if by == "timeout":
            return f"the approval of '{fact.place}' was not answered in time"
        return f"{by or 'somebody'} answered the approval of '{fact.place}'"
    if action.awaits_event:
        return f"'{fact.place}' waited for an event until its time was up"
    if action.is_timer:
        return f"the wait of '{fact.place}' was over"
    if action.calls_run:
        return f"the child run of '{fact.place}' ended"
    return f"{_attempt(fact)} was reported to have ended"


def _classified(memory: StoryMemory, fact: e.StepClassified) -> str:
    if fact.is_default:
        return f"nobody decided about '{fact.step}' in time"
    return f"{_by(fact)} decided about '{fact.step}': {fact.verdict}"


def _called(memory: StoryMemory, fact: e.StepAdded | e.StepRan) -> str:
    return f"'{fact.program}' called '{fact.step}'"


def _cancelled(memory: StoryMemory, fact: e.CallCancelled) -> str:
    call = memory.call(fact.step)
    return f"'{call.program}' cancelled '{fact.step}'" if call is not None else f"'{fact.step}' was cancelled"


_REPORTS: dict[type[e.Fact], Callable[[StoryMemory, Any], str]] = {
    e.RunStarted: lambda _, fact: f"{_by(fact)} started the run",
    e.RunForked: lambda _, fact: f"{_by(fact)} forked run {fact.run_id} at its event {fact.seq}",
    e.RunPaused: lambda _, fact: f"{_by(fact)} paused the run",
    e.RunResumed: lambda _, fact: f"{_by(fact)} resumed the run",
    e.StepPaused: lambda _, fact: f"{_by(fact)} paused '{fact.step}'",
    e.StepResumed: lambda _, fact: f"{_by(fact)} resumed '{fact.step}'",
    e.RunStopping: _stopping,
    e.RunRevised: lambda _, fact: f"{_by(fact)} gave a corrected workflow, and asked for another round",
    e.RunReopened: lambda _, fact: f"{_by(fact)} asked for another round",
    e.EventReceived: lambda _, fact: f"{_by(fact)} sent the event '{fact.name}'",
    e.RunLate: lambda _, fact: "the run had lasted longer than a notice allows",
    e.TimerHeld: lambda _, fact: "a timer fired while the run was paused",
    e.AttemptStarted: lambda _, fact: f"{fact.worker or 'a worker'} took {_attempt(fact)}",
    e.AttemptSucceeded: _ended,
    e.AttemptFailed: _ended,
    e.AttemptCancelled: _ended,
    e.AttemptLost: lambda _, fact: (
        f"{_attempt(fact)} was lost: {fact.machine}" if fact.machine else f"the worker of {_attempt(fact)} was lost"
    ),
    e.AttemptInterrupted: lambda _, fact: f"{_attempt(fact)} was interrupted",
    e.AttemptScheduled: lambda _, fact: f"the delay before {_attempt(fact)} was over",
    e.AttemptStopping: lambda _, fact: f"the time of {_attempt(fact)} was up",
    e.ReportRefused: lambda _, fact: (
        f"a request could not be processed and was refused: {fact.reason}"
        if fact.report
        else f"a report about {_attempt(fact)} came too late"
    ),
    e.StepClassified: _classified,
    e.StepEntered: lambda _, fact: "more of its first steps could start",
    e.LoopFired: lambda _, fact: f"the loop back to '{fact.to}' was due",
    # A turn of a program is reported whole. A fork may begin between any two of its calls: it is replayed.
    e.StepDefined: lambda _, fact: f"'{fact.place}' was to call '{fact.definition.name}' for the first time",
    e.StepAdded: _called,
    e.StepRan: _called,
    e.ValueRecorded: lambda _, fact: f"'{fact.place}' asked for {fact.name}",
    e.CallCancelled: _cancelled,
    e.TurnStarted: lambda _, fact: f"{fact.worker or 'a worker'} took turn {fact.turn} of '{fact.place}'",
    e.ProgramWaiting: lambda _, fact: f"'{fact.place}' could not go on before a call of it had ended",
    e.ProgramEnded: lambda _, fact: f"'{fact.place}' {fact.how}",
}


# -- timers ----------------------------------------------------------------------------------------------------------


class DueTimer(msgspec.Struct, frozen=True):
    """A timer that a run waits for: of which place ("" for the run), and what happens when it fires."""

    kind: str
    place: str
    due: datetime
    text: str
    # The display name of the place.
    name: str = ""


def due_timers(state: State) -> list[DueTimer]:
    """The timers that are open, the next one first."""
    names = PlaceNames()
    timers = (
        DueTimer(one.kind, one.place, one.due, _describe_timer(state, one), names.name(state, one.place))
        for one in open_timers(state)
    )
    return sorted(timers, key=lambda one: (one.due, one.place))


def _describe_timer(state: State, timer: SetTimer) -> str:
    when = format_time_until(timer.due, state.run.at)
    if timer.kind == "attempt":
        place = state.places[timer.place]
        action = traits_of(place.spec.action)
        what = {
            "timer": "its wait ends",
            "approval": "its approval expires",
            "event": "its wait for an event ends",
        }.get(action.activity, "its time is up")
    elif timer.kind == "loop":
        to = next((one.to for one in state.run.loops.values() if one.step == timer.place), "")
        what = f"the loop back to '{to}' fires"
    else:
        what = _TIMERS[timer.kind].format(number=timer.number)
    return f"{what} {when}"


_TIMERS = {
    "retry": "attempt {number} is due",
    "until": "its wait ends",
    "handler": "the time of its handler is up",
    "triage": "the default applies",
    "deadline": "its deadline passes",
    "run": "the time of the run is up",
    "late": "somebody is notified that the run is late",
}


# -- differences -----------------------------------------------------------------------------------------------------


class ChangedValue(msgspec.Struct, frozen=True):
    """A value at two events of a run."""

    name: str
    before: Any
    after: Any


class ChangedStep(msgspec.Struct, frozen=True):
    """A step that is not the same at two events. "" is the status of a step that is not in the definition then."""

    name: str
    before: str
    after: str
    changes: list[ChangedValue]


class NewFailure(msgspec.Struct, frozen=True):
    """A visit of a step that failed, or that a handler recovered, between two events."""

    seq: int
    step: str
    visit: int
    attempt: int
    code: str
    text: str
    is_handled: bool
    recovered_by: str


_RUN_FIELDS = ("status", "round", "reason", "degraded", "inputs", "outputs")
_STEP_FIELDS = ("status", "visits", "attempts", "failure", "output", "recovered", "handled", "paused", "waiting_for")


def compare_states(before: State, after: State) -> tuple[list[ChangedValue], list[ChangedStep], list[NewFailure]]:
    """What changed from one state of a run to a later one: of the run, of its steps; and the new failures."""
    run = [
        ChangedValue(name, *values)
        for name in _RUN_FIELDS
        if (values := (getattr(before.run, name), getattr(after.run, name)))[0] != values[1]
    ]
    versions = before.run.present_version, after.run.present_version
    run += [ChangedValue("version", *versions)] if versions[0] != versions[1] else []
    data = [{name: one.value for name, one in state.run.data.items()} for state in (before, after)]
    run += [ChangedValue("data", *data)] if data[0] != data[1] else []
    names = dict.fromkeys((*after.graph.nodes, *before.graph.nodes, END))
    steps = [found for name in names if (found := _compare_step(before, after, name)) is not None]
    return run, steps, [*_new_failures(before, after)]


def _compare_step(before: State, after: State, name: str) -> ChangedStep | None:
    old, new = (_step_view(state, name) for state in (before, after))
    changes = [ChangedValue(key, old.get(key), new.get(key)) for key in _STEP_FIELDS if old.get(key) != new.get(key)]
    return ChangedStep(name, old.get("status", ""), new.get("status", ""), changes) if changes else None


def _step_view(state: State, name: str) -> dict[str, Any]:
    """The step as `show --json` has it, with what it waits for in words; empty if it is not a step then."""
    if name not in state.places or (name != END and name not in state.graph.nodes):
        return {}
    pause = state.places[name].pause
    return {
        **step_view(state, name),
        "paused": None if pause is None else msgspec.to_builtins(pause),
        "waiting_for": [wait.text for wait in list_step_waits(state, name)],
    }


def _new_failures(before: State, after: State) -> Iterator[NewFailure]:
    records = (*after.failures, *after.recoveries)
    for record in sorted((one for one in records if one.seq > before.run.seq), key=lambda one: one.seq):
        yield NewFailure(
            seq=record.seq,
            step=record.step,
            visit=record.visit,
            attempt=record.attempt,
            code=record.failure.code,
            text=describe_failure(record.failure),
            is_handled=not record.recovered_by and is_handled(after, record) is True,
            recovered_by=record.recovered_by,
        )


# -- the points of a step --------------------------------------------------------------------------------------------


def step_status(state: State, name: str) -> tuple[str, int, int]:
    """Its status, visit and attempt; all of it empty if it is not a step now."""
    place: Place | None = state.places.get(name)
    return ("", 0, 0) if place is None else (place.status, place.visit, place.attempt)
