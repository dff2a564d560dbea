"""The facts of a run's log. Past tense, immutable, enough to rebuild every table from.

A *fact* says what happened; an `Entry` is a fact in a log: numbered, dated, and caused by an earlier entry.
A place is named by its key (see `state.Place`): a step is `build`, its third item `build[2]`.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Literal, dataclass_transform

import msgspec

from mulligan.core.model.failure import Failure
from mulligan.core.model.file_records import FileRecord, StaleFile
from mulligan.core.model.workflow import Budget

Rung = Literal["retry", "handle", "triage", "route"]
Role = Literal["step", "item", "do", "handler", "script", "success", "validator", "lister", "undo"]
StopCause = Literal["cancelled", "timed_out", "failed_fast"]


def _tag(name: str) -> str:
    """`StepCompleted` is written as `step.completed`, `StepPutBack` as `step.put_back`."""
    noun, *rest = re.findall("[A-Z][a-z]*", name)
    return f"{noun}.{'_'.join(rest)}".lower()


@dataclass_transform(frozen_default=True)
class Fact(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag=_tag):
    """Something that happened in a run."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fact in the log. `at` never goes back; `caused_by` is the seq it follows from (0: a report from outside)."""

    seq: int
    at: datetime
    caused_by: int
    fact: AnyFact


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """A result that a fork takes over from the run it was forked from."""

    step: str
    status: str
    output: Any = None
    taken: tuple[str, ...] = ()
    # What the step wrote, and what its result may be found by.
    files: tuple[FileRecord, ...] = ()
    fingerprint: str = ""
    # The run that did it, of a result that may be found.
    run_id: int = 0


