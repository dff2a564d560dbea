"""What a run can be told: a worker's result, a timer, an operator's verb, a child's end. Each with the time."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, dataclass_transform

import msgspec

from mulligan.core.model.events import Kept
from mulligan.core.model.failure import Failure
from mulligan.core.model.file_records import FileRecord, StaleFile
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import Budget

# "until" is the end of a wait until a time of day. The others are ends of durations.
TimerKind = Literal["retry", "attempt", "handler", "triage", "deadline", "loop", "run", "until"]


@dataclass_transform(frozen_default=True)
class Report(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    at: datetime


class RunRequested(Report):
    run_id: int
    inputs: dict[str, Any] = {}
    version: str = ""
    by: str = ""
    parent_run_id: int | None = None
    forked_from: int | None = None
    kept: tuple[Kept, ...] = ()
    # Where `run` was called: what the steps' folders are relative to.
    cwd: str = ""
    # A name that no other run has, in any store: what lies outside may be told twice, and must know.
    uid: str = ""
    # The file it was started from, and what its bytes were: only to notice that it has changed since.
    file: str = ""
    digest: str = ""
    # Of a fork: files of kept steps that are not what these had written.
    stale: tuple[StaleFile, ...] = ()
    # Whether steps without changes take over the result of an earlier run, and which steps never do.
    changed_only: bool = False
    forced: tuple[str, ...] = ()
    # What people call it, to find it again.
    labels: dict[str, str] = {}
    # Of a run that another one calls: what that one's agents may still spend.
    callers_budget: Budget | None = None


class TaskStarted(Report):
    place: str
    attempt: int
    worker: str = ""
    host: str = ""


class TaskEnded(Report):
    place: str
    attempt: int
    outcome: Outcome = Outcome()
    output: Any = None
    usage: dict[str, Any] = {}
    # See `AttemptSucceeded`.
    files: tuple[FileRecord, ...] = ()
    fingerprint: str = ""
    reused_run_id: int = 0


class LeaseExpired(Report):
    place: str
    attempt: int
    worker: str = ""


class TaskInterrupted(Report):
    """The operator's Ctrl-C ended it. It spends nothing and counts for nothing."""

    place: str
    attempt: int


class ChildEnded(Report):
    place: str
    attempt: int
    child_run_id: int
    status: Literal["completed", "failed", "cancelled"]
    outputs: dict[str, Any] = {}
    failures: tuple[Failure, ...] = ()
    # What its agents have spent.
    usage: dict[str, Any] = {}


class StartsDue(Report):
    """The next of a large run's first steps are to be entered, from the `begin`-th on."""

    begin: int


class TimerFired(Report):
    kind: TimerKind
    place: str = ""
    number: int = 0
    # What the wall clock said, where that is not the time of the run: for the kind "until".
    wall: datetime | None = None


class CancelRequested(Report):
    by: str = ""
    reason: str = ""
    now: bool = False


class PauseRequested(Report):
    by: str = ""
    reason: str = ""
    # Of one step, or of all steps of a matrix; "" for the whole run.
    step: str = ""


class ResumeRequested(Report):
    by: str = ""
    reason: str = ""
    step: str = ""


class Revised(msgspec.Struct, frozen=True, omit_defaults=True):
    """A corrected definition of a run's workflow: plain data, with the inputs that the run has under it."""

    version: str
    definition: dict[str, Any]
    inputs: dict[str, Any] = {}
    file: str = ""
    digest: str = ""
    # It may have another name than the workflow of the run.
    may_rename: bool = False
    # What has completed keeps its result, though it would be another under this definition.
    keeps_completed: bool = False


class RetryRequested(Report):
    by: str
    reason: str = ""
    from_step: str = ""
    # Of the map step `from_step` only these items; with none named, those that failed. None: all of the step.
    items: tuple[int, ...] | None = None
    # Whether what ran out of memory or time gets more; and the most memory that was measured, by step.
    adjust: bool = False
    peaks: dict[str, int] = {}
    # A corrected definition to go on with.
    revised: Revised | None = None
    # Files of steps that would be kept, and that are not what these had written.
    stale: tuple[StaleFile, ...] = ()
    # Budgets to raise: by step, "" of the run.
    budgets: dict[str, Budget] = {}


class Classified(Report):
    step: str
    verdict: Literal["retry", "fail"]
    by: str
    reason: str
    memory: int | None = None
    timeout: float | None = None
    budgets: dict[str, Budget] = {}


class ApprovalGiven(Report):
    place: str
    is_approved: bool
    by: str
    reason: str


AnyReport = (
    RunRequested
    | TaskStarted
    | TaskEnded
    | LeaseExpired
    | TaskInterrupted
    | ChildEnded
    | StartsDue
    | TimerFired
    | CancelRequested
    | PauseRequested
    | ResumeRequested
    | RetryRequested
    | Classified
    | ApprovalGiven
)
