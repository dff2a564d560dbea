"""The facts of a run's log: immutable, in the past tense, sufficient to rebuild every table.

A *fact* says what happened; an `Entry` is a fact in the log with its number, time and cause. A place is named by its
key (see `state.Place`): a step is `build`, its third item `build[2]`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from mulligan.core.model.agents.conversation import ConversationFact, SessionPart
from mulligan.core.model.agents.conversation import SessionKept as SessionKept
from mulligan.core.model.agents.conversation import ToolAnswered as ToolAnswered
from mulligan.core.model.agents.conversation import ToolCalled as ToolCalled
from mulligan.core.model.clusters.scheduler_job import JobEnd, JobEnding, WorkerJob
from mulligan.core.model.event_types import (
    Adjusted,
    AvoidedHosts,
    ChildRound,
    ChildRun,
    HostCapacity,
    Kept,
    Role,
    Route,
    Rung,
    StopCause,
    WorktreeOrigin,
)
from mulligan.core.model.fact import Fact as Fact
from mulligan.core.model.failure import Failure
from mulligan.core.model.file_records import FileRecord, StaleFile
from mulligan.core.model.program_events import CallCancelled as CallCancelled
from mulligan.core.model.program_events import ProgramEnded as ProgramEnded
from mulligan.core.model.program_events import ProgramFact
from mulligan.core.model.program_events import ProgramResumed as ProgramResumed
from mulligan.core.model.program_events import ProgramWaiting as ProgramWaiting
from mulligan.core.model.program_events import StepAdded as StepAdded
from mulligan.core.model.program_events import StepDefined as StepDefined
from mulligan.core.model.program_events import StepRan as StepRan
from mulligan.core.model.program_events import TurnStarted as TurnStarted
from mulligan.core.model.program_events import ValueRecorded as ValueRecorded
from mulligan.core.model.reports import RetryRequested
from mulligan.core.model.run_data import DataValue
from mulligan.core.model.workflow import Budget, NoticeRule, Verdict


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fact in the log. `at` never goes back; `caused_by` is the seq it follows from (0: a report from outside)."""

    seq: int
    at: datetime
    caused_by: int
    fact: AnyFact


# -- the run ------------------------------------------------------------------------------


class RunStarted(Fact):
    run_id: int
    workflow: str
    version: str = ""
    inputs: dict[str, Any] = {}
    by: str = ""
    parent_run_id: int | None = None
    forked_from: int | None = None
    kept: tuple[Kept, ...] = ()
    due: datetime | None = None
    cwd: str = ""
    uid: str = ""
    file: str = ""
    digest: str = ""
    # In a fork: files of otherwise kept steps that have changed, so that these steps run again.
    stale: tuple[StaleFile, ...] = ()
    # Whether unchanged steps reuse the result of an earlier run; forced steps never do.
    changed_only: bool = False
    forced: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    # For a child run: what the agents of the caller may still spend.
    callers_budget: Budget | None = None
    capacity: HostCapacity | None = None
    # In a fork: the data that the kept steps have set.
    data: dict[str, DataValue] = {}
    # Who is notified about the run, besides those that its workflow names.
    notify: tuple[NoticeRule, ...] = ()
    # In a fork: what the agents of the kept steps said, by session.
    sessions: dict[str, tuple[SessionPart, ...]] = {}
    # In a fork that continues another run: the last event of that run, which is the last of those that it kept.
    forked_at: int = 0
    # In a fork of a run with a worktree: what its own worktree is copied from.
    worktree: WorktreeOrigin | None = None


class RunForked(Fact):
    """What is before it happened in run `run_id`, up to its event `seq`. `inputs`: all of them, if any was changed.

    `worktree`: what the worktree of this run is copied from, before anything else goes on.
    """

    run_id: int
    seq: int
    by: str = ""
    reason: str = ""
    inputs: dict[str, Any] | None = None
    worktree: WorktreeOrigin | None = None


class RunPaused(Fact):
    by: str = ""
    reason: str = ""


