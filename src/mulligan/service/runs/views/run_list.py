"""The list of runs: how each stands, why it failed, how long it took, and what it waits for.

A page takes the same few queries however many runs the store has, and loads the state of none of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

import msgspec

from mulligan.core.effects.run_lists import (
    Attribute,
    OpenTasks,
    OpenTimer,
    RunFilter,
    search_words,
    unhandled_by_records,
)
from mulligan.core.effects.snapshot import read_failure, read_place, read_spent
from mulligan.core.model import events as e
from mulligan.core.model.agents.spending import spent_json
from mulligan.core.model.failure import CODES
from mulligan.core.model.text.formatting import format_time_until, single_line
from mulligan.core.state.state import FailureRecord
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import CodecError, InputInvalid
from mulligan.history.phrases import describe_failure
from mulligan.ports import RunRecord, Store, WaitingPlace, WorkerRecord
from mulligan.service.host.breakers import describe_breaker_wait
from mulligan.service.runs.stored.run_reader import RunReader, StoredPlaceNames, may_serve, readable

# How many runs one page has at most.
LIMIT_MAX = 1_000_000
# How many failed visits of one run are read; the first is shown, with their number.
FAILURES_READ_MAX = 200
# How many events of a paused run are searched for the pause; attempts may have ended since.
PAUSE_READ_MAX = 500

_SINGLE_STATUSES = ("running", "paused", "completed", "failed", "cancelled")
_STATUS_GROUPS = {"open": ("running", "paused"), "ended": ("completed", "failed", "cancelled")}
# The words with which runs are chosen by their status.
STATUSES = (*_SINGLE_STATUSES, *_STATUS_GROUPS)

WaitKind = Literal[
    "pause",
    "step_pause",
    "triage",
    "approval",
    "event",
    "driver",
    "breaker",
    "worker",
    "retry",
    "timer",
    "loop",
    "task",
]


class RunQuery(msgspec.Struct, frozen=True):
    """Which runs to list, and which page of them. An empty field accepts every run."""

    statuses: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    inputs: dict[str, str] = {}
    labels: dict[str, str] = {}
    # Started by one of these users.
    starters: tuple[str, ...] = ()
    # Failed with one of these codes, in a failure that nothing handled.
    failure_codes: tuple[str, ...] = ()
    # Each word of it begins a word of the run: of its workflow, starter, labels, short inputs, or unhandled failures.
    text: str = ""
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
            starters=self.starters,
            failure_codes=tuple(_code(word) for word in self.failure_codes),
            words=search_words([self.text]),
            with_children=self.with_children,
        )

    def refuse_no_words(self) -> None:
        """`InputInvalid` for a text without a word: it would match every run."""
        if self.text and not search_words([self.text]):
            message = f"'{single_line(self.text)}' has no letters or digits to search for"
            raise InputInvalid(message, hint="give a word or more")

    @property
    def can_match(self) -> bool:
        """Whether a store can hold these texts: it holds neither NUL nor bytes that are not text."""
        try:
            return b"\0" not in "".join(_texts(msgspec.structs.astuple(self))).encode()
        except UnicodeEncodeError:
            return False


def _texts(value: Any) -> Iterator[str]:
    """All texts in the fields of a query."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for item in value.items() for text in item)
    elif isinstance(value, tuple):
        yield from (text for one in value for text in _texts(one))


def parse_statuses(words: Iterable[str]) -> tuple[str, ...]:
    """Statuses as people name them, perhaps several in one word with commas; `open` and `ended` are several."""
    found: list[str] = []
    for word in (part.strip() for given in words for part in given.split(",")):
        if word not in STATUSES:
            hint = f"give {', '.join(_SINGLE_STATUSES)}; or open or ended for several"
            if word in ("waiting", "pending"):
                hint = "a run that waits counts as running; what waits for a person: mulligan pending"
            raise InputInvalid(f"'{word}' is not a status of a run", hint=hint)
        found.extend(_STATUS_GROUPS.get(word, (word,)))
    # A new run counts as running.
    return tuple(dict.fromkeys([*found, *(["new"] if "running" in found else [])]))


def _code(word: str) -> str:
    """A failure code as it is recorded. Those of Mulligan may be given in small letters."""
    return word.upper() if word.upper() in CODES else word


