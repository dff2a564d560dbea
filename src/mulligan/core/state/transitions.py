"""The table of allowed transitions. `evolve` enforces it, and the diagrams in the docs are drawn from it.

A place (a step, an item, a command) has one of ten statuses, a run one of five. For each fact: from which statuses it
may happen, and to which it leads. A fact that is not in the table changes no status.
"""

from __future__ import annotations

from typing import Literal

from mulligan.core.model import events as e

Status = Literal[
    "waiting",
    "ready",
    "running",
    "backing_off",
    "handling",
    "pending_failed",
    "completed",
    "failed",
    "skipped",
    "cancelled",
]
RunStatus = Literal["running", "paused", "completed", "failed", "cancelled"]

STATUSES: tuple[Status, ...] = Status.__args__  # type: ignore[attr-defined]
RUN_STATUSES: tuple[RunStatus, ...] = RunStatus.__args__  # type: ignore[attr-defined]

ACTIVE: frozenset[str] = frozenset({"ready", "running", "backing_off", "handling", "pending_failed"})
ENDED: frozenset[str] = frozenset({"completed", "failed", "skipped", "cancelled"})
RUN_ENDED: frozenset[str] = frozenset({"completed", "failed", "cancelled"})

Moves = dict[str, str]


def _all(statuses: str, to: str) -> Moves:
    return dict.fromkeys(statuses.split(), to)


def _stay(statuses: str) -> Moves:
    return {status: status for status in statuses.split()}


# "new" means that the place does not exist yet: items and commands are created when they are entered.
PLACE: dict[type[e.Fact], Moves] = {
    e.StepEntered: {"waiting": "ready"},
    # Waiting: an item of an earlier visit whose list was reset.
    e.ItemEntered: _all("new waiting failed cancelled", "running"),
    e.CommandEntered: {"new": "ready"},
    # Never becomes a place: its item goes on without it.
    e.CommandSkipped: {"new": "skipped"},
    e.AttemptScheduled: _all("ready backing_off handling pending_failed", "ready"),
    e.AttemptStarted: {"ready": "running"},
    e.MapExpanded: _stay("running"),
    e.ProgramWaiting: _stay("running"),
    e.ProgramResumed: {"running": "ready"},
    e.TurnStarted: {"ready": "running"},
    e.ProgramEnded: _stay("ready running"),
    e.ToolCalled: _stay("running"),
    e.ToolAnswered: _stay("running"),
    e.EventDelivered: _stay("running"),
    e.AttemptSucceeded: _all("ready running", "running"),
    # Also for an attempt that could not be scheduled because its expressions failed.
    e.AttemptFailed: _all("ready running backing_off handling pending_failed", "running"),
    e.AttemptCancelled: _all("ready running", "running"),
    e.AttemptLost: _all("ready running", "ready"),
    e.AttemptInterrupted: _all("ready running", "ready"),
    e.AttemptStopping: _stay("running handling"),
    e.ResultRejected: _all("running handling", "running"),
    e.RetryScheduled: {"running": "backing_off"},
    e.HandlerStarted: _all("ready running backing_off", "handling"),
    e.HandlerSucceeded: _stay("handling"),
    e.HandlerFailed: _stay("handling"),
    # Ready: a person decides whether it runs again after a failed undo.
    e.StepParked: _all("ready running handling", "pending_failed"),
    e.StepClassified: _stay("pending_failed"),
    e.TriageSuggested: _stay("pending_failed"),
    e.StepCompleted: _all("ready running handling", "completed"),
    e.StepFailed: _all("running backing_off handling pending_failed", "failed"),
    e.StepCancelled: _all("waiting ready running backing_off handling pending_failed", "cancelled"),
    # The step of a call, which is created by it; completed if the call has the result of one that was dropped.
    e.StepAdded: {"new": "waiting"},
    e.StepRan: {"new": "completed"},
    e.StepSkipped: {"waiting": "skipped"},
    # To the status of its last visit; drawn as one arrow.
    e.StepRestored: {"waiting": "completed"},
    e.StepPutBack: _all("completed failed skipped cancelled", "waiting"),
    e.StepReplaced: _stay("failed"),
    e.StepSettled: _stay("completed failed skipped cancelled"),
    e.ItemCompleted: {"running": "completed"},
    e.ItemFailed: {"running": "failed"},
    e.ItemCancelled: {"running": "cancelled"},
    e.CommandCompleted: _all("ready running handling", "completed"),
    e.CommandFailed: _all("running backing_off handling", "failed"),
    e.CommandCancelled: _all("ready running backing_off handling", "cancelled"),
}

RUN: dict[type[e.Fact], Moves] = {
    e.RunStarted: {"new": "running"},
    e.RunForked: _stay("running paused"),
    e.RunPaused: {"running": "paused"},
    e.RunResumed: {"paused": "running"},
    e.RunStopping: _all("running paused", "running"),
    # From paused: `end` was already running when the run was paused.
    e.RunCompleted: _all("running paused", "completed"),
    e.RunFailed: _all("running paused", "failed"),
    e.RunCancelled: {"running": "cancelled"},
    e.RunLate: _stay("running paused"),
    e.EventReceived: _stay("running paused"),
    # `RunReopened` follows at once.
    e.RunRevised: _stay("failed cancelled"),
    # From completed: to retry failed items of a map that tolerates failures.
    e.RunReopened: _all("completed failed cancelled", "running"),
}
