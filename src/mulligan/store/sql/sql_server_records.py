"""What a server keeps in a database beside the runs. No statement here notifies workers."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

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
from mulligan.ports.server_records import CONTENT
from mulligan.store import refusals
from mulligan.store.encoding import micros
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
from mulligan.store.sql.sql_arrays import Bigints, Blobs, Texts
from mulligan.store.sql.sql_database import SqlDatabase, Statement
from mulligan.store.sql.sql_rows import AUDIT, NOTICE, SETTLED, audit_row, notice_row, pause_row, settled_row

_LOG = (Bigints, Texts, Bigints, Texts, Bigints, Bigints, Bigints, Blobs, Bigints)


class SqlServerRecords:
    def __init__(self, database: SqlDatabase) -> None:
        self._db = database

    # -- workflows

    def publish(self, version: WorkflowVersion) -> WorkflowVersion:
        def work() -> WorkflowVersion:
            self._db.lock(f" workflow {version.project}/{version.name}")
            rows = self._db.execute("newest_version", version.project, version.name)
            newest = version_from(rows[0]) if rows else None
            if newest is not None and newest.digest == version.digest:
                return newest
            added = replace(version, number=1 if newest is None else newest.number + 1)
            self._db.execute("insert_version", *version_row(added))
            return added

        return self._db.write(work)

    def version(self, project: str, name: str, number: int | None = None) -> WorkflowVersion | None:
        if number is None:
            rows = self._db.query("newest_version", project, name)
        else:
            rows = self._db.query("version_numbered", project, name, min(number, NO_LIMIT))
        return version_from(rows[0]) if rows else None

    def versions(self, project: str, name: str, *, before: int | None = None, limit: int = 50) -> list[WorkflowVersion]:
        return [version_from(row) for row in self._db.query("versions", project, name, _below(before), limit)]

    def newest_versions(self, project: str, *, after: str = "", limit: int = 100) -> list[WorkflowVersion]:
        rows = self._db.query("newest_versions", project=project, after=after, limit=limit) if limit > 0 else []
        return [version_from(row) for row in rows]

    def put_content(self, project: str, content: bytes, at: datetime) -> str:
        digest = hashlib.sha256(content).hexdigest()
        row = document_row(Document(kind=CONTENT, name=digest, data=content, updated_at=at, project=project))
        # Somebody may have put the same: it is the same.
        self._db.execute_batch([("insert_document", row)])
        return digest

    def content(self, project: str, digest: str) -> bytes | None:
        found = self.document(project, CONTENT, digest)
        return None if found is None else found.data

    def missing_contents(self, project: str, digests: Collection[str]) -> list[str]:
        return [one for one in digests if not self._db.query("document_revision", project, CONTENT, one)]

    # -- documents

    def document(self, project: str, kind: str, name: str) -> Document | None:
        rows = self._db.query("document", project, kind, name)
        return document_from(rows[0]) if rows else None

    def documents(self, kind: str, project: str | None = None) -> list[Document]:
        return [document_from(row) for row in self._db.query("documents", kind=kind, project=project)]

    def put_document(self, document: Document, *, expected: int | None = None) -> Document:
        row = document_row(document)
        if not expected:
            asked: Statement = ("put_document" if expected is None else "insert_document", row)
        else:
            names = ("kind", "project", "named", "data", "updated_at", "updated_by")
            asked = ("update_document", {**dict(zip(names, row, strict=True)), "expected": expected})
        (rows,) = self._db.execute_batch([asked])
        if not rows:
            raise self._mismatch(document.project, document.kind, document.name, expected or 0)
        return replace(document, revision=rows[0][0])

    def delete_document(self, project: str, kind: str, name: str, *, expected: int | None = None) -> bool:
        about = {"project": project, "kind": kind, "named": name, "expected": expected}
        (rows,) = self._db.execute_batch([("delete_document", about)])
        if rows:
            return True
        if expected and self._db.query("document_revision", project, kind, name):
            raise self._mismatch(project, kind, name, expected)
        return False

    def _mismatch(self, project: str, kind: str, name: str, expected: int) -> RevisionMismatch:
        rows = self._db.query("document_revision", project, kind, name)
        return refusals.revision_mismatch(kind, name, expected, rows[0][0] if rows else 0)

    # -- tokens and audit

    def add_token(self, token: TokenRecord) -> None:
        self._db.query("insert_token", *token_row(token))

    def token_of(self, digest: str) -> TokenRecord | None:
        rows = self._db.query("token_of", digest)
        return token_from(rows[0]) if rows else None

    def tokens(self) -> list[TokenRecord]:
        return [token_from(row) for row in self._db.query("tokens")]

    def revoke_token(self, token_id: str, at: datetime) -> bool:
        return bool(self._db.query("revoke_token", id=token_id, at=micros(at)))

    def remove_audit(self, before: datetime, limit: int) -> int:
        return len(self._db.query("remove_audit", limit=limit, before=micros(before)))

    def remove_tokens(self, token_ids: Collection[str]) -> int:
        return len(self._db.query("remove_tokens", Texts(token_ids)))

    def newest_answer(self) -> int:
        return int(self._db.query("newest_answer")[0][0])

    def remove_answers(self, up_to: int, limit: int) -> int:
        return len(self._db.query("remove_answers", up_to, limit))

    def table_sizes(self) -> list[TableSize]:
        return self._db.table_sizes()

    def add_audit(self, records: Sequence[AuditRecord]) -> None:
        if records:
            self._db.write_rows("insert_audit", AUDIT, map(audit_row, records))

    def add_audit_within(
        self, records: Sequence[AuditRecord], *, actions: Collection[str], since: datetime, count_max: int
    ) -> bool:
        def work() -> bool:
            token_id = records[0].token_id
            self._db.lock(f" token {token_id}")
            ((counted,),) = self._db.execute("count_audit", token_id, Texts(actions), micros(since))
            if counted + len(records) > count_max:
                return False
            self._db.execute_rows("insert_audit", AUDIT, map(audit_row, records))
            return True

        return not records or self._db.write(work)

    def audit(
        self,
        project: str | None = None,
        *,
        before: int | None = None,
        limit: int = 100,
        who: str = "",
        action: str = "",
    ) -> list[AuditRecord]:
        wanted = {"before": _below(before), "who": who, "action": action, "limit": limit}
        rows = (
            self._db.query("audit", **wanted)
            if project is None
            else self._db.query("audit_of_project", **wanted, project=project)
        )
        return [audit_from(row) for row in rows]

    def count_audit(self, token_id: str, actions: Collection[str], since: datetime) -> int:
        ((count,),) = self._db.query("count_audit", token_id, Texts(actions), micros(since))
        return int(count)

    # -- notices

    def put_notices(self, notices: Sequence[NoticeRecord]) -> int:
        return self._db.write_rows("insert_notices", NOTICE, map(notice_row, notices)) if notices else 0

    def waiting_targets(self, now: datetime) -> list[WaitingTarget]:
        return [waiting_target_from(row) for row in self._db.query("waiting_targets", now=micros(now))]

    def claim_notices(self, target: str, now: datetime, until: datetime, limit: int) -> list[NoticeRecord]:
        rows = self._db.query("claim_notices", target=target, now=micros(now), until=micros(until), limit=limit)
        return sorted((notice_from(row) for row in rows), key=lambda notice: notice.id)

    def settle_notices(self, settled: Sequence[SettledNotice]) -> None:
        if settled:
            self._db.write_rows("settle_notices", SETTLED, map(settled_row, settled))

    def release_notices(self, ids: Sequence[int]) -> None:
        if ids:
            self._db.query("release_notices", Bigints(ids))

    def put_target_pause(self, pause: TargetPause) -> None:
        self._db.query("put_target_pause", *pause_row(pause))

    def end_target_pause(self, target: str) -> None:
        self._db.query("end_target_pause", target)

    def make_notices_due(self, now: datetime) -> None:
        self._db.execute_batch([("end_all_target_pauses", ()), ("make_notices_due", {"now": micros(now)})])

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
        return [notice_from(row) for row in self._db.query("notices", **wanted, before=_below(before), limit=limit)]

    def remove_notices(self, created_before: datetime) -> int:
        before = (micros(created_before),)
        return len(self._db.execute_batch([("remove_target_pauses", before), ("remove_notices", before)])[1])

    # -- logs

    def append_log(self, chunks: Iterable[LogChunk]) -> None:
        rows = log_rows(chunks)
        if rows:
            self._db.write_rows("append_log", _LOG, rows)

    def read_log(self, key: LogKey, start: int, end: int) -> bytes:
        return joined(self._db.query("read_log", *log_columns(key), start, end), start, end)

    def log_size(self, key: LogKey) -> tuple[int, bool] | None:
        return extent(self._db.query("log_extents", *log_columns(key)))

    def logs_of(self, run_id: int) -> list[LogKey]:
        return [log_key_from(row) for row in self._db.query("logs_of", run_id)]


def _below(before: int | None) -> int:
    return NO_LIMIT if before is None else min(before, NO_LIMIT)
