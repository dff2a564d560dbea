"""Build the report of a run: from one pass over its log, and from its state."""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice, takewhile
from typing import Any

import msgspec

from mulligan import __version__
from mulligan.core.deciding.agents.budgets import RUN, budget_of
from mulligan.core.deciding.end_status import parse_end_output
from mulligan.core.deciding.rounds.rounds import needs_force
from mulligan.core.model import events as e
from mulligan.core.model.agents.spending import format_limits, format_spent, spent_json
from mulligan.core.model.place_keys import item_key
from mulligan.core.model.text.artifact_words import with_files_described
from mulligan.core.model.workflow import END, Workflow
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.history.called_steps import workflow_of_run
from mulligan.history.item_names import item_names
from mulligan.history.route_outcomes import FailureOutcome
from mulligan.history.story import StoryWriter
from mulligan.history.views import count_steps
from mulligan.ports import Artifacts, LogKey, RunRecord
from mulligan.service.logs.log_ranges import STREAMS, LogRanges
from mulligan.service.rendering.drawing import draw_svg
from mulligan.service.rendering.next_commands import NextCommand, commands_for_wait, suggest_commands
from mulligan.service.runs.stored.artifacts import KeptFile, kept_files
from mulligan.service.runs.stored.attempts import AttemptFacts, Attempts, Cost, Costs, Gap, Outcome, Part
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.views.attempt_progress import describe_progress, progress_finder
from mulligan.service.runs.views.report.visits import FailedVisits, ItemFailures, Log, VisitFailure
from mulligan.service.runs.views.run_story import run_waits
from mulligan.service.runs.views.run_view import part

# Limits, so that a report stays readable and can be sent by mail.
VISITS_MAX = 400
LOGS_MAX, LOGS_PER_VISIT_MAX = 150, 3
STDERR_BYTES_MAX, STDOUT_BYTES_MAX = 8_000, 4_000
EVENTS_MAX = 200
VALUES_MAX, VALUE_CHARS_MAX = 100, 2_000
CHILDREN_MAX, WAITS_MAX, NEXT_MAX = 200, 100, 8
ARTIFACTS_MAX = 500
# A graph with more steps is not drawn.
DRAWN_STEPS_MAX = 5_000


class Value(msgspec.Struct, frozen=True):
    """An input or output, as JSON of bounded length."""

    name: str
    text: str
    is_cut: bool = False


class StepRow(msgspec.Struct, frozen=True):
    """A row of the steps table: the status of a step, and what it used."""

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
    # The run whose result it reused; 0 if it ran.
    up_to_date_since: int = 0
    # The name of its matrix, and its values, if it belongs to one.
    matrix: str = ""
    values: dict[str, Any] = {}
    # A visit could not be undone: what it did may still be in effect.
    undo_failed: bool = False
    # What its agents have spent, as text; "" if it has none.
    agents: str = ""
    # What its last attempt reported, in words.
    progress: str = ""


class Attempt(msgspec.Struct, frozen=True):
    """One attempt: when it was scheduled, started and ended; its outcome, its limits and what it used."""

    place: str
    attempt: int
    # The step or item that it belongs to, and its part in that.
    unit: str
    part: Part
    visit: int
    round: int
    scheduled_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: Outcome = "queued"
    # The failure in one line.
    what: str = ""
    host: str = ""
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    peak_memory: int | None = None
    # Reported by an agent.
    tokens: int | None = None
    # Its limits; None if the workflow sets none.
    memory: int | None = None
    cpus: float | None = None
    # A map runs nothing itself: its items do.
    is_map: bool = False
    # When a program waited for its calls, and no process ran.
    waits: list[tuple[datetime, datetime | None]] = []
    # What it reported last, in words.
    progress: str = ""


class ChildRun(msgspec.Struct, frozen=True):
    """A child run that a step started."""

    run_id: int
    workflow: str
    status: str
    place: str
    # The attempt that called its last round, and that round.
    attempt: int
    round: int = 1


class EventRow(msgspec.Struct, frozen=True):
    seq: int
    at: datetime
    type: str
    place: str


