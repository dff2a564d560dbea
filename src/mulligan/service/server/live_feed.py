"""What has changed in the things that clients watch: the list of runs, single runs, what waits for a person.

One `LiveFeed` serves all clients of a process and belongs to one thread. It compares what the store has now with what
it had at the last look, so that a look takes a few queries by index however many clients there are, and each event is
encoded once. A *position* says how much of a watched thing a client knows: a client that comes back with its position
gets what it has missed, or a `reset`, which tells it to read that thing again.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import msgspec

from mulligan.core.effects.run_lists import RunFilter
from mulligan.errors import InputInvalid, UnknownRun
from mulligan.ports import RunRecord, WaitingPlace
from mulligan.service.decisions.pending import commands_for_pending, find_waiting, read_waiting
from mulligan.service.rendering.json_output import to_json
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.runs.views.run_list import RunLine, run_lines
from mulligan.service.runs.views.run_pages import RunChanges
from mulligan.service.service import Service

# How many things one client may watch.
WATCHES_MAX = 50
# How many of the newest runs, and of the newest unfinished runs, are compared at each look.
NEWEST_RUNS = 200
OPEN_RUNS_MAX = 1_000
# How many lines or entries one event has at most; with more changes clients read the thing again.
ENTRIES_MAX = 200
# How many events of a list are kept for clients that come back, and how many bytes.
EVENTS_KEPT = 500
BYTES_KEPT = 1_000_000
# How often the lines of unfinished runs are made anew: a driver may have died, which writes nothing.
RECHECK_SECONDS = 5.0
# How often a run is looked at for a client that begins to watch it while it moves on.
JOIN_LOOKS_MAX = 20
OPEN = ("new", "running", "paused")

EventName = Literal["runs", "run", "pending", "reset", "removed"]


class Watch(msgspec.Struct, frozen=True):
    """One thing that a client watches."""

    kind: Literal["runs", "run", "pending"]
    run_id: int = 0
    # The project whose list is watched; None for all.
    project: str | None = None

    @property
    def name(self) -> str:
        """As it is written: `runs`, `run:7`."""
        return f"run:{self.run_id}" if self.kind == "run" else self.kind


class LiveEvent(msgspec.Struct, frozen=True):
    """One change of a watched thing, encoded for all clients."""

    watch: Watch
    name: EventName
    # JSON in one line.
    data: bytes
    # What a client knows that has got it.
    position: str


def parse_watches(text: str, project: str | None = None) -> dict[Watch, str]:
    """What `runs,run:7,pending` asks for, each with the position from which on it is wanted; "" for none.

    `run:7@42` asks for the changes of a run after its event 42, for a client that has read it.
    """
    found: dict[Watch, str] = {}
    for word in text.split(","):
        kind, _, rest = word.strip().partition(":")
        number, _, seq = rest.partition("@")
        if kind in ("runs", "pending") and not rest:
            found[Watch("runs" if kind == "runs" else "pending", project=project)] = ""
        elif kind == "run" and _is_number(number) and (_is_number(seq) or "@" not in rest):
            found[Watch("run", int(number))] = seq
        else:
            raise InputInvalid(
                f"'{word.strip()[:100]}' cannot be watched",
                hint="write runs, run:NUMBER or pending, separated by commas",
                parameter="watch",
            )
    if len(found) > WATCHES_MAX:
        raise InputInvalid(
            f"a stream watches at most {WATCHES_MAX} things, not {len(found)}",
            hint="watch 'runs' for the list, and single runs only while they are shown",
            parameter="watch",
        )
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


class Source(Protocol):
    """The changes of one watched thing. It keeps no connection: the service is given at each call."""

    @property
    def position(self) -> str: ...

    def poll(self, service: Service) -> list[LiveEvent]:
        """What has changed since the last look."""

    def missed(self, service: Service, position: str) -> list[LiveEvent] | None:
        """What a client that knows `position` has to get, to know as much as all others.

        None if the thing has changed since the last look.
        """


class LiveFeed:
    """The changes of everything that is watched, for one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Of the service that was asked last.
        self._version: tuple[Service, int | str | None] | None = None
        self._sources: dict[Watch, Source] = {}
        # What was found in a look that the store did not let end: the next one reports it.
        self.undelivered: list[LiveEvent] = []

    def has_changes(self, service: Service) -> bool:
        """Whether a look may find something. Cheap: one number on SQLite, one small statement on PostgreSQL."""
        if not service.home.is_there:
            return False
        version = service.runs.store_version()
        known, self._version = self._version, (service, version)
        return version is None or known != self._version

    def poll(self, service: Service, watches: Collection[Watch], *, is_changed: bool = True) -> list[LiveEvent]:
        """What has changed in these things since the last look at them. `service` sees all projects.

        With `is_changed` False, only what changes without a write: a process that died.
        """
        if not is_changed:
            changed = [watch for watch in watches if self._is_recheck_due(watch)]
        else:
            run_ids = [watch.run_id for watch in watches if watch.kind == "run"]
            seqs = {record.run_id: str(record.seq) for record in service.runs.records(run_ids)}
            changed = [watch for watch in watches if watch.kind != "run" or self._is_behind(watch, seqs)]
        for watch in changed:
            self.undelivered += self._poll(service, watch)
        found, self.undelivered = self.undelivered, []
        return found

    def join(self, service: Service, watch: Watch, position: str) -> tuple[list[LiveEvent], list[LiveEvent]]:
        """A client begins to watch: what all others get first, and what it gets itself.

        `UnknownRun` if there is no such run; whether the client may see it is for its own service to say.
        """
        events: list[LiveEvent] = []
        for _ in range(JOIN_LOOKS_MAX):
            events += self._poll(service, watch)
            missed = self._source(watch).missed(_service_of(service, watch), position)
            if missed is not None:
                return events, missed
        return events, [_reset(watch, "unknown", self.position(watch))]

    def position(self, watch: Watch) -> str:
        return self._source(watch).position

    @property
    def run_ids(self) -> list[int]:
        """The runs whose changes it looks for."""
        return [watch.run_id for watch in self._sources if watch.kind == "run"]

    def keep_only(self, watches: Collection[Watch]) -> None:
        """Forget the runs that nobody watches any more. The lists are kept, so that a client may come back."""
        self._sources = {watch: one for watch, one in self._sources.items() if watch.kind != "run" or watch in watches}

    def _poll(self, service: Service, watch: Watch) -> list[LiveEvent]:
        return self._source(watch).poll(_service_of(service, watch))

    def _is_behind(self, watch: Watch, seqs: Mapping[int, str]) -> bool:
        return self._source(watch).position != seqs.get(watch.run_id)

    def _is_recheck_due(self, watch: Watch) -> bool:
        source = self._source(watch)
        return isinstance(source, RunListSource) and source.is_recheck_due

    def _source(self, watch: Watch) -> Source:
        found = self._sources.get(watch)
        if found is None:
            found = self._sources[watch] = self._make(watch)
        return found

    def _make(self, watch: Watch) -> Source:
        if watch.kind == "run":
            return RunSource(watch)
        return PendingSource(watch) if watch.kind == "pending" else RunListSource(watch, self._clock)


