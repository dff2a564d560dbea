"""What the driver does for its sessions: it asks its store for them, and writes their logs where people read them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from mulligan.core.model.artifacts import Artifact, is_artifact_name
from mulligan.dask_executor.messages import Answer, Call
from mulligan.errors import MulliganError, StoreRefused
from mulligan.ports import Artifacts, FindResults, LogChunk, LogKey
from mulligan.worker.folders import Folders, make_private, open_regular_file

if TYPE_CHECKING:
    from mulligan.ports.bundles import ReadContent
    from mulligan.worker.program_turns import ReadHistory

# How much of a log one answer has.
LOG_BYTES_MAX = 1 << 20


class StoreAnswers:
    """Answers the questions of sessions. An error of the store is an answer, too: the session knows what to do."""

    def __init__(
        self,
        artifacts: Artifacts,
        results: FindResults,
        read_history: ReadHistory,
        read_log: Callable[[LogKey, int, int], bytes] = lambda key, start, end: b"",
        read_content: ReadContent = lambda run_id, digest: None,
    ) -> None:
        self._artifacts = artifacts
        self._results = results
        self._read_history = read_history
        self._read_content = read_content
        self._read_log = read_log
        self._calls: dict[str, Callable[..., Any]] = {
            "keep": self._keep,
            "fetch": self._fetch,
            "results": self._find,
            "history": self._history,
            "content": self._content,
            "log": self._log,
        }

    def answer(self, call: Call) -> Answer:
        try:
            return Answer(call.number, self._calls[call.name](**call.arguments))
        except MulliganError as error:
            return Answer(call.number, error=(error.code, error.message, error.hint))
        except (KeyError, TypeError, msgspec.ValidationError) as error:
            raise msgspec.ValidationError(f"{call.name!r} is no question to the store: {error}") from None

    def _keep(self, name: str, data: bytes, format: Any) -> str:
        return self._artifacts.keep(_checked(name), data, format).name

    def _fetch(self, artifact: dict[str, Any]) -> bytes:
        found = msgspec.convert(artifact, Artifact)
        _checked(found.name)
        return self._artifacts.fetch(found)

    def _find(self, tag: str, limit: int, beside: int) -> Any:
        return self._results(tag, limit, beside)

    def _history(self, run_id: int, delivered: int) -> bytes:
        """As JSON, which also holds integers of more than 64 bits."""
        if type(run_id) is not int or type(delivered) is not int:
            raise TypeError("a run and a number of ends are expected")
        return msgspec.json.encode(self._read_history(run_id, delivered))

    def _content(self, run_id: int, digest: str) -> bytes | None:
        if type(run_id) is not int or type(digest) is not str:
            raise TypeError("a run and a digest are expected")
        return self._read_content(run_id, digest)

    def _log(self, key: dict[str, Any], start: int, end: int) -> bytes:
        """What a program has written on another worker."""
        if type(start) is not int or type(end) is not int or not 0 <= start <= end <= start + LOG_BYTES_MAX:
            raise TypeError("two positions in a log are expected")
        return self._read_log(msgspec.convert(key, LogKey), start, end)


def _checked(name: str) -> str:
    """A name of an artifact; any other might lead out of the folder of artifacts."""
    if not is_artifact_name(name):
        raise StoreRefused(f"'{name}' is not a name of an artifact")
    return name


class LogWriter(Protocol):
    """Keeps what tasks write. Writing the same again changes nothing."""

    def write(self, chunks: list[LogChunk]) -> None: ...


class LogFiles:
    """Writes logs to the files of a home, where `mulligan logs` finds those of local tasks, too."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders

    def write(self, chunks: Iterable[LogChunk]) -> None:
        for chunk in chunks:
            # A result counts without its log.
            with suppress(OSError, ValueError, OverflowError):
                self._write(chunk)

    def read(self, key: LogKey, start: int, end: int) -> bytes:
        """What is there between two positions; nothing if there is no such log."""
        with suppress(OSError, ValueError, OverflowError), open_regular_file(self._path(key)) as file:
            file.seek(start)
            return file.read(end - start)
        return b""

    def _path(self, key: LogKey) -> str:
        logs = self._folders.logs(key.run_id, key.place, key.attempt)
        return logs.out if key.stream == "stdout" else logs.err

    def _write(self, chunk: LogChunk) -> None:
        path = self._path(chunk.key)
        make_private(os.path.dirname(path))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(fd, "wb") as file:
            file.seek(chunk.start)
            file.write(chunk.data)


class StoredLogs:
    """Writes logs to a store that other hosts read."""

    def __init__(self, append_log: Callable[[Iterable[LogChunk]], None]) -> None:
        self._append_log = append_log

    def write(self, chunks: list[LogChunk]) -> None:
        try:
            self._append_log(chunks)
        except MulliganError as error:
            if error.code == "store.unavailable":
                raise