class ReportWait(msgspec.Struct, frozen=True):
    """Something that the run waits for now."""

    run_id: int
    where: str
    text: str
    is_for_a_person: bool
    # The commands with which a person can respond.
    commands: list[str] = []


class Round(msgspec.Struct, frozen=True):
    """A round that has ended: its status, and the number of steps with unhandled failures."""

    number: int
    status: str
    failed: int
    ended_at: datetime


class FailureCode(msgspec.Struct, frozen=True):
    """The number of steps and items that failed with a code, and of their visits that are unhandled and repaired."""

    code: str
    steps: int
    items: int
    visits: int
    unhandled: int
    repaired: int = msgspec.field(name="mended")


class Counts(msgspec.Struct, frozen=True):
    """The counts of the last event of a round."""

    total_steps: int
    failed_steps_count: int
    handled_steps_count: int
    recovered_steps_count: int
    skipped_steps_count: int
    dropped_outputs_count: int


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
    # The status and reason that `end` returned, if any.
    end_said: str
    round: int
    by: str
    parent_run_id: int | None
    forked_from: int | None
    as_of: datetime
    started_at: datetime
    # None while it runs.
    ended_at: datetime | None
    seconds: float
    counts: Counts | None
    statuses: dict[str, int]
    waits: list[ReportWait]
    visits: list[VisitFailure]
    visits_count: int
    item_failures: list[ItemFailures]
    steps: list[StepRow]
    attempts: list[Attempt]
    gaps: list[Gap]
    children: list[ChildRun]
    children_count: int
    inputs: list[Value]
    outputs: list[Value]
    events: list[EventRow]
    events_count: int
    # The rounds that have ended, this one among them.
    rounds: list[Round] = []
    # The failures by code, unhandled ones first.
    codes: list[FailureCode] = []
    # The display names of items, by key.
    item_names: dict[str, str] = {}
    # The display names of places of items, by key: `load[west]`.
    place_names: dict[str, str] = {}
    next_commands: list[NextCommand] = []
    # What its agents have spent, as data and as text; and what they may spend.
    spent: dict[str, Any] | None = None
    agents: str = ""
    budget: str = ""
    # The files that its steps kept, the first ones; and the number of all.
    artifacts: list[KeptFile] = []
    artifacts_count: int = 0
    made_by: str = f"mulligan {__version__}"

    @property
    def has_ended(self) -> bool:
        return self.ended_at is not None

    def name_of(self, place: str) -> str:
        """The display name of a place."""
        return self.place_names.get(place, place)


class _LogReader:
    """Collects what the report needs from one pass over the log."""

    def __init__(
        self, state: State, first: Workflow, children: dict[tuple[str, int], int], artifacts: Artifacts
    ) -> None:
        self._artifacts = artifacts
        self.attempts = Attempts()
        self.visits = FailedVisits()
        self.costs = Costs()
        self.started = e.RunStarted(state.run.run_id, state.workflow.name)
        self.started_at: datetime | None = None
        self.last: Any = None
        self.last_at: datetime | None = None
        self.rounds: list[Round] = []
        # By key, from the last expansion of each map.
        self.item_names: dict[str, str] = {}
        self.end_said = ""
        self.kept_files: list[KeptFile] = []
        # The last entries, and the number of all entries.
        self.entries: deque[e.Entry] = deque(maxlen=EVENTS_MAX)
        self.count = 0
        self._writer = StoryWriter(first, children)

    def update(self, entry: e.Entry) -> None:
        fact = entry.fact
        self.entries.append(entry)
        self.count += 1
        self.costs.see(entry)
        self.kept_files.extend(kept_files(entry, self._artifacts))
        self.attempts.update(entry, self._writer.memory.spec(getattr(fact, "place", "")))
        self.visits.update(entry, self._writer.lines_for(entry))
        if isinstance(fact, e.RunStarted):
            self.started, self.started_at = fact, entry.at
        elif isinstance(fact, e.MapExpanded) and fact.items is not None:
            names = fact.names or item_names(fact.items)
            self.item_names |= {item_key(fact.place, index): name for index, name in enumerate(names)}
        elif isinstance(fact, e.StepCompleted) and fact.step == END:
            self.end_said = _describe_end(fact.output)
        elif isinstance(fact, e.RunCompleted | e.RunFailed | e.RunCancelled):
            self.last, self.last_at = fact, entry.at
            self.rounds.append(Round(fact.round, _ENDED[type(fact)], fact.failed_steps_count, entry.at))

    def place_names(self) -> dict[str, str]:
        """The display names of the places of items that had an attempt or are in the last events, by key."""
        places = {place for one in self.attempts.found.values() for place in (one.unit, one.place)}
        places |= {_event(one).place for one in self.entries}
        name_of = self._writer.memory.name_of
        return {place: name for place in sorted(places) if (name := name_of(place))}


