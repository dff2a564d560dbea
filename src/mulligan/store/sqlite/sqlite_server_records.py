"""What a server keeps in an SQLite file beside the runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

import apsw
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
from mulligan.store.encoding import encoded, micros
from mulligan.store.notice_rows import notice_row, pause_row, settled_row
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
from mulligan.store.sqlite.sqlite_file import SqliteFile, fetch_all
from mulligan.store.sqlite.sqlite_sequence import SQL


class SqliteServerRecords:
    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    # -- workflows

    def publish(self, version: WorkflowVersion) -> WorkflowVersion:
        def work(db: apsw.Cursor) -> WorkflowVersion:
            rows = fetch_all(db, SQL["newest_version"], version.project, version.name)
            newest = version_from(rows[0]) if rows else None
            if newest is not None and newest.digest == version.digest:
                return newest
            added = replace(version, number=1 if newest is None else newest.number + 1)
            db.execute(SQL["insert_version"], version_row(added))
            return added

        return self._file.write(work)

    def version(self, project: str, name: str, number: int | None = None) -> WorkflowVersion | None:
        if number is None:
            rows = self._file.read(SQL["newest_version"], project, name)
        else:
            rows = self._file.read(SQL["version_numbered"], project, name, min(number, NO_LIMIT))
        return version_from(rows[0]) if rows else None

    def versions(self, project: str, name: str, *, before: int | None = None, limit: int = 50) -> list[WorkflowVersion]:
        rows = self._file.read(SQL["versions"], project, name, _below(before), limit)
        return [version_from(row) for row in rows]

    def newest_versions(self, project: str, *, after: str = "", limit: int = 100) -> list[WorkflowVersion]:
        return [version_from(row) for row in self._file.read(SQL["newest_versions"], project, after, limit)]

    # -- documents

    def document(self, project: str, kind: str, name: str) -> Document | None:
        rows = self._file.read(SQL["document"], project, kind, name)
        return document_from(rows[0]) if rows else None

    def documents(self, kind: str, project: str | None = None) -> list[Document]:
        return [document_from(row) for row in self._file.read(SQL["documents"], kind, project)]

    def put_document(self, document: Document, *, expected: int | None = None) -> Document:
        def work(db: apsw.Cursor) -> Document:
            row = document_row(document)
            if expected is None:
                rows = fetch_all(db, SQL["put_document"], *row)
            elif expected == 0:
                rows = fetch_all(db, SQL["insert_document"], *row)
            else:
                rows = fetch_all(db, SQL["update_document"], *row, expected)
            if not rows:
                raise _mismatch(db, document.project, document.kind, document.name, expected or 0)
            return replace(document, revision=rows[0][0])

        return self._file.write(work)

    def delete_document(self, project: str, kind: str, name: str, *, expected: int | None = None) -> bool:
        def work(db: apsw.Cursor) -> bool:
            if fetch_all(db, SQL["delete_document"], project, kind, name, expected):
                return True
            if expected and fetch_all(db, SQL["document_revision"], project, kind, name):
                raise _mismatch(db, project, kind, name, expected)
            return False

        return self._file.write(work)

    # -- tokens and audit

    def add_token(self, token: TokenRecord) -> None:
        self._file.read(SQL["insert_token"], *token_row(token))

    def token_of(self, digest: str) -> TokenRecord | None:
        rows = self._file.read(SQL["token_of"], digest)
        return token_from(rows[0]) if rows else None

    def tokens(self) -> list[TokenRecord]:
        return [token_from(row) for row in self._file.read(SQL["tokens"])]

    def revoke_token(self, token_id: str, at: datetime) -> bool:
        return bool(self._file.read(SQL["revoke_token"], token_id, micros(at)))

    def remove_audit(self, before: datetime, limit: int) -> int:
        return len(self._file.read(SQL["remove_audit"], micros(before), limit))

    def remove_tokens(self, token_ids: Collection[str]) -> int:
        return len(self._file.read(SQL["remove_tokens"], encoded(list(token_ids)).decode()))

    def newest_answer(self) -> int:
        return int(self._file.read(SQL["newest_answer"])[0][0])

    def remove_answers(self, up_to: int, limit: int) -> int:
        return len(self._file.read(SQL["remove_answers"], up_to, limit))

    def table_sizes(self) -> list[TableSize]:
        sizes = dict(self._file.read(SQL["table_bytes"]))
        names = [name for (name,) in self._file.read(SQL["tables"])]
        counts = {name: self._file.read(f'SELECT count(*) FROM "{name}"')[0][0] for name in names}
        return [TableSize(name, counts[name], sizes.get(name, 0)) for name in names]

    def add_audit(self, records: Sequence[AuditRecord]) -> None:
        rows = [audit_row(record) for record in records]
        if rows:
            self._file.write(lambda db: db.executemany(SQL["insert_audit"], rows))

    def add_audit_within(
        self, records: Sequence[AuditRecord], *, actions: Collection[str], since: datetime, count_max: int
    ) -> bool:
        rows = [audit_row(record) for record in records]
        wanted = encoded(list(actions)).decode()

        def work(db: apsw.Cursor) -> bool:
            counted = db.execute(SQL["count_audit"], (records[0].token_id, wanted, micros(since))).fetchone()
            if counted is None or counted[0] + len(rows) > count_max:
                return False
            db.executemany(SQL["insert_audit"], rows)
            return True

        return not rows or self._file.write(work)

    def audit(
        self,
        project: str | None = None,
        *,
        before: int | None = None,
        limit: int = 100,
        who: str = "",
        action: str = "",
    ) -> list[AuditRecord]:
        wanted = (_below(before), who, action, limit)
        rows = (
            self._file.read(SQL["audit"], *wanted)
            if project is None
            else self._file.read(SQL["audit_of_project"], *wanted, project)
        )
        return [audit_from(row) for row in rows]

    def count_audit(self, token_id: str, actions: Collection[str], since: datetime) -> int:
        wanted = encoded(list(actions)).decode()
        ((count,),) = self._file.read(SQL["count_audit"], token_id, wanted, micros(since))
        return int(count)

    # -- notices

    def put_notices(self, notices: Sequence[NoticeRecord]) -> int:
        def work(db: apsw.Cursor) -> int:
            before = db.connection.total_changes()
            db.executemany(SQL["insert_notice"], rows)
            return db.connection.total_changes() - before

        rows = [notice_row(notice) for notice in notices]
        return self._file.write(work) if rows else 0

    def waiting_targets(self, now: datetime) -> list[WaitingTarget]:
        return [waiting_target_from(row) for row in self._file.read(SQL["waiting_targets"], micros(now))]

    def claim_notices(self, target: str, now: datetime, until: datetime, limit: int) -> list[NoticeRecord]:
        rows = self._file.read(SQL["claim_notices"], target, micros(now), micros(until), limit)
        return sorted((notice_from(row) for row in rows), key=lambda notice: notice.id)

    def settle_notices(self, settled: Sequence[SettledNotice]) -> None:
        rows = [settled_row(one) for one in settled]
        if rows:
            self._file.write(lambda db: db.executemany(SQL["settle_notice"], rows))

    def release_notices(self, ids: Sequence[int]) -> None:
        if ids:
            self._file.read(SQL["release_notices"], encoded(list(ids)).decode())

    def put_target_pause(self, pause: TargetPause) -> None:
        self._file.read(SQL["put_target_pause"], *pause_row(pause))

    def end_target_pause(self, target: str) -> None:
        self._file.read(SQL["end_target_pause"], target)

    def make_notices_due(self, now: datetime) -> None:
        def work(db: apsw.Cursor) -> None:
            db.execute(SQL["end_all_target_pauses"])
            db.execute(SQL["make_notices_due"], (micros(now),))

        self._file.write(work)

    def notices(
        self,
        *,
        status: NoticeStatus | None = None,
        project: str | None = None,
        run_id: int | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[NoticeRecord]:
        rows = self._file.read(SQL["notices"], _below(before), status, project, run_id, limit)
        return [notice_from(row) for row in rows]

    def remove_notices(self, created_before: datetime) -> int:
        self._file.read(SQL["remove_target_pauses"], micros(created_before))
        return len(self._file.read(SQL["remove_notices"], micros(created_before)))

    # -- logs

    def append_log(self, chunks: Iterable[LogChunk]) -> None:
        # Each statement sees what the one before has appended.
        rows = [row for *row, _ in log_rows(chunks)]
        if rows:
            self._file.write(lambda db: db.executemany(SQL["append_log"], rows))

    def read_log(self, key: LogKey, start: int, end: int) -> bytes:
        return joined(self._file.read(SQL["read_log"], *log_columns(key), start, end), start, end)

    def log_size(self, key: LogKey) -> tuple[int, bool] | None:
        return extent(self._file.read(SQL["log_extents"], *log_columns(key)))

    def logs_of(self, run_id: int) -> list[LogKey]:
        return [log_key_from(row) for row in self._file.read(SQL["logs_of"], run_id)]


def _below(before: int | None) -> int:
    return NO_LIMIT if before is None else min(before, NO_LIMIT)


def _mismatch(db: apsw.Cursor, project: str, kind: str, name: str, expected: int) -> RevisionMismatch:
    rows = fetch_all(db, SQL["document_revision"], project, kind, name)
    return refusals.revision_mismatch(kind, name, expected, rows[0][0] if rows else 0)
