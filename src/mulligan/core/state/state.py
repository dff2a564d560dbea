"""The state of one run: its places, edges and failures, with a journal to roll a turn back.

Only `evolve` changes it, in place, for the engine that holds the run's turn. The values in a place are immutable and
replaced as a whole, so that a shallow copy of a place is enough to undo a turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from operator import methodcaller
from typing import Any

import msgspec

from mulligan.core.model.actions import traits_of
from mulligan.core.model.agents.conversation import SessionPart
from mulligan.core.model.agents.spending import NOTHING_SPENT, Spent
from mulligan.core.model.event_types import (
    Adjusted,
    AvoidedHosts,
    ChildRound,
    ReceivedEvent,
    Role,
    Route,
    StopCause,
    WorktreeOrigin,
)
from mulligan.core.model.failure import Failure
from mulligan.core.model.failure_context import RetrySummary
from mulligan.core.model.file_records import FileRecord
from mulligan.core.model.graph import Graph, Node
from mulligan.core.model.place_keys import item_key
from mulligan.core.model.reports import RetryRequested
from mulligan.core.model.run_data import DataValue
from mulligan.core.model.workflow import END, Budget, Command, NoticeRule, Step, Verdict, Workflow
from mulligan.core.state.conversation_records import CalledTool, Conversation
from mulligan.core.state.program_progress import DroppedCall, ProgramProgress, RecordedCall, ResultKey
from mulligan.core.state.transitions import ACTIVE, ENDED, RunStatus, Status

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The definition of a place that has none in the workflow: an item of a map.
ITEM = Command()


class TriageDecision(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last verdict on a parked step: about which failure, by whom, and why."""

    verdict: str
    by: str
    reason: str
    code: str
    exit_code: int | None = None
    attempt: int = 0


class RecordedDecision(TriageDecision, frozen=True, omit_defaults=True):
    """A verdict as it is kept for whoever decides about the same error later."""

    at: datetime = EPOCH
    # Nobody decided in time.
    is_default: bool = False


class Suggestion(msgspec.Struct, frozen=True):
    """What the triager answered about a parked step, if anything, and why that was not applied."""

    agent: str
    why_not: str
    detail: str = ""
    verdict: Verdict | None = None
    confidence: float | None = None
    reason: str = ""
    memory: int | None = None
    timeout: float | None = None
    rule: str = ""


class RecoveryProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of the ladder in one visit. Only places that failed have one."""

    # How often each rule granted a retry, and how many attempts failed (without lost ones).
    retries: dict[int, int] = {}
    tries: int = 0
    losses: int = 0
    # Why rung 1 granted no retry; "" until it was passed.
    verdict: str = ""
    # The reserved retry: when it is due, and whether its recovery script still runs.
    due: datetime | None = None
    is_script_open: bool = False
    # The handler: how often it ran, for which attempt last, its reruns, and the output of its last command.
    handled_times: int = 0
    handled_attempt: int = 0
    reruns: int = 0
    handler_output: Any = None
    handler_due: datetime | None = None
    is_handler_late: bool = False
    adjusted: Adjusted | None = None
    parked_due: datetime | None = None
    defaults_used: int = 0
    # Since when it is parked and why, and the last verdict: shown to the person who decides, here and in later runs.
    parked_at: datetime | None = None
    parked_for: str = ""
    ruling: TriageDecision | None = None
    # The rung that is tried now, as the key of its tally; since when, unless its time is already counted.
    trying: str = ""
    trying_since: datetime | None = None
    # The event of its last failure; for an agent, the summary of it that the current attempt gets.
    failure_seq: int = 0
    summary: RetrySummary | None = None
    # For an agent: what an agent in its recovery script answered about the failure.
    advice: Any = None
    # The output of its last attempt if it was rejected, for the agent that is to repair it.
    rejected: Any = None
    # For a parked step: what its triager suggests.
    suggestion: Suggestion | None = None
    # The hosts that the next attempt avoids.
    avoids: AvoidedHosts | None = None
    # How often the end of a worker's time interrupted it, and how long the next worker must run on: see `worker_time`.
    time_ends: int = 0
    seconds_min: float = 0.0


NOTHING_TRIED = RecoveryProgress()


class Items(msgspec.Struct, frozen=True, array_like=True):
    """The items of a map step, listed in this visit or taken over. `todo[:next]` were entered in this attempt."""

    # First `counts`, in their order: a row of a place is decoded as it is.
    visit: int
    next: int = 0
    running: int = 0
    failed: int = 0
    # The attempt has ended: a map is concluded once, however many items ended in one turn.
    is_judged: bool = False
    # How many of those that failed did so with a critical failure.
    critical: int = 0
    values: list[Any] = []  # from here on in a row of their own
    todo: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def counts(self) -> tuple[int, int, int, int, bool, int]:
        """The values that change from item to item: small, whatever the length of the list."""
        return self.visit, self.next, self.running, self.failed, self.is_judged, self.critical


class LastChild(msgspec.Struct, frozen=True, omit_defaults=True):
    """The child run that a place has called last, if it did not complete, or is continued now."""

    run_id: int
    round: int
    called_with: str
    # The visit and the attempt that called it last, and the event of its last end.
    visit: int
    attempt: int
    seq: int
    # It could not undo all that it did.
    undo_failed: bool = False


class StepPause(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step is paused: by whom, why, since when."""

    by: str
    reason: str
    at: datetime