class Adjusted(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the next attempt gets in place of what the workflow says. Absolute values."""

    memory: int | None = None
    cpus: float | None = None
    timeout: float | None = None


class Passed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A failure edge that was not chosen, and why."""

    edge: int
    to: str
    reason: str


class Route(msgspec.Struct, frozen=True, omit_defaults=True):
    """What rung 4 decided: the chosen edge, and why the others were not."""

    status: Literal["selected", "no_route", "skipped_terminal"]
    edge: int | None = None
    to: str | None = None
    visit: int = 0
    reason: str = ""
    passed: tuple[Passed, ...] = ()


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
    # Of a fork: files that kept steps had written and that are not what they were, so that these steps run again.
    stale: tuple[StaleFile, ...] = ()
    # Steps without changes take over the result of an earlier run; those that are forced never do.
    changed_only: bool = False
    forced: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    # Of a run that another one called: what that one's agents may still spend.
    callers_budget: Budget | None = None


class RunPaused(Fact):
    by: str = ""
    reason: str = ""


class RunResumed(Fact):
    by: str = ""
    reason: str = ""
    # The run's own timeout, moved on by the time it was paused.
    due: datetime | None = None
    # What waited for this: timers that fired meanwhile (kind, place, number), and actions of the engine's own.
    held: tuple[tuple[str, str, int], ...] = ()
    unstarted: tuple[str, ...] = ()


class StepPaused(Fact):
    """What of the step runs may end; no attempt at it starts, and no command of its items, until it is resumed."""

    step: str
    by: str = ""
    reason: str = ""


class StepResumed(Fact):
    step: str
    by: str = ""
    reason: str = ""


class RunStopping(Fact):
    """From here on nothing starts but cleanup handlers, undo and `end` (with `now`: `end` alone)."""

    cause: StopCause
    now: bool = False
    by: str = ""
    reason: str = ""
    # Of a paused run: what waited for `resume`, and goes on now if it is cleanup, undo or `end`.
    held: tuple[tuple[str, str, int], ...] = ()
    unstarted: tuple[str, ...] = ()
    # RUN_TIMEOUT, where the run's own time was up.
    failure: Failure | None = None


class RunRevised(Fact):
    """A corrected definition of the workflow holds from here on. The round that runs it follows at once."""

    version: str
    # The whole of it, as plain data: a log is read with the first definition and with these.
    definition: dict[str, Any]
    by: str = ""
    inputs: dict[str, Any] = {}
    # Steps that are new, that are gone, and of those that are others than before the keys that are.
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: dict[str, tuple[str, ...]] = {}
    # The keys of the workflow itself that are others.
    settings: tuple[str, ...] = ()
    # Of the changed steps those whose results would be others: nothing that they did before is kept.
    renewed: tuple[str, ...] = ()
    # The file it was read from, and what its bytes were: only to notice that it has changed since.
    file: str = ""
    digest: str = ""


class RunReopened(Fact):
    round: int
    by: str
    reason: str
    put_back: tuple[str, ...] = ()
    due: datetime | None = None
    # From here on everything runs as if for the first time: of maps all items, unless some are named.
    from_step: str = ""
    # Of the map step `from_step` only these run; the others keep what they came to.
    indexes: tuple[int, ...] = ()
    # By step: what its attempts get in this round.
    adjustments: dict[str, Adjusted] = {}
    # Files that kept steps had written and that are not what they were, so that these steps run again.
    stale: tuple[StaleFile, ...] = ()
    # Budgets that are raised from here on: by step, "" of the run.
    budgets: dict[str, Budget] = {}


class _RunEnded(Fact):
    """The last event of a round. Everything reached `end` first."""

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


class RunCompleted(_RunEnded):
    pass


class RunFailed(_RunEnded):
    pass


class RunCancelled(_RunEnded):
    pass


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
    due: datetime | None = None


class StepClassified(Fact):
    step: str
    attempt: int
    verdict: Literal["retry", "fail"]
    reason: str
    by: str
    adjusted: Adjusted | None = None
    is_default: bool = False
    # Budgets that are raised from here on: by step, "" of the run.
    budgets: dict[str, Budget] = {}


class StepPutBack(Fact):
    """Back to waiting for a new visit: its remediation completed, or it was arrived at again."""

    step: str
    cause: Literal["rerun", "arrival"]
    by: str = ""


class StepStoodIn(Fact):
    """The remediation completed and stands in for the failed step: `then: continue`."""

    step: str
    by: str
    output: Any = None
    taken: tuple[int, ...] = ()
    no_route: bool = False


class StepSettled(Fact):
    """Ended for good: nothing will visit it again or stand in for it. Only where that came later than its end.

    With a failure: its remediation completed, and could not stand in for it after all.
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


# -- the life of a place ------------------------------------------------------------------------------


class AttemptScheduled(Fact):
    """Durable before its process exists. `bindings` are the values its expressions gave."""

    place: str
    attempt: int
    cause: str = "entered"
    bindings: dict[str, Any] = {}
    adjusted: Adjusted | None = None
    # What an agent is told of its last attempt, which failed.
    summary: str = ""
    # It calls an agent, and is counted as such. Logs from before agents were counted do not say so.
    is_call: bool = False


class AttemptStarted(Fact):
    place: str
    attempt: int
    worker: str = ""
    host: str = ""
    # When the engine itself carries it out: the end of a wait, of an approval, of a child run.
    due: datetime | None = None
    # The host where it should have run, and which was gone.
    instead_of: str = ""
    # Nothing runs: somebody has said how it ends.
    is_faked: bool = False


class AttemptSucceeded(Fact):
    place: str
    attempt: int
    output: Any = None
    usage: dict[str, Any] = {}
    warnings: tuple[Failure, ...] = ()
    # The declared files that are there now.
    files: tuple[FileRecord, ...] = ()
    # Of what went in: where it is the same in a later run, this result may be taken over.
    fingerprint: str = ""
    # The run that had done it, where nothing had changed since: then nothing was run here.
    reused_run_id: int = 0


class AttemptFailed(Fact):
    place: str
    attempt: int
    failure: Failure
    usage: dict[str, Any] = {}
    warnings: tuple[Failure, ...] = ()


class AttemptLost(Fact):
    """The worker is gone. Whether that is a failure is for the ladder to say."""

    place: str
    attempt: int
    worker: str = ""


class AttemptInterrupted(Fact):
    place: str
    attempt: int


class AttemptStopping(Fact):
    """Asked to end: SIGTERM, its grace, SIGKILL (or left to finish)."""

    place: str
    attempt: int
    reason: str = "stopping"


class AttemptCancelled(Fact):
    place: str
    attempt: int
    # What an agent, or the agents of a child run, had spent by then.
    usage: dict[str, Any] = {}


class ResultRejected(Fact):
    """The attempt reported success, and what it gave was found wanting."""

    place: str
    attempt: int
    failure: Failure


class RungPassed(Fact):
    """A rung that did not deal with the failure, and why."""

    place: str
    rung: Rung
    reason: str


class RetryScheduled(Fact):
    """The retry is reserved: nobody can reserve it twice, and its script runs only now."""

    place: str
    attempt: int
    rule: int
    number: int
    due: datetime
    has_script: bool = False
    adjusted: Adjusted | None = None


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
    """A command of a handler, an item, a script, an undo …: a place of its own, below `parent`."""

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
    """A command of an item whose condition does not hold: it is never a place, and the item goes on without it."""

    place: str
    parent: str
    role: Role
    index: int = 0


class MapExpanded(Fact):
    """The items of this visit, in order. `todo` are the indexes that this attempt runs."""

    place: str
    attempt: int
    items: list[Any] | None = None
    todo: tuple[int, ...] | None = None


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
    step: str
    visit: int
    failure: Failure


class WarningRecorded(Fact):
    """Worth knowing, failing nothing."""

    place: str
    failure: Failure


class ReportRefused(Fact):
    """A report that came late, twice, or for something that no longer runs. It changed nothing."""

    place: str
    attempt: int
    reason: str


AnyFact = (
    RunStarted
    | RunPaused
    | RunResumed
    | RunStopping
    | RunRevised
    | RunReopened
    | RunCompleted
    | RunFailed
    | RunCancelled
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
    | StepPutBack
    | StepStoodIn
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
    | ReportRefused
)

FACTS: tuple[type[Fact], ...] = AnyFact.__args__