def _service_of(service: Service, watch: Watch) -> Service:
    """The service that sees what the watch may show. A run was checked when the client began to watch it."""
    return service if watch.project is None else service.as_user("", project=watch.project)


# -- one run ---------------------------------------------------------------------------------------------------------


class RunSource:
    """The changes of one run. A position is the number of an event of its log."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        # The last event that all clients know; None before the first look.
        self._seq: int | None = None
        self._is_removed = False

    @property
    def position(self) -> str:
        return str(self._seq or 0)

    def poll(self, service: Service) -> list[LiveEvent]:
        if self._is_removed:
            return []
        try:
            changes = service.runs.changes_since(self._watch.run_id, self._seq or 0)
        except UnknownRun:
            if self._seq is None:
                raise
            return self._end()
        except Exception as error:
            # Those who watch other runs go on.
            if (damaged := service.runs.explain_damage([self._watch.run_id], error)) is None:
                raise
            if self._seq is None:
                raise damaged from error
            return self._end()
        is_first, self._seq = self._seq is None, changes.seq
        return [] if is_first else self._events(changes)

    def _end(self) -> list[LiveEvent]:
        """Nothing more comes of a run that was removed, or that cannot be read any more."""
        self._is_removed = True
        return [LiveEvent(self._watch, "removed", _encoded({"watch": [self._watch.name]}), self.position)]

    def missed(self, service: Service, position: str) -> list[LiveEvent] | None:
        if not _is_number(position):
            return [_reset(self._watch, "start", self.position)]
        changes = service.runs.changes_since(self._watch.run_id, int(position))
        return self._events(changes) if changes.seq == self._seq else None

    def _events(self, changes: RunChanges) -> list[LiveEvent]:
        if changes.kind == "none":
            return []
        if changes.kind == "all":
            return [_reset(self._watch, "unknown", str(changes.seq))]
        return [LiveEvent(self._watch, "run", _encoded(to_json(changes)), str(changes.seq))]


# -- lists -----------------------------------------------------------------------------------------------------------


class _ListSource:
    """Keeps the last events of a list. A position is the name of this record and the number of an event."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._name = secrets.token_hex(4)
        self._number = 0
        self._events: deque[LiveEvent] = deque(maxlen=EVENTS_KEPT)
        self._size = 0
        # Before the first look.
        self._is_first = True

    @property
    def position(self) -> str:
        return f"{self._name}-{self._number}"

    def _add(self, name: EventName, data: Any) -> LiveEvent:
        self._number += 1
        event = LiveEvent(self._watch, name, _encoded(data), self.position)
        if len(self._events) == EVENTS_KEPT:
            self._size -= len(self._events.popleft().data)
        self._events.append(event)
        self._size += len(event.data)
        while self._size > BYTES_KEPT:
            self._size -= len(self._events.popleft().data)
        return event

    def missed(self, service: Service, position: str) -> list[LiveEvent]:
        name, _, number = position.partition("-")
        if not position:
            return [_reset(self._watch, "start", self.position)]
        first = self._number - len(self._events)
        if name != self._name or not _is_number(number) or not first <= int(number) <= self._number:
            return [_reset(self._watch, "unknown", self.position)]
        return list(self._events)[int(number) - first :]


