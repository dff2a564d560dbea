"""Following the logs of attempts while they are written: of one step or a whole run, through retries, to the end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from mulligan.core.effects.snapshot import read_place
from mulligan.core.model import events as e
from mulligan.core.model.place_keys import is_at_or_below, item_key, step_name
from mulligan.core.model.workflow import Workflow
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.history.story_memory import StoryMemory
from mulligan.ports import LogKey, RunRecord
from mulligan.service.driving.store_changes import StoreChanges
from mulligan.service.home import this_host
from mulligan.service.logs.log_ranges import READ_BYTES, STREAMS, LogRanges, Stream
from mulligan.service.logs.logs import Part, UnknownAttempt, is_meant, refuse_without_attempt
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.worker.folders import open_regular_file

# How often files are read while something runs, how often the store is, and how often anything is while nothing runs.
FILES_SECONDS, STORE_SECONDS, IDLE_SECONDS = 0.1, 0.5, 1.0
# How often events are read when no change is announced.
EVENTS_SECONDS = 1.0
# How long a run may be without a driver before a note says so.
UNDRIVEN_SECONDS = 2.0


# What the store has of a log from a position on.
Shipped = Callable[[int], Iterator[bytes]]


class LogPiece(msgspec.Struct, frozen=True):
    """Part of what an attempt wrote: whole lines, or the last one without its end.

    Without `stream` it is a note: the attempt begins (`text` is ""), or `text` says something about it.
    """

    run_id: int
    # The place, with the steps that called its run before it: `east/build`.
    where: str
    place: str = ""
    attempt: int = 0
    stream: Stream | None = None
    data: bytes = b""
    text: str = ""
    # The display name of the place: `load[west]`.
    name: str = ""


class LogSelection(msgspec.Struct, frozen=True):
    """The logs to follow: of a whole run; of one step from its last attempt on; or of one attempt."""

    step: str = ""
    item: int | None = None
    attempt: int | None = None
    part: Part = "own"

    @property
    def place(self) -> str:
        return self.step if self.item is None else item_key(self.step, self.item)

    def is_among_others(self, place: str) -> bool:
        """Whether several places are followed, this being one of them: a whole run, or the items of a map step."""
        return not self.step or "[" in place.removeprefix(self.place)

    def accepts(self, place: str, attempt: int) -> bool:
        if not self.step:
            return True
        is_own = is_at_or_below(place, self.place) and is_meant(self.place, place, self.part)
        return is_own and self.attempt in (None, attempt)


def follow_logs(
    reader: RunReader,
    run_id: int,
    wanted: LogSelection,
    *,
    by_line: bool = False,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[LogPiece]:
    """What the attempts wrote and write, until the step or the run has ended.

    A whole run includes the runs that it calls. If several places are followed, pieces are whole lines, so that they
    may go to one stream; with `by_line` all pieces are.
    """
    if wanted.step:
        reader.refuse_unknown(run_id, wanted.step)
        wanted = msgspec.structs.replace(wanted, step=reader.find_place(run_id, wanted.step))
    return _LogFollower(reader, run_id, wanted, by_line, monotonic).pieces()


class Tail:
    """One log: a file that is missing, grows, is truncated or replaced by another; or what was shipped of it."""

    def __init__(self, path: str, stream: Stream, shipped: Shipped | None = None, start: int = 0) -> None:
        self._path = path
        self.stream = stream
        self._shipped = shipped
        self._offset = start
        self._inode = 0
        self._held = b""
        self.is_there = False

    def read(self, *, by_line: bool, is_last: bool, asks_store: bool = False) -> Iterator[bytes]:
        """New data up to the end of a line; the rest too, if nothing came since the last read or nothing more will.

        `asks_store`: read what was shipped if there is no file.
        """
        has_grown = False
        for data in self.new(asks_store=asks_store):
            has_grown = True
            whole, end, rest = (self._held + data).rpartition(b"\n")
            self._held = rest
            if whole or end:
                yield whole + end
        if self._held and (is_last or (not has_grown and not by_line and self._is_up_to_date(asks_store))):
            held, self._held = self._held, b""
            yield held + (b"\n" if by_line else b"")

    def _is_up_to_date(self, asks_store: bool) -> bool:
        return asks_store or self._inode != 0

    def new(self, *, asks_store: bool) -> Iterator[bytes]:
        """What was written since the last call."""
        try:
            file = open_regular_file(self._path)
        except OSError:
            # It does not exist yet, is on another host, or is not a log.
            if asks_store and self._shipped is not None:
                yield from self._newly_shipped(self._shipped)
            return
        with file:
            found = os.fstat(file.fileno())
            is_other = self._inode != 0 and found.st_ino != self._inode
            self._inode = found.st_ino
            if is_other or found.st_size < self._offset:
                self._offset = 0
            self.is_there = True
            file.seek(self._offset)
            while data := file.read(READ_BYTES):
                self._offset += len(data)
                yield data

    def _newly_shipped(self, shipped: Shipped) -> Iterator[bytes]:
        for data in shipped(self._offset):
            self.is_there = True
            self._offset += len(data)
            yield data


def tail_of(logs: LogRanges, key: LogKey, start: int = 0) -> Tail:
    """The end of a log, wherever it is."""
    return Tail(logs.path(key), key.stream, partial(logs.shipped_pieces, key), start)


class AttemptFollower:
    """One stream of one attempt while it is written, for a face that sends it on: call `read` until `is_over`."""

    def __init__(self, reader: RunReader, key: LogKey, start: int = 0) -> None:
        self._reader = reader
        reader.record(key.run_id)
        self._key = key
        self._tail = tail_of(reader.log_ranges, key, start)
        self._seq = 0
        self._host = ""
        self._has_begun = self._has_ended = False
        self.is_over = False
        self._look()
        if not self._has_begun:
            raise UnknownAttempt(
                f"'{key.place}' of run {key.run_id} has had no attempt {key.attempt}",
                hint=f"its story: mulligan explain {key.run_id} {step_name(key.place)}",
                step=step_name(key.place),
            )

    def read(self) -> bytes:
        """What was written since the last call; b"" if nothing was. Nothing follows if `is_over` then."""
        self._look()
        # Asked before the log is read, so that it has everything up to the end.
        has_ended, logs = self._has_ended, self._reader.log_ranges
        asks_store = logs.may_be_shipped(self._host)
        if asks_store and not has_ended:
            logs.watch(self._key.run_id)
        data = b"".join(self._tail.new(asks_store=asks_store))
        self.is_over = has_ended
        return data

    def _look(self) -> None:
        if self._has_ended:
            return
        for entry in self._reader.events(self._key.run_id, self._seq):
            self._seq, fact = entry.seq, entry.fact
            if (getattr(fact, "place", ""), getattr(fact, "attempt", 0)) != (self._key.place, self._key.attempt):
                continue
            self._has_begun = True
            if isinstance(fact, e.AttemptStarted):
                self._host = fact.host
            self._has_ended = self._has_ended or isinstance(fact, _ENDS)


class _Attempt:
    """One attempt that is followed."""

    def __init__(self, reader: RunReader, run: _Run, place: str, attempt: int, now: float) -> None:
        self.place = place
        self.name = run.name_of(place)
        self.attempt = attempt
        self.run = run
        self.began_at = now
        self.host = ""
        self.has_begun = self.is_missing_noted = self.has_ended = False
        self._logs = reader.log_ranges
        self._store_asked_at = now
        self.tails = [tail_of(self._logs, LogKey(run.run_id, place, attempt, stream)) for stream in STREAMS]

    def piece(self, *, stream: Stream | None = None, data: bytes = b"", text: str = "") -> LogPiece:
        where = f"{self.run.above}{self.name}"
        return LogPiece(self.run.run_id, where, self.place, self.attempt, stream, data, text, self.name)

    def pieces(self, *, by_line: bool, now: float) -> Iterator[LogPiece]:
        asks_store = self._asks_store(now)
        for tail in self.tails:
            for data in tail.read(by_line=by_line, is_last=self.has_ended, asks_store=asks_store):
                if not self.has_begun:
                    self.has_begun = True
                    yield self.piece()
                yield self.piece(stream=tail.stream, data=data)

    def _asks_store(self, now: float) -> bool:
        """Whether to read what was shipped: not as often as a file, but always when nothing follows."""
        if not self._logs.may_be_shipped(self.host):
            return False
        if not self.has_ended and now - self._store_asked_at < STORE_SECONDS:
            return False
        self._store_asked_at = now
        if not self.has_ended:
            self._logs.watch(self.run.run_id)
        return True

    def note_missing(self) -> Iterator[LogPiece]:
        """Note once that nothing has come."""
        if not self.is_missing_noted:
            self.is_missing_noted = True
            yield self.piece(text=f"{self.host} has not sent any of its log yet")

    @property
    def is_elsewhere(self) -> bool:
        """Whether nothing of its log is here, and other hosts share the store."""
        return self._logs.may_be_shipped(self.host) and not any(tail.is_there for tail in self.tails)


class _Run:
    """One run whose events are followed."""

    def __init__(self, run_id: int, above: str, workflow: Workflow) -> None:
        self.run_id = run_id
        # The prefix of the names of its places.
        self.above = above
        self.seq = 0
        self._memory = StoryMemory(workflow)

    def update(self, fact: e.Fact) -> None:
        if isinstance(fact, e.MapExpanded):
            self._memory.update(fact)

    def name_of(self, place: str) -> str:
        """The display name of a place."""
        return self._memory.name_of(place) or place


class _LogFollower:
    def __init__(
        self, reader: RunReader, run_id: int, wanted: LogSelection, by_line: bool, monotonic: Callable[[], float]
    ) -> None:
        self._reader = reader
        self._wanted = wanted
        self._by_line = by_line
        self._monotonic = monotonic
        self._root = _Run(run_id, "", reader.first_workflow(run_id))
        self._runs = {run_id: self._root}
        self._attempts: dict[tuple[int, str, int], _Attempt] = {}
        self._has_had_any = False
        self._driver_asked_at = monotonic()
        # A worker learns with a heartbeat that somebody watches: two of them are enough.
        self._missing_seconds = reader.home.lease_seconds / 2
        self._is_undriven_noted = False

    def pieces(self) -> Iterator[LogPiece]:
        news = StoreChanges(self._reader.store)
        # The first read returns all attempts; of a step only the last ones are followed.
        has_ended = self._look()
        if self._wanted.step and self._wanted.attempt is None:
            self._drop_earlier()
        looked_at = self._monotonic()
        while True:
            yield from self._new_pieces()
            if has_ended:
                break
            yield from self._note_undriven()
            has_news = news.wait(FILES_SECONDS if self._attempts else IDLE_SECONDS)
            if has_news or self._monotonic() - looked_at >= EVENTS_SECONDS:
                has_ended, looked_at = self._look(), self._monotonic()
        if not self._has_had_any and self._wanted.step:
            wanted = self._wanted
            refuse_without_attempt(
                self._reader,
                self._root.run_id,
                wanted.step,
                item=wanted.item,
                attempt=wanted.attempt,
                part=wanted.part,
            )

    # -- events ------------------------------------------------------------------------------------------------------

    def _look(self) -> bool:
        """Read new events; return whether the step or run has ended, checked first so that nothing is missed."""
        record = self._reader.record(self._root.run_id)
        has_ended = record.status in RUN_ENDED or self._step_has_ended()
        for run in self._tree():
            for entry in self._reader.events(run.run_id, run.seq):
                run.seq = entry.seq
                run.update(entry.fact)
                self._apply(run, entry.fact)
        return has_ended

    def _tree(self) -> Iterator[_Run]:
        """The run; for a whole run also the runs that it called, recursively."""
        found = [self._root]
        for run in found:
            yield run
            if not self._wanted.step:
                found += [self._child(run, child) for child in self._reader.store.children(run.run_id)]

    def _child(self, run: _Run, record: RunRecord) -> _Run:
        if record.run_id not in self._runs:
            above = f"{run.above}{run.name_of(record.parent_place)}/"
            self._runs[record.run_id] = _Run(record.run_id, above, self._reader.first_workflow(record.run_id))
        return self._runs[record.run_id]

    def _apply(self, run: _Run, fact: e.Fact) -> None:
        place, attempt = getattr(fact, "place", ""), getattr(fact, "attempt", 0)
        key = (run.run_id, place, attempt)
        if isinstance(fact, e.AttemptScheduled) and self._wanted.accepts(place, attempt):
            self._attempts[key] = _Attempt(self._reader, run, place, attempt, self._monotonic())
            self._has_had_any = True
        followed = self._attempts.get(key)
        if followed is not None and isinstance(fact, e.AttemptStarted):
            followed.host = fact.host
        if followed is not None and isinstance(fact, _ENDS):
            followed.has_ended = True

    def _step_has_ended(self) -> bool:
        """Whether the step, or the one attempt, that is followed has ended."""
        wanted = self._wanted
        if not wanted.step:
            return False
        if wanted.attempt is not None and self._has_had_any:
            return all(attempt.has_ended for attempt in self._attempts.values())
        rows = self._reader.store.lists.places([(self._root.run_id, wanted.place)])
        return any(read_place(key, data).has_ended for _, key, data in rows)

    def _drop_earlier(self) -> None:
        """Drop all but the last attempt of each place."""
        last = {place: key for key in self._attempts for place in [key[1]]}
        self._attempts = {key: attempt for key, attempt in self._attempts.items() if last[key[1]] == key}

    # -- logs --------------------------------------------------------------------------------------------------------

    def _new_pieces(self) -> Iterator[LogPiece]:
        now = self._monotonic()
        for key, attempt in list(self._attempts.items()):
            # Checked before the files are read, so that they hold everything up to the end.
            has_ended = attempt.has_ended
            by_line = self._by_line or self._wanted.is_among_others(attempt.place)
            yield from attempt.pieces(by_line=by_line, now=now)
            if has_ended:
                yield from self._note_without_log(attempt)
                del self._attempts[key]
            elif attempt.is_elsewhere and now - attempt.began_at >= self._missing_seconds:
                yield from attempt.note_missing()

    def _note_without_log(self, attempt: _Attempt) -> Iterator[LogPiece]:
        """A note about an ended attempt without a log; in a whole run only if the log is elsewhere."""
        if attempt.has_begun:
            return
        if attempt.is_elsewhere and (self._wanted.step or attempt.host != this_host()):
            yield attempt.piece(text=f"it wrote nothing, or only {attempt.host} has its log")
        elif not self._wanted.is_among_others(attempt.place):
            yield attempt.piece(text="it wrote nothing")

    def _note_undriven(self) -> Iterator[LogPiece]:
        """Note once that nothing is running it, so that nothing is written."""
        now = self._monotonic()
        if self._is_undriven_noted or now - self._driver_asked_at < UNDRIVEN_SECONDS:
            return
        self._driver_asked_at = now
        if not self._reader.is_driven(self._root.run_id):
            self._is_undriven_noted = True
            yield LogPiece(self._root.run_id, "", text="nothing is running it")


_ENDS = (e.AttemptSucceeded, e.AttemptFailed, e.AttemptLost, e.AttemptInterrupted, e.AttemptCancelled)
