"""The JSON of runs as types, for the OpenAPI document. `to_json` makes it, as for `--json`; tests compare the two.

Where a value belongs to the user's workflow (an input, an output, the details of a failure) any JSON may stand.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from mulligan.service.decisions.pending import PendingEntry
from mulligan.service.driving.workers import WorkerLine
from mulligan.service.host.breakers import Breaker
from mulligan.service.runs.statistics.stats import AgentStats, RungStats
from mulligan.service.runs.statistics.usage import StepUsage
from mulligan.service.runs.stored.artifacts import KeptFile
from mulligan.service.runs.stored.attempts import AttemptRecord
from mulligan.service.runs.stored.run_data import DataEntry
from mulligan.service.runs.views.items import Item
from mulligan.service.runs.views.run_list import FailedStep, WaitReason
from mulligan.service.runs.views.run_pages import StepLine
from mulligan.worker.logs.progress_records import Progress


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON of an answer."""


Maybe = msgspec.UnsetType


class RunDriver(Shape, frozen=True):
    """The live process that drives a run."""

    pid: int
    host: str


class Asked(Shape, frozen=True):
    """A place that waits for a person."""

    run_id: int
    place: str
    kind: str


class Spent(Shape, frozen=True):
    """What agents have spent. Money is text, so that no reader rounds it."""

    calls: int
    tokens: int
    input_tokens: int
    output_tokens: int
    cost: str | None
    currency: str


class RunInList(Shape, frozen=True):
    """A run as the list shows it."""

    run_id: int
    workflow: str
    version: str
    status: str
    round: int
    degraded: bool
    reason: str
    created_at: datetime
    updated_at: datetime
    seconds: float
    parent_run_id: int | None
    labels: dict[str, str]
    inputs: dict[str, str]
    driver: RunDriver | None
    failure: FailedStep | None
    waiting_for: list[WaitReason]
    asks: list[Asked]
    spent: Spent | None
    started_by: str
    # Why it cannot be read, as far as that is known; "" if it can.
    damage: str = ""


class RunsPage(Shape, frozen=True):
    """Runs, the newest first. With `counts` also how many match, and how many runs there are with each status."""

    runs: list[RunInList]
    next: str | None
    # At most 10,000: counting takes time for each of them.
    total: int | Maybe = msgspec.UNSET
    statuses: dict[str, int] | Maybe = msgspec.UNSET


class FailureView(Shape, frozen=True):
    """A failure, as expressions see it too."""

    code: str
    message: str
    severity: str
    retryable: bool
    exit_code: int | None
    signal: int | None
    step: str
    item: int | None
    visit: int
    attempt: int
    at: datetime | None
    timestamp: datetime | None
    details: dict[str, Any]
    trace: str
    cause: list[FailureView]
    handler_failure: FailureView | None


class PassedEdge(Shape, frozen=True):
    """A failure edge that was not chosen, and why."""

    edge: int
    to: str
    reason: str


class FailureRoute(Shape, frozen=True):
    """Where a failure was routed."""

    status: str
    edge: int | None
    to: str | None
    visit: int | None
    then: str | None
    reason: str | None
    passed: list[PassedEdge]


class FailedVisitView(Shape, frozen=True):
    """A visit of a step that failed, or that a handler recovered."""

    code: str
    message: str
    severity: str
    retryable: bool
    exit_code: int | None
    signal: int | None
    step: str
    item: int | None
    visit: int
    attempt: int
    at: datetime | None
    timestamp: datetime | None
    details: dict[str, Any]
    trace: str
    cause: list[FailureView]
    handler_failure: FailureView | None
    handled: bool
    recovered: bool
    allowed: bool
    failure_route: FailureRoute | None


class WaitView(Shape, frozen=True, omit_defaults=True):
    """Something that is waited for: as text, and as data."""

    kind: str
    text: str
    place: str = ""
    attempt: int = 0
    due: datetime | None = None
    worker: str = ""
    steps: list[str] = []
    count: int = 0
    obstacles: list[dict[str, Any]] = []
    is_impossible: bool = False
    child_run_id: int = 0
    # The display name of the place, if it belongs to an item of a map.
    name: str = ""


class PauseView(Shape, frozen=True, omit_defaults=True):
    """Who paused a step, when, and why."""

    at: datetime
    by: str = ""
    reason: str = ""


class Cost(Shape, frozen=True):
    """Time and processor time of all attempts together; the most memory of one."""

    wall_seconds: float
    cpu_seconds: float
    peak_memory: int


