"""What a server keeps on a PostgreSQL server beside the runs. No statement here notifies workers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from mulligan.errors import RevisionMismatch
from mulligan.ports import (
    AuditRecord,
    Document,
    LogChunk,
    LogKey,
    NoticeRecord,
    NoticeStatus,
    SettledNotice,
    TableSize,
    TargetPause,
    TokenRecord,
    WaitingTarget,
    WorkflowVersion,
)
from mulligan.store import refusals
from mulligan.store.audit_rows import audit_row
from mulligan.store.encoding import micros
from mulligan.store.notice_rows import notice_row, pause_row, settled_row
from mulligan.store.postgres.postgres_arrays import Bigints, Blobs, Texts, without_nul
from mulligan.store.postgres.postgres_client import PostgresClient
from mulligan.store.postgres.postgres_commit import AUDIT, NOTICE, arrays
from mulligan.store.run_search import NO_LIMIT
from mulligan.store.server_columns import (
    audit_from,
    document_from,
    document_row,
    extent,
    joined,
    log_columns,
    log_key_from,
    log_rows,
    notice_from,
    token_from,
    token_row,
    version_from,
    version_row,
    waiting_target_from,
)

_SETTLED = (Bigints, Texts, Bigints, Bigints, Texts)
_LOG = (Bigints, Texts, Bigints, Texts, Bigints, Bigints, Bigints, Blobs, Bigints)


class PostgresServerRecords:
    def __init__(self, client: PostgresClient) -> None:
        self._client = client

    def _query(self, name: str, *params: Any, **named: Any) -> list[Any]:
        return self._client.query(
            name, *map(_accepted, params), **{key: _accepted(value) for key, value in named.items()}
        )

    def _execute(self, name: str, *params: Any, **named: Any) -> list[Any]:
        return self._client.execute(
            name, *map(_accepted, params), **{key: _accepted(value) for key, value in named.items()}
        )

    # -- workflows

    def publish(self, version: WorkflowVersion) -> WorkflowVersion:
        def work() -> WorkflowVersion:
            self._execute("lock_workflow_name", version.project, version.name)
            rows = self._execute("newest_version", version.project, version.name)
            newest = version_from(rows[0]) if rows else None
            if newest is not None and newest.digest == version.digest:
                return newest
            added = replace(version, number=1 if newest is None else newest.number + 1)
            self._execute("insert_version", *version_row(added))
            return added

        return self._client.write(work)

    def version(self, project: str, name: str, number: int | None = None) -> WorkflowVersion | None:
        if number is None:
            rows = self._query("newest_version", project, name)
        else:
            rows = self._query("version_numbered", project, name, number)
        return version_from(rows[0]) if rows else None

    def versions(self, project: str, name: str, *, before: int | None = None, limit: int = 50) -> list[WorkflowVersion]:
        return [version_from(row) for row in self._query("versions", project, name, _below(before), limit)]

    def newest_versions(self, project: str, *, after: str = "", limit: int = 100) -> list[WorkflowVersion]:
        rows = self._query("newest_versions", project=project, after=after, limit=limit) if limit > 0 else []
        return [version_from(row) for row in rows]

    # -- documents

    def document(self, project: str, kind: str, name: str) -> Document | None:
        rows = self._query("document", project, kind, name)
        return document_from(rows[0]) if rows else None

    def documents(self, kind: str, project: str | None = None) -> list[Document]:
        return [document_from(row) for row in self._query("documents", kind=kind, project=project)]

    def put_document(self, document: Document, *, expected: int | None = None) -> Document:
        if expected is None:
            rows = self._query("put_document", *document_row(document))
        elif expected == 0:
            rows = self._query("insert_document", *document_row(document))
        else:
            names = ("kind", "project", "named", "data", "updated_at", "updated_by")
            fields = dict(zip(names, document_row(document), strict=True))
            rows = self._query("update_document", **fields, expected=expected)
        if not rows:
            raise self._mismatch(document.project, document.kind, document.name, expected or 0)
        return replace(document, revision=rows[0][0])

    def delete_document(self, project: str, kind: str, name: str, *, expected: int | None = None) -> bool:
        if self._query("delete_document", project=project, kind=kind, named=name, expected=expected):
            return True
        if expected and self._query("document_revision", project, kind, name):
            raise self._mismatch(project, kind, name, expected)
        return False

    def _mismatch(self, project: str, kind: str, name: str, expected: int) -> RevisionMismatch:
        rows = self._query("document_revision", project, kind, name)
        return refusals.revision_mismatch(kind, name, expected, rows[0][0] if rows else 0)

    # -- tokens and audit

    def add_token(self, token: TokenRecord) -> None:
        self._query("insert_token", *token_row(token))

    def token_of(self, digest: str) -> TokenRecord | None:
        rows = self._query("token_of", digest)
        return token_from(rows[0]) if rows else None

    def tokens(self) -> list[TokenRecord]:
        return [token_from(row) for row in self._query("tokens")]

    def revoke_token(self, token_id: str, at: datetime) -> bool:
        return bool(self._query("revoke_token", id=token_id, at=micros(at)))

    def remove_audit(self, before: datetime, limit: int) -> int:
        return len(self._query("remove_audit", limit=limit, before=micros(before)))

    def remove_tokens(self, token_ids: Collection[str]) -> int:
        return len(self._query("remove_tokens", Texts(token_ids)))

    def newest_answer(self) -> int:
        return int(self._query("newest_answer")[0][0])

    def remove_answers(self, up_to: int, limit: int) -> int:
        return len(self._query("remove_answers", up_to, limit))

    def table_sizes(self) -> list[TableSize]:
        return [TableSize(*row) for row in self._query("table_sizes")]

    def add_audit(self, records: Sequence[AuditRecord]) -> None:
        if records:
            self._client.query("insert_audit", *arrays(AUDIT, map(audit_row, records)))

    def add_audit_within(
        self, records: Sequence[AuditRecord], *, actions: Collection[str], since: datetime, count_max: int
    ) -> bool:
        def work() -> bool:
            token_id = records[0].token_id
            self._execute("lock_token", token_id)
            ((counted,),) = self._execute("count_audit", token_id, Texts(actions), micros(since))
            if counted + len(records) > count_max:
                return False
            self._client.execute("insert_audit", *arrays(AUDIT, map(audit_row, records)))
            return True

        return not records or self._client.write(work)

    def audit(
        self,
        project: str | None = None,
        *,
        before: int | None = None,
        limit: int = 100,
        who: str = "",
        action: str = "",
    ) -> list[AuditRecord]:
        rows = self._query("audit", project=project, before=_below(before), limit=limit, who=who, action=action)
        return [audit_from(row) for row in rows]

    def count_audit(self, token_id: str, actions: Collection[str], since: datetime) -> int:
        ((count,),) = self._query("count_audit", token_id, Texts(actions), micros(since))
        return int(count)

    # -- notices

    def put_notices(self, notices: Sequence[NoticeRecord]) -> int:
        return len(self._client.query("insert_notices", *arrays(NOTICE, map(notice_row, notices)))) if notices else 0

    def waiting_targets(self, now: datetime) -> list[WaitingTarget]:
        return [waiting_target_from(row) for row in self._query("waiting_targets", now=micros(now))]

    def claim_notices(self, target: str, now: datetime, until: datetime, limit: int) -> list[NoticeRecord]:
        rows = self._query("claim_notices", target=target, now=micros(now), until=micros(until), limit=limit)
        return sorted((notice_from(row) for row in rows), key=lambda notice: notice.id)

    def settle_notices(self, settled: Sequence[SettledNotice]) -> None:
        if settled:
            self._client.query("settle_notices", *arrays(_SETTLED, map(settled_row, settled)))

    def release_notices(self, ids: Sequence[int]) -> None:
        if ids:
            self._client.query("release_notices", Bigints(ids))

    def put_target_pause(self, pause: TargetPause) -> None:
        self._query("put_target_pause", *pause_row(pause))

    def end_target_pause(self, target: str) -> None:
        self._query("end_target_pause", target)

    def make_notices_due(self, now: datetime) -> None:
        self._client.execute_batch([("end_all_target_pauses", ()), ("make_notices_due", {"now": micros(now)})])

    def notices(
        self,
        *,
        status: NoticeStatus | None = None,
        project: str | None = None,
        run_id: int | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[NoticeRecord]:
        wanted = {"status": status, "project": project, "run_id": run_id}
        return [notice_from(row) for row in self._query("notices", **wanted, before=_below(before), limit=limit)]

    def remove_notices(self, created_before: datetime) -> int:
        before = (micros(created_before),)
        return len(self._client.execute_batch([("remove_target_pauses", before), ("remove_notices", before)])[1])

    # -- logs

    def append_log(self, chunks: Iterable[LogChunk]) -> None:
        rows = log_rows(chunks)
        if rows:
            self._client.query("append_log", *arrays(_LOG, rows))

    def read_log(self, key: LogKey, start: int, end: int) -> bytes:
        return joined(self._query("read_log", *log_columns(key), start, end), start, end)

    def log_size(self, key: LogKey) -> tuple[int, bool] | None:
        return extent(self._query("log_extents", *log_columns(key)))

    def logs_of(self, run_id: int) -> list[LogKey]:
        return [log_key_from(row) for row in self._query("logs_of", run_id)]


def _below(before: int | None) -> int:
    return NO_LIMIT if before is None else min(before, NO_LIMIT)


def _accepted(value: Any) -> Any:
    """The server refuses NUL in texts."""
    return without_nul(value) if isinstance(value, str) else value
