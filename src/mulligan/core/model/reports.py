"""What can be reported to a run: the result of a worker, a timer, a verb of an operator, the end of a child run."""

from datetime import datetime
from typing import Any, Literal, dataclass_transform

import msgspec

from mulligan.core.model.agents.conversation import SessionPart
from mulligan.core.model.clusters.scheduler_job import JobEnd, WorkerJob
from mulligan.core.model.event_types import ChildRound, HostCapacity, Kept, WorktreeOrigin
from mulligan.core.model.failure import Failure
from mulligan.core.model.file_records import FileRecord, StaleFile
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.program_calls import TurnEnd
from mulligan.core.model.run_data import DataValue
from mulligan.core.model.workflow import Budget, NoticeRule

# "until" is the end of a wait until a time of day. The others are ends of durations.
TimerKind = Literal["retry", "attempt", "handler", "triage", "deadline", "loop", "run", "until", "late"]


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
    # The folder in which `run` was called: folders of steps are relative to it.
    cwd: str = ""
    # A name that is unique over all stores, so that services outside can detect repeated calls.
    uid: str = ""
    # The file it was started from and the hash of its bytes, to notice later changes.
    file: str = ""
    digest: str = ""
    # In a fork: files of otherwise kept steps that have changed.
    stale: tuple[StaleFile, ...] = ()
    # Whether unchanged steps reuse the result of an earlier run, and which steps never do.
    changed_only: bool = False
    forced: tuple[str, ...] = ()
    # Labels to find the run by.
    labels: dict[str, str] = {}
    # For a child run: what the agents of the caller may still spend.
    callers_budget: Budget | None = None
    capacity: HostCapacity | None = None
    data: dict[str, DataValue] = {}
    # Who is notified about the run, besides those that its workflow names.
    notify: tuple[NoticeRule, ...] = ()
    # In a fork: what the agents of the kept steps said, by session.
    sessions: dict[str, tuple[SessionPart, ...]] = {}
    # In a fork that continues another run: the log of that run up to the event `forked_at`, see `kept_history`; whether
    # its inputs are changed; and what is decided at once, in place of what was decided there.
    history: bytes | None = None
    forked_at: int = 0
    has_inputs: bool = False
    decision: "Classified | ApprovalGiven | None" = None
    reason: str = ""
    # In a fork of a run with a worktree: what its own worktree is copied from.
    worktree: WorktreeOrigin | None = None


class TaskStarted(Report):
    place: str
    attempt: int
    worker: str = ""
    host: str = ""
    # For a program: which turn it is.
    turn: int = 0


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
    artifacts: tuple[dict[str, Any], ...] = ()
    # The data of the run that it sets.
    data: dict[str, Any] = {}
    # The job of a scheduler in which it failed.
    job: WorkerJob | None = None
    # For a program: what it has called in this turn.
    turn: TurnEnd | None = None
    # See `AttemptSucceeded`.
    made_of: dict[str, str] = {}


class CallsMade(Report):
    """A program says in the middle of its turn what it has called, and goes on when that is recorded.

    Only the executor of the engine that drives its run says so: it is neither stored nor sent.
    """

    place: str
    attempt: int
    turn: TurnEnd
    # What the turn has used so far.
    usage: dict[str, Any] = {}

    @property
    def as_end(self) -> TaskEnded:
        """The same as the end of the turn: the program goes on in its next one."""
        return TaskEnded(self.at, self.place, self.attempt, usage=self.usage, turn=self.turn)


class LeaseExpired(Report):
    place: str
    attempt: int
    worker: str = ""
    # The job of a scheduler in which the worker ran.
    job: JobEnd | None = None


class TaskInterrupted(Report):
    """It was ended with its worker. It spends no retry and does not count as a failure, unless time after time."""

    place: str
    attempt: int
    # If the time of the worker was over: how long the attempt ran, and how long the worker had for tasks.
    ran_seconds: float | None = None
    life_seconds: float | None = None
    # The job of a scheduler in which it ran.
    job: WorkerJob | None = None
    # Why its worker has given it back: its host cannot run it.
    reason: str = ""


