"""A run, gathered for whoever wants to read all of it at once: one pass over its log, and its state."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator
from datetime import datetime
from itertools import islice, takewhile
from typing import Any

import msgspec

from mulligan import __version__
from mulligan.core.deciding.budgets import RUN, budget_of
from mulligan.core.deciding.end_status import parse_end_output
from mulligan.core.model import events as e
from mulligan.core.model.place_keys import item_key
from mulligan.core.model.spending import format_limits, format_spent, spent_json
from mulligan.core.model.workflow import END, Workflow
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.history.item_names import item_names
from mulligan.history.story import Teller
from mulligan.history.views import progress
from mulligan.language.drawing import draw_svg
from mulligan.ports import RunRecord
from mulligan.service.attempts import Cost, Costs
from mulligan.service.next_commands import NextCommand, answers_to, suggest_commands
from mulligan.service.report.attempts import Attempt, Attempts, Gap
from mulligan.service.report.tails import tail
from mulligan.service.report.visits import FailedVisit, FailedVisits, ItemFailures, Log
from mulligan.service.run_reader import RunReader
from mulligan.service.run_story import waits

# How much of what may be long is kept: a report is to be read, and to be sent to somebody.
VISITS_MAX = 400
LOGS_MAX, LOGS_PER_VISIT_MAX = 150, 3
STDERR_BYTES_MAX, STDOUT_BYTES_MAX = 8_000, 4_000
EVENTS_MAX = 200
VALUES_MAX, VALUE_CHARS_MAX = 100, 2_000
CHILDREN_MAX, WAITS_MAX, NEXT_MAX = 200, 100, 8
# Beyond this a drawing says less than a table.
DRAWN_STEPS_MAX = 5_000


class Value(msgspec.Struct, frozen=True):
    """An input or output, as JSON of bounded length."""

    name: str
    text: str
    is_cut: bool = False


class StepLine(msgspec.Struct, frozen=True):
    """A step in a line: how it stands, and what it took."""

    name: str
    action: str
    status: str
    visits: int
    attempts: int
    recovered: bool
    undone: bool
    items: int
    items_failed: int
    wall_seconds: float
    cpu_seconds: float
    peak_memory: int
    # The run whose result it took over; 0 where it ran.
    up_to_date_since: int = 0
    # Of a step of a matrix: the name of the whole, and its values.
    matrix: str = ""
    values: dict[str, Any] = {}
    # What its agents have spent, in words; "" where it has none.
    agents: str = ""


class Called(msgspec.Struct, frozen=True):
    """A run that a step called."""

    run_id: int
    workflow: str
    status: str
    place: str
    attempt: int


class EventLine(msgspec.Struct, frozen=True):
    seq: int
    at: datetime
    type: str
    place: str


class Asking(msgspec.Struct, frozen=True):
    """What is waited for now."""

    run_id: int
    where: str
    text: str
    is_for_a_person: bool
    # What a person types to answer it.
    commands: list[str] = []


class Round(msgspec.Struct, frozen=True):
    """A round that has ended: how, and how many steps failed in it with nobody to handle it."""

    number: int
    status: str
    failed: int
    ended_at: datetime


class CodeCount(msgspec.Struct, frozen=True):
    """How many steps, and how many items, failed with a code; how many of their visits are unhandled, and mended."""

    code: str
    steps: int
    items: int
    visits: int
    unhandled: int
    mended: int


class Counts(msgspec.Struct, frozen=True):
    """What the last event of a round says."""

    total_steps: int
    failed_steps_count: int
    handled_steps_count: int
    recovered_steps_count: int
    skipped_steps_count: int


class Report(msgspec.Struct):
    """One run, as of a moment."""

    run_id: int
    workflow: str
    description: str
    version: str
    file: str
    status: str
    degraded: bool
    reason: str
    # What `end` said of it, where it said something.
    end_said: str
    round: int
    by: str
    parent_run_id: int | None
    forked_from: int | None
    as_of: datetime
    started_at: datetime
    # None while it goes on.
    ended_at: datetime | None
    seconds: float
    counts: Counts | None
    statuses: dict[str, int]
    waits: list[Asking]
    visits: list[FailedVisit]
    visits_count: int
    item_failures: list[ItemFailures]
    steps: list[StepLine]
    attempts: list[Attempt]
    gaps: list[Gap]
    children: list[Called]
    children_count: int
    inputs: list[Value]
    outputs: list[Value]
    events: list[EventLine]
    events_count: int
    # The rounds that have ended, this one among them.
    rounds: list[Round] = []
    # The failures by code, those first that nobody dealt with.
    codes: list[CodeCount] = []
    # By key of an item: what it is called.
    item_names: dict[str, str] = {}
    next_commands: list[NextCommand] = []
    # What its agents have spent, as data and in words; and what they may spend.
    spent: dict[str, Any] | None = None
    agents: str = ""
    budget: str = ""
    made_by: str = f"mulligan {__version__}"

    @property
    def has_ended(self) -> bool:
        return self.ended_at is not None


class _Pass:
    """One pass over the log."""

    def __init__(self, state: State, first: Workflow, children: dict[tuple[str, int], int]) -> None:
        self.attempts = Attempts()
        self.visits = FailedVisits()
        self.costs = Costs()
        self.started = e.RunStarted(state.run.run_id, state.workflow.name)
        self.started_at: datetime | None = None
        self.last: Any = None
        self.last_at: datetime | None = None
        self.rounds: list[Round] = []
        # Of the last list of each map.
        self.item_names: dict[str, str] = {}
        self.end_said = ""
        # The last of them, and how many there were.
        self.entries: deque[e.Entry] = deque(maxlen=EVENTS_MAX)
        self.count = 0
        self._teller = Teller(first, children)

    def see(self, entry: e.Entry) -> None:
        fact = entry.fact
        self.entries.append(entry)
        self.count += 1
        self.costs.see(entry)
        self.attempts.see(entry, self._teller.memory.spec(getattr(fact, "place", "")))
        self.visits.see(entry, self._teller.tell(entry))
        if isinstance(fact, e.RunStarted):
            self.started, self.started_at = fact, entry.at
        elif isinstance(fact, e.MapExpanded) and fact.items is not None:
            names = item_names(fact.items)
            self.item_names |= {item_key(fact.place, index): name for index, name in enumerate(names)}
        elif isinstance(fact, e.StepCompleted) and fact.step == END:
            self.end_said = _said(fact.output)
        elif isinstance(fact, e.RunCompleted | e.RunFailed | e.RunCancelled):
            self.last, self.last_at = fact, entry.at
            self.rounds.append(Round(fact.round, _ENDED[type(fact)], fact.failed_steps_count, entry.at))


_ENDED: dict[type[e.Fact], str] = {e.RunCompleted: "completed", e.RunFailed: "failed", e.RunCancelled: "cancelled"}
_NO_COST = Cost()


def gather(service: RunReader, run_id: int, now: datetime) -> Report:
    """All of a run. Of one that goes on, as its tables are at this moment."""
    state = service.state(run_id)
    seen = _Pass(state, service.first_workflow(run_id), service.called(run_id))
    for entry in takewhile(lambda entry: entry.seq <= state.run.seq, service.events(run_id)):
        seen.see(entry)
    record = service.record(run_id)
    started_at = seen.started_at or record.created_at
    ended_at = seen.last_at if state.run.status in RUN_ENDED else None
    visits = seen.visits.told(state)
    names = seen.item_names
    for visit in visits:
        visit.name = names.get(visit.unit, "")
    children = service.store.children(run_id)
    asked = [] if ended_at is not None else list(_waits(service, run_id))
    return Report(
        run_id=run_id,
        workflow=record.workflow,
        description=state.workflow.description,
        version=state.run.present_version or record.version,
        file=state.run.revision.file if state.run.revision else seen.started.file,
        status="running" if state.run.status == "new" else state.run.status,
        degraded=state.run.degraded,
        reason=state.run.reason,
        end_said=seen.end_said,
        round=state.run.round,
        by=seen.started.by,
        parent_run_id=record.parent_run_id,
        forked_from=seen.started.forked_from,
        as_of=now,
        started_at=started_at,
        ended_at=ended_at,
        seconds=max(0.0, ((ended_at or now) - started_at).total_seconds()),
        counts=_counts(seen.last) if ended_at is not None else None,
        statuses=progress(state),
        waits=asked,
        visits=_with_logs(service, run_id, visits[:VISITS_MAX], seen.attempts),
        visits_count=len(visits),
        item_failures=seen.visits.item_failures(),
        steps=list(_steps(state, seen)),
        attempts=list(seen.attempts.found.values()),
        gaps=seen.attempts.gaps,
        children=[_called(child) for child in children[:CHILDREN_MAX]],
        children_count=len(children),
        inputs=_values(state.run.inputs),
        outputs=_values(state.run.outputs),
        events=[_event(entry) for entry in seen.entries],
        events_count=seen.count,
        rounds=seen.rounds,
        codes=_codes(visits),
        item_names=names,
        next_commands=_next_commands(service, record, state, visits, asked),
        spent=spent_json(state.run.spent),
        agents=format_spent(state.run.spent),
        budget=format_limits(budget_of(state, RUN)),
    )


def drawing(service: RunReader, report: Report) -> str:
    """The graph of the run's workflow as SVG, coloured by how the steps stand; "" where it is too large to be seen."""
    workflow = service.state(report.run_id).workflow
    if len(workflow.steps) > DRAWN_STEPS_MAX:
        return ""
    return draw_svg(workflow, {step.name: step.status for step in report.steps})


