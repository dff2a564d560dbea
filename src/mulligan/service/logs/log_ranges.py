"""What attempts wrote, by position: from the files of this host, or from the store if they ran elsewhere.

A worker of a shared store ships its logs there: see `worker.log_shipping`. A home on a server has no files: the server
reads them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import IO, Literal

import msgspec

from mulligan.core.model.clusters.shipped_logs import HEAD_BYTES, WATCH_KIND, encode_watch, is_watched
from mulligan.errors import MulliganError
from mulligan.ports import Document, LogKey, ServerRecords, Store
from mulligan.service.home import Home, this_host
from mulligan.worker.folders import open_regular_file

Stream = Literal["stdout", "stderr"]
STREAMS: tuple[Stream, Stream] = ("stdout", "stderr")
READ_BYTES = 1 << 20
# How long a watch lasts, and how often whoever watches renews it.
WATCH_SECONDS, WATCH_AGAIN_SECONDS = 30.0, 10.0


class LogSize(msgspec.Struct, frozen=True):
    """How much of a log there is, and whether it comes from the store."""

    size: int
    is_shipped: bool = False
    # Whether that is known to be all of it.
    is_whole: bool = False


def watched_runs(records: ServerRecords, now: datetime) -> list[int]:
    """The runs whose logs somebody reads while they are written."""
    found = (one.name for one in records.documents(WATCH_KIND) if is_watched(one.data, now))
    return [int(name) for name in found if name.isdecimal()]


class LogRanges:
    """Reads the logs of attempts, wherever these ran."""

    def __init__(self, home: Home, store: Callable[[], Store]) -> None:
        self._home = home
        self._open_store = store
        self._watched: dict[int, datetime] = {}

    def size(self, key: LogKey) -> LogSize | None:
        """None if it wrote nothing, or its log is neither here nor in the store."""
        try:
            with self._file(key) as file:
                size = os.fstat(file.fileno()).st_size
            return LogSize(max(size, self._shipped_size(key)))
        except FileNotFoundError:
            found = self._open_store().server_records.log_size(key)
        return LogSize(found[0], is_shipped=True, is_whole=found[1]) if found is not None else None

    def read(self, key: LogKey, start: int = 0, end: int | None = None) -> bytes:
        """The bytes that are there between two positions, by default all of them."""
        try:
            with self._file(key) as file:
                file.seek(start)
                found = file.read() if end is None else file.read(max(0, end - start))
        except FileNotFoundError:
            return b"".join(self.shipped_pieces(key, start, end))
        position = start + len(found)
        if (end is None or position < end) and position < self._shipped_size(key):
            found += b"".join(self.shipped_pieces(key, position, end))
        return found

    def _shipped_size(self, key: LogKey) -> int:
        """How much of a log the store has, if it may have more than the file: a program has gone on on another host."""
        found = self._open_store().server_records.log_size(key)
        return found[0] if found is not None and found[0] <= HEAD_BYTES else 0

    def pieces(self, key: LogKey, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The same in pieces, for logs that are larger than the memory should be."""
        position = start
        while end is None or position < end:
            data = self.read(key, position, position + READ_BYTES if end is None else min(end, position + READ_BYTES))
            if not data:
                return
            yield data
            position += len(data)

    def read_attempt(self, run_id: int, place: str, attempt: int) -> tuple[bytes, bytes]:
        """All that an attempt wrote to stdout and to stderr."""
        out, err = (self.read(LogKey(run_id, place, attempt, stream)) for stream in STREAMS)
        return out, err

    def shipped_pieces(self, key: LogKey, start: int, end: int | None = None) -> Iterator[bytes]:
        """What the store has of a log between two positions."""
        records = self._open_store().server_records
        while end is None or start < end:
            data = records.read_log(key, start, start + READ_BYTES if end is None else min(end, start + READ_BYTES))
            if not data:
                return
            yield data
            start += len(data)

    def watch(self, run_id: int) -> None:
        """Let the workers of other hosts ship the logs of a run while they are written. Call it again and again."""
        now = datetime.now(UTC)
        if now - self._watched.get(run_id, datetime.min.replace(tzinfo=UTC)) < timedelta(seconds=WATCH_AGAIN_SECONDS):
            return
        self._watched[run_id] = now
        until = encode_watch(now + timedelta(seconds=WATCH_SECONDS))
        try:
            self._open_store().server_records.put_document(
                Document(kind=WATCH_KIND, name=str(run_id), data=until, updated_at=now)
            )
        except MulliganError:
            pass  # who may not write sees the log when the attempt has ended

    def may_be_shipped(self, host: str) -> bool:
        """Whether the log of an attempt that runs, or ran, on a host may be in the store."""
        return bool(host) and (self._open_store().is_shared or host != this_host())

    def path(self, key: LogKey) -> str:
        """Its file on this host, which may not exist; "" if this host can have none."""
        if self._home.is_remote:
            return ""
        logs = self._home.folders.logs(key.run_id, key.place, key.attempt)
        return logs.out if key.stream == "stdout" else logs.err

    def _file(self, key: LogKey) -> IO[bytes]:
        return open_regular_file(self.path(key))