class RunResumed(Fact):
    by: str = ""
    reason: str = ""
    # The timeout of the run, extended by the length of the pause.
    due: datetime | None = None
    # What the pause held back: timers that fired (kind, place, number), and engine actions that could not start.
    held: tuple[tuple[str, str, int], ...] = ()
    unstarted: tuple[str, ...] = ()
    # How many steps may run before the next pause, 0 for all; and those of them that can go on now.
    steps: int = 0
    released: tuple[str, ...] = ()
    # An earlier resume was for some steps only: the tasks of the others were not queued.
    after_steps: bool = False


class StepPaused(Fact):
    """Until it is resumed, no attempt of the step and no command of its items starts; running ones may finish."""

    step: str
    by: str = ""
    reason: str = ""


class StepResumed(Fact):
    step: str
    by: str = ""
    reason: str = ""


class RunStopping(Fact):
    """From here on only cleanup handlers, undo and `end` start (with `now`: only `end`)."""

    cause: StopCause
    now: bool = False
    by: str = ""
    reason: str = ""
    # From a paused run: what the pause held back; cleanup, undo and `end` go on now.
    held: tuple[tuple[str, str, int], ...] = ()
    unstarted: tuple[str, ...] = ()
    failure: Failure | None = None
    # Of a large run: how many steps were never entered and are cancelled with this: see `not_begun`.
    not_begun: int = 0
    # A corrected program, with which the run goes on as soon as nothing runs: nothing is undone before.
    correction: RetryRequested | None = None


class RunRevised(Fact):
    """The run uses a corrected definition from here on. The round that runs it follows at once."""

    version: str
    # The whole definition as plain data: a log is read with the first definition and with these.
    definition: dict[str, Any]
    by: str = ""
    inputs: dict[str, Any] = {}
    # New steps, removed steps, and the changed keys of changed steps.
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: dict[str, tuple[str, ...]] = {}
    # The changed keys of the workflow itself.
    settings: tuple[str, ...] = ()
    # The changed steps whose results would differ: nothing that they did before is kept.
    renewed: tuple[str, ...] = ()
    # The file it was read from and the hash of its bytes, to notice later changes.
    file: str = ""
    digest: str = ""


class RunReopened(Fact):
    round: int
    by: str
    reason: str
    put_back: tuple[str, ...] = ()
    due: datetime | None = None
    # The steps from here on run as if for the first time: all items of maps, unless some are named.
    from_step: str = ""
    # The items of the map step `from_step` that run; the others keep their results.
    indexes: tuple[int, ...] = ()
    # The limits of attempts in this round, by step.
    adjustments: dict[str, Adjusted] = {}
    stale: tuple[StaleFile, ...] = ()
    # Budgets that are raised from here on: by step, "" of the run.
    budgets: dict[str, Budget] = {}
    # Of `put_back`: maps that start with a new list, and steps with `join: each` that are visited for all arrivals.
    # None in logs from before it was recorded: then only completed steps behind `from_step`, undone or stale ones ran.
    fresh: tuple[str, ...] | None = None
    # Whether completed steps kept their results although a step that they depend on runs again.
    keep_completed: bool = False
    # Child runs that did not complete are not continued: new ones start.
    from_start: bool = False
    # What the round of one child run was asked for.
    child: ChildRound | None = None
    # Steps of child runs that ran out of memory or time get more too.
    adjusts: bool = False
    # For a child run: the attempt of its parent that waits for this round, and what the agents of the caller may spend.
    attempt: int = 0
    callers_budget: Budget | None = None
    # Whether steps may run again although their undo has failed.
    is_forced: bool = False
    # The calls of a program that are dropped: it makes them again.
    dropped: tuple[str, ...] = ()


class _RunEnded(Fact):
    """The last event of a round, after `end`."""

    round: int = 1
    evaluated_by_end_step: bool = True
    degraded: bool = False
    total_steps: int = 0
    failed_steps_count: int = 0
    handled_steps_count: int = 0
    recovered_steps_count: int = 0
    skipped_steps_count: int = 0
    outputs: dict[str, Any] = {}
    reason: str = ""
    # Steps and items whose outputs were too large to be kept.
    dropped_outputs_count: int = 0