def report_json(report: Report) -> Any:
    """The report as plain data."""
    return msgspec.to_builtins(report)


# -- parts of it -----------------------------------------------------------------------------------------------------


def _said(output: Any) -> str:
    """The verdict that `end` returned, with its reason; "" where it returned none."""
    found = parse_end_output(output)
    status, reason = found.get("status"), found.get("reason")
    return ": ".join(str(word) for word in (status, reason) if word) if status else ""


def _counts(last: Any) -> Counts:
    return Counts(*(getattr(last, name) for name in Counts.__struct_fields__))


def _waits(service: RunReader, run_id: int) -> Iterator[Asking]:
    for asked in waits(service, run_id)[:WAITS_MAX]:
        is_asking = asked.wait["kind"] in ("triage", "approval", "pause", "step_pause")
        commands = answers_to(
            asked.run_id, asked.wait["kind"], asked.wait.get("place", ""), asked.wait.get("steps", ())
        )
        yield Asking(asked.run_id, asked.where, asked.wait["text"], is_asking, commands)


def _codes(visits: list[FailedVisit]) -> list[CodeCount]:
    """The failures by code: those with most that nobody dealt with first, then the most frequent."""
    groups: dict[str, list[FailedVisit]] = {}
    for visit in visits:
        groups.setdefault(visit.code, []).append(visit)
    found = [
        CodeCount(
            code,
            steps=len({one.unit for one in group if not one.is_item}),
            items=len({one.unit for one in group if one.is_item}),
            visits=len(group),
            unhandled=sum(one.fate == "open" for one in group),
            mended=sum(one.fate == "mended" for one in group),
        )
        for code, group in groups.items()
    ]
    return sorted(found, key=lambda one: (-one.unhandled, -one.visits))