class Stepping(msgspec.Struct, frozen=True):
    """The run was resumed for some steps only: how many, how many may still start, and the visits that may run."""

    asked: int
    left: int
    visits: tuple[tuple[str, int], ...] = ()


class Place(msgspec.Struct, array_like=True):
    """Anything that has rungs 0 to 2: a step, an item of a map, a command of a handler, a script, an undo.

    Keys: step `build`; item `check[3]`; its first command `check[3].0`; the handler's first command after
    attempt 2 `build.on_failure@2.0`; recovery script `build.script@2`; triager `build.triager@2`; undo of visit 1
    `build.undo@1`; the third question to the model of an agent in attempt 1 `ask.model@1.2`, and the first call of a
    tool `ask.tool@1.0`.

    The fields are in the order of its row in the store, which is decoded as it is: a new field goes before `key`.
    """

    role: Role
    status: Status
    parent: str = ""
    index: int = 0
    visit: int = 0
    # The number of the last attempt: counted over the whole run; for commands of an item, over that item.
    attempt: int = 0
    # Within `running`: "" for the attempt itself, then "validating", "finishing"; why it was asked to end ("stopping",
    # "timeout", "deadline"); "stopped" after it has ended.
    phase: str = ""
    # The command below it that runs now: of its handler, its recovery script, its check …
    child: str = ""
    entered_at: datetime = EPOCH
    entered_seq: int = 0
    due: datetime | None = None
    # The values of its expressions for the current attempt.
    bindings: dict[str, Any] = {}
    host: str = ""
    worker: str = ""
    output: Any = None
    failure: Failure | None = None
    recovered_by: str = ""
    climb: RecoveryProgress = NOTHING_TRIED
    warnings: tuple[Failure, ...] = ()
    items: Items | None = None
    # -- steps only: their state in the graph
    open_needs: int = 0
    has_dead_need: bool = False
    open_arrivals: int = 0
    taken_arrivals: int = 0
    dead_arrivals: int = 0
    # Arrivals that wait for the current visit to end (any join), or for their own visit (`join: each`).
    queue: tuple[str, ...] = ()
    arrival: str = ""
    # The final outcome of the step for the graph; "" while it may still change.
    settled: str = ""
    # The status to restore if a loop put it back and it is not entered again.
    last_status: str = ""
    # Visits before the current round do not count against max_visits.
    visits_before: int = 0
    is_undone: bool = False
    no_route: bool = False
    # A loop edge that it took and that has not fired.
    loop_edge: int | None = None
    failure_index: int | None = None
    # The event that brought its output, and its time: for the context of agents.
    given: tuple[int, datetime] | None = None
    # -- items only: the outputs of its commands so far, null for none. Empty after the item has ended
    outputs: tuple[Any, ...] = ()
    # -- steps only: the output of its last visit that had one, for a loop that continues from it
    before: Any = None
    # The values of its templated file paths in its last attempt: the bindings of its files.
    paths: dict[str, str] = {}
    # The files of its last completed visit, and the fingerprint by which later runs find its result.
    files: tuple[FileRecord, ...] = ()
    fingerprint: str = ""
    # The run whose result it took over; 0 if it ran itself.
    reused_run_id: int = 0
    # -- steps only: set while it is paused, see `held_steps`
    pause: StepPause | None = None
    # -- steps only: what its agents have spent in all visits and rounds
    spent: Spent = NOTHING_SPENT
    # In a fork: the run whose result is kept here; 0 if the step ran here or took over the result itself.
    kept_run_id: int = 0
    # The data of the run that its attempt sets if its result is accepted.
    data: dict[str, Any] = {}
    # For an agent with tools or a session. For a tool: the call.
    conversation: Conversation | None = None
    call: CalledTool | None = None
    # What the next attempt may continue. For an item: the child run of its first command.
    last_child: LastChild | None = None
    # -- steps only: a visit could not be undone. Then it is not `is_undone`, whatever became of its other visits
    has_failed_undo: bool = False
    # For a program: how far it is. For the step of a call: that its end was the n-th, from 1, and when; and that its
    # program does not want it any more.
    program: ProgramProgress | None = None
    delivery: tuple[int, datetime] | None = None
    is_unwanted: bool = False
    # -- not in its row: the key of the row, and its definition in the workflow
    key: str = ""
    spec: Command = ITEM

    @property
    def result_run_id(self) -> int:
        """The run that produced the result; 0 for this run."""
        return self.reused_run_id or self.kept_run_id

    @property
    def undo_failed(self) -> bool:
        """Whether a visit could not be undone, so that what it did may still be in effect.

        Earlier releases counted it as undone, with a warning.
        """
        return self.has_failed_undo or (self.is_undone and any(one.code == "UNDO_FAILED" for one in self.warnings))

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def is_open_approval(self) -> bool:
        """Whether it waits for the answer of a person."""
        return self.status == "running" and not self.phase and traits_of(self.spec.action).asks_person


class FailureRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A failed visit of a step, and where its failure was routed."""

    index: int
    step: str
    visit: int
    failure: Failure
    seq: int
    at: datetime
    entered_seq: int = 0
    attempt: int = 0
    retries_used: int = 0
    max_retries: int = 0
    reason: str = ""
    target: str = ""
    target_visit: int = 0
    then: str = ""
    is_allowed: bool = False
    recovered_by: str = ""  # the strategy of the handler that recovered the visit
    is_closed: bool = False  # a later round runs the step again: this failure no longer counts
    # Of a call: its program has failed for another reason, so that it has caught this.
    is_caught: bool = False
    # The visit that it was routed to was skipped. Another arrival may get its number later.
    is_target_skipped: bool = False
    # The decision of rung 4, and why.
    route: Route = Route("no_route")
    # For an agent: the summary of the attempt before that its last attempt got.
    summary: RetrySummary | None = None


class PastVisit(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an earlier visit of a step ended."""

    status: str
    failure_index: int | None = None


class UndoableVisit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A completed visit of a step with an `undo` that was not undone yet."""

    step: str
    visit: int
    output: Any = None
    # The round in which its undo failed last, 0 if it did not; and the number of the last attempt at it.
    failed_round: int = 0
    attempt: int = 0


class Tally(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often something was tried, how often it worked, and the total time of those that have ended."""

    tried: int = 0
    worked: int = 0
    judged: int = 0
    seconds: float = 0.0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.tried + other.tried,
            self.worked + other.worked,
            self.judged + other.judged,
            self.seconds + other.seconds,
        )


class Stop(msgspec.Struct, frozen=True, omit_defaults=True):
    cause: StopCause
    now: bool = False
    by: str = ""
    reason: str = ""
    # A corrected program, with which the run goes on.
    correction: RetryRequested | None = None


class Loop(msgspec.Struct, frozen=True):
    """A loop edge that was taken and has not fired: it waits until it is due and no step of its region is active."""

    step: str
    edge: int
    to: str
    due: datetime
    busy: int


class Revision(msgspec.Struct, frozen=True, omit_defaults=True):
    """The corrected definition that a run uses: its version, and the file it was read from."""

    version: str
    file: str = ""
    digest: str = ""