class RunCompleted(_RunEnded):
    pass


class RunFailed(_RunEnded):
    pass


class RunCancelled(_RunEnded):
    pass


class RunLate(Fact):
    """The round has lasted longer than a notice rule allows: this many seconds. Nothing but a notice follows."""

    after: float


class TimerHeld(Fact):
    """A timer fired while the run was paused: its effect waits for `resume`."""

    kind: str
    place: str = ""
    number: int = 0


# -- steps in the graph ------------------------------------------------------------------------------


class StepEntered(Fact):
    step: str
    visit: int


class StepSkipped(Fact):
    step: str
    reason: str


class StepRestored(Fact):
    """Put back by a loop and not entered again: it keeps its last visit's status."""

    step: str
    reason: str


class StepCompleted(Fact):
    """`taken` are the indexes of the edges it takes. Not final: it will be visited again."""

    step: str
    visit: int
    attempt: int = 0
    output: Any = None
    recovered_by: str = ""
    taken: tuple[int, ...] = ()
    no_route: bool = False
    is_final: bool = True


class StepFailed(Fact):
    step: str
    visit: int
    failure: Failure
    attempt: int = 0
    route: Route = Route("no_route")
    taken: tuple[int, ...] = ()
    is_allowed: bool = False
    is_final: bool = True
    routed_to_end: bool = False
    original_failed_step: str = ""


class StepCancelled(Fact):
    step: str
    visit: int = 0
    reason: str = ""


class StepParked(Fact):
    step: str
    visit: int
    attempt: int
    failure: Failure
    reason: str
    # When the default applies. With an agent, that is known when the agent has left the decision to a person.
    due: datetime | None = None
    # The agent that is asked before a person.
    agent: str = ""


class StepClassified(Fact):
    step: str
    attempt: int
    verdict: Verdict
    reason: str
    by: str
    adjusted: Adjusted | None = None
    is_default: bool = False
    # Budgets that are raised from here on: by step, "" of the run.
    budgets: dict[str, Budget] = {}
    # How sure its author was, from 0 to 1; people do not say.
    confidence: float | None = None
    # The triager of the step decided. The retry rule that it proposes for the workflow.
    is_triagers: bool = False
    rule: str = ""


class TriageSuggested(Fact):
    """The triager has left the decision to a person: what it suggests, if anything, and why that was not applied."""

    step: str
    attempt: int
    agent: str
    # A code such as `below_confidence`, and what else is known about it.
    why_not: str
    detail: str = ""
    # None if it gave no valid answer.
    verdict: Verdict | None = None
    confidence: float | None = None
    reason: str = ""
    # For the next attempt: bytes, seconds.
    memory: int | None = None
    timeout: float | None = None
    rule: str = ""
    # When the default applies unless a person decides.
    due: datetime | None = None


class StepPutBack(Fact):
    """Back to waiting for a new visit: its remediation completed, or there is another arrival."""

    step: str
    cause: Literal["rerun", "arrival"]
    by: str = ""


class StepReplaced(Fact, tag="step.stood_in"):
    """The remediation completed and replaces the failed step: `then: continue`. Its stored name is an older one."""

    step: str
    by: str
    output: Any = None
    taken: tuple[int, ...] = ()
    no_route: bool = False


class StepSettled(Fact):
    """Ended for good: nothing will visit it again or replace it. Only if that became known after its end.

    With a failure: its remediation completed but could not replace it.
    """

    step: str
    outcome: str
    failure: Failure | None = None


class LoopTaken(Fact):
    step: str
    edge: int
    to: str
    number: int
    due: datetime


class LoopFired(Fact):
    """Everything reachable from `to` goes back to waiting, and `to` is entered."""

    step: str
    edge: int
    to: str


# -- attempts, commands and items ------------------------------------------------------------------------------


class AttemptScheduled(Fact):
    """Written before its process exists. `bindings` are the values of its expressions."""

    place: str
    attempt: int
    cause: str = "entered"
    bindings: dict[str, Any] = {}
    adjusted: Adjusted | None = None
    # For an agent: the summary of its last failed attempt.
    summary: str = ""
    # It counts as a call of an agent. Not set in logs that are older than budgets.
    is_call: bool = False