def _next_commands(
    service: RunReader, record: RunRecord, state: State, visits: list[FailedVisit], asked: list[Asking]
) -> list[NextCommand]:
    """What to type now: answers to what is waited for, or what a run in this state is usually given."""
    run_id, status = record.run_id, state.run.status
    found = [NextCommand(one, "") for asking in asked for one in asking.commands]
    if found:
        return found[:NEXT_MAX]
    if status not in RUN_ENDED:
        is_left = record.parent_run_id is None and service.driver_of(record) is None
        standing, status = NextCommand(f"mulligan show {run_id}", "how it stands now"), "interrupted" if is_left else ""
        return suggest_commands(run_id, status) or [standing]
    open_ = [visit for visit in visits if visit.fate == "open"]
    # Whoever was kept from starting wrote nothing.
    wrote = (visit for visit in open_ if visit.code not in ("UNDO_FAILED", "CHILD_FAILED") and not visit.spent_budget)
    logs = [_to_read(run_id, visit) for visit in islice(wrote, 1)]
    left = dict.fromkeys(visit.step for visit in visits if visit.is_item and visit.fate == "left")
    completed = [step for step in left if state.places[step].status == "completed"]
    usual = suggest_commands(
        run_id,
        status,
        has_run_out=any(visit.has_run_out for visit in open_),
        short_maps=completed,
        spent_budgets=list(dict.fromkeys(visit.spent_budget for visit in open_ if visit.spent_budget)),
    )
    return logs + usual[:NEXT_MAX]


