"""Runs as a list says them: how each stands, why it failed, how long it took, and who waits for what.

A page of runs takes the same few statements however many runs there are in the store, and none of them is opened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

import msgspec

from mulligan.core.effects.run_lists import Attribute, OpenTasks, OpenTimer, RunFilter, unhandled_by_records
from mulligan.core.effects.snapshot import read_failure, read_place, read_spent
from mulligan.core.model import events as e
from mulligan.core.model.formatting import format_time_until, single_line
from mulligan.core.model.spending import spent_json
from mulligan.core.state.state import FailureRecord
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import CodecError
from mulligan.history.phrases import describe_failure
from mulligan.ports import RunRecord, Store, WaitingPlace, WorkerRecord
from mulligan.service.breakers import describe_breaker_wait
from mulligan.service.run_reader import RunReader

# Of one page.
LIMIT_MAX = 1_000_000
# How many failed visits of one run are read: the first of them is shown, and how many there are.
FAILURES_READ_MAX = 200
# How far back the log of a paused run is read for who paused it. What still ran then may have ended since.
PAUSE_READ_MAX = 500

WaitKind = Literal[
    "pause", "step_pause", "triage", "approval", "driver", "breaker", "worker", "retry", "timer", "loop", "task"
]


class RunQuery(msgspec.Struct, frozen=True):
    """Which runs are wanted, and which page of them. An empty field accepts every run."""

    statuses: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    inputs: dict[str, str] = {}
    labels: dict[str, str] = {}
    with_children: bool = False
    limit: int = 50
    # Only runs with a lower number: `RunPage.next` of the page before.
    before: int | None = None

    @property
    def filter(self) -> RunFilter:
        inputs: list[Attribute] = [("input", *one) for one in self.inputs.items()]
        labels: list[Attribute] = [("label", *one) for one in self.labels.items()]
        return RunFilter(
            statuses=self.statuses,
            workflows=self.workflows,
            since=self.since,
            until=self.until,
            attributes=(*inputs, *labels),
            with_children=self.with_children,
        )

    @property
    def can_match(self) -> bool:
        """Whether a store could hold what is asked for: bytes of a terminal that are no text, and NUL, are in none."""
        texts = (
            *self.statuses,
            *self.workflows,
            *self.inputs,
            *self.inputs.values(),
            *self.labels,
            *self.labels.values(),
        )
        try:
            return b"\0" not in "".join(texts).encode()
        except UnicodeEncodeError:
            return False


class FailedStep(msgspec.Struct, frozen=True):
    """The failure that a run failed with: the first, where there are several."""

    step: str
    code: str
    exit_code: int | None
    signal: int | None
    # The line of its message that says most, with the code before it.
    text: str
    # How many failed visits nothing has answered.
    count: int


class WaitReason(msgspec.Struct, frozen=True):
    """What a run that has not ended waits for, or does: in words, and as data."""

    kind: WaitKind
    text: str
    # The run that waits: this one, or one that it called.
    run_id: int
    place: str = ""
    attempt: int = 0
    worker: str = ""
    # When it goes on by itself.
    due: datetime | None = None
    # How many wait for the same.
    count: int = 1


class RunLine(msgspec.Struct, frozen=True):
    """A run in a list."""

    run_id: int
    workflow: str
    version: str
    status: str
    round: int
    degraded: bool
    reason: str
    created_at: datetime
    updated_at: datetime
    # From its creation to its end, or until now.
    seconds: float
    parent_run_id: int | None
    labels: dict[str, str]
    # Those that are single, short values.
    inputs: dict[str, str]
    driver: WorkerRecord | None
    failure: FailedStep | None
    # The most telling first: a person, then nobody who drives it, then workers and times.
    waiting_for: list[WaitReason]
    # Every place in its tree that waits for a person.
    asks: list[WaitingPlace]
    # What its agents have spent; None where it has none.
    spent: dict[str, Any] | None = None


class RunPage(msgspec.Struct, frozen=True):
    """Runs, the newest first; with called runs each of them below its caller, where that is in the page."""

    runs: list[RunLine]
    # For `RunQuery.before`; None where there is no further page.
    next: int | None = None


def list_runs(reader: RunReader, query: RunQuery) -> RunPage:
    """A page of the list of runs, with why each failed and what it waits for; empty where nothing was ever run."""
    if not reader.home.is_there:
        return RunPage([])
    return run_page(reader.store, query, reader.live_workers(), datetime.now(UTC))


def summarize_runs(reader: RunReader, run_ids: Iterable[int]) -> list[RunLine]:
    """These runs as the list shows them, in this order."""
    records = [reader.record(run_id) for run_id in run_ids]
    return run_lines(reader.store, records, reader.live_workers(), datetime.now(UTC))


def run_page(store: Store, query: RunQuery, alive: Callable[[str], WorkerRecord | None], now: datetime) -> RunPage:
    """The page of the list that is asked for. `alive`: the worker of that name, if it lives."""
    if not query.can_match:
        return RunPage([])
    limit = min(query.limit, LIMIT_MAX)
    records = store.lists.find(query.filter, limit=limit + 1, before=query.before)
    has_more, records = len(records) > limit, records[:limit]
    lines = {line.run_id: line for line in run_lines(store, records, alive, now)}
    ordered = [lines[run_id] for run_id in _in_order(records)]
    return RunPage(ordered, records[-1].run_id if has_more else None)


def run_lines(
    store: Store, records: Sequence[RunRecord], alive: Callable[[str], WorkerRecord | None], now: datetime
) -> list[RunLine]:
    """These runs as a list says them, in this order."""
    look = _PageBuilder(store, records, alive, now)
    return [look.line(record) for record in records]


def _in_order(records: Sequence[RunRecord]) -> Iterator[int]:
    """Newest first; below a run those that it called, in the order of the calls."""
    listed = {record.run_id for record in records}
    below: dict[int | None, list[int]] = defaultdict(list)
    for record in records:
        below[record.parent_run_id if record.parent_run_id in listed else None].append(record.run_id)

    def tree(run_id: int) -> Iterator[int]:
        yield run_id
        for child in reversed(below[run_id]):
            yield from tree(child)

    for root in below[None]:
        yield from tree(root)


class _PageBuilder:
    """What one page needs of the store, each kind of it read once for all its runs."""

    def __init__(
        self,
        store: Store,
        records: Sequence[RunRecord],
        alive: Callable[[str], WorkerRecord | None],
        now: datetime,
    ) -> None:
        self._store = store
        self._now = now
        self._alive = alive
        open_ = [record for record in records if record.status not in RUN_ENDED]
        with_failures = [record.run_id for record in records if record.status not in ("completed", "cancelled")]
        roots = sorted({record.root_run_id for record in open_})
        self._failures = _failures(store, with_failures)
        self._attributes = _grouped(store.lists.attributes([record.run_id for record in records]))
        self._tasks = _by_root(store.lists.open_tasks(roots) if roots else ())
        self._timers = _by_root(store.lists.open_timers(roots) if roots else ())
        self._asks = _asks(store) if open_ else {}
        self._parked = _parked(store, self._asks, [record.run_id for record in open_])
        self._spent = _spent(store, [record.run_id for record in records])
        self._breakers: dict[str, str] | None = None
        # Whoever serves a store that hosts share takes up its runs when there is something to do.
        workers = store.workers() if open_ and store.is_shared else ()
        self._is_served = any(worker.cpus and alive(worker.name) for worker in workers)

    def line(self, record: RunRecord) -> RunLine:
        is_open = record.status not in RUN_ENDED
        driver = self._alive(record.holder) if is_open and record.holder else None
        kept = self._attributes.get(record.run_id, [])
        return RunLine(
            run_id=record.run_id,
            workflow=record.workflow,
            version=record.version,
            # One that nobody has taken up yet is no other kind of run.
            status="running" if record.status == "new" else record.status,
            round=record.round,
            degraded=record.degraded,
            reason=record.reason,
            created_at=record.created_at,
            updated_at=record.updated_at,
            seconds=max(0.0, ((self._now if is_open else record.updated_at) - record.created_at).total_seconds()),
            parent_run_id=record.parent_run_id,
            labels={name: value for kind, name, value in kept if kind == "label"},
            inputs={name: value for kind, name, value in kept if kind == "input"},
            driver=driver,
            failure=_failed_step(self._failures.get(record.run_id, ())),
            waiting_for=[*self._wait_reasons(record, driver)] if is_open else [],
            asks=self._asks.get(record.run_id, []),
            spent=self._spent.get(record.run_id),
        )

    # -- who waits for what ------------------------------------------------------------------------------------------

    def _wait_reasons(self, record: RunRecord, driver: WorkerRecord | None) -> Iterator[WaitReason]:
        if record.status == "paused":
            yield _paused(self._store, record)
        yield from self._persons(record)
        tasks = _below(self._tasks.get(record.root_run_id, ()), record)
        running = [one for one in tasks if one.worker]
        # Where nobody drives a run of one's own, what it had under way is lost too.
        if driver is None and not self._is_served:
            yield WaitReason("driver", "nobody drives it", record.run_id)
            return
        if record.status != "paused":
            yield from self._queued(record, [one for one in tasks if not one.worker])
            yield from self._times(record)
        if running:
            first, count = running[0], sum(one.count for one in running)
            yield _wait_reason(record, first, "task", f"{_who(record, first, count)} {_verb('run', count)}", count)

    def _persons(self, record: RunRecord) -> Iterator[WaitReason]:
        asks = self._asks.get(record.run_id, [])
        for tag in ("approval", "parked", "paused"):
            waiting = [one for one in asks if one.kind == tag]
            if not waiting:
                continue
            first, count = waiting[0], len(waiting)
            who = _who(record, first, count)
            if tag == "paused":
                yield _wait_reason(record, first, "step_pause", f"{who} {_verb('is paused', count)}", count)
            elif tag == "approval":
                yield _wait_reason(record, first, "approval", f"{who} {_verb('wait', count)} for an approval", count)
            else:
                failure = self._parked.get((first.run_id, first.place), "")
                text = f"{who} {_verb('is parked', count)}{f', {failure}' if failure else ''}"
                yield _wait_reason(record, first, "triage", text, count)

    def _queued(self, record: RunRecord, tasks: Sequence[OpenTasks]) -> Iterator[WaitReason]:
        for one in tasks:
            who, verb = _who(record, one, one.count), _verb("wait", one.count)
            held = self._held_by(one.breaker)
            if held:
                yield _wait_reason(record, one, "breaker", f"{who} {verb}: {held}", one.count)
            else:
                yield _wait_reason(record, one, "worker", f"{who} {verb} for a worker", one.count)

    def _held_by(self, breaker: str) -> str:
        """What is to be said of a breaker that lets nothing pass."""
        if not breaker:
            return ""
        if self._breakers is None:
            self._breakers = {one.name: describe_breaker_wait(one, self._now) for one in self._store.breakers()}
        return self._breakers.get(breaker, "")

    def _times(self, record: RunRecord) -> Iterator[WaitReason]:
        for one in sorted(_below(self._timers.get(record.root_run_id, ()), record), key=lambda timer: timer.due):
            kind, verb = _TIMES[one.kind]
            text = f"{_who(record, one, one.count)} {_verb(verb, one.count)} {format_time_until(one.due, self._now)}"
            yield _wait_reason(record, one, kind, text, one.count, one.due)


# Timers that let a run go on, and how that is said.
_TIMES: dict[str, tuple[WaitKind, str]] = {
    "retry": ("retry", "is tried again"),
    "attempt": ("timer", "goes on"),
    "until": ("timer", "goes on"),
    "loop": ("loop", "loops back"),
}
_PLURALS = {
    "is parked": "are parked",
    "is paused": "are paused",
    "is tried again": "are tried again, the first",
    "goes on": "go on, the first",
    "loops back": "loop back, the first",
}


def _verb(verb: str, count: int) -> str:
    """`waits` of one, `wait` of more."""
    if verb in _PLURALS:
        return verb if count == 1 else _PLURALS[verb]
    return f"{verb}s" if count == 1 else verb


def _who(record: RunRecord, first: OpenTasks | OpenTimer | WaitingPlace, count: int) -> str:
    where = f"'{first.place}'" + (f" of run {first.run_id}" if first.run_id != record.run_id else "")
    return where if count == 1 else f"{where} and {count - 1:,} more"


def _wait_reason(
    record: RunRecord,
    first: OpenTasks | OpenTimer | WaitingPlace,
    kind: WaitKind,
    text: str,
    count: int,
    due: datetime | None = None,
) -> WaitReason:
    attempt, worker = (first.attempt, first.worker) if isinstance(first, OpenTasks) else (0, "")
    return WaitReason(kind, single_line(text), first.run_id, first.place, attempt, worker, due, count)


def _below(found: Iterable[Any], record: RunRecord) -> list[Any]:
    """What is in a run's own tree: of a run at the top all of it, of a called run its own."""
    is_root = record.run_id == record.root_run_id
    return [one for one in found if is_root or one.run_id == record.run_id]