class StepHead(Shape, frozen=True):
    """A step of a run, without what only the log knows."""

    status: str
    visits: int
    attempts: int
    recovered: bool
    handled: bool
    output: Any
    failure: FailureView | None
    failure_route: FailureRoute | None
    waiting_for: list[WaitView]
    warnings: list[FailureView]
    up_to_date_since: int | None
    paused: PauseView | None
    spent: Spent | None
    budget: dict[str, Any] | None
    faked: bool
    # The last calls of tools by its agent: `tool`, `arguments`, `output`, `error`, shortened.
    tool_calls: list[dict[str, str]]


class DataValue(Shape, frozen=True):
    """A value that a step has set."""

    value: Any
    version: int


class MatrixCounts(Shape, frozen=True):
    """A matrix as a whole: how many of its steps have each status."""

    status: str
    statuses: dict[str, int]
    count: int


class RunHead(Shape, frozen=True):
    """A run without its steps. Of failures and waits the first ones, with their number."""

    run_id: int
    workflow: str
    version: str
    revision: str | None
    status: str
    round: int
    degraded: bool
    reason: str
    created_at: datetime
    updated_at: datetime
    parent_run_id: int | None
    root_run_id: int
    driver: RunDriver | None
    started_by: str
    labels: dict[str, str]
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    data: dict[str, DataValue]
    spent: Spent | None
    budget: dict[str, Any] | None
    workspace: dict[str, Any] | None
    end: StepHead | None
    failures: list[FailedVisitView]
    failure_count: int
    waiting_for: list[WaitView]
    wait_count: int
    # The number of its last event.
    seq: int
    step_count: int
    step_counts: dict[str, int]
    matrices: dict[str, MatrixCounts]
    child_count: int


class WholeStep(StepHead, frozen=True):
    """A step with what the log knows of it."""

    progress: Progress | None
    usage: Cost | None
    items: dict[str, int] | None
    undone: bool
    # A visit could not be undone: what it did may still be in effect.
    undo_failed: bool
    children: list[int]
    # Not of a called run.
    tries: list[AttemptRecord] | Maybe = msgspec.UNSET


class WholeMatrix(Shape, frozen=True):
    """A matrix: its steps with their values, how they stand, and what they cost together."""

    status: str
    statuses: dict[str, int]
    failures: dict[str, int]
    combinations: dict[str, dict[str, Any]]
    attempts: int
    usage: Cost | None


class CalledRun(Shape, frozen=True):
    """A run that a step called; without its steps if there are many."""

    run_id: int
    workflow: str
    version: str
    status: str
    round: int
    degraded: bool
    reason: str
    created_at: datetime
    updated_at: datetime
    parent_run_id: int | None
    driver: RunDriver | None
    step: str
    # The display name of the step: `load[west]` for an item of a map.
    step_name: str
    attempt: int
    steps: dict[str, WholeStep] | None
    matrices: dict[str, WholeMatrix]
    waiting_for: list[WaitView]
    children: list[CalledRun]


class WholeRun(Shape, frozen=True):
    """A run as `mulligan show RUN --json` prints it."""

    run_id: int
    workflow: str
    version: str
    revision: str | None
    status: str
    round: int
    degraded: bool
    reason: str
    created_at: datetime
    updated_at: datetime
    parent_run_id: int | None
    driver: RunDriver | None
    labels: dict[str, str]
    steps: dict[str, WholeStep]
    matrices: dict[str, WholeMatrix]
    failures: list[FailedVisitView]
    outputs: dict[str, Any]
    data: dict[str, DataValue]
    spent: Spent | None
    budget: dict[str, Any] | None
    workspace: dict[str, Any] | None
    end: WholeStep | None
    waiting_for: list[WaitView]
    artifacts: list[KeptFile]
    children: list[CalledRun]


class StepsPage(Shape, frozen=True):
    """Steps in the order of the file; how many match, and how many of all steps have each status."""

    run_id: int
    seq: int
    steps: list[StepLine]
    next: str | None
    total: int
    counts: dict[str, int]
    end: StepLine | None


class StepInMatrix(Shape, frozen=True):
    """The matrix that a step belongs to, and the values of the step."""

    name: str
    values: dict[str, Any]