class RunListSource(_ListSource):
    """New runs, and runs whose line in the list has changed. Runs that other runs called are not in the list."""

    def __init__(self, watch: Watch, clock: Callable[[], float]) -> None:
        super().__init__(watch)
        self._clock = clock
        # What was seen of each run, and the runs that had not ended.
        self._seen: dict[int, tuple[Any, ...]] = {}
        self._open: set[int] = set()
        # What the lines of unfinished runs said, without the times that pass.
        self._said: dict[int, int] = {}
        self._checked_at = clock()

    @property
    def is_recheck_due(self) -> bool:
        return bool(self._open) and self._clock() - self._checked_at >= RECHECK_SECONDS

    def poll(self, service: Service) -> list[LiveEvent]:
        known = (self._seen, self._open, self._said, self._checked_at, self._is_first)
        try:
            return self._compare(service)
        except BaseException:
            # The store went away in the middle: what has changed is not reported yet.
            self._seen, self._open, self._said, self._checked_at, self._is_first = known
            raise

    def _compare(self, service: Service) -> list[LiveEvent]:
        reader = service.reader
        if not reader.home.is_there:
            self._is_first = False
            return []
        store = reader.store
        newest = store.lists.find(RunFilter(), limit=NEWEST_RUNS)
        unfinished = store.lists.find(RunFilter(statuses=OPEN), limit=OPEN_RUNS_MAX)
        records = {record.run_id: record for record in (*newest, *unfinished)}
        left = self._open - records.keys()
        records.update((record.run_id, record) for record in store.lists.records(left))
        asks = _asks_by_root(store.waiting_places()) if unfinished else {}
        seen = {
            run_id: (record.seq, record.status, record.holder, asks.get(run_id)) for run_id, record in records.items()
        }
        changed = [records[run_id] for run_id, known in seen.items() if self._seen.get(run_id) != known]
        removed = sorted(left - records.keys())
        is_all_new = bool(newest) and not any(record.run_id in self._seen for record in newest)
        is_reset = len(changed) > ENTRIES_MAX or (is_all_new and len(newest) == NEWEST_RUNS)
        is_first, self._is_first = self._is_first, False
        is_recheck, self._seen = self.is_recheck_due or is_first, seen
        self._open = {record.run_id for record in unfinished}
        self._said = {run_id: said for run_id, said in self._said.items() if run_id in self._open}
        lines = [] if is_reset else self._lines(reader, changed) if not is_first else []
        if is_recheck:
            lines = [*self._recheck(reader, unfinished[:NEWEST_RUNS], {line.run_id for line in lines}), *lines]
        if is_first:
            return []
        if is_reset:
            return [self._add("reset", {"watch": ["runs"], "reason": "many_changes"})]
        if not lines and not removed:
            return []
        return [self._add("runs", {"runs": to_json(lines), "removed": removed})]

    def _recheck(self, reader: RunReader, unfinished: list[RunRecord], sent: Collection[int]) -> Iterator[RunLine]:
        """The unfinished runs whose line says something else than before, although nothing was written about them."""
        self._checked_at = self._clock()
        known = dict(self._said)
        for line in self._lines(reader, [record for record in unfinished if record.run_id not in sent]):
            if known.get(line.run_id, self._said[line.run_id]) != self._said[line.run_id]:
                yield line

    def _lines(self, reader: RunReader, records: list[RunRecord]) -> list[RunLine]:
        if not records:
            return []
        lines = run_lines(reader.store, records, reader.live_workers(), datetime.now(UTC))
        self._said.update((line.run_id, hash(_essence(line))) for line in lines if line.run_id in self._open)
        return lines


