"""The audit of a server: who changed what, why, from where, and who was refused."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, cast

import msgspec

from mulligan.core.model.text.formatting import single_line
from mulligan.ports import AuditRecord, NewRun, Store, TokenRecord, Turn
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.server.logins import owner_of

# The status of a change that was accepted and begun. One that is refused after that gets a second row.
ACCEPTED = 202
_CHARS_MAX = 500


def audit_row(token: TokenRecord, **about: Any) -> AuditRecord:
    """A row in the name of a token. A session is written down as the token from which it comes."""
    return AuditRecord(who=token.user, project=token.project or "", token_id=owner_of(token.id), **about)


def reason_of(body: object) -> str:
    """Why somebody asks for something, as far as it is said."""
    for name in ("reason", "note", "why"):
        if isinstance(found := getattr(body, name, None), str) and found:
            return found
    return ""


class AuditPage(msgspec.Struct, frozen=True):
    """Rows of the audit, the newest first."""

    audit: list[AuditRecord]
    # For `before`; None if this is the last page.
    next: int | None = None


class AuditWithRun:
    """Rows for the audit that are written together with the run that a call creates: both are there, or neither."""

    def __init__(self, records: Sequence[AuditRecord]) -> None:
        # Those that are not written yet.
        self.records = [_short(one) for one in records]

    def store(self, of: Store) -> Store:
        """The store, whose next `create` writes the rows too."""
        return cast(Store, _AuditedStore(of, self))

    def write_rest(self, log: AuditLog) -> None:
        """Write the rows of a call that has created nothing, such as a start that was asked again."""
        log.add(self.records)


class _AuditedStore:
    """All that `of` does."""

    def __init__(self, of: Store, audit: AuditWithRun) -> None:
        self._of, self._audit = of, audit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def create(self, runs: Sequence[NewRun], holder: str = "", *, audit: Sequence[AuditRecord] = ()) -> list[Turn]:
        turns = self._of.create(runs, holder, audit=[*audit, *self._audit.records])
        self._audit.records = []
        return turns


class AuditLog:
    """The audit of one project, or of all. Rows are only added."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader

    def add(self, records: Sequence[AuditRecord]) -> None:
        """Write rows. Texts of users are cut, and written in one line."""
        self._reader.store.server_records.add_audit([_short(one) for one in records])

    def add_within(
        self, records: Sequence[AuditRecord], *, actions: Collection[str], since: datetime, count_max: int
    ) -> bool:
        """Write rows of one token, unless it would have made more than `count_max` changes since then."""
        rows = [_short(one) for one in records]
        within = self._reader.store.server_records.add_audit_within
        return within(rows, actions=actions, since=since, count_max=count_max)

    def page(
        self, *, project: str | None, before: int | None = None, limit: int = 100, who: str = "", action: str = ""
    ) -> AuditPage:
        """A page of the rows of a project (None: of all), with ids below `before`."""
        records = self._reader.store.server_records
        found = records.audit(project, before=before, limit=limit + 1, who=who, action=action)
        return AuditPage(found[:limit], found[limit - 1].id if len(found) > limit else None)


def _short(record: AuditRecord) -> AuditRecord:
    texts = {name: single_line(getattr(record, name))[:_CHARS_MAX] for name in ("who", "target", "why", "source")}
    return msgspec.structs.replace(record, **texts)