class StepView(Shape, frozen=True):
    """One step with every attempt at it; or a matrix, which has `statuses`, `failures`, `combinations` and `steps`."""

    run_id: int
    name: str
    status: str
    attempts: int
    usage: Cost | None
    visits: int | Maybe = msgspec.UNSET
    recovered: bool | Maybe = msgspec.UNSET
    handled: bool | Maybe = msgspec.UNSET
    output: Any = msgspec.UNSET
    failure: FailureView | Maybe | None = msgspec.UNSET
    failure_route: FailureRoute | Maybe | None = msgspec.UNSET
    waiting_for: list[WaitView] | Maybe = msgspec.UNSET
    warnings: list[FailureView] | Maybe = msgspec.UNSET
    up_to_date_since: int | Maybe | None = msgspec.UNSET
    paused: PauseView | Maybe | None = msgspec.UNSET
    spent: Spent | Maybe | None = msgspec.UNSET
    budget: dict[str, Any] | Maybe | None = msgspec.UNSET
    faked: bool | Maybe = msgspec.UNSET
    tool_calls: list[dict[str, str]] | Maybe = msgspec.UNSET
    progress: Progress | Maybe | None = msgspec.UNSET
    items: dict[str, int] | Maybe | None = msgspec.UNSET
    undone: bool | Maybe = msgspec.UNSET
    undo_failed: bool | Maybe = msgspec.UNSET
    children: list[int] | Maybe = msgspec.UNSET
    matrix: StepInMatrix | Maybe | None = msgspec.UNSET
    tries: list[AttemptRecord] | Maybe = msgspec.UNSET
    # Of a matrix.
    statuses: dict[str, int] | Maybe = msgspec.UNSET
    failures: dict[str, int] | Maybe = msgspec.UNSET
    combinations: dict[str, dict[str, Any]] | Maybe = msgspec.UNSET
    steps: list[dict[str, Any]] | Maybe = msgspec.UNSET


class ItemsPage(Shape, frozen=True):
    """Items of a map step, or steps of a matrix, in their order."""

    run_id: int
    seq: int
    step: str
    items: list[Item]
    next: str | None
    total: int
    counts: dict[str, int]


class EventView(Shape, frozen=True):
    """An event as it is stored. `fact` has a `type`, and what belongs to it."""

    v: int
    seq: int
    at: datetime
    fact: dict[str, Any]
    caused_by: int = 0


class EventsPage(Shape, frozen=True):
    """Events in their order. A page with `next` may be short, or empty: many events may be of other types."""

    run_id: int
    events: list[EventView]
    next: str | None


class StoryLineView(Shape, frozen=True, omit_defaults=True):
    """A sentence of the story. What is waited for now has no number and no time, and `waiting_for`."""

    run_id: int
    seq: int | None
    at: datetime | None
    place: str
    text: str
    tone: Literal["plain", "good", "bad", "try", "wait"]
    tail: list[str] = []
    # The place as people know it, if that is not `place`: `load[west]`.
    name: str = ""
    waiting_for: WaitView | None = None


class StoryAnswer(Shape, frozen=True):
    """The story of a run; its last page ends with what is waited for now."""

    run_id: int
    lines: list[StoryLineView]
    next: str | None


class ArtifactsAnswer(Shape, frozen=True):
    """The files that the attempts of a run kept."""

    run_id: int
    artifacts: list[KeptFile]


class DataAnswer(Shape, frozen=True):
    """The values that the steps of a run have set, by name."""

    run_id: int
    data: list[DataEntry]


class PendingAnswer(Shape, frozen=True):
    """What waits for a person, oldest run first; and how many wait over all pages."""

    pending: list[PendingEntry]
    next: str | None
    total: int


class RefusalView(Shape, frozen=True):
    """Why something was refused."""

    code: str
    message: str
    hint: str


class DecidedView(Shape, frozen=True):
    """What came of one decision: recorded, or with an error refused; and what follows from it."""

    run_id: int
    step: str
    verdict: Literal["retry", "fail"]
    reason: str
    memory: int | None
    timeout: float | None
    attempt: int | None
    confidence: float | None
    by: str
    is_recorded: bool
    error: RefusalView | None
    follows: list[str]
    starts: list[str]


class DecisionsAnswer(Shape, frozen=True):
    """What came of each decision, in the order in which they were given."""

    dry_run: bool
    decisions: list[DecidedView]


class BreakersAnswer(Shape, frozen=True):
    """The circuit breakers of the store, by name."""

    breakers: list[Breaker]
    next: None = None


class BreakerReset(Shape, frozen=True):
    """How the breaker was before it was closed, or would be."""

    dry_run: bool
    breaker: Breaker


class StatsAnswer(Shape, frozen=True):
    """How often each rung of the ladder was tried and worked, and how often agents that decide were right."""

    stats: list[RungStats]
    agents: list[AgentStats]
    next: None = None


class UsageAnswer(Shape, frozen=True):
    """What steps asked for, what they used, and what they should ask for."""

    run_id: int
    usage: list[StepUsage]
    next: None = None


class WorkersAnswer(Shape, frozen=True):
    """The workers of the store, and what each runs now."""

    workers: list[WorkerLine]
    next: None = None
