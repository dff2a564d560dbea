"""One step or one item in detail: every attempt and what led to it, and the recovery ladder of each failed visit.

It reads only the events of that step, so that it stays fast in a run of any size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal

import msgspec

from mulligan.core.deciding.conditions import describe_rule, matching_rule
from mulligan.core.model import events as e
from mulligan.core.model.failure import Failure
from mulligan.core.model.place_keys import is_at_or_below, item_key, step_name
from mulligan.core.model.text.item_words import NAMED_MAX
from mulligan.core.model.workflow import END, Command, Workflow
from mulligan.core.state.state import Items, Place, RecoveryProgress, State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import UnknownItem
from mulligan.history.edge_reasons import edges_after_failure
from mulligan.history.item_names import item_names
from mulligan.history.matrices import group_status
from mulligan.history.retry_reasons import why_not
from mulligan.history.route_outcomes import FailureOutcome
from mulligan.history.story import StoryWriter
from mulligan.history.views import Wait
from mulligan.ports import RunRecord
from mulligan.service.runs.stored.artifacts import KeptFile, kept_files
from mulligan.service.runs.stored.attempts import Attempts, Outcome, Part
from mulligan.service.runs.stored.run_cache import CachedRun, RunCache
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.stored.step_events import NO_ITEM
from mulligan.service.runs.views.attempt_progress import describe_progress, progress_finder
from mulligan.service.runs.views.items import Item, item_statuses, items_at
from mulligan.service.runs.views.output_tables import OutputTable, output_tables
from mulligan.service.runs.views.overview import view_single_step
from mulligan.service.runs.views.report.visits import FailedVisits, VisitFailure
from mulligan.service.runs.views.run_details import FailureHandlers, describe_failure_handlers
from mulligan.service.runs.views.run_view import FailureView, StepView, part, status_of

# The last attempts and failed visits are shown; a loop may have thousands.
ATTEMPTS_MAX, VISITS_MAX, FILES_MAX = 200, 20, 100

Kind = Literal["step", "map", "matrix", "item"]
# Used: it granted retries, and the last one was not refused. Spent: it matched, but grants no more. Passed: not for it.
RuleUse = Literal["used", "spent", "passed"]


class AttemptLine(msgspec.Struct):
    """One attempt with what it asked for and used, and what led to it."""

    place: str
    attempt: int
    part: Part
    visit: int
    round: int
    scheduled_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    outcome: Outcome
    # The failure in one line, and its parts.
    what: str
    code: str
    exit_code: int | None
    signal: int | None
    host: str
    worker: str
    wall_seconds: float | None
    cpu_seconds: float | None
    peak_memory: int | None
    # The limits that it had; None where there is none.
    memory: int | None
    cpus: float | None
    timeout: float | None
    tokens: int | None
    # What it reported last, in words.
    progress: str
    # Why it was tried again, and with what; "" for a first attempt.
    because: str
    # Whether its limits differ from those of the attempt before.
    is_adjusted: bool


class RuleLine(msgspec.Struct, frozen=True):
    """What a retry rule did about a failure, or why it did nothing."""

    place: str
    number: int
    looks_for: str
    use: RuleUse
    granted: int
    max_retries: int
    reason: str
    # The display name of the place, if it belongs to an item.
    name: str = ""


class VisitLadder(msgspec.Struct):
    """A failed visit with its rungs; what each rule did; why each failure edge was taken or not."""

    visit: VisitFailure
    rules: list[RuleLine]
    edges: list[str]


class StepHistory(msgspec.Struct, kw_only=True):
    """Everything about one step, one item, or a matrix as a whole."""

    run_id: int
    workflow: str
    run_status: str
    round: int
    # The number of the last event.
    seq: int
    step: str
    # Only of an item: its index, and its display name.
    item: int | None = None
    name: str = ""
    kind: Kind
    status: str
    # What it runs: shell, python, agent …
    action: str
    # Of an item only `of_item`, of a matrix and of a step of a run that has not begun neither.
    view: StepView | None = None
    of_item: Item | None = None
    waiting_for: list[Wait] = []
    attempts: list[AttemptLine]
    attempts_count: int
    ladders: list[VisitLadder]
    ladders_count: int
    # What deals with its failures; None of a matrix.
    handlers: FailureHandlers | None
    files: list[KeptFile]
    # Those in its output.
    tables: list[OutputTable] = []
    # How many items, or steps of a matrix, have each status.
    items: dict[str, int]
    # The failed and parked steps before and behind it in the file; of an item, the indexes of failed items.
    failed_before: str = ""
    failed_behind: str = ""

    @property
    def unit(self) -> str:
        return self.step if self.item is None else item_key(self.step, self.item)

    @property
    def failure(self) -> FailureView | None:
        shown: Any = self.view or self.of_item
        return shown.failure if shown else None

    @property
    def output(self) -> Any:
        shown = self.view or self.of_item
        return shown.output if shown else None

    @property
    def has_run_ended(self) -> bool:
        return self.run_status in RUN_ENDED

    @property
    def has_run_out(self) -> bool:
        """Whether it failed since memory or time ran out."""
        return any(one.visit.has_run_out and one.visit.outcome == FailureOutcome.UNHANDLED for one in self.ladders)


class StepHistories:
    """Reads the histories of single steps."""

    def __init__(self, reader: RunReader, cache: RunCache) -> None:
        self._reader = reader
        self._cache = cache

    def step(self, run_id: int, name: str) -> StepHistory:
        """A step, or a matrix. `UnknownRun`, `UnknownStep`; `Refused` if the run has not begun."""
        record, run = self._reader.record(run_id), self._cache.get(run_id)
        state = run.state
        if name in state.graph.matrices:
            return self._matrix(record, run, name)
        if not state.places and name in state.graph.nodes:
            return self._unstarted(record, state, name)
        view = view_single_step(self._reader, run_id, name, state, self._cache.step_events)
        collected = self._collect(state, name, NO_ITEM)
        is_map = state.step(name).map is not None
        place = state.places[name]
        counts = dict(Counter(self._item_statuses(run, name))) if is_map else {}
        return self._history(
            record,
            state,
            collected,
            step=name,
            kind="map" if is_map else "step",
            status=place.status,
            view=view,
            waiting_for=view.waiting_for,
            items=counts,
        )

    def item(self, run_id: int, step: str, index: int) -> StepHistory:
        """One item of a map step; of a matrix, the step itself."""
        record, run = self._reader.record(run_id), self._cache.get(run_id)
        state, statuses = run.state, self._item_statuses(run, step)
        if not 0 <= index < len(statuses):
            hint = f"its items are 0 to {len(statuses) - 1}" if statuses else "it has no items yet"
            raise UnknownItem(f"step '{step}' of run {run_id} has no item {index}", hint=hint, step=step, item=index)
        if step in state.graph.matrices:
            return self.step(run_id, state.graph.matrices[step][index])
        (found,) = items_at(self._reader, state, step, [index], statuses)
        values = state.places[step].items
        return self._history(
            record,
            state,
            self._collect(state, step, index),
            step=step,
            item=index,
            name=_item_name(values, index) if values else "",
            kind="item",
            status=found.status,
            of_item=found,
            failed_before=str(next((at for at in range(index - 1, -1, -1) if statuses[at] == "failed"), "")),
            failed_behind=str(next((at for at in range(index + 1, len(statuses)) if statuses[at] == "failed"), "")),
        )

    def _item_statuses(self, run: CachedRun, step: str) -> list[str]:
        return run.item_statuses(step, lambda: item_statuses(self._reader, run.state, step))

    def _matrix(self, record: RunRecord, run: CachedRun, name: str) -> StepHistory:
        state, counts = run.state, dict(Counter(self._item_statuses(run, name)))
        nothing = _Collector(name, StoryWriter())
        return self._history(
            record, state, nothing, step=name, kind="matrix", status=group_status(counts), items=counts
        )

    def _unstarted(self, record: RunRecord, state: State, name: str) -> StepHistory:
        """A step of a run that no worker has taken yet."""
        waits = [Wait("worker", "a worker that takes the run")]
        nothing = _Collector(name, StoryWriter())
        return self._history(record, state, nothing, step=name, kind="step", status="waiting", waiting_for=waits)

    def _collect(self, state: State, step: str, item: int) -> _Collector:
        run_id = state.run.run_id
        found = _Collector(
            step if item == NO_ITEM else item_key(step, item),
            StoryWriter(self._first_workflow(state), self._reader.called(run_id)),
        )
        for entry in self._cache.step_events.entries_with_run(run_id, step, item):
            found.update(entry)
        return found

    def _first_workflow(self, state: State) -> Workflow:
        """The workflow that the run was started with: its events are read with that."""
        return state.workflow if state.run.revision is None else self._reader.first_workflow(state.run.run_id)

    def _history(
        self, record: RunRecord, state: State, collected: _Collector, *, step: str, kind: Kind, **fields: Any
    ) -> StepHistory:
        place = state.places.get(step)
        unit = collected.unit
        attempts = [*collected.lines()]
        find_progress = progress_finder(self._reader.home.folders, record.run_id)
        shown = attempts[-ATTEMPTS_MAX:]
        for one in shown:
            one.progress = describe_progress(find_progress(one.place, one.attempt))
        visits = [one for one in collected.visits.failed_visits(state) if one.unit == unit]
        visits.sort(key=lambda one: one.at, reverse=True)
        before, behind = _failed_neighbours(state, step)
        history = StepHistory(
            run_id=record.run_id,
            workflow=record.workflow,
            run_status="running" if state.run.status == "new" else state.run.status,
            round=state.run.round,
            seq=state.run.seq,
            step=step,
            kind=kind,
            action=_action(state, step, place),
            attempts=shown,
            attempts_count=len(attempts),
            ladders=[collected.ladder(one) for one in visits[:VISITS_MAX]],
            ladders_count=len(visits),
            handlers=None if kind == "matrix" else describe_failure_handlers(state, step),
            files=collected.files[:FILES_MAX],
            **{"items": {}, "failed_before": before, "failed_behind": behind, **fields},
        )
        history.tables = output_tables(
            self._reader.store, run_id=record.run_id, workflow=record.workflow, place=unit, output=history.output
        )
        return history


class _Failed:
    """What the rules of one place did in one visit."""

    def __init__(self, spec: Command | None) -> None:
        self.spec = spec
        self.granted: dict[int, int] = {}
        self.tries = 0
        self.verdict = ""
        self.failure: Failure | None = None


class _Collector:
    """Collects the history of one step or item from its events."""

    def __init__(self, unit: str, writer: StoryWriter) -> None:
        self.unit = unit
        self.visits = FailedVisits()
        self.files: list[KeptFile] = []
        self._attempts = Attempts()
        self._failed: dict[tuple[int, str], _Failed] = {}
        self._edges: dict[int, list[str]] = {}
        self._because = ""
        self._writer = writer

    def update(self, entry: e.Entry) -> None:
        fact: Any = entry.fact
        place = getattr(fact, "place", "")
        spec = self._writer.memory.spec(place)
        if isinstance(fact, e.StepFailed):
            step = self._writer.memory.step(fact.step)
            self._edges[fact.visit] = list(edges_after_failure(fact, step))
        lines = self._writer.lines_for(entry)
        self._attempts.update(entry, spec)
        self.visits.update(entry, lines)
        if isinstance(fact, _LEAD_ON) and (line := next((one.text for one in lines), "")):
            self._because = line
        if place and is_at_or_below(place, self.unit):
            self.files.extend(kept_files(entry))
            self._see(fact, place, spec)

    def _see(self, fact: Any, place: str, spec: Command | None) -> None:
        if isinstance(fact, e.AttemptScheduled) and fact.attempt > 1:
            self._attempts.found[place, fact.attempt].because, self._because = self._because, ""
        elif isinstance(fact, e.AttemptFailed | e.ResultRejected):
            failed = self._failure(place, spec)
            failed.failure, failed.tries, failed.verdict = fact.failure, failed.tries + 1, ""
        elif isinstance(fact, e.RetryScheduled):
            granted = self._failure(place, spec).granted
            granted[fact.rule] = granted.get(fact.rule, 0) + 1
        elif isinstance(fact, e.RungPassed) and fact.rung == "retry":
            self._failure(place, spec).verdict = fact.reason

    def _failure(self, place: str, spec: Command | None) -> _Failed:
        key = self._attempts.visits.get(step_name(place), 0), place
        return self._failed.setdefault(key, _Failed(spec))

    def lines(self) -> Iterator[AttemptLine]:
        """The attempts at the unit and what belongs to it; a map runs nothing itself."""
        limits: dict[str, tuple[float | None, ...]] = {}
        for one in self._attempts.found.values():
            if is_at_or_below(one.place, self.unit) and ("[" not in one.place or "[" in self.unit):
                own = one.memory, one.cpus, one.timeout
                one.is_adjusted, limits[one.place] = limits.get(one.place, own) != own, own
                yield part(one, AttemptLine)

    def ladder(self, visit: VisitFailure) -> VisitLadder:
        failed = ((place, one) for (number, place), one in self._failed.items() if number == visit.visit)
        own = [(place, one) for place, one in failed if "@" not in place and is_at_or_below(place, visit.unit)]
        name_of = self._writer.memory.name_of
        rules = [line for place, one in own for line in _rule_lines(place, name_of(place), one)]
        return VisitLadder(visit, rules, [] if visit.is_item else self._edges.get(visit.visit, []))


# The facts whose sentence says why an attempt follows.
_LEAD_ON = (
    e.RetryScheduled,
    e.StepClassified,
    e.HandlerSucceeded,
    e.AttemptLost,
    e.AttemptInterrupted,
    e.StepPutBack,
    e.RunReopened,
    e.LoopFired,
)


def _rule_lines(place: str, name: str, failed: _Failed) -> Iterator[RuleLine]:
    """What each rule of a place did about its last failure in a visit."""
    spec, failure = failed.spec, failed.failure
    if spec is None or failure is None:
        return
    climb = RecoveryProgress(retries=failed.granted, tries=failed.tries, verdict=failed.verdict)
    chosen = matching_rule(spec.rules, failure)
    for index, (rule, refused) in enumerate(zip(spec.rules, why_not(spec, climb, failure), strict=True)):
        granted = failed.granted.get(index, 0)
        is_refused = failed.verdict != "" and index == chosen
        use: RuleUse = "spent" if is_refused else "used" if granted else "passed"
        reason = f"granted {granted} of {rule.max_retries}" if use == "used" else refused.reason
        yield RuleLine(place, index + 1, describe_rule(rule), use, granted, rule.max_retries, reason, name)


def _action(state: State, step: str, place: Place | None) -> str:
    if place is None:
        return ""
    spec = state.step(step)
    return "map" if spec.map is not None else spec.action.kind if spec.action else ""


def _failed_neighbours(state: State, step: str) -> tuple[str, str]:
    """The steps before and behind one in the file that have failed or are parked."""
    names = [*state.graph.nodes, END]
    at = names.index(step) if step in names else 0

    def first_failed(some: Iterable[str]) -> str:
        return next((name for name in some if status_of(state, name) in ("failed", "pending_failed")), "")

    return first_failed(reversed(names[:at])), first_failed(names[at + 1 :])


def _item_name(items: Items, index: int) -> str:
    """The display name of an item. Of very many, they are not compared for it."""
    if items.names:
        return items.names[index]
    values = items.values
    return item_names(values)[index] if len(values) <= NAMED_MAX else item_names([values[index]])[0]
