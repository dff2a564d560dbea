"""What a server keeps beside the runs, read over HTTP. Changes go through the routes of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from mulligan.core.model.clusters.shipped_logs import WATCH_KIND, encode_watch
from mulligan.errors import StoreRefused
from mulligan.ports.server_records import (
    AuditRecord,
    Document,
    LogChunk,
    LogKey,
    NoticeRecord,
    NoticeStatus,
    TokenRecord,
    WaitingTarget,
    WorkflowVersion,
)
from mulligan.store import refusals
from mulligan.store.http.http_calls import Ask

# The routes of changes that the server checks.
_ROUTES = {
    "publish": "PUT /api/v1/workflows/NAME",
    "delete_document": "the route of what it is: a schedule, a draft, a hook",
    "add_token": "POST /api/v1/tokens",
    "token_of": "GET /api/v1/tokens",
    "revoke_token": "DELETE /api/v1/tokens/ID",
}


class HttpRecords:
    """`ServerRecords` over HTTP, for reading.

    For a worker, `gather_logs` ships logs, and `watched_runs` are those whose logs somebody reads, as of its last
    heartbeat.
    """

    def __init__(
        self,
        ask: Ask,
        gather_logs: Callable[[Iterable[LogChunk]], None] | None = None,
        watched_runs: Callable[[], list[int]] | None = None,
    ) -> None:
        self._ask = ask
        self._gather_logs = gather_logs
        self._watched_runs = watched_runs

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        """What `ServerRecords` has besides: a route does it, or the server itself."""
        refusal = _through_routes(_ROUTES[name]) if name in _ROUTES else None
        return refusals.only_of_the_whole_store(name, refusal)

    # -- workflows and documents

    def version(self, project: str, name: str, number: int | None = None) -> WorkflowVersion | None:
        return self._ask("server_records.version", project=project, name=name, number=number)

    def versions(self, project: str, name: str, *, before: int | None = None, limit: int = 50) -> list[WorkflowVersion]:
        return self._ask("server_records.versions", project=project, name=name, before=before, limit=limit)

    def newest_versions(self, project: str, *, after: str = "", limit: int = 100) -> list[WorkflowVersion]:
        return self._ask("server_records.newest_versions", project=project, after=after, limit=limit)

    def document(self, project: str, kind: str, name: str) -> Document | None:
        return self._ask("server_records.document", project=project, kind=kind, name=name)

    def documents(self, kind: str, project: str | None = None) -> list[Document]:
        if kind == WATCH_KIND and self._watched_runs is not None:
            return [_watch(run_id) for run_id in self._watched_runs()]
        return self._ask("server_records.documents", kind=kind, project=project)

    def put_document(self, document: Document, *, expected: int | None = None) -> Document:
        if document.kind == WATCH_KIND:
            self._ask("server_records.watch_logs", run_id=int(document.name))
            return document
        raise _through_routes(_ROUTES["delete_document"])

    # -- tokens and audit

    def tokens(self) -> list[TokenRecord]:
        return self._ask("server_records.tokens")

    def audit(
        self,
        project: str | None = None,
        *,
        before: int | None = None,
        limit: int = 100,
        who: str = "",
        action: str = "",
    ) -> list[AuditRecord]:
        return self._ask("server_records.audit", project=project, before=before, limit=limit, who=who, action=action)

    # -- notices

    def waiting_targets(self, now: datetime) -> list[WaitingTarget]:
        """None: the server sends them."""
        return []

    def notices(
        self,
        *,
        status: NoticeStatus | None = None,
        project: str | None = None,
        run_id: int | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[NoticeRecord]:
        return self._ask(
            "server_records.notices", status=status, project=project, run_id=run_id, before=before, limit=limit
        )

    # -- logs

    def append_log(self, chunks: Iterable[LogChunk]) -> None:
        """Gather them: they are sent with the next exchange, before the end of their task."""
        if self._gather_logs is None:
            raise refusals.only_the_whole_store()
        self._gather_logs(chunks)

    def read_log(self, key: LogKey, start: int, end: int) -> bytes:
        return self._ask("server_records.read_log", key=key, start=start, end=end)

    def log_size(self, key: LogKey) -> tuple[int, bool] | None:
        return self._ask("server_records.log_size", key=key)

    def logs_of(self, run_id: int) -> list[LogKey]:
        return self._ask("server_records.logs_of", run_id=run_id)


def _watch(run_id: int) -> Document:
    """A watch that lasts until the next heartbeat says otherwise."""
    now = datetime.now(UTC)
    until = encode_watch(now + timedelta(minutes=1))
    return Document(kind=WATCH_KIND, name=str(run_id), data=until, updated_at=now)


def _through_routes(route: str) -> StoreRefused:
    return StoreRefused("the server checks this change itself", hint=f"use {route}")
