"""The state of one run: its places, its edges, its failures; and a journal to take a turn back with.

Owned by whoever holds the run's turn, changed in place by `evolve` alone. What is inside a place is immutable
or replaced whole, so that a shallow copy of it is enough to undo what a turn did.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from operator import methodcaller
from typing import Any

import msgspec

from mulligan.core.model.events import Adjusted, Role, Route, StopCause
from mulligan.core.model.failure import Failure
from mulligan.core.model.failure_context import RetrySummary
from mulligan.core.model.file_records import FileRecord
from mulligan.core.model.graph import Graph
from mulligan.core.model.place_keys import item_key
from mulligan.core.model.spending import NOTHING_SPENT, Spent
from mulligan.core.model.workflow import END, Budget, Command, Step, Workflow
from mulligan.core.state.transitions import ACTIVE, ENDED, RunStatus, Status

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TriageDecision(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last word on a parked step: what was said of which failure, by whom, and why."""

    verdict: str
    by: str
    reason: str
    code: str
    exit_code: int | None = None
    attempt: int = 0


class Climb(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the ladder remembers of one visit: only places that failed have one."""

    # How often each rule granted a retry, and how many attempts failed (lost ones apart).
    retries: dict[int, int] = {}
    tries: int = 0
    losses: int = 0
    # Why rung 1 passed: "" until it did.
    verdict: str = ""
    # The retry that is reserved: due, and whether its recovery script still runs.
    due: datetime | None = None
    is_script_open: bool = False
    # The handler: how often it ran, for which attempt last, whether it runs now, and what its last command gave.
    handled_times: int = 0
    handled_attempt: int = 0
    reruns: int = 0
    handler_output: Any = None
    handler_due: datetime | None = None
    is_handler_late: bool = False
    adjusted: Adjusted | None = None
    parked_due: datetime | None = None
    defaults_used: int = 0
    # Since when it is parked and why, and the last word on it: for whoever decides, here and in later runs.
    parked_at: datetime | None = None
    parked_for: str = ""
    ruling: TriageDecision | None = None
    # What is tried now, as the name of its tally; since when, unless its time is counted already.
    trying: str = ""
    trying_since: datetime | None = None
    # The event that says how its last attempt failed; of an agent, what its present attempt is told of that.
    failure_seq: int = 0
    summary: RetrySummary | None = None
    # Of an agent: what the agent that is the recovery script of its next attempt has answered about that failure.
    advice: Any = None
    # What its last attempt gave, if that was not accepted: for the agent that is to mend it.
    rejected: Any = None


NO_CLIMB = Climb()


class Items(msgspec.Struct, frozen=True):
    """The items of a map step, listed in this visit or taken over. `todo[:next]` were entered in this attempt."""

    values: list[Any]
    visit: int
    todo: tuple[int, ...] = ()
    next: int = 0
    running: int = 0
    failed: int = 0
    # The attempt has ended: its items are judged once, however many of them ended in one turn.
    is_judged: bool = False

    @property
    def counts(self) -> tuple[int, int, int, int, bool]:
        """What changes from item to item: small, whatever the length of the list."""
        return self.visit, self.next, self.running, self.failed, self.is_judged


class StepPause(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody holds a step: who, why, since when."""

    by: str
    reason: str
    at: datetime


class Place(msgspec.Struct):
    """Anything that lives rungs 0 to 2: a step, an item of a map, a command of a handler, a script, an undo.

    Keys: step `build`; item `check[3]`; its first command `check[3].0`; the handler's first command after
    attempt 2 `build.on_failure@2.0`; recovery script `build.script@2`; undo of visit 1 `build.undo@1`.
    """

    key: str
    role: Role
    spec: Command
    status: Status
    parent: str = ""
    index: int = 0
    visit: int = 0
    # The last attempt's number: counted over the whole run, for commands of an item over that item.
    attempt: int = 0
    # Within `running`: "" the attempt itself, then "validating", "finishing"; why it was asked to end ("stopping",
    # "timeout", "deadline"); "stopped" when it did.
    phase: str = ""
    # The command below it that runs now: of its handler, its recovery script, its check …
    child: str = ""
    entered_at: datetime = EPOCH
    entered_seq: int = 0
    due: datetime | None = None
    # The values its expressions gave for the present attempt.
    bindings: dict[str, Any] = {}
    host: str = ""
    worker: str = ""
    output: Any = None
    failure: Failure | None = None
    recovered_by: str = ""
    climb: Climb = NO_CLIMB
    warnings: tuple[Failure, ...] = ()
    items: Items | None = None
    # -- steps only: their standing in the graph
    open_needs: int = 0
    has_dead_need: bool = False
    open_arrivals: int = 0
    taken_arrivals: int = 0
    dead_arrivals: int = 0
    # Arrivals that wait for the present visit to end (any join), or for their own visit (`join: each`).
    queue: tuple[str, ...] = ()
    arrival: str = ""
    # How the graph sees its end: "" while it may still change.
    settled: str = ""
    # The status to keep if a loop put it back and it is not entered again.
    last_status: str = ""
    # Visits before the present round do not count against max_visits.
    visits_before: int = 0
    is_undone: bool = False
    no_route: bool = False
    # A loop edge it took that has not fired.
    loop_edge: int | None = None
    failure_index: int | None = None
    # The event that brought its output, and when: for agents that are told of it.
    given: tuple[int, datetime] | None = None
    # -- items only: what its commands so far have given, null for one that gave nothing. Empty once it has ended
    outputs: tuple[Any, ...] = ()
    # -- steps only: what its last visit that gave anything gave, for a loop that goes on from there
    before: Any = None
    # What its paths with values in them came to in its last attempt: the bindings of its files.
    paths: dict[str, str] = {}
    # What its last visit that completed wrote, and what its result may be found by.
    files: tuple[FileRecord, ...] = ()
    fingerprint: str = ""
    # The run whose result it took over; 0 where it ran.
    reused_run_id: int = 0
    # -- steps only: who holds it, see `holding`
    pause: StepPause | None = None
    # -- steps only: what its agents have spent, in all visits and rounds
    spent: Spent = NOTHING_SPENT
    # Of a fork: the run that did what is kept here; 0 where it ran here, or took over the result itself.
    kept_run_id: int = 0

    @property
    def result_run_id(self) -> int:
        """The run that did what its result stands for; 0 for the place's own."""
        return self.reused_run_id or self.kept_run_id

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED


class FailureRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A failed visit of a step, and where its failure was sent."""

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
    # The handler's strategy, where it recovered the visit: then nothing failed after all.
    recovered_by: str = ""
    # A later round gave the step another chance: it no longer counts.
    is_closed: bool = False
    # What rung 4 decided, and why.
    route: Route = Route("no_route")
    # Of an agent: what its last attempt was told of the one before.
    summary: RetrySummary | None = None


class PastVisit(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an earlier visit of a step ended."""

    status: str
    failure_index: int | None = None


class UndoableVisit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A completed visit of a step that has an `undo`, and has not been undone."""

    step: str
    visit: int
    output: Any = None


class Tally(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often something was tried, how often it worked, and how long those took that have come to something."""

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


class Loop(msgspec.Struct, frozen=True):
    """A loop edge that was taken and has not fired: it waits for its time, and for its region to rest."""

    step: str
    edge: int
    to: str
    due: datetime
    busy: int


class Revision(msgspec.Struct, frozen=True, omit_defaults=True):
    """The corrected definition that a run goes by: its version, and the file it was read from."""

    version: str
    file: str = ""
    digest: str = ""


class Run(msgspec.Struct):
    """What is true of the run as a whole. Small: it is copied at the start of each turn."""

    run_id: int = 0
    status: RunStatus | str = "new"
    round: int = 1
    seq: int = 0
    at: datetime = EPOCH
    inputs: dict[str, Any] = {}
    version: str = ""
    parent_run_id: int | None = None
    cwd: str = ""
    # How many steps are active, and how many wait (without `end`).
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
    # A name that no other run has, in any store.
    uid: str = ""
    # What this round was opened for: some items of a map step; more memory or time, by step.
    items_of: str = ""
    adjustments: dict[str, Adjusted] = {}
    # The steps that somebody holds, in the order in which it was asked for.
    paused_steps: tuple[str, ...] = ()
    # Whether steps without changes take over the result of an earlier run, and which steps never do.
    changed_only: bool = False
    forced: tuple[str, ...] = ()
    # None while it goes by the definition that it was started with, which is `version`.
    revision: Revision | None = None
    # What its agents have spent, in all rounds; budgets that were raised since it was started, by step, "" of the run;
    # and what the run that called it had left.
    spent: Spent = NOTHING_SPENT
    budgets: dict[str, Budget] = {}
    callers_budget: Budget | None = None

    @property
    def present_version(self) -> str:
        """The version of the definition that the run goes by now."""
        return self.version if self.revision is None else self.revision.version


_MISSING: Any = object()
_POPPED: Any = object()
# A struct's own shallow copy: `copy.copy` would look for it at every call.
_copy = methodcaller("__copy__")
# What two states of one run are compared by.
STATE_TABLES = tuple("run places arcs barriers failures recoveries undoables past routed informed tallies".split())


class State:
    """One run. Read it freely; only `evolve` writes, through `touch` and `put`, so that a turn can be taken back."""

    def __init__(self, workflow: Workflow, graph: Graph | None = None) -> None:
        self.workflow = workflow
        self.graph = graph or Graph(workflow)
        self.run = Run()
        self.places: dict[str, Place] = {}
        # Resolved arcs: "arrived" (its source may still be visited again), "taken" or "dead". Absent: open.
        self.arcs: dict[str, str] = {}
        # Barriers: how many members are unsettled, and how many settled badly.
        self.barriers: dict[str, tuple[int, int]] = {}
        self.failures: list[FailureRecord] = []
        # Failures that a handler recovered: they fail nothing, and are not forgotten.
        self.recoveries: list[FailureRecord] = []
        self.undoables: list[UndoableVisit] = []
        self.past: dict[tuple[str, int], PastVisit] = {}
        # Failures by the visit they were routed to.
        self.routed: dict[tuple[str, int], tuple[int, ...]] = {}
        # Failures by the visit that is told of them: where they were routed, and whoever is alerted beside.
        self.informed: dict[tuple[str, int], tuple[int, ...]] = {}
        # How the rungs did, by name: see `tallies`. A run without failures has none.
        self.tallies: dict[str, Tally] = {}
        # The tables by identity: the journal holds the tables themselves, and is read by their names.
        self._names = {id(getattr(self, name)): name for name in STATE_TABLES[1:]}
        self._journal: list[tuple[Any, Any, Any]] | None = None
        self._touched: set[str] = set()
        self._saved: Run | None = None
        self._saved_graph = self.graph

    # -- reading -------------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[Place]:
        """The steps in file order, without `end`."""
        return (self.places[name] for name in self.graph.nodes)

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

    def items_of(self, place: Place) -> list[Place | None]:
        """The items of a map step in the order of its list; None for one that nobody has begun."""
        total = len(place.items.values) if place.items else 0
        return [self.places.get(item_key(place.key, index)) for index in range(total)]

    def is_left_to_finish(self, place: Place) -> bool:
        """Whether a place that a stop asked to end may do so by itself: `finish`. A handler's limit still holds."""
        is_late = any(above.climb.is_handler_late for above in self.ancestors(place))
        return self.run.stop is not None and self.workflow.cancel_grace is None and not is_late

    # -- writing, for `evolve` -----------------------------------------------------------------------------------

    def touch(self, key: str) -> Place:
        """The place, to be changed: saved first if a turn is under way."""
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
        """Go by another definition. `rollback` takes that back as well."""
        self.workflow, self.graph = graph.workflow, graph

    # -- turns ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start to remember, so that `rollback` can take back everything from here on."""
        self._journal = []
        self._touched = set()
        self._saved, self._saved_graph = _copy(self.run), self.graph

    def commit(self) -> None:
        self._journal = None
        self._touched = set()
        self._saved, self._saved_graph = None, self.graph

    def rollback(self) -> None:
        """Everything since `begin` never happened."""
        assert self._journal is not None and self._saved is not None, "no turn is under way"
        for table, key, old in reversed(self._journal):
            if key is None:
                table.pop()
            elif key is _POPPED:
                table.append(old)
            elif old is _MISSING:
                table.pop(key, None)
            else:
                table[key] = old
        self.run = self._saved
        self.revise(self._saved_graph)
        self.commit()

    def run_before(self) -> Run:
        """The run as it was at `begin`."""
        assert self._saved is not None, "no turn is under way"
        return self._saved

    @property
    def is_revised(self) -> bool:
        """Whether it goes by another definition than at `begin`."""
        return self.graph is not self._saved_graph

    def changed_entries(self) -> dict[tuple[str, Any], Any]:
        """What may have changed since `begin`: table and key (in lists the index), and what stood there before.

        None where nothing stood. Costs time in proportion to the turn, never to the run.
        """
        assert self._journal is not None, "no turn is under way"
        names = self._names
        found: dict[tuple[str, Any], Any] = {}
        lengths: dict[str, int] = {}
        # Backwards, as `rollback` goes: so the last word on a key is the oldest, and a list has its length of then.
        for table, key, old in reversed(self._journal):
            name = names[id(table)]
            if key is None or key is _POPPED:
                length = lengths.get(name, len(table))
                key, lengths[name] = (length, length + 1) if key is _POPPED else (length - 1, length - 1)
            found[name, key] = None if old is _MISSING else old
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and all(getattr(self, name) == getattr(other, name) for name in STATE_TABLES)

    __hash__ = None  # type: ignore[assignment]
