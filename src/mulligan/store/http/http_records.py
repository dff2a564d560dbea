"""What a server keeps beside the runs, read over HTTP. Changes go through the routes of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from mulligan.core.model.clusters.shipped_logs import WATCH_KIND, encode_watch
from mulligan.errors import StoreRefused
from mulligan.ports.server_records import Document, LogChunk, LogKey, ServerRecords, WaitingTarget
from mulligan.store import refusals
from mulligan.store.http.http_calls import Ask, AskedByName

# The routes of changes that the server checks.
_ROUTES = {
    "publish": "PUT /api/v1/workflows/NAME",
    "put_content": "PUT /api/v1/contents/SHA256",
    "delete_document": "the route of what it is: a schedule, a draft, a hook",
    "add_token": "POST /api/v1/tokens",
    "token_of": "GET /api/v1/tokens",
    "revoke_token": "DELETE /api/v1/tokens/ID",
}


class HttpRecords(AskedByName):
    """`ServerRecords` over HTTP, for reading.

    For a worker, `gather_logs` ships logs, and `watched_runs` are those whose logs somebody reads, as of its last
    heartbeat.
    """

    def __init__(
        self,
        ask: Ask,
        gather_logs: Callable[[Iterable[LogChunk]], None] | None = None,
        watched_runs: Callable[[], list[int]] | None = None,
        read_own_log: Callable[[LogKey, int, int], bytes] | None = None,
    ) -> None:
        super().__init__(ask, "server_records.", ServerRecords)
        self._gather_logs = gather_logs
        self._watched_runs = watched_runs
        self._read_own_log = read_own_log

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """What the server is asked for. All else that `ServerRecords` has a route does, or the server itself."""
        with suppress(AttributeError):
            return super().__getattr__(name)
        refusal = _through_routes(_ROUTES[name]) if name in _ROUTES else None
        return refusals.only_of_the_whole_store(name, refusal)

    def documents(self, kind: str, project: str | None = None) -> list[Document]:
        if kind == WATCH_KIND and self._watched_runs is not None:
            return [_watch(run_id) for run_id in self._watched_runs()]
        found: list[Document] = self._ask("server_records.documents", kind=kind, project=project)
        return found

    def put_document(self, document: Document, *, expected: int | None = None) -> Document:
        if document.kind == WATCH_KIND:
            self._ask("server_records.watch_logs", run_id=int(document.name))
            return document
        raise _through_routes(_ROUTES["delete_document"])

    def waiting_targets(self, now: datetime) -> list[WaitingTarget]:
        """None: the server sends them."""
        return []

    def append_log(self, chunks: Iterable[LogChunk]) -> None:
        """Gather them: they are sent with the next exchange, before the end of their task."""
        if self._gather_logs is None:
            raise refusals.only_the_whole_store()
        self._gather_logs(chunks)

    def read_log(self, key: LogKey, start: int, end: int) -> bytes:
        if self._read_own_log is not None:
            return self._read_own_log(key, start, end)
        found: bytes = self._ask("server_records.read_log", key=key, start=start, end=end)
        return found


def _watch(run_id: int) -> Document:
    """A watch that lasts until the next heartbeat says otherwise."""
    now = datetime.now(UTC)
    until = encode_watch(now + timedelta(minutes=1))
    return Document(kind=WATCH_KIND, name=str(run_id), data=until, updated_at=now)


def _through_routes(route: str) -> StoreRefused:
    return StoreRefused("the server checks this change itself", hint=f"use {route}")