def _asks_by_root(places: Iterable[WaitingPlace]) -> dict[int, frozenset[tuple[int, str, str]]]:
    found: dict[int, set[tuple[int, str, str]]] = {}
    for one in places:
        found.setdefault(one.root_run_id or one.run_id, set()).add((one.run_id, one.place, one.kind))
    return {run_id: frozenset(some) for run_id, some in found.items()}


def _essence(line: RunLine) -> tuple[Any, ...]:
    """What a line says, without the time that passes."""
    waits = tuple((one.kind, one.run_id, one.place, one.attempt, one.worker, one.count) for one in line.waiting_for)
    return (line.status, line.round, line.driver and line.driver.name, waits)


class PendingSource(_ListSource):
    """What begins or ceases to wait for a person."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch)
        # The number of the last event of the run of each thing that waits, and what its entry said.
        self._seqs: dict[tuple[int, str], int] = {}
        self._said: dict[tuple[int, str], int] = {}

    def poll(self, service: Service) -> list[LiveEvent]:
        reader = service.reader
        if not reader.home.is_there:
            self._is_first = False
            return []
        store = reader.store
        waiting = find_waiting(store)
        found = {record.run_id: record.seq for record in store.lists.records({run_id for run_id, _ in waiting})}
        seqs = {key: found.get(key[0], 0) for key in waiting}
        changed = {key: waiting[key] for key, seq in seqs.items() if self._seqs.get(key) != seq}
        removed = [key for key in self._seqs if key not in seqs]
        # All that is read comes first: if the store goes away meanwhile, what has changed is not reported yet.
        waits = [] if len(changed) > ENTRIES_MAX else read_waiting(store, changed)
        for entry in waits:
            entry.commands = commands_for_pending(entry)
        shown = [to_json(entry) for entry in waits]
        is_first, self._is_first = self._is_first, False
        self._seqs = seqs
        for key in removed:
            self._said.pop(key, None)
        if len(changed) > ENTRIES_MAX:
            return [] if is_first else [self._add("reset", {"watch": ["pending"], "reason": "many_changes"})]
        entries = self._new_entries(shown)
        if is_first or not (entries or removed):
            return []
        gone = [{"run_id": run_id, "step": place or None} for run_id, place in sorted(removed)]
        return [self._add("pending", {"entries": entries, "removed": gone, "total": len(waiting)})]

    def _new_entries(self, shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The entries that say something else than before."""
        found = []
        for entry in shown:
            key, said = (entry["run_id"], entry["step"] or ""), hash(_encoded(entry))
            if self._said.get(key) != said:
                self._said[key] = said
                found.append(entry)
        return found


def _reset(watch: Watch, reason: str, position: str) -> LiveEvent:
    return LiveEvent(watch, "reset", _encoded({"watch": [watch.name], "reason": reason}), position)


def _encoded(data: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(data)