class Run(msgspec.Struct):
    """The state of the run as a whole. Small, since it is copied at the start of each turn."""

    run_id: int = 0
    status: RunStatus | str = "new"
    round: int = 1
    seq: int = 0
    at: datetime = EPOCH
    inputs: dict[str, Any] = {}
    version: str = ""
    parent_run_id: int | None = None
    cwd: str = ""
    # How many steps are active, and how many are waiting (without `end`).
    active: int = 0
    waiting: int = 0
    stop: Stop | None = None
    paused_at: datetime | None = None
    due: datetime | None = None
    is_time_up: bool = False
    loops: dict[str, Loop] = {}
    loops_taken: dict[str, int] = {}
    # Timers that fired while paused: (kind, place, number).
    held: tuple[tuple[str, str, int], ...] = ()
    # Places whose engine action (wait, approve, workflow) could not start because the run is paused.
    unstarted: tuple[str, ...] = ()
    undoing: str = ""
    has_undone: bool = False
    outputs: dict[str, Any] = {}
    degraded: bool = False
    reason: str = ""
    # A name that is unique over all stores.
    uid: str = ""
    # What this round was opened for: a map step of which some items run; larger limits, by step.
    items_of: str = ""
    adjustments: dict[str, Adjusted] = {}
    # The paused steps, in the order in which they were paused.
    paused_steps: tuple[str, ...] = ()
    # Whether unchanged steps take over the result of an earlier run, and which steps never do.
    changed_only: bool = False
    forced: tuple[str, ...] = ()
    # None while it uses the definition that it was started with, which is `version`.
    revision: Revision | None = None
    # What its agents have spent in all rounds; budgets raised since the start, by step, "" for the run; and what the
    # calling run had left.
    spent: Spent = NOTHING_SPENT
    budgets: dict[str, Budget] = {}
    callers_budget: Budget | None = None
    data: dict[str, DataValue] = {}
    # Set while it runs some steps only, and in the pause after them: see `held_steps`.
    stepping: Stepping | None = None
    # The folder of its worktree in which its steps run; "" if it has none.
    workspace: str = ""
    # Who is notified about it besides those that its workflow names; when it is late next, and after how many seconds.
    notify: tuple[NoticeRule, ...] = ()
    late_due: datetime | None = None
    late_after: float = 0.0
    # How many decisions of triagers were applied, over all rounds.
    agent_decisions: int = 0
    # What earlier agents said, by session.
    sessions: dict[str, tuple[SessionPart, ...]] = {}
    # In a fork that continues another run: the last event that happened there.
    forked_at: int = 0
    # What this round was opened for: the round of one child run, until that has begun.
    child_round: ChildRound | None = None
    # Whether completed steps keep their results in this round; it holds for the rounds of child runs too.
    keep_completed: bool = False
    # Whether steps of child runs that ran out of memory or time get more in this round.
    adjusts: bool = False
    # For a child run that was continued: the attempt of its parent, and what was spent before this round.
    called_attempt: int = 0
    spent_before: Spent = NOTHING_SPENT
    # In a fork of a run with a worktree: what its own worktree is copied from.
    worktree_origin: WorktreeOrigin | None = None
    # How often such a fork was stopped in this round: by the first stop what was left from the other run goes on.
    stops: int = 0
    # Whether steps run again in this round although their undo has failed.
    is_forced: bool = False
    # What its program has published last.
    published: dict[str, Any] = {}

    @property
    def present_version(self) -> str:
        """The version of the definition that the run uses now."""
        return self.version if self.revision is None else self.revision.version


# What `State.return_to` needs.
Mark = tuple[Any, ...]
_MISSING: Any = object()
_POPPED: Any = object()
# The shallow copy of a struct, without the lookup that `copy.copy` does at every call.
_copy = methodcaller("__copy__")
# The attributes by which two states are compared.
STATE_TABLES = tuple(
    "run places arcs barriers failures recoveries undoables past routed informed tallies decisions "
    "calls definitions dropped received".split()
)
# Those that are made of them, and in no row.
_INDEXES = tuple(
    "labels dropped_labels kept_results results_taken deliveries free_events event_keys event_waits".split()
)


