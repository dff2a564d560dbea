"""What attempts write, as they write it: of one step or of a whole run, through retries, until it ends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from mulligan.core.effects.snapshot import read_place
from mulligan.core.model import events as e
from mulligan.core.model.place_keys import is_at_or_below, item_key
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.ports import RunRecord
from mulligan.service.home import this_host
from mulligan.service.logs import Part, is_meant, refuse_without_attempt
from mulligan.service.run_reader import RunReader
from mulligan.service.store_changes import StoreChanges
from mulligan.worker.folders import open_regular_file

Stream = Literal["stdout", "stderr"]
# How often files are looked at while something runs, and how long nothing is looked at while nothing does.
FILES_SECONDS, IDLE_SECONDS = 0.1, 1.0
# The log of events is read this often, also where no news of it comes.
EVENTS_SECONDS = 1.0
# How long a log may be missing before it is said that it is elsewhere, and a run may be left alone before that is said.
MISSING_SECONDS, UNDRIVEN_SECONDS = 2.0, 2.0
READ_BYTES = 1 << 20


class LogPiece(msgspec.Struct, frozen=True):
    """Something of what an attempt wrote: whole lines, or the last one without its end.

    Without `stream` it is a note: the attempt begins (`text` is ""), or something is to be said about it.
    """

    run_id: int
    # With the steps that called its run before it: `east/build`.
    where: str
    place: str = ""
    attempt: int = 0
    stream: Stream | None = None
    data: bytes = b""
    text: str = ""


class LogSelection(msgspec.Struct, frozen=True):
    """Whose logs are followed: of a whole run, or of one step, from its last attempt on or of one attempt."""

    step: str = ""
    item: int | None = None
    attempt: int | None = None
    part: Part = "own"

    @property
    def place(self) -> str:
        return self.step if self.item is None else item_key(self.step, self.item)

    def is_among_others(self, place: str) -> bool:
        """Whether several places are followed of which this is one: of a whole run, or the items of a map step."""
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
    """What the attempts write, from now on and before, until the step or the run has ended.

    Of a whole run with the runs that it calls. What several places write comes in whole lines, so that these may stand
    in one stream; with `by_line` everything does.
    """
    if wanted.step:
        reader.refuse_unknown(run_id, wanted.step)
    return _LogFollower(reader, run_id, wanted, by_line, monotonic).pieces()


class Tail:
    """One log file: not there yet, growing, cut off, or another one under the same name."""

    def __init__(self, path: str, stream: Stream) -> None:
        self._path = path
        self.stream = stream
        self._offset = 0
        self._inode = 0
        self._held = b""
        self.is_there = False

    def read(self, *, by_line: bool, is_last: bool) -> Iterator[bytes]:
        """What is new: up to the end of a line, unless nothing has come since the last time or nothing more will."""
        has_grown = False
        for data in self._new():
            has_grown = True
            whole, end, rest = (self._held + data).rpartition(b"\n")
            self._held = rest
            if whole or end:
                yield whole + end
        if self._held and (is_last or (not has_grown and not by_line)):
            held, self._held = self._held, b""
            yield held + (b"\n" if by_line else b"")

    def _new(self) -> Iterator[bytes]:
        try:
            file = open_regular_file(self._path)
        except OSError:
            return  # not there, or something else than a log: it may come
        with file:
            found = os.fstat(file.fileno())
            if found.st_ino != self._inode or found.st_size < self._offset:
                self._inode, self._offset = found.st_ino, 0
            self.is_there = True
            file.seek(self._offset)
            while data := file.read(READ_BYTES):
                self._offset += len(data)
                yield data


class _Attempt:
    """One attempt that is followed."""

    def __init__(self, reader: RunReader, run: _Run, place: str, attempt: int, now: float) -> None:
        self.place = place
        self.attempt = attempt
        self.run = run
        self.began_at = now
        self.host = ""
        self.has_begun = self.is_said_missing = self.has_ended = False
        files = reader.home.folders.logs(run.run_id, place, attempt)
        self.tails = (Tail(files.out, "stdout"), Tail(files.err, "stderr"))

    def piece(self, *, stream: Stream | None = None, data: bytes = b"", text: str = "") -> LogPiece:
        where = f"{self.run.above}{self.place}"
        return LogPiece(self.run.run_id, where, self.place, self.attempt, stream, data, text)

    def pieces(self, *, by_line: bool) -> Iterator[LogPiece]:
        for tail in self.tails:
            for data in tail.read(by_line=by_line, is_last=self.has_ended):
                if not self.has_begun:
                    self.has_begun = True
                    yield self.piece()
                yield self.piece(stream=tail.stream, data=data)

    @property
    def is_elsewhere(self) -> bool:
        """Whether it runs on another host, and none of its logs is here."""
        return bool(self.host) and self.host != this_host() and not any(tail.is_there for tail in self.tails)


class _Run:
    """One run whose log of events is followed."""

    def __init__(self, run_id: int, above: str) -> None:
        self.run_id = run_id
        # What stands before the names of its places.
        self.above = above
        self.seq = 0


class _LogFollower:
    def __init__(
        self, reader: RunReader, run_id: int, wanted: LogSelection, by_line: bool, monotonic: Callable[[], float]
    ) -> None:
        self._reader = reader
        self._wanted = wanted
        self._by_line = by_line
        self._monotonic = monotonic
        self._root = _Run(run_id, "")
        self._runs = {run_id: self._root}
        self._attempts: dict[tuple[int, str, int], _Attempt] = {}
        self._has_had_any = False
        self._driver_asked_at = monotonic()
        self._is_said_undriven = False

    def pieces(self) -> Iterator[LogPiece]:
        news = StoreChanges(self._reader.store)
        # The first time all of it, of which a step has its last attempts alone.
        has_ended = self._look()
        if self._wanted.step and self._wanted.attempt is None:
            self._drop_earlier()
        looked_at = self._monotonic()
        while True:
            yield from self._written()
            if has_ended:
                break
            yield from self._undriven()
            has_changes = news.wait(FILES_SECONDS if self._attempts else IDLE_SECONDS)
            if has_changes or self._monotonic() - looked_at >= EVENTS_SECONDS:
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

    # -- what happens ------------------------------------------------------------------------------------------------

    def _look(self) -> bool:
        """Read what is new in the logs of events. Whether what is followed has ended: asked first, so that nothing
        that came before its end is missed.
        """
        record = self._reader.record(self._root.run_id)
        has_ended = record.status in RUN_ENDED or self._step_has_ended()
        for run in self._tree():
            for entry in self._reader.events(run.run_id, run.seq):
                run.seq = entry.seq
                self._take_in(run, entry.fact)
        return has_ended

    def _tree(self) -> Iterator[_Run]:
        """The run, and of a whole run those that it called, and so on down."""
        found = [self._root]
        for run in found:
            yield run
            if not self._wanted.step:
                found += [self._child(run, child) for child in self._reader.store.children(run.run_id)]

    def _child(self, run: _Run, record: RunRecord) -> _Run:
        if record.run_id not in self._runs:
            self._runs[record.run_id] = _Run(record.run_id, f"{run.above}{record.parent_place}/")
        return self._runs[record.run_id]

    def _take_in(self, run: _Run, fact: e.Fact) -> None:
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
        """Whether nothing more comes of the step, or of the one attempt, that is followed."""
        wanted = self._wanted
        if not wanted.step:
            return False
        if wanted.attempt is not None and self._has_had_any:
            return all(attempt.has_ended for attempt in self._attempts.values())
        rows = self._reader.store.lists.places([(self._root.run_id, wanted.place)])
        return any(read_place(key, data).has_ended for _, key, data in rows)

    def _drop_earlier(self) -> None:
        """Of each place all but its last attempt."""
        last = {place: key for key in self._attempts for place in [key[1]]}
        self._attempts = {key: attempt for key, attempt in self._attempts.items() if last[key[1]] == key}

    # -- what is written ---------------------------------------------------------------------------------------------

    def _written(self) -> Iterator[LogPiece]:
        now = self._monotonic()
        for key, attempt in list(self._attempts.items()):
            # Asked before the files are read: what it wrote until its end is in them.
            has_ended = attempt.has_ended
            by_line = self._by_line or self._wanted.is_among_others(attempt.place)
            yield from attempt.pieces(by_line=by_line)
            if has_ended:
                yield from self._silence(attempt)
                del self._attempts[key]
            elif attempt.is_elsewhere and now - attempt.began_at >= MISSING_SECONDS and not attempt.is_said_missing:
                attempt.is_said_missing = True
                yield attempt.piece(text=f"there is no log of it here, it runs on {attempt.host}")

    def _silence(self, attempt: _Attempt) -> Iterator[LogPiece]:
        """What to say of an attempt that has ended and of which there is nothing. Of a whole run most need no word."""
        if attempt.has_begun or attempt.is_said_missing:
            return
        if attempt.is_elsewhere or (self._wanted.step and self._reader.store.is_shared and attempt.host):
            yield attempt.piece(text=f"there is no log of it here, it ran on {attempt.host}")
        elif not self._wanted.is_among_others(attempt.place):
            yield attempt.piece(text="it wrote nothing")

    def _undriven(self) -> Iterator[LogPiece]:
        """Say once, after a while, that nobody drives the run: nothing is written until somebody does."""
        now = self._monotonic()
        if self._is_said_undriven or now - self._driver_asked_at < UNDRIVEN_SECONDS:
            return
        self._driver_asked_at = now
        if not self._reader.is_driven(self._root.run_id):
            self._is_said_undriven = True
            yield LogPiece(self._root.run_id, "", text="nobody drives it")


_ENDS = (e.AttemptSucceeded, e.AttemptFailed, e.AttemptLost, e.AttemptInterrupted, e.AttemptCancelled)