def _paused(store: Store, record: RunRecord) -> WaitReason:
    by = f" by {found.by}" if (found := pause_of(store, record)) is not None and found.by else ""
    reason = f": {record.reason}" if record.reason else ""
    return WaitReason("pause", single_line(f"paused{by}{reason}"), record.run_id)


class Pause(msgspec.Struct, frozen=True):
    """Who paused a run, and when."""

    at: datetime
    by: str


def pause_of(store: Store, record: RunRecord) -> Pause | None:
    """Who paused a run, as its log says; None where the engine did so because of a bug of its own."""
    entries = store.log(record.run_id, max(0, record.seq - PAUSE_READ_MAX))
    return next((Pause(one.at, one.fact.by) for one in reversed(entries) if isinstance(one.fact, e.RunPaused)), None)


# -- what is read of the store ---------------------------------------------------------------------------------------


def _failures(store: Store, run_ids: Sequence[int]) -> dict[int, list[FailureRecord]]:
    rows = store.lists.rows(run_ids, "failures", FAILURES_READ_MAX) if run_ids else []
    found: dict[int, list[FailureRecord]] = defaultdict(list)
    for run_id, _, data in rows:
        try:
            found[run_id].append(read_failure(data))
        except CodecError:
            continue  # `show` says what is wrong with it: it must not hide the other runs
    return found


