"""What a server keeps in a store in memory beside the runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

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
from mulligan.store.server_columns import extent, joined, log_columns, log_rows
from mulligan.testing.memory.memory_tables import MemoryTables


class MemoryServerRecords:
    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    # -- workflows

    def publish(self, version: WorkflowVersion) -> WorkflowVersion:
        newest = self.version(version.project, version.name)
        if newest is not None and newest.digest == version.digest:
            return newest
        added = replace(version, number=1 if newest is None else newest.number + 1)
        self._tables.versions.setdefault((version.project, version.name), []).append(added)
        return added

    def version(self, project: str, name: str, number: int | None = None) -> WorkflowVersion | None:
        found = self._tables.versions.get((project, name), [])
        if number is None:
            return found[-1] if found else None
        return next((one for one in found if one.number == number), None)

    def versions(self, project: str, name: str, *, before: int | None = None, limit: int = 50) -> list[WorkflowVersion]:
        found = reversed(self._tables.versions.get((project, name), []))
        return [replace(one, text="") for one in found if before is None or one.number < before][:limit]

    def newest_versions(self, project: str, *, after: str = "", limit: int = 100) -> list[WorkflowVersion]:
        newest = (found[-1] for key, found in sorted(self._tables.versions.items()) if key[0] == project)
        return [replace(one, text="") for one in newest if one.name > after][:limit]

    # -- documents

    def document(self, project: str, kind: str, name: str) -> Document | None:
        return self._tables.documents.get((kind, project, name))

    def documents(self, kind: str, project: str | None = None) -> list[Document]:
        return [
            document
            for key, document in sorted(self._tables.documents.items())
            if key[0] == kind and project in (None, key[1])
        ]

    def put_document(self, document: Document, *, expected: int | None = None) -> Document:
        key = (document.kind, document.project, document.name)
        found = self._revision(key)
        if expected is not None and expected != found:
            raise refusals.revision_mismatch(document.kind, document.name, expected, found)
        self._tables.documents[key] = replace(document, revision=found + 1)
        return self._tables.documents[key]

    def delete_document(self, project: str, kind: str, name: str, *, expected: int | None = None) -> bool:
        key = (kind, project, name)
        found = self._revision(key)
        if expected and found and expected != found:
            raise refusals.revision_mismatch(kind, name, expected, found)
        if expected == 0:
            return False
        return self._tables.documents.pop(key, None) is not None

    def _revision(self, key: tuple[str, str, str]) -> int:
        found = self._tables.documents.get(key)
        return 0 if found is None else found.revision

    # -- tokens and audit

    def add_token(self, token: TokenRecord) -> None:
        self._tables.tokens[token.id] = token

    def token_of(self, digest: str) -> TokenRecord | None:
        return next((token for token in self._tables.tokens.values() if token.digest == digest), None)

    def tokens(self) -> list[TokenRecord]:
        by_id = sorted(self._tables.tokens.values(), key=lambda token: token.id)
        return sorted(by_id, key=lambda token: token.created_at, reverse=True)

    def revoke_token(self, token_id: str, at: datetime) -> bool:
        token = self._tables.tokens.get(token_id)
        if token is None:
            return False
        self._tables.tokens[token_id] = replace(token, revoked_at=token.revoked_at or at)
        return True

    def remove_audit(self, before: datetime, limit: int) -> int:
        rows = self._tables.audit
        count = next((number for number, row in enumerate(rows[:limit]) if row.at >= before), len(rows[:limit]))
        del rows[:count]
        return count

    def remove_tokens(self, token_ids: Collection[str]) -> int:
        return sum(self._tables.tokens.pop(one, None) is not None for one in set(token_ids))

    def newest_answer(self) -> int:
        return max(self._tables.answers, default=0)

    def remove_answers(self, up_to: int, limit: int) -> int:
        gone = sorted(one for one in self._tables.answers if one <= up_to)[:limit]
        for one in gone:
            del self._tables.answers[one]
        return len(gone)

    def table_sizes(self) -> list[TableSize]:
        return []

    def add_audit(self, records: Sequence[AuditRecord]) -> None:
        for record in records:
            last = self._tables.audit[-1].id if self._tables.audit else 0
            self._tables.audit.append(replace(record, id=last + 1))

    def add_audit_within(
        self, records: Sequence[AuditRecord], *, actions: Collection[str], since: datetime, count_max: int
    ) -> bool:
        if not records:
            return True
        counted = self.count_audit(records[0].token_id, actions, since)
        if counted + len(records) > count_max:
            return False
        self.add_audit(records)
        return True

    def audit(
        self,
        project: str | None = None,
        *,
        before: int | None = None,
        limit: int = 100,
        who: str = "",
        action: str = "",
    ) -> list[AuditRecord]:
        return [
            record
            for record in reversed(self._tables.audit)
            if (before is None or record.id < before)
            and project in (None, record.project)
            and who in ("", record.who)
            and action in ("", record.action)
        ][:limit]

    def count_audit(self, token_id: str, actions: Collection[str], since: datetime) -> int:
        wanted = (one for one in self._tables.audit if one.token_id == token_id and one.action in actions)
        return sum(one.at >= since and one.status < 400 for one in wanted) if token_id else 0

    # -- notices

    def put_notices(self, notices: Sequence[NoticeRecord]) -> int:
        return sum(self._tables.add_notice(notice) for notice in notices)

    def waiting_targets(self, now: datetime) -> list[WaitingTarget]:
        waiting = {notice.target for notice in self._tables.notices.values() if notice.status == "waiting"}
        pauses = self._tables.target_pauses
        return [WaitingTarget(name, self._first_due(name, now), pauses.get(name)) for name in sorted(waiting)]

    def _first_due(self, target: str, now: datetime) -> datetime:
        claims, waiting = self._tables.notice_claims, self._waiting(target)
        free = [one.due_at or one.created_at for one in waiting if claims.get(one.id, now) <= now]
        return min(free or [claims[one.id] for one in waiting])

    def _waiting(self, target: str) -> list[NoticeRecord]:
        found = self._tables.notices.values()
        return [notice for notice in found if notice.status == "waiting" and notice.target == target]

    def claim_notices(self, target: str, now: datetime, until: datetime, limit: int) -> list[NoticeRecord]:
        claims = self._tables.notice_claims
        free = (notice for notice in self._waiting(target) if claims.get(notice.id, now) <= now)
        due = [notice for notice in free if notice.due_at is None or notice.due_at <= now]
        oldest = sorted(due, key=lambda notice: (notice.due_at or datetime.min.replace(tzinfo=UTC), notice.id))[:limit]
        claims.update((notice.id, until) for notice in oldest)
        return sorted(oldest, key=lambda notice: notice.id)

    def settle_notices(self, settled: Sequence[SettledNotice]) -> None:
        for one in settled:
            notice = self._tables.notices.get(one.id)
            if notice is not None and notice.status != "sent":
                self._tables.notices[one.id] = replace(
                    notice, status=one.status, attempts=one.attempts, due_at=one.due_at, reason=one.reason
                )
                self._tables.notice_claims.pop(one.id, None)

    def release_notices(self, ids: Sequence[int]) -> None:
        for id_ in ids:
            self._tables.notice_claims.pop(id_, None)

    def put_target_pause(self, pause: TargetPause) -> None:
        self._tables.target_pauses[pause.target] = pause

    def end_target_pause(self, target: str) -> None:
        self._tables.target_pauses.pop(target, None)

    def make_notices_due(self, now: datetime) -> None:
        self._tables.target_pauses.clear()
        claims = self._tables.notice_claims
        for id_, notice in self._tables.notices.items():
            is_later = notice.due_at is not None and notice.due_at > now
            if notice.status == "waiting" and is_later and claims.get(id_, now) <= now:
                self._tables.notices[id_] = replace(notice, due_at=now)

    def notices(
        self,
        *,
        status: NoticeStatus | None = None,
        project: str | None = None,
        run_id: int | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[NoticeRecord]:
        return [
            self._as_listed(notice)
            for notice in reversed(self._tables.notices.values())
            if (before is None or notice.id < before)
            and status in (None, notice.status)
            and project in (None, notice.project)
            and run_id in (None, notice.run_id)
        ][:limit]

    def _as_listed(self, notice: NoticeRecord) -> NoticeRecord:
        """What waits for a target waits for the time of the target, too."""
        pause = self._tables.target_pauses.get(notice.target)
        if pause is None or notice.status != "waiting" or (notice.due_at and notice.due_at >= pause.retry_at):
            return notice
        return replace(notice, due_at=pause.retry_at, reason=notice.reason or pause.reason)

    def remove_notices(self, created_before: datetime) -> int:
        pauses = self._tables.target_pauses
        self._tables.target_pauses = {name: one for name, one in pauses.items() if one.retry_at >= created_before}
        gone = [
            notice.id
            for notice in self._tables.notices.values()
            if notice.status != "waiting" and notice.created_at < created_before
        ]
        for notice_id in gone:
            del self._tables.notices[notice_id]
        return len(gone)

    # -- logs

    def append_log(self, chunks: Iterable[LogChunk]) -> None:
        for *key, start, size, is_last, data, _ in log_rows(chunks):
            pieces = self._tables.logs.setdefault(LogKey(*key), {})
            end = max((at + len(known) for at, (known, _) in pieces.items()), default=0)
            is_new = start + size > end or (is_last and start + size == end)
            if start <= end and is_new and not any(is_whole for _, is_whole in pieces.values()):
                pieces[max(start, end)] = (data[max(0, end - start) :], is_last)

    def read_log(self, key: LogKey, start: int, end: int) -> bytes:
        pieces = sorted(self._tables.logs.get(key, {}).items())
        return joined(((at, data) for at, (data, _) in pieces), start, end)

    def log_size(self, key: LogKey) -> tuple[int, bool] | None:
        pieces = sorted(self._tables.logs.get(key, {}).items())
        return extent((at, len(data), is_last) for at, (data, is_last) in pieces)

    def logs_of(self, run_id: int) -> list[LogKey]:
        return sorted((key for key in self._tables.logs if key.run_id == run_id), key=log_columns)
