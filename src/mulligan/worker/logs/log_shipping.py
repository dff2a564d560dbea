"""Ship what tasks write to a store that other hosts read.

An attempt's log is shipped before its end is reported, so that whoever sees the end sees the log; and while it runs, if
somebody watches its run. The files stay, and what is in them was redacted. Shipping again changes nothing: a task that
runs for a while has a note in the folder `unshipped`, and the next worker of this home ships what a dead one left.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import IO, Protocol

import msgspec
from msgspec.structs import replace

from mulligan.core.effects.tasks import Task
from mulligan.core.model.clusters.shipped_logs import HEAD_BYTES, WATCH_KIND, LogPart, is_watched, parts_to_ship
from mulligan.core.model.place_keys import file_name
from mulligan.errors import MulliganError, StoreUnavailable
from mulligan.ports import Document, LogChunk, LogKey
from mulligan.worker import lock
from mulligan.worker.folders import Folders, make_private, open_regular_file, write_private_file

# The size of a row in the store, and of what is sent at once: a server takes bodies up to 4 MiB.
CHUNK_BYTES, SENT_BYTES_MAX = 1 << 20, 2 << 20


class ShippedLogs(Protocol):
    """What shipping needs of a store: a part of `ServerRecords`."""

    def append_log(self, chunks: Iterable[LogChunk]) -> None: ...

    def log_size(self, key: LogKey) -> tuple[int, bool] | None: ...

    def read_log(self, key: LogKey, start: int, end: int) -> bytes: ...

    def documents(self, kind: str, project: str | None = None) -> list[Document]: ...


class _Unshipped(msgspec.Struct, frozen=True):
    """An attempt whose log may not be in the store."""

    run_id: int
    place: str
    attempt: int


class LogShipping:
    """Ships the logs of one worker's tasks."""

    def __init__(
        self,
        folders: Folders,
        worker: str,
        store: Callable[[], ShippedLogs],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._folders = folders
        self._worker = worker
        self._open_store = store
        self._now = now
        # How much was shipped of the logs of running tasks.
        self._shipped: dict[LogKey, int] = {}
        self._noted: set[str] = set()
        self._watched: frozenset[int] = frozenset()

    @property
    def watched_runs(self) -> frozenset[int]:
        """The runs that somebody watched at the last `look`."""
        return self._watched

    def begin(self, task: Task) -> None:
        """Note that the log of a task that runs for a while has to be shipped, whatever happens to this process."""
        path = self._note_path(task)
        with suppress(OSError):
            make_private(self._folders.unshipped)
            note = _Unshipped(task.run_id, task.place, task.attempt)
            write_private_file(path, msgspec.json.encode(note).decode())
            self._noted.add(path)

    def bring(self, task: Task) -> None:
        """Bring what a program has written on other hosts, before it goes on here: both are one log.

        `StoreUnavailable`: call it again.
        """
        logs = self._folders.logs(task.run_id, task.place, task.attempt)
        for key, path in zip(_keys(task), logs, strict=True):
            with suppress(OSError), _open_log(path) as file:
                size = os.fstat(file.fileno()).st_size
                if (missing := self._shipped_from(key, size)) is not None:
                    file.write(missing)
                    self._shipped[key] = size + len(missing)

    def _shipped_from(self, key: LogKey, start: int) -> bytes | None:
        """What the store has of a log beyond a position; None if it does not say."""
        found = b""
        try:
            while start + len(found) < HEAD_BYTES:
                position = start + len(found)
                data = self._open_store().read_log(key, position, min(position + CHUNK_BYTES, HEAD_BYTES))
                if not data:
                    break
                found += data
        except StoreUnavailable:
            raise
        except MulliganError:
            return None
        return found or None

    def ship_live(self, tasks: Iterable[Task]) -> None:
        """Ship what running tasks have written since the last time. An unavailable store is asked again later."""
        with suppress(StoreUnavailable):
            self._ship(tasks, is_last=False)

    def ship_ended(self, tasks: Iterable[Task], *, goes_on: bool = False) -> None:
        """Ship what ended tasks have written. `StoreUnavailable`: call it again.

        `goes_on`: they are turns of programs, whose next ones go on with the same logs.
        """
        ended = list(tasks)
        self._ship(ended, is_last=not goes_on)
        for task in ended:
            for key in () if goes_on else _keys(task):
                self._shipped.pop(key, None)
            if self._noted and (path := self._note_path(task)) in self._noted:
                self._noted.discard(path)
                _remove(path)

    def poll(self, *, is_running: bool) -> None:
        """Find out who watches, if something runs; and ship what dead workers of this home left."""
        try:
            found = self._open_store().documents(WATCH_KIND) if is_running else []
        except MulliganError:
            return  # it is asked again with the next heartbeat
        now = self._now()
        self._watched = frozenset(int(one.name) for one in found if one.name.isdecimal() and is_watched(one.data, now))
        self.ship_left()

    def ship_left(self) -> None:
        """Ship the logs of the tasks that ran when their worker died."""
        for path in self._left():
            try:
                with open_regular_file(path) as file:
                    left = msgspec.json.decode(file.read(), type=_Unshipped)
                self._shipped.update((key, self._shipped_before(key)) for key in _keys(left))
                self._ship([left], is_last=True)
            except StoreUnavailable:
                return
            except (OSError, msgspec.MsgspecError):
                pass  # it is gone, or half written: there is nothing to ship
            else:
                for key in _keys(left):
                    self._shipped.pop(key, None)
            _remove(path)

    def _shipped_before(self, key: LogKey) -> int:
        """How much of a log is in the store; 0 if a worker may not ask: shipping again changes nothing."""
        try:
            found = self._open_store().log_size(key)
        except StoreUnavailable:
            raise
        except MulliganError:
            return 0
        return min(found[0], HEAD_BYTES) if found is not None else 0

    def _left(self) -> Iterator[str]:
        try:
            names = os.listdir(self._folders.unshipped)
        except OSError:
            return
        for name in sorted(names):
            worker, _, _ = name.rpartition("#")
            lock_path = f"{self._folders.home}/workers/{worker}.lock"
            if worker != file_name(self._worker) and lock.state_of(lock_path) != "held":
                yield f"{self._folders.unshipped}/{name}"

    def _note_path(self, task: Task | _Unshipped) -> str:
        attempt = f"{task.run_id}/{task.place}/{task.attempt}".encode("utf-8", "surrogatepass")
        return f"{self._folders.unshipped}/{file_name(self._worker)}#{hashlib.sha256(attempt).hexdigest()[:16]}"

    # -- chunks

    def _ship(self, tasks: Iterable[Task | _Unshipped], *, is_last: bool) -> None:
        """Send chunks, a few at once. A store that refuses them has no logs of these tasks: their results count."""
        waiting: list[LogChunk] = []
        size = 0
        for chunk in self._chunks(tasks, is_last):
            if size + len(chunk.data) > SENT_BYTES_MAX and waiting:
                self._send(waiting)
                waiting, size = [], 0
            waiting.append(chunk)
            size += len(chunk.data)
        if waiting:
            self._send(waiting)

    def _send(self, chunks: list[LogChunk]) -> None:
        try:
            self._open_store().append_log(chunks)
        except StoreUnavailable:
            raise
        except MulliganError:
            return
        for chunk in chunks:
            self._shipped[chunk.key] = chunk.start + len(chunk.data)

    def _chunks(self, tasks: Iterable[Task | _Unshipped], is_last: bool) -> Iterator[LogChunk]:
        for task in tasks:
            logs = self._folders.logs(task.run_id, task.place, task.attempt)
            for key, path in zip(_keys(task), logs, strict=True):
                # Most logs are empty and have no file.
                if os.access(path, os.F_OK, follow_symlinks=False):
                    with suppress(OSError):
                        yield from self._chunks_of(key, path, is_last)

    def _chunks_of(self, key: LogKey, path: str, is_last: bool) -> Iterator[LogChunk]:
        shipped = self._shipped.get(key, 0)
        # The last one says that nothing follows, so each waits for the next.
        waiting = LogChunk(key, shipped, b"") if shipped else None
        with open_regular_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            for part in parts_to_ship(size, shipped, is_last=is_last):
                for start, data in _read(file, part):
                    if waiting is not None and waiting.data:
                        yield waiting
                    waiting = LogChunk(key, start, data)
        if waiting is not None and (is_last or waiting.data):
            yield replace(waiting, is_last=is_last)


def _open_log(path: str) -> IO[bytes]:
    """The log of a program, to be written on."""
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "ab")


def _read(file: IO[bytes], part: LogPart) -> Iterator[tuple[int, bytes]]:
    """A part in pieces, each with its position."""
    if part.text:
        yield part.start, part.text
        return
    file.seek(part.source)
    position, end = part.start, part.start + part.length
    while position < end and (data := file.read(min(CHUNK_BYTES, end - position))):
        yield position, data
        position += len(data)


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def _keys(task: Task | _Unshipped) -> tuple[LogKey, LogKey]:
    return (
        LogKey(task.run_id, task.place, task.attempt, "stdout"),
        LogKey(task.run_id, task.place, task.attempt, "stderr"),
    )