class FailedStep(msgspec.Struct, frozen=True):
    """The first failure that made a run fail."""

    step: str
    code: str
    exit_code: int | None
    signal: int | None
    # The code, and the most useful line of the message.
    text: str
    # How many failed visits are unhandled.
    count: int


class WaitReason(msgspec.Struct, frozen=True):
    """What an unfinished run waits for or does, in words and as data."""

    kind: WaitKind
    text: str
    # The run that waits: this one, or a run that it called.
    run_id: int
    place: str = ""
    attempt: int = 0
    worker: str = ""
    # When it continues by itself.
    due: datetime | None = None
    # How many places wait for the same.
    count: int = 1
    # The display name of the place: `check[web]`.
    name: str = ""


class RunLine(msgspec.Struct, frozen=True):
    """A run in the list."""

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
    # Only single, short values.
    inputs: dict[str, str]
    driver: WorkerRecord | None
    failure: FailedStep | None
    # The most important first: a person, a missing driver, then workers and times.
    waiting_for: list[WaitReason]
    # Every place of it and of its child runs that waits for a person.
    asks: list[WaitingPlace]
    # What its agents have spent; None if it has none.
    spent: dict[str, Any] | None = None
    # The user or program that started it.
    started_by: str = ""
    # Why it cannot be read; "" if it can, as far as a list looks.
    damage: str = ""


class RunPage(msgspec.Struct, frozen=True):
    """Runs, newest first; a called run comes below its caller, if that is in the page."""

    runs: list[RunLine]
    # For `RunQuery.before`; None if this is the last page.
    next: int | None = None


def list_runs(reader: RunReader, query: RunQuery) -> RunPage:
    """A page of the list of runs, with why each failed and what it waits for; empty if nothing was ever run."""
    query.refuse_no_words()
    if not reader.home.is_there:
        return RunPage([])
    page = run_page(reader.store, query, reader.live_workers(), datetime.now(UTC))
    return msgspec.structs.replace(page, runs=[_with_damage(reader, line) for line in page.runs])


def _with_damage(reader: RunReader, line: RunLine) -> RunLine:
    """The line with what this process has found out, if somebody has asked for the run."""
    found = line.damage or reader.known_damage(line.run_id, line.updated_at)
    return msgspec.structs.replace(line, damage=found) if found else line


def count_runs(reader: RunReader, query: RunQuery, limit: int) -> int:
    """How many runs match, over all pages; at most `limit`."""
    query.refuse_no_words()
    if not reader.home.is_there or not query.can_match:
        return 0
    return reader.store.lists.count(query.filter, limit=limit)


def status_counts(reader: RunReader) -> dict[str, int]:
    """How many runs there are with each status; a new run counts as running."""
    found: Counter[str] = Counter()
    if reader.home.is_there:
        for status, count in reader.counts.status_counts(reader.store, reader.project).items():
            found["running" if status == "new" else status] += count
    return dict(found)


def summarize_runs(reader: RunReader, run_ids: Iterable[int]) -> list[RunLine]:
    """These runs as the list shows them, in this order."""
    records = [reader.record(run_id) for run_id in run_ids]
    return run_lines(reader.store, records, reader.live_workers(), datetime.now(UTC))


def run_page(store: Store, query: RunQuery, alive: Callable[[str], WorkerRecord | None], now: datetime) -> RunPage:
    """A page of the list. `alive` finds a live worker by its name."""
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
    """These runs as the list shows them, in this order."""
    look = _PageBuilder(store, records, alive, now)
    return [look.line(record) for record in records]