def _failed_step(records: Iterable[FailureRecord]) -> FailedStep | None:
    found = unhandled_by_records(records)
    if not found:
        return None
    first, failure = found[0], found[0].failure
    return FailedStep(
        first.step, failure.code, failure.exit_code, failure.signal, describe_failure(failure), len(found)
    )


def _spent(store: Store, run_ids: Sequence[int]) -> dict[int, dict[str, Any] | None]:
    """What the agents of these runs have spent, as it is shown; nothing of runs without agents."""
    rows = store.lists.rows(run_ids, "spent", 1) if run_ids else []
    return {run_id: spent_json(read_spent(data)) for run_id, _, data in rows}


def _asks(store: Store) -> dict[int, list[WaitingPlace]]:
    """What waits for a person, by the run and by the one at the top of its tree."""
    found: dict[int, list[WaitingPlace]] = defaultdict(list)
    for one in store.waiting_places():
        for run_id in {one.run_id, one.root_run_id or one.run_id}:
            found[run_id].append(one)
    return found


def _parked(store: Store, asks: Mapping[int, list[WaitingPlace]], run_ids: Iterable[int]) -> dict[tuple[int, str], str]:
    """The failures of the first step of each run that is parked, in words."""
    firsts = (next((one for one in asks.get(run_id, ()) if one.kind == "parked"), None) for run_id in run_ids)
    keys = sorted({(one.run_id, one.place) for one in firsts if one is not None})
    found: dict[tuple[int, str], str] = {}
    for run_id, key, data in store.lists.places(keys) if keys else ():
        try:
            failure = read_place(key, data).failure
        except CodecError:
            continue
        if failure is not None:
            found[run_id, key] = describe_failure(failure)
    return found


def _grouped(found: Iterable[tuple[int, Attribute]]) -> dict[int, list[Attribute]]:
    return {run_id: [one for _, one in some] for run_id, some in groupby(found, key=itemgetter(0))}


def _by_root(found: Iterable[Any]) -> dict[int, list[Any]]:
    by_root: dict[int, list[Any]] = defaultdict(list)
    for one in found:
        by_root[one.root_run_id].append(one)
    return by_root
