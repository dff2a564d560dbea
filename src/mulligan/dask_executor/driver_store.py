"""The store of the driver, as a session inside a Dask worker sees it: artifacts, earlier results, histories, logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from mulligan.core.effects.program_history import ProgramHistory
from mulligan.core.model.artifacts import Artifact, Format, describe_artifact, verify_content
from mulligan.core.model.clusters.shipped_logs import encode_watch
from mulligan.errors import StoreRefused
from mulligan.ports import ArtifactRecord, Document, LogChunk, LogKey

# Asks the driver, and waits for its answer.
Ask = Callable[..., Any]
# How long a log counts as watched; the question is asked again long before.
WATCHED_FOR = timedelta(hours=1)


class DriverArtifacts:
    """`Artifacts` that the driver keeps. Sizes and hashes are computed here: a change on the way is noticed."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def keep(self, name: str, data: bytes, format: Format) -> Artifact:
        return describe_artifact(self._ask("keep", name=name, data=data, format=format), data, format)

    def keep_file(self, artifact: Artifact, path: str) -> Artifact:
        name = self._ask("keep", name=artifact.name, data=Path(path).read_bytes(), format=artifact.format)
        Path(path).unlink()
        return msgspec.structs.replace(artifact, name=name)

    def fetch(self, artifact: Artifact) -> bytes:
        return verify_content(artifact, self._ask("fetch", artifact=msgspec.to_builtins(artifact)))

    def path(self, artifact: Artifact) -> str:
        return ""

    def records(self) -> Iterator[ArtifactRecord]:
        raise _only_there()

    def remove(self, names: Iterable[str]) -> None:
        raise _only_there()


class DriverResults:
    """Earlier results that the driver finds: `FindResults`."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def __call__(self, tag: str, limit: int, beside: int) -> Sequence[tuple[int, str, str, bytes]]:
        found = self._ask("results", tag=tag, limit=limit, beside=beside)
        return [(run_id, kind, place, data) for run_id, kind, place, data in found]


class DriverHistory:
    """The history of a program that the driver reads: `ReadHistory`."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def __call__(self, run_id: int, delivered: int) -> ProgramHistory:
        return msgspec.json.decode(self._ask("history", run_id=run_id, delivered=delivered), type=ProgramHistory)


class DriverContents:
    """The files of published versions, which the driver reads: `ReadContent`."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def __call__(self, run_id: int, digest: str) -> bytes | None:
        found: bytes | None = self._ask("content", run_id=run_id, digest=digest)
        return found


class DriverLogs:
    """Logs go to the driver while their tasks run, and before the end of a task is reported."""

    def __init__(
        self, ask: Ask, send: Callable[[list[LogChunk]], None], running_runs: Callable[[], Iterable[int]]
    ) -> None:
        self._ask = ask
        self._send = send
        self._running_runs = running_runs

    def append_log(self, chunks: Iterable[LogChunk]) -> None:
        self._send(list(chunks))

    def log_size(self, key: LogKey) -> tuple[int, bool] | None:
        return None

    def read_log(self, key: LogKey, start: int, end: int) -> bytes:
        found: bytes = self._ask("log", key=msgspec.to_builtins(key), start=start, end=end)
        return found

    def documents(self, kind: str, project: str | None = None) -> list[Document]:
        """Every run counts as watched: the driver has the files that `mulligan logs` reads."""
        now = datetime.now(UTC)
        until = encode_watch(now + WATCHED_FOR)
        return [Document(kind, str(run_id), until, now) for run_id in self._running_runs()]


def _only_there() -> StoreRefused:
    return StoreRefused("artifacts can only be listed and removed where the driver is", hint="run 'mulligan gc' there")