def _to_read(run_id: int, visit: FailedVisit) -> NextCommand:
    """Where one reads what went wrong."""
    if visit.refused:
        return NextCommand(f"mulligan show {run_id} --output {visit.unit}", "the output that was refused")
    item = visit.unit.removeprefix(visit.step).strip("[]")
    place = f"{visit.step} --item {item}" if item else visit.step
    return NextCommand(f"mulligan logs {run_id} {place}", f"what {visit.name or visit.step} wrote")


def _called(child: RunRecord) -> Called:
    return Called(child.run_id, child.workflow, child.status, child.parent_place, child.parent_attempt)


def _steps(state: State, seen: _Pass) -> Iterator[StepLine]:
    tries: Counter[str] = Counter(one.unit for one in seen.attempts.found.values() if one.part == "own")
    for place in (*state.steps(), state.places[END]) if state.places else ():
        items = state.items_of(place) if place.items else []
        failed = sum(1 for item in items if item is not None and item.status == "failed")
        step, cost = state.step(place.key), seen.costs.by_step.get(place.key, _NO_COST)
        yield StepLine(
            place.key,
            "map" if step.map else step.action.kind if step.action else "",
            place.status,
            place.visit,
            tries[place.key],
            bool(place.recovered_by),
            place.is_undone,
            len(items),
            failed,
            cost.wall_seconds,
            cost.cpu_seconds,
            cost.peak_memory,
            place.reused_run_id,
            step.matrix_name,
            step.matrix if step.matrix_name else {},
            format_spent(place.spent),
        )


def _values(values: dict[str, Any]) -> list[Value]:
    return [_value(name, value) for name, value in list(values.items())[:VALUES_MAX]]


def _value(name: str, value: Any) -> Value:
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return Value(name, text[:VALUE_CHARS_MAX], len(text) > VALUE_CHARS_MAX)


def _event(entry: e.Entry) -> EventLine:
    fact = entry.fact
    place = getattr(fact, "place", "") or getattr(fact, "step", "")
    return EventLine(entry.seq, entry.at, str(fact.__struct_config__.tag), place)


# -- logs ------------------------------------------------------------------------------------------------------------


def _with_logs(service: RunReader, run_id: int, visits: list[FailedVisit], attempts: Attempts) -> list[FailedVisit]:
    """The same visits with the logs of their last failed attempts, as long as there is room for any."""
    left = LOGS_MAX
    for visit in visits:
        chosen = visit.failed_attempts[-min(LOGS_PER_VISIT_MAX, left) :] if left else []
        visit.logs = [log for one in chosen if (log := _log(service, run_id, attempts.found.get(one))) is not None]
        left -= len(visit.logs)
    return visits


def _log(service: RunReader, run_id: int, attempt: Attempt | None) -> Log | None:
    """None where nothing was written that could be shown: a map runs nothing itself."""
    if attempt is None or attempt.is_map:
        return None
    files = service.home.folders.logs(run_id, attempt.place, attempt.attempt)
    (err, is_err_cut), (out, is_out_cut) = tail(files.err, STDERR_BYTES_MAX), tail(files.out, STDOUT_BYTES_MAX)
    ran_on = attempt.host if not (out or err) and service.store.is_shared else ""
    written = [path for path, text in ((files.err, err), (files.out, out)) if text]
    return Log(attempt.place, attempt.attempt, out, err, is_err_cut or is_out_cut, ran_on, written)