class AttemptStarted(Fact):
    place: str
    attempt: int
    worker: str = ""
    host: str = ""
    # For engine actions: when a wait, an approval or a child run ends.
    due: datetime | None = None
    # The host on which it should have run, and which had no worker.
    instead_of: str = ""
    # A faked step: nothing runs.
    is_faked: bool = False
    # The child run that it continues, and in which round; None if it starts a new one.
    continues: ChildRun | None = None


class AttemptSucceeded(Fact):
    place: str
    attempt: int
    output: Any = None
    usage: dict[str, Any] = {}
    warnings: tuple[Failure, ...] = ()
    # The declared files that exist now.
    files: tuple[FileRecord, ...] = ()
    # The hash of its inputs: a later run with the same one may reuse this result.
    fingerprint: str = ""
    # The run whose result was reused; then nothing ran here.
    reused_run_id: int = 0
    # References to the files that the step kept.
    artifacts: tuple[dict[str, Any], ...] = ()
    # The data of the run that it sets if its result is accepted.
    data: dict[str, Any] = {}
    # What its fingerprint was made of: a hash of each part, by its description.
    made_of: dict[str, str] = {}


class AttemptFailed(Fact):
    place: str
    attempt: int
    failure: Failure
    usage: dict[str, Any] = {}
    warnings: tuple[Failure, ...] = ()
    artifacts: tuple[dict[str, Any], ...] = ()
    # The child run that it has called, which did not complete.
    child: ChildRun | None = None


class AttemptLost(Fact):
    """The worker was lost. The ladder decides whether that is a failure."""

    place: str
    attempt: int
    worker: str = ""
    # The job of a scheduler in which the worker ran.
    job: JobEnd | None = None
    # If the worker is alive: what is wrong with its machine.
    machine: str = ""

    @property
    def ending(self) -> JobEnding:
        """What the end of the job means for this attempt. Whose memory was short is known if there was one task."""
        if self.job is None or (self.job.ending == "memory" and not self.job.job.is_one_task):
            return ""
        return self.job.ending


class AttemptInterrupted(Fact):
    place: str
    attempt: int
    # If the time of its worker was over: how long it ran, and how long the worker had for tasks.
    ran_seconds: float | None = None
    life_seconds: float | None = None
    # The job of a scheduler in which it ran.
    job: WorkerJob | None = None
    # Why its worker has given it back: its host cannot run it.
    reason: str = ""


class AttemptStopping(Fact):
    """Asked to end: SIGTERM, grace, SIGKILL (or left to finish)."""

    place: str
    attempt: int
    reason: str = "stopping"


class AttemptCancelled(Fact):
    place: str
    attempt: int
    # What an agent, or the agents of a child run, had spent.
    usage: dict[str, Any] = {}
    # The child run that it had called.
    child: ChildRun | None = None


class ResultRejected(Fact):
    """The attempt reported success, but its result was rejected by a check."""

    place: str
    attempt: int
    failure: Failure


class RungPassed(Fact):
    """A rung did not deal with the failure, and why."""

    place: str
    rung: Rung
    reason: str


class RetryScheduled(Fact):
    """The retry is reserved, so that it cannot be granted twice; its recovery script runs after this."""

    place: str
    attempt: int
    rule: int
    number: int
    due: datetime
    has_script: bool = False
    adjusted: Adjusted | None = None
    avoids: AvoidedHosts | None = None


class HandlerStarted(Fact):
    place: str
    attempt: int
    strategy: str
    due: datetime | None = None


class HandlerSucceeded(Fact):
    place: str
    attempt: int
    strategy: str
    output: Any = None


class HandlerFailed(Fact):
    place: str
    attempt: int
    failure: Failure


class CommandEntered(Fact):
    """A command of a handler or item, a script, an undo etc. became a place below `parent`."""

    place: str
    parent: str
    role: Role
    index: int = 0