_ENDED: dict[type[e.Fact], str] = {e.RunCompleted: "completed", e.RunFailed: "failed", e.RunCancelled: "cancelled"}
_NO_COST = Cost()


def build_report(service: RunReader, run_id: int, now: datetime) -> Report:
    """Build the report of a run, as of `now` if it still runs."""
    state = service.state(run_id)
    reader = _LogReader(state, service.first_workflow(run_id), service.called(run_id), service.store.artifacts)
    for entry in takewhile(lambda entry: entry.seq <= state.run.seq, service.events(run_id)):
        reader.update(entry)
    find_progress = progress_finder(service.home.folders, run_id)
    for attempt in reader.attempts.found.values():
        attempt.progress = describe_progress(find_progress(attempt.place, attempt.attempt))
    record = service.record(run_id)
    started_at = reader.started_at or record.created_at
    ended_at = reader.last_at if state.run.status in RUN_ENDED else None
    visits = reader.visits.failed_visits(state)
    names, place_names = reader.item_names, reader.place_names()
    for visit in visits:
        visit.name = names.get(visit.unit, "")
    children = service.store.children(run_id)
    waits = [] if ended_at is not None else list(_waits(service, run_id))
    return Report(
        run_id=run_id,
        workflow=record.workflow,
        description=state.workflow.description,
        version=state.run.present_version or record.version,
        file=state.run.revision.file if state.run.revision else reader.started.file,
        status="running" if state.run.status == "new" else state.run.status,
        degraded=state.run.degraded,
        reason=state.run.reason,
        end_said=reader.end_said,
        round=state.run.round,
        by=reader.started.by,
        parent_run_id=record.parent_run_id,
        forked_from=reader.started.forked_from,
        as_of=now,
        started_at=started_at,
        ended_at=ended_at,
        seconds=max(0.0, ((ended_at or now) - started_at).total_seconds()),
        counts=part(reader.last, Counts) if ended_at is not None else None,
        statuses=count_steps(state),
        waits=waits,
        visits=_with_logs(service, run_id, visits[:VISITS_MAX], reader.attempts, place_names),
        visits_count=len(visits),
        item_failures=reader.visits.item_failures(),
        steps=list(_steps(state, reader)),
        attempts=[part(one, Attempt) for one in reader.attempts.found.values()],
        gaps=reader.attempts.gaps,
        children=[
            ChildRun(
                child.run_id,
                child.workflow,
                child.status,
                child.parent_place,
                service.calling_attempt(child),
                child.round,
            )
            for child in children[:CHILDREN_MAX]
        ],
        children_count=len(children),
        inputs=_values(state.run.inputs),
        outputs=_values(state.run.outputs),
        events=[_event(entry) for entry in reader.entries],
        events_count=reader.count,
        rounds=reader.rounds,
        codes=_codes(visits),
        item_names=names,
        place_names=place_names,
        next_commands=_next_commands(service, record, state, visits, waits),
        spent=spent_json(state.run.spent),
        agents=format_spent(state.run.spent),
        budget=format_limits(budget_of(state, RUN)),
        artifacts=reader.kept_files[:ARTIFACTS_MAX],
        artifacts_count=len(reader.kept_files),
    )