class ChildEnded(Report):
    place: str
    attempt: int
    child_run_id: int
    status: Literal["completed", "failed", "cancelled"]
    outputs: dict[str, Any] = {}
    failures: tuple[Failure, ...] = ()
    # What its agents have spent.
    usage: dict[str, Any] = {}
    # Why it ended so, if no failure of a step says it: an output that cannot be evaluated, its time.
    reason: str = ""
    round: int = 1
    # It has refused to open that round, so nothing of it has run.
    is_refused: bool = False
    # Its steps whose undo has failed: what they did may still be in effect.
    undo_failed: tuple[str, ...] = ()


class StartsDue(Report):
    """Enter the next batch of start steps of a large run, from index `begin` on."""

    begin: int


class TimerFired(Report):
    kind: TimerKind
    place: str = ""
    number: int = 0
    # The time of the wall clock, for the kind "until".
    wall: datetime | None = None


class CancelRequested(Report):
    by: str = ""
    reason: str = ""
    now: bool = False


class PauseRequested(Report):
    by: str = ""
    reason: str = ""
    # A step, or a matrix for all of its steps; "" for the whole run.
    step: str = ""


class ResumeRequested(Report):
    by: str = ""
    reason: str = ""
    step: str = ""
    # How many steps may run before the run is paused again; 0 for all of them.
    steps: int = 0


class Revised(msgspec.Struct, frozen=True, omit_defaults=True):
    """A corrected definition of a run's workflow: plain data, with the inputs that the run has under it."""

    version: str
    definition: dict[str, Any]
    inputs: dict[str, Any] = {}
    file: str = ""
    digest: str = ""
    # Whether its name may differ from the workflow of the run.
    may_rename: bool = False
    # Whether completed steps keep their results even if these would differ under this definition.
    keeps_completed: bool = False
    # For a program: the calls that it makes as before. None: of all of them nothing is known.
    kept_calls: tuple[str, ...] | None = None
    # The round in which it was compared: less than 0 if that had not ended.
    kept_round: int = 0


class RetryRequested(Report):
    by: str
    reason: str = ""
    from_step: str = ""
    # Items of the map step `from_step`; empty for those that failed. None: the whole step.
    items: tuple[int, ...] | None = None
    # Whether steps that ran out of memory or time get more; and the peak memory by step.
    adjust: bool = False
    peaks: dict[str, int] = {}
    # A corrected definition to go on with.
    revised: Revised | None = None
    # Files of otherwise kept steps that have changed.
    stale: tuple[StaleFile, ...] = ()
    # Budgets to raise: by step, "" of the run.
    budgets: dict[str, Budget] = {}
    # Whether completed steps keep their results although a step that they depend on runs again.
    keep_completed: bool = False
    # Child runs that did not complete are not continued: new ones start.
    from_start: bool = False
    # What the next round of one child run is asked for.
    child: ChildRound | None = None
    # Whether steps whose undo has failed run again, although what they did may still be in effect.
    force: bool = False


class RoundRequested(Report):
    """A parent asks its child run, which did not complete, for the round that an attempt of the parent waits for."""

    attempt: int
    round: int
    by: str
    reason: str = ""
    # What the agents of the caller may still spend.
    budget: Budget | None = None
    # What a person asked for, and a corrected definition.
    asked: ChildRound | None = None
    revised: Revised | None = None
    # As in the round of the parent.
    keep_completed: bool = False
    force: bool = False
    # Somebody decided that the step runs again although an undo in the child run failed.
    is_decided: bool = False


class Classified(Report):
    step: str
    verdict: Literal["retry", "fail"]
    by: str
    reason: str
    memory: int | None = None
    timeout: float | None = None
    budgets: dict[str, Budget] = {}
    # The attempt that the decision is about; None: whichever is parked.
    attempt: int | None = None
    # How sure its author is, from 0 to 1; people do not say.
    confidence: float | None = None


class ApprovalGiven(Report):
    place: str
    is_approved: bool
    by: str
    reason: str


class EventSent(Report):
    name: str
    value: Any = None
    by: str = ""
    # Of the sender: a second event with it is the same.
    key: str = ""


class Unreadable(Report):
    """Stands for a message that cannot be read: another version has written it, or it is damaged. It is refused."""

    problem: str


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
    | RoundRequested
    | Classified
    | ApprovalGiven
    | EventSent
    | Unreadable
)
