"""What a server keeps, as far as it belongs to one project. The project that a caller names is not asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import NoReturn

from msgspec.structs import replace

from mulligan.ports import (
    AuditRecord,
    Document,
    LogChunk,
    LogKey,
    NoticeRecord,
    NoticeStatus,
    ServerRecords,
    TokenRecord,
    WorkflowVersion,
)
from mulligan.ports.server_records import OBJECT_STORE_KIND
from mulligan.store import refusals


class ProjectRecords:
    """The records `of` a store, limited to the project. `has_run` says whether a run belongs to it."""

    def __init__(self, of: ServerRecords, project: str, has_run: Callable[[int], bool]) -> None:
        self._of, self._project, self._has_run = of, project, has_run

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        """What `ServerRecords` has besides: notices are sent, and old rows removed, for the store as a whole."""
        return refusals.only_of_the_whole_store(name)

    # -- workflows

    def publish(self, version: WorkflowVersion) -> WorkflowVersion:
        return self._of.publish(replace(version, project=self._project))

    def version(self, project: str, name: str, number: int | None = None) -> WorkflowVersion | None:
        return self._of.version(self._project, name, number)

    def versions(self, project: str, name: str, *, before: int | None = None, limit: int = 50) -> list[WorkflowVersion]:
        return self._of.versions(self._project, name, before=before, limit=limit)

    def newest_versions(self, project: str, *, after: str = "", limit: int = 100) -> list[WorkflowVersion]:
        return self._of.newest_versions(self._project, after=after, limit=limit)

    # -- documents

    def document(self, project: str, kind: str, name: str) -> Document | None:
        # Where artifacts are is one setting of the whole store.
        return self._of.document("" if kind == OBJECT_STORE_KIND else self._project, kind, name)

    def documents(self, kind: str, project: str | None = None) -> list[Document]:
        return self._of.documents(kind, self._project)

    def put_document(self, document: Document, *, expected: int | None = None) -> Document:
        return self._of.put_document(replace(document, project=self._project), expected=expected)

    def delete_document(self, project: str, kind: str, name: str, *, expected: int | None = None) -> bool:
        return self._of.delete_document(self._project, kind, name, expected=expected)

    # -- tokens and audit

    def add_token(self, token: TokenRecord) -> None:
        self._of.add_token(replace(token, project=self._project))

    def token_of(self, digest: str) -> TokenRecord | None:
        found = self._of.token_of(digest)
        return found if found is not None and found.project == self._project else None

    def tokens(self) -> list[TokenRecord]:
        return [token for token in self._of.tokens() if token.project == self._project]

    def revoke_token(self, token_id: str, at: datetime) -> bool:
        return any(token.id == token_id for token in self.tokens()) and self._of.revoke_token(token_id, at)

    def add_audit(self, records: Sequence[AuditRecord]) -> None:
        self._of.add_audit([replace(record, project=self._project) for record in records])

    def add_audit_within(
        self, records: Sequence[AuditRecord], *, actions: Collection[str], since: datetime, count_max: int
    ) -> bool:
        named = [replace(record, project=self._project) for record in records]
        return self._of.add_audit_within(named, actions=actions, since=since, count_max=count_max)

    def audit(
        self,
        project: str | None = None,
        *,
        before: int | None = None,
        limit: int = 100,
        who: str = "",
        action: str = "",
    ) -> list[AuditRecord]:
        return self._of.audit(self._project, before=before, limit=limit, who=who, action=action)

    def count_audit(self, token_id: str, actions: Collection[str], since: datetime) -> int:
        return self._of.count_audit(token_id, actions, since)

    # -- notices

    def put_notices(self, notices: Sequence[NoticeRecord]) -> int:
        return self._of.put_notices([replace(notice, project=self._project) for notice in notices])

    def notices(
        self,
        *,
        status: NoticeStatus | None = None,
        project: str | None = None,
        run_id: int | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[NoticeRecord]:
        if project not in (None, self._project):
            return []
        return self._of.notices(status=status, project=self._project, run_id=run_id, before=before, limit=limit)

    # -- logs

    def append_log(self, chunks: Iterable[LogChunk]) -> None:
        self._of.append_log([chunk for chunk in chunks if self._has_run(chunk.key.run_id)])

    def read_log(self, key: LogKey, start: int, end: int) -> bytes:
        return self._of.read_log(key, start, end) if self._has_run(key.run_id) else b""

    def log_size(self, key: LogKey) -> tuple[int, bool] | None:
        return self._of.log_size(key) if self._has_run(key.run_id) else None

    def logs_of(self, run_id: int) -> list[LogKey]:
        return self._of.logs_of(run_id) if self._has_run(run_id) else []