def draw_graph(service: RunReader, report: Report) -> str:
    """The graph of the run's workflow as SVG, coloured by status; "" if it is too large."""
    workflow = workflow_of_run(service.lazy_state(report.run_id))
    if len(workflow.steps) > DRAWN_STEPS_MAX:
        return ""
    return draw_svg(workflow, {step.name: step.status for step in report.steps})


def report_json(report: Report) -> Any:
    """The report as plain data."""
    return msgspec.to_builtins(report)


# -- parts -----------------------------------------------------------------------------------------------------------


def _describe_end(output: Any) -> str:
    """The status that `end` returned, with its reason; "" if it returned none."""
    found = parse_end_output(output)
    status, reason = found.get("status"), found.get("reason")
    return ": ".join(str(word) for word in (status, reason) if word) if status else ""


def _waits(service: RunReader, run_id: int) -> Iterator[ReportWait]:
    for one in run_waits(service, run_id)[:WAITS_MAX]:
        is_asking = one.wait.is_for_a_person
        commands = commands_for_wait(one.run_id, one.wait.kind, one.wait.event or one.wait.shown_place, one.wait.steps)
        yield ReportWait(one.run_id, one.where, one.wait.text, is_asking, commands)


def _codes(visits: list[VisitFailure]) -> list[FailureCode]:
    """The failures by code: most unhandled first, then most frequent."""
    groups: dict[str, list[VisitFailure]] = {}
    for visit in visits:
        groups.setdefault(visit.code, []).append(visit)
    found = [
        FailureCode(
            code,
            steps=len({one.unit for one in group if not one.is_item}),
            items=len({one.unit for one in group if one.is_item}),
            visits=len(group),
            unhandled=sum(one.outcome == FailureOutcome.UNHANDLED for one in group),
            repaired=sum(one.outcome == FailureOutcome.REPAIRED for one in group),
        )
        for code, group in groups.items()
    ]
    return sorted(found, key=lambda one: (-one.unhandled, -one.visits))


def _next_commands(
    service: RunReader, record: RunRecord, state: State, visits: list[VisitFailure], waits: list[ReportWait]
) -> list[NextCommand]:
    """The commands to show: responses to what the run waits for, or those for a run in this status."""
    run_id, status = record.run_id, state.run.status
    found = [NextCommand(one, "") for wait in waits for one in wait.commands]
    if found:
        return found[:NEXT_MAX]
    if status not in RUN_ENDED:
        is_left = record.parent_run_id is None and service.driver_of(record) is None
        show = NextCommand(f"mulligan show {run_id}", "the current status")
        return suggest_commands(run_id, "interrupted" if is_left else "") or [show]
    open_ = [visit for visit in visits if visit.outcome == FailureOutcome.UNHANDLED]
    # An agent that was kept from starting wrote nothing.
    wrote = (visit for visit in open_ if visit.code not in ("UNDO_FAILED", "CHILD_FAILED") and not visit.spent_budget)
    logs = [_to_read(run_id, visit) for visit in islice(wrote, 1)]
    left = dict.fromkeys(visit.step for visit in visits if visit.is_item and visit.outcome == FailureOutcome.ALLOWED)
    completed = [step for step in left if state.places[step].status == "completed"]
    usual = suggest_commands(
        run_id,
        status,
        has_run_out=any(visit.has_run_out for visit in open_),
        short_maps=completed,
        spent_budgets=list(dict.fromkeys(visit.spent_budget for visit in open_ if visit.spent_budget)),
        needs_force=needs_force(state),
    )
    return logs + usual[:NEXT_MAX]


def _to_read(run_id: int, visit: VisitFailure) -> NextCommand:
    """The command that shows what went wrong."""
    if visit.refused:
        return NextCommand(f"mulligan show {run_id} --output {shlex.quote(visit.unit)}", "the rejected output")
    item = visit.unit.removeprefix(visit.step).strip("[]")
    place = f"{visit.step} --item {item}" if item else visit.step
    return NextCommand(f"mulligan logs {run_id} {place}", f"the log of {visit.name or visit.step}")