def _in_order(records: Sequence[RunRecord]) -> Iterator[int]:
    """Newest first; below each run those that it called, in the order of the calls."""
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
    """Makes the lines of one page. Each kind of data is read once for all runs."""

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
        attributes = store.lists.attributes([record.run_id for record in records])
        self._attributes = {run_id: [one for _, one in some] for run_id, some in groupby(attributes, key=itemgetter(0))}
        self._tasks = _by_root(store.lists.open_tasks(roots) if roots else ())
        self._timers = _by_root(store.lists.open_timers(roots) if roots else ())
        self._asks = _asks(store) if open_ else {}
        self._parked = _parked(store, self._asks, [record.run_id for record in open_])
        self._spent = _spent(store, [record.run_id for record in records])
        self._breakers: dict[str, str] | None = None
        self._names = StoredPlaceNames(store)
        # The workers of a shared store take its runs when there is something to do.
        workers = store.workers() if open_ and store.is_shared else ()
        self._is_served = any(may_serve(worker, store.is_shared) and alive(worker.name) for worker in workers)

    def line(self, record: RunRecord) -> RunLine:
        is_open = record.status not in RUN_ENDED
        driver = self._alive(record.holder) if is_open and record.holder else None
        kept = self._attributes.get(record.run_id, [])
        return RunLine(
            run_id=record.run_id,
            workflow=record.workflow,
            version=record.version,
            # A new run counts as running, also before a worker has taken it.
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
            asks=[one for one in self._asks.get(record.run_id, ()) if one.is_for_a_person],
            spent=self._spent.get(record.run_id),
            started_by=record.started_by,
            damage=record.damage,
        )

    # -- what a run waits for ----------------------------------------------------------------------------------------

    def _wait_reasons(self, record: RunRecord, driver: WorkerRecord | None) -> Iterator[WaitReason]:
        if record.status == "paused":
            yield _paused(self._store, record)
        yield from self._from_outside(record)
        tasks = _below(self._tasks.get(record.root_run_id, ()), record)
        running = [one for one in tasks if one.worker]
        # Without a driver in a store that is not shared, running tasks are lost too.
        if driver is None and not self._is_served:
            yield WaitReason("driver", "nothing is running it", record.run_id)
            yield from self._times(record, is_driven=False)
            return
        if record.status != "paused":
            yield from self._queued(record, [one for one in tasks if not one.worker])
            yield from self._times(record)
        if running:
            first, count = running[0], sum(one.count for one in running)
            yield self._reason(first, "task", f"{self._who(record, first, count)} {_verb('run', count)}", count)

    def _from_outside(self, record: RunRecord) -> Iterator[WaitReason]:
        asks = self._asks.get(record.run_id, [])
        for tag in ("approval", "parked", "paused", "event"):
            waiting = [one for one in asks if one.kind == tag]
            if not waiting:
                continue
            first, count = waiting[0], len(waiting)
            who = self._who(record, first, count)
            if tag == "paused":
                yield self._reason(first, "step_pause", f"{who} {_verb('is paused', count)}", count)
            elif tag == "approval":
                yield self._reason(first, "approval", f"{who} {_verb('wait', count)} for an approval", count)
            elif tag == "event":
                yield self._reason(first, "event", f"{who} {_verb('wait', count)} for an event", count)
            else:
                failure = self._parked.get((first.run_id, first.place), "")
                text = f"{who} {_verb('is parked', count)}{f', {failure}' if failure else ''}"
                yield self._reason(first, "triage", text, count)

    def _queued(self, record: RunRecord, tasks: Sequence[OpenTasks]) -> Iterator[WaitReason]:
        for one in tasks:
            who, verb = self._who(record, one, one.count), _verb("wait", one.count)
            held = self._held_by(one.breaker)
            if held:
                yield self._reason(one, "breaker", f"{who} {verb}: {held}", one.count)
            else:
                yield self._reason(one, "worker", f"{who} {verb} for a worker", one.count)

    def _held_by(self, breaker: str) -> str:
        """Why a breaker holds tasks back; "" if it does not."""
        if not breaker:
            return ""
        if self._breakers is None:
            self._breakers = {one.name: describe_breaker_wait(one, self._now) for one in self._store.breakers()}
        return self._breakers.get(breaker, "")

    def _times(self, record: RunRecord, *, is_driven: bool = True) -> Iterator[WaitReason]:
        for one in sorted(_below(self._timers.get(record.root_run_id, ()), record), key=lambda timer: timer.due):
            kind, verb = _TIMES[one.kind]
            verb = verb if is_driven else "is due"
            text = (
                f"{self._who(record, one, one.count)} {_verb(verb, one.count)} {format_time_until(one.due, self._now)}"
            )
            yield self._reason(one, kind, text, one.count, one.due)

    def _who(self, record: RunRecord, first: OpenTasks | OpenTimer | WaitingPlace, count: int) -> str:
        name = self._names.name(first.run_id, first.place)
        where = f"'{name}'" + (f" of run {first.run_id}" if first.run_id != record.run_id else "")
        return where if count == 1 else f"{where} and {count - 1:,} more"

    def _reason(
        self,
        first: OpenTasks | OpenTimer | WaitingPlace,
        kind: WaitKind,
        text: str,
        count: int,
        due: datetime | None = None,
    ) -> WaitReason:
        attempt, worker = (first.attempt, first.worker) if isinstance(first, OpenTasks) else (0, "")
        name = self._names.name(first.run_id, first.place)
        return WaitReason(kind, single_line(text), first.run_id, first.place, attempt, worker, due, count, name)