class CommandCompleted(Fact):
    place: str
    parent: str
    role: Role
    index: int = 0
    output: Any = None
    recovered_by: str = ""


class CommandFailed(Fact):
    place: str
    parent: str
    role: Role
    failure: Failure
    index: int = 0
    is_allowed: bool = False


class CommandCancelled(Fact):
    place: str
    parent: str
    role: Role
    index: int = 0


class CommandSkipped(Fact):
    """The condition of an item's command was false: it does not become a place, and the item goes on."""

    place: str
    parent: str
    role: Role
    index: int = 0


class MapExpanded(Fact):
    """The items of this visit, in order. `todo` has the indexes that this attempt runs."""

    place: str
    attempt: int
    items: list[Any] | None = None
    todo: tuple[int, ...] | None = None
    # Of the items, as the template `item_name` of the map says; empty without one.
    names: tuple[str, ...] = ()


class ItemEntered(Fact):
    place: str
    parent: str
    index: int


class ItemCompleted(Fact):
    place: str
    parent: str
    index: int
    output: Any = None
    recovered_by: str = ""


class ItemFailed(Fact):
    place: str
    parent: str
    index: int
    failure: Failure


class ItemCancelled(Fact):
    place: str
    parent: str
    index: int


class UndoStarted(Fact):
    step: str
    visit: int


class UndoCompleted(Fact):
    step: str
    visit: int


class UndoFailed(Fact):
    """The visit is not undone: what it did may still be in effect."""

    step: str
    visit: int
    failure: Failure
    # Whether a later round tries to undo the visit again. In logs of earlier releases a failed undo counted as undone.
    is_kept: bool = False


class WarningRecorded(Fact):
    """A warning that fails nothing."""

    place: str
    failure: Failure


class DataSet(Fact):
    """A value of the data of the run was set: the result of the attempt that set it was accepted."""

    place: str
    attempt: int
    name: str
    value: Any
    version: int


class EventReceived(Fact):
    """An event was sent to the run. It is kept until a step that waits for it takes it."""

    name: str
    value: Any = None
    by: str = ""
    # Of the sender: a second event with it is the same.
    key: str = ""


class EventDelivered(Fact):
    """A step that waits for an event has got the one that was received as `event`. `problem`: why it cannot use it."""

    place: str
    attempt: int
    event: int
    name: str
    problem: str = ""


class ReportRefused(Fact):
    """A report was late, a duplicate, or about something that no longer runs. It changed nothing.

    With `report`, the name of its type, it was one that the run could not process: `reason` says why.
    """

    place: str
    attempt: int
    reason: str
    report: str = ""
    by: str = ""


AnyFact = (
    RunStarted
    | RunForked
    | RunPaused
    | RunResumed
    | RunStopping
    | RunRevised
    | RunReopened
    | RunCompleted
    | RunFailed
    | RunCancelled
    | RunLate
    | TimerHeld
    | StepEntered
    | StepSkipped
    | StepRestored
    | StepCompleted
    | StepFailed
    | StepCancelled
    | StepPaused
    | StepResumed
    | StepParked
    | StepClassified
    | TriageSuggested
    | StepPutBack
    | StepReplaced
    | StepSettled
    | LoopTaken
    | LoopFired
    | AttemptScheduled
    | AttemptStarted
    | AttemptSucceeded
    | AttemptFailed
    | AttemptLost
    | AttemptInterrupted
    | AttemptStopping
    | AttemptCancelled
    | ResultRejected
    | RungPassed
    | RetryScheduled
    | HandlerStarted
    | HandlerSucceeded
    | HandlerFailed
    | CommandEntered
    | CommandCompleted
    | CommandFailed
    | CommandCancelled
    | CommandSkipped
    | MapExpanded
    | ItemEntered
    | ItemCompleted
    | ItemFailed
    | ItemCancelled
    | UndoStarted
    | UndoCompleted
    | UndoFailed
    | WarningRecorded
    | DataSet
    | EventReceived
    | EventDelivered
    | ReportRefused
    | ConversationFact
    | ProgramFact
)

FACTS: tuple[type[Fact], ...] = AnyFact.__args__