def _steps(state: State, reader: _LogReader) -> Iterator[StepRow]:
    attempts: Counter[str] = Counter(one.unit for one in reader.attempts.found.values() if one.part == "own")
    for place in (*state.steps(), state.places[END]) if state.places else ():
        items = state.items_of(place) if place.items else []
        failed = sum(1 for item in items if item is not None and item.status == "failed")
        step, cost = state.step(place.key), reader.costs.by_step.get(place.key, _NO_COST)
        yield StepRow(
            name=place.key,
            action="map" if step.map else step.action.kind if step.action else "",
            status=place.status,
            visits=place.visit,
            attempts=attempts[place.key],
            recovered=bool(place.recovered_by),
            undone=place.is_undone and not place.undo_failed,
            undo_failed=place.undo_failed,
            items=len(items),
            items_failed=failed,
            wall_seconds=cost.wall_seconds,
            cpu_seconds=cost.cpu_seconds,
            peak_memory=cost.peak_memory,
            up_to_date_since=place.reused_run_id,
            matrix=step.matrix_name,
            values=step.matrix if step.matrix_name else {},
            agents=format_spent(place.spent),
            progress=last.progress if (last := reader.attempts.found.get((place.key, place.attempt))) else "",
        )


def _values(values: dict[str, Any]) -> list[Value]:
    return [_value(name, value) for name, value in list(values.items())[:VALUES_MAX]]


def _value(name: str, value: Any) -> Value:
    text = json.dumps(with_files_described(value), indent=2, ensure_ascii=False, default=str)
    return Value(name, text[:VALUE_CHARS_MAX], len(text) > VALUE_CHARS_MAX)


def _event(entry: e.Entry) -> EventRow:
    fact = entry.fact
    place = getattr(fact, "place", "") or getattr(fact, "step", "")
    return EventRow(entry.seq, entry.at, str(fact.__struct_config__.tag), place)


# -- logs ------------------------------------------------------------------------------------------------------------


def _with_logs(
    service: RunReader, run_id: int, visits: list[VisitFailure], attempts: Attempts, names: Mapping[str, str]
) -> list[VisitFailure]:
    """The visits with the logs of their last failed attempts, up to `LOGS_MAX` logs."""
    left = LOGS_MAX
    for visit in visits:
        chosen = visit.failed_attempts[-min(LOGS_PER_VISIT_MAX, left) :] if left else []
        found = (_log(service, run_id, attempts.found.get(one), names) for one in chosen)
        visit.logs = [log for log in found if log is not None]
        left -= len(visit.logs)
    return visits


def _log(service: RunReader, run_id: int, attempt: AttemptFacts | None, names: Mapping[str, str]) -> Log | None:
    """The log of an attempt; None for a map, which runs nothing itself."""
    if attempt is None or attempt.is_map:
        return None
    keys = [LogKey(run_id, attempt.place, attempt.attempt, stream) for stream in STREAMS]
    (out, is_out_cut), (err, is_err_cut) = (
        read_tail(service.log_ranges, key, bytes_max)
        for key, bytes_max in zip(keys, (STDOUT_BYTES_MAX, STDERR_BYTES_MAX), strict=True)
    )
    ran_on = attempt.host if not (out or err) and service.store.is_shared else ""
    files = [service.log_ranges.path(key) for key, text in zip(keys, (out, err), strict=True) if text]
    written = [path for path in reversed(files) if os.path.exists(path)]
    name = names.get(attempt.place, "")
    return Log(attempt.place, attempt.attempt, out, err, is_err_cut or is_out_cut, ran_on, written, name)


def read_tail(logs: LogRanges, key: LogKey, bytes_max: int) -> tuple[str, bool]:
    """The last bytes of a log as text, and whether it was cut. Empty if there is no log."""
    try:
        found = logs.size(key)
        size = found.size if found is not None else 0
        text = logs.read(key, max(0, size - bytes_max), size).decode("utf-8", "replace")
    except OSError:
        return "", False
    if size <= bytes_max:
        return text, False
    # Leave out the line that was cut, unless it is the only one.
    _, newline, rest = text.partition("\n")
    return (rest if newline and rest.strip() else text), True