# Timers that let a run continue, with the verb for each.
_TIMES: dict[str, tuple[WaitKind, str]] = {
    "retry": ("retry", "is tried again"),
    "attempt": ("timer", "continues"),
    "until": ("timer", "continues"),
    "loop": ("loop", "loops back"),
}
_PLURALS = {
    "is parked": "are parked",
    "is paused": "are paused",
    "is tried again": "are tried again, the first",
    "continues": "continue, the first",
    "is due": "are due, the first",
    "loops back": "loop back, the first",
}


def _verb(verb: str, count: int) -> str:
    """`waits` for one, `wait` for more."""
    if verb in _PLURALS:
        return verb if count == 1 else _PLURALS[verb]
    return f"{verb}s" if count == 1 else verb


def _below(found: Iterable[Any], record: RunRecord) -> list[Any]:
    """What belongs to a run: for a top-level run also what belongs to its child runs."""
    is_root = record.run_id == record.root_run_id
    return [one for one in found if is_root or one.run_id == record.run_id]


def _paused(store: Store, record: RunRecord) -> WaitReason:
    by = f" by {found.by}" if (found := pause_of(store, record)) is not None and found.by else ""
    reason = f": {record.reason}" if record.reason else ""
    return WaitReason("pause", single_line(f"paused{by}{reason}"), record.run_id)


class Pause(msgspec.Struct, frozen=True):
    """The user who paused a run, and when."""

    at: datetime
    by: str


def pause_of(store: Store, record: RunRecord) -> Pause | None:
    """The pause of a run, from its log; None if the engine paused it, or if the log cannot be read."""
    try:
        entries = store.log(record.run_id, max(0, record.seq - PAUSE_READ_MAX))
    except CodecError:
        return None  # `show` reports it; it must not hide other runs
    return next((Pause(one.at, one.fact.by) for one in reversed(entries) if isinstance(one.fact, e.RunPaused)), None)


# -- reading from the store ------------------------------------------------------------------------------------------


def _failures(store: Store, run_ids: Sequence[int]) -> dict[int, list[FailureRecord]]:
    rows = store.lists.rows(run_ids, "failures", FAILURES_READ_MAX) if run_ids else []
    found: dict[int, list[FailureRecord]] = defaultdict(list)
    for run_id, _, failure in readable(rows, read_failure):
        found[run_id].append(failure)
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
    """What the agents of these runs have spent; runs without agents are left out."""
    rows = store.lists.rows(run_ids, "spent", 1) if run_ids else []
    return {run_id: spent_json(spent) for run_id, _, spent in readable(rows, read_spent)}


def _asks(store: Store) -> dict[int, list[WaitingPlace]]:
    """What waits for a person or an event, by run and by the top-level run above it."""
    found: dict[int, list[WaitingPlace]] = defaultdict(list)
    for one in store.waiting_places():
        for run_id in {one.run_id, one.root_run_id or one.run_id}:
            found[run_id].append(one)
    return found


def _parked(store: Store, asks: Mapping[int, list[WaitingPlace]], run_ids: Iterable[int]) -> dict[tuple[int, str], str]:
    """The failure of the first parked step of each run, in words."""
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


def _by_root(found: Iterable[Any]) -> dict[int, list[Any]]:
    by_root: dict[int, list[Any]] = defaultdict(list)
    for one in found:
        by_root[one.root_run_id].append(one)
    return by_root
