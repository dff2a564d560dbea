"""Facts and reports without optional fields: old logs and inboxes are read with these defaults."""

from __future__ import annotations

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.event_types import Adjusted, Kept, Passed, Route
from mulligan.core.model.outcome import Outcome

# What each must say. Never more than this: what is in a log or an inbox does not say what was thought of later.
LEAST: dict[type[msgspec.Struct], str] = {
    e.RunStarted: "run_id workflow",
    e.RunForked: "run_id seq",
    e.RunPaused: "",
    e.RunResumed: "",
    e.RunStopping: "cause",
    e.RunRevised: "version definition",
    e.RunReopened: "round by reason",
    e.RunCompleted: "",
    e.RunFailed: "",
    e.RunCancelled: "",
    e.RunLate: "after",
    e.EventReceived: "name",
    e.EventDelivered: "place attempt event name",
    e.TimerHeld: "kind",
    e.StepEntered: "step visit",
    e.StepSkipped: "step reason",
    e.StepRestored: "step reason",
    e.StepCompleted: "step visit",
    e.StepFailed: "step visit failure",
    e.StepCancelled: "step",
    e.StepPaused: "step",
    e.StepResumed: "step",
    e.StepParked: "step visit attempt failure reason",
    e.StepClassified: "step attempt verdict reason by",
    e.TriageSuggested: "step attempt agent why_not",
    e.StepPutBack: "step cause",
    e.StepReplaced: "step by",
    e.StepSettled: "step outcome",
    e.LoopTaken: "step edge to number due",
    e.LoopFired: "step edge to",
    e.AttemptScheduled: "place attempt",
    e.AttemptStarted: "place attempt",
    e.AttemptSucceeded: "place attempt",
    e.AttemptFailed: "place attempt failure",
    e.AttemptLost: "place attempt",
    e.AttemptInterrupted: "place attempt",
    e.AttemptStopping: "place attempt",
    e.AttemptCancelled: "place attempt",
    e.ResultRejected: "place attempt failure",
    e.RungPassed: "place rung reason",
    e.RetryScheduled: "place attempt rule number due",
    e.HandlerStarted: "place attempt strategy",
    e.HandlerSucceeded: "place attempt strategy",
    e.HandlerFailed: "place attempt failure",
    e.CommandEntered: "place parent role",
    e.CommandCompleted: "place parent role",
    e.CommandFailed: "place parent role failure",
    e.CommandCancelled: "place parent role",
    e.CommandSkipped: "place parent role",
    e.MapExpanded: "place attempt",
    e.ItemEntered: "place parent index",
    e.ItemCompleted: "place parent index",
    e.ItemFailed: "place parent index failure",
    e.ItemCancelled: "place parent index",
    e.UndoStarted: "step visit",
    e.UndoCompleted: "step visit",
    e.UndoFailed: "step visit failure",
    e.WarningRecorded: "place failure",
    e.DataSet: "place attempt name value version",
    e.ToolCalled: "place attempt number tool",
    e.ToolAnswered: "place attempt number tool",
    e.SessionKept: "place attempt session messages",
    e.ReportRefused: "place attempt reason",
    e.StepDefined: "place digest definition",
    e.StepAdded: "step program branch ordinal name definition",
    e.StepRan: "step program branch ordinal name definition",
    e.ValueRecorded: "place value branch ordinal name",
    e.ProgramWaiting: "place attempt turn",
    e.ProgramResumed: "place attempt turn",
    e.TurnStarted: "place attempt turn",
    e.ProgramEnded: "place attempt turn how",
    e.CallCancelled: "step",
    Kept: "step status",
    Adjusted: "",
    Passed: "edge to reason",
    Route: "status",
    e.Entry: "seq at caused_by fact",
    r.RunRequested: "at run_id",
    r.TaskStarted: "at place attempt",
    r.TaskEnded: "at place attempt",
    r.LeaseExpired: "at place attempt",
    r.TaskInterrupted: "at place attempt",
    r.ChildEnded: "at place attempt child_run_id status",
    r.StartsDue: "at begin",
    r.TimerFired: "at kind",
    r.CancelRequested: "at",
    r.PauseRequested: "at",
    r.ResumeRequested: "at",
    r.RetryRequested: "at by",
    r.RoundRequested: "at attempt round by",
    r.Classified: "at step verdict by reason",
    r.EventSent: "at name",
    r.ApprovalGiven: "at place is_approved by reason",
    r.Unreadable: "at problem",
}
NOTHING = [(type(value), value) for value in (None, "", 0, False, (), {})]

# Where nothing is said, something is meant.
MEANT: dict[type[msgspec.Struct], dict[str, object]] = {
    **{last: {"round": 1, "evaluated_by_end_step": True} for last in e._RunEnded.__subclasses__()},
    e.StepCompleted: {"is_final": True},
    e.StepAdded: {"kind": "step"},
    e.StepRan: {"visit": 1, "attempt": 1, "seconds": 0.0},
    e.ProgramWaiting: {"cpu": 0.0},
    e.ProgramEnded: {"cpu": 0.0},
    e.StepFailed: {"is_final": True, "route": Route("no_route")},
    e.AttemptScheduled: {"cause": "entered"},
    e.AttemptStopping: {"reason": "stopping"},
    e.ToolCalled: {"position": -1},
    r.TaskEnded: {"outcome": Outcome()},
    r.ChildEnded: {"round": 1},
}


def barest(kind: type[msgspec.Struct]) -> msgspec.Struct:
    """One that says only what it must."""
    return kind(*LEAST[kind].split())


def test_every_fact_and_every_report_is_among_them() -> None:
    assert {*e.FACTS, *r.AnyReport.__args__} <= LEAST.keys()
    assert all(issubclass(kind, r.Report) for kind in r.AnyReport.__args__)


def test_what_is_not_said_is_nothing_but_for_a_few() -> None:
    unsaid = {kind: {field.name: getattr(barest(kind), field.name) for field in _optional(kind)} for kind in LEAST}

    something = {
        kind: {name: value for name, value in values.items() if (type(value), value) not in NOTHING}
        for kind, values in unsaid.items()
    }

    assert {kind: values for kind, values in something.items() if values} == MEANT


def test_what_is_not_said_is_not_written() -> None:
    written = {kind: msgspec.to_builtins(barest(kind)) for kind in LEAST}

    said = {kind: {name: value for name, value in one.items() if name != "type"} for kind, one in written.items()}

    assert said == {kind: {word: word for word in words.split()} for kind, words in LEAST.items()}


def _optional(kind: type[msgspec.Struct]) -> list[msgspec.structs.FieldInfo]:
    return [field for field in msgspec.structs.fields(kind) if not field.required]


def test_a_fact_is_written_as_what_it_is_of_and_what_became_of_it() -> None:
    class StepSetAside(e.Fact):
        step: str

    class RunNoticed(e.Fact):
        pass

    assert msgspec.to_builtins(StepSetAside("a")) == {"type": "step.set_aside", "step": "a"}
    assert msgspec.to_builtins(RunNoticed()) == {"type": "run.noticed"}