class State:
    """One run. Only `evolve` writes it, through `touch`, `put` and the like, so that a turn can be rolled back."""

    def __init__(self, workflow: Workflow, graph: Graph | None = None) -> None:
        self.workflow = workflow
        self.graph = (graph or Graph(workflow)).for_run()
        self.run = Run()
        self.places: dict[str, Place] = {}
        # Decided arcs: "arrived" (the source may be visited again), "taken" or "dead". Absent: open.
        self.arcs: dict[str, str] = {}
        # Barriers: how many members are unsettled, and how many settled without meeting the condition.
        self.barriers: dict[str, tuple[int, int]] = {}
        self.failures: list[FailureRecord] = []
        # Failures that a handler recovered: they fail nothing and are kept for the record.
        self.recoveries: list[FailureRecord] = []
        self.undoables: list[UndoableVisit] = []
        self.past: dict[tuple[str, int], PastVisit] = {}
        # Failures by the visit they were routed to; not those of a program's calls, see `failures_routed_to`.
        self.routed: dict[tuple[str, int], tuple[int, ...]] = {}
        # Failures by the visit that gets their context: where they were routed, and steps that are alerted.
        self.informed: dict[tuple[str, int], tuple[int, ...]] = {}
        # How often each rung was tried and worked, by key: see `tallies`. Empty in a run without failures.
        self.tallies: dict[str, Tally] = {}
        # All verdicts on parked steps, by step and event. Runs that older releases decided about lack those.
        self.decisions: dict[tuple[str, int], RecordedDecision] = {}
        # The calls of programs by label, the name of a step unless it is a value; and the definitions by digest.
        self.calls: dict[str, RecordedCall] = {}
        self.definitions: dict[str, Step] = {}
        # The labels of the calls by branch and ordinal: like the nodes of the graph made of the calls, and in no row.
        self.labels: dict[tuple[str, int], str] = {}
        # Those that earlier rounds dropped, by label. In no row: labels by identity, and by the number of their end.
        self.dropped: dict[str, DroppedCall] = {}
        self.dropped_labels: dict[tuple[str, int, str], frozenset[str]] = {}
        # Those of them whose results are offered, in the order in which they were made; how many of them were taken.
        self.kept_results: dict[ResultKey, tuple[str, ...]] = {}
        self.results_taken: dict[ResultKey, int] = {}
        self.deliveries: dict[int, str] = {}
        # The events that were sent to the run, by the number of their entry in the log. In no row: those that nobody
        # has taken by name, those with a key by that, and the names of the events for which places wait.
        self.received: dict[str, ReceivedEvent] = {}
        self.free_events: dict[str, tuple[int, ...]] = {}
        self.event_keys: dict[str, int] = {}
        self.event_waits: dict[str, str] = {}
        # The last task of a program, with what it was made of: see `core.ordinary`.
        self.turn_task: tuple[Any, Any] | None = None
        # The names of the tables by identity: the journal holds the tables themselves.
        self._names = {id(getattr(self, name)): name for name in STATE_TABLES[1:]}
        self._journal: list[tuple[Any, Any, Any]] | None = None
        self._touched: set[str] = set()
        self._saved: Run | None = None
        self._saved_graph = self.graph

    # -- reading -------------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[Place]:
        """The steps in file order, without `end`."""
        return map(self.places.__getitem__, self.graph.nodes)

    def status_of(self, name: str) -> str:
        """The status of a step."""
        return self.places[name].status

    def statuses(self) -> Iterator[str]:
        """The status of each place."""
        return (place.status for place in self.places.values())

    def others(self) -> Iterator[Place]:
        """The places that are no steps: items, commands, checks."""
        return (place for place in self.places.values() if place.role != "step")

    def step(self, name: str) -> Step:
        return self.workflow.end if name == END else self.graph.nodes[name].step

    def ancestors(self, place: Place) -> Iterator[Place]:
        """The place itself, its parent, and so on up to its step."""
        yield place
        while place.parent:
            place = self.places[place.parent]
            yield place

    def step_of(self, place: Place) -> Place:
        """The step that a place belongs to."""
        while place.parent:
            place = self.places[place.parent]
        return place

    def owner_of_file(self, place: Place, name: str) -> Place:
        """The place that declares a file which an attempt at it or below it writes: a command of an item, or a step."""
        while place.parent and not (place.role == "do" and name in place.spec.writes):
            place = self.places[place.parent]
        return place

    def items_of(self, place: Place) -> list[Place | None]:
        """The items of a map step in the order of its list; None for an item that was not entered."""
        total = len(place.items.values) if place.items else 0
        return [self.places.get(item_key(place.key, index)) for index in range(total)]

    def undoable_index(self, step: str, visit: int) -> int:
        """Where a visit that was not undone yet stands in `undoables`. Nearly always it is one of the last."""
        indexes = range(len(self.undoables) - 1, -1, -1)
        return next(i for i in indexes if (self.undoables[i].step, self.undoables[i].visit) == (step, visit))

    @property
    def visit_being_undone(self) -> int:
        """The index in `undoables` of the visit that is being undone; `run.undoing` is not empty."""
        step, _, visit = self.run.undoing.rpartition(".undo@")
        return self.undoable_index(step, int(visit))

    def is_left_to_finish(self, place: Place) -> bool:
        """Whether a stopped place may finish by itself (`cancel_grace: finish`). A handler timeout still applies."""
        is_late = any(above.climb.is_handler_late for above in self.ancestors(place))
        return self.run.stop is not None and self.workflow.cancel_grace is None and not is_late

    # -- writing, for `evolve` -----------------------------------------------------------------------------------

    def touch(self, key: str) -> Place:
        """The place, for a change; saved to the journal first during a turn."""
        place = self.places[key]
        journal = self._journal
        if journal is not None and key not in self._touched:
            self._touched.add(key)
            journal.append((self.places, key, _copy(place)))
        return place

    def put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        if self._journal is not None:
            self._journal.append((table, key, table.get(key, _MISSING)))
        table[key] = value

    def add(self, place: Place) -> None:
        if self._journal is not None:
            self._touched.add(place.key)
            self._journal.append((self.places, place.key, _MISSING))
        self.places[place.key] = place

    def drop(self, table: dict[Any, Any], key: Any) -> None:
        if key in table:
            if self._journal is not None:
                self._journal.append((table, key, table[key]))
            del table[key]

    def append(self, table: list[Any], value: Any) -> None:
        if self._journal is not None:
            self._journal.append((table, None, None))
        table.append(value)

    def take_last(self, table: list[Any]) -> None:
        value = table.pop()
        if self._journal is not None:
            self._journal.append((table, _POPPED, value))

    def set_at(self, table: list[Any], index: int, value: Any) -> None:
        if self._journal is not None:
            self._journal.append((table, index, table[index]))
        table[index] = value

    def revise(self, graph: Graph) -> None:
        """Use another definition. `rollback` undoes this too."""
        self.workflow, self.graph = graph.workflow, graph.for_run()
        self._add_nodes(self.calls)

    def add_call(self, label: str, call: RecordedCall) -> None:
        """Add a call, with the node of its step unless it is a value."""
        self.put(self.calls, label, call)
        self.put(self.labels, (call.branch, call.ordinal), label)
        if call.kind != "value":
            self.put(self.graph.nodes, label, Node(self.definitions[call.definition], call.index + 1))

    def drop_call(self, label: str) -> None:
        """Remove a call, with its step."""
        call = self.calls[label]
        self.drop(self.calls, label)
        self.drop(self.labels, (call.branch, call.ordinal))
        self.drop(self.graph.nodes, label)
        self.drop(self.places, label)

    def failures_routed_to(self, step: str, visit: int) -> list[FailureRecord]:
        """The failures that were routed to this visit, in order."""
        if step == self.graph.program:
            # All of its calls: a row of their numbers would be written anew with each.
            return [one for one in self.failures if (one.target, one.target_visit) == (step, visit)]
        return [self.failures[index] for index in self.routed.get((step, visit), ())]

    @property
    def has_open_calls(self) -> bool:
        """Whether a call of a program has not ended: all nodes but that of the program are those of calls."""
        return len(self.deliveries) < len(self.graph.nodes) - 1

    def restore_calls(self, calls: dict[str, RecordedCall]) -> None:
        """Add calls that were read from rows."""
        self.calls.update(calls)
        self.labels.update({(call.branch, call.ordinal): label for label, call in calls.items()})
        self._add_nodes(calls)

    def restore_deliveries(self) -> None:
        """Index the ends of calls, when their places were read from rows."""
        places = (self.places[label] for label in self.calls if label in self.places)
        self.deliveries.update({place.delivery[0]: place.key for place in places if place.delivery is not None})

    def _add_nodes(self, calls: dict[str, RecordedCall]) -> None:
        nodes = self.graph.nodes
        for label, call in calls.items():
            if call.kind != "value":
                nodes[label] = Node(self.definitions[call.definition], call.index + 1)

    # -- turns ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start a turn: record all changes so that `rollback` can undo them."""
        self._journal = []
        self._touched = set()
        self._saved, self._saved_graph = _copy(self.run), self.graph

    def commit(self) -> None:
        self._journal = None
        self._touched = set()
        self._saved, self._saved_graph = None, self.graph

    def rollback(self) -> None:
        """Undo everything since `begin`."""
        assert self._journal is not None and self._saved is not None, "no turn has begun"
        has_dropped_call = False
        for table, key, old in reversed(self._journal):
            has_dropped_call = has_dropped_call or (table is self.calls and key not in table)
            if key is None:
                table.pop()
            elif key is _POPPED:
                table.append(old)
            elif old is _MISSING:
                table.pop(key, None)
            else:
                table[key] = old
        self.run = self._saved
        self.workflow, self.graph = self._saved_graph.workflow, self._saved_graph
        if has_dropped_call:
            # They are behind all others now, and their order decides.
            calls = sorted(self.calls.items(), key=lambda item: item[1].index)
            for label, call in calls:
                self.calls[label] = self.calls.pop(label)
                if call.kind != "value":
                    self.graph.nodes[label] = self.graph.nodes.pop(label)
        self.commit()

    def copy(self) -> State:
        """An independent state with the same content. The values in places are immutable, so they are shared."""
        other = State(self.workflow, self.graph)
        other.run = _copy(self.run)
        other.places.update((key, _copy(place)) for key, place in self.places.items())
        for name in STATE_TABLES[2:]:
            table, new = getattr(self, name), getattr(other, name)
            new.extend(table) if isinstance(table, list) else new.update(table)
        for index in _INDEXES:
            getattr(other, index).update(getattr(self, index))
        if self.calls:
            other.graph.nodes.update(self.graph.nodes)
        return other

    def mark(self) -> Mark:
        """Begin to record changes that `return_to` undoes, also within a turn or after another mark."""
        outer = self._journal, self._touched, self._saved, self._saved_graph
        self.begin()
        return outer

    def return_to(self, mark: Mark) -> None:
        """Undo everything since `mark`, the last one that was not returned to."""
        self.rollback()
        self._journal, self._touched, self._saved, self._saved_graph = mark

    def run_before(self) -> Run:
        """The run as it was at `begin`."""
        assert self._saved is not None, "no turn has begun"
        return self._saved

    @property
    def is_revised(self) -> bool:
        """Whether the definition was changed since `begin`."""
        return self.graph is not self._saved_graph

    def changed_entries(self) -> dict[tuple[str, Any], Any]:
        """What may have changed since `begin`: table and key (the index in lists), with the old value or None.

        Takes time in proportion to the turn, not to the run.
        """
        assert self._journal is not None, "no turn has begun"
        names, places = self._names, self.places
        found: dict[tuple[str, Any], Any] = {}
        lengths: dict[str, int] = {}
        # Backwards like `rollback`: the oldest value of a key wins, and lists have their length of that time.
        for table, key, old in reversed(self._journal):
            name = "places" if table is places else names.get(id(table))
            if name is None:
                # Made of other tables: the labels of calls, and the nodes of their steps.
                continue
            if key is None or key is _POPPED:
                length = lengths.get(name, len(table))
                key, lengths[name] = (length, length + 1) if key is _POPPED else (length - 1, length - 1)
            found[name, key] = None if old is _MISSING else old
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State) or any(getattr(self, name) != getattr(other, name) for name in STATE_TABLES):
            return False
        # Their order decides what a round does.
        return list(self.calls) == list(other.calls)

    __hash__ = None  # type: ignore[assignment]
