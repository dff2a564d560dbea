"""The audit: which changes were asked of a server, by whom, and what came of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from mulligan.errors import InputInvalid
from mulligan.ports import AuditRecord
from mulligan.service.run_reader import RunReader

PAGE_MAX = 1000


class AuditPage(msgspec.Struct, frozen=True):
    """Changes, the newest first. `next` is what the next page begins before."""

    audit: tuple[AuditRecord, ...]
    next: str | None = None


class AuditLog:
    """The audit of a store, or of the one project that `reader` shows."""

    def __init__(self, reader: RunReader, by: str, now: Callable[[], datetime]) -> None:
        self._reader, self._by, self._now = reader, by, now

    def page(self, *, before: str = "", limit: int = 100, who: str = "", action: str = "") -> AuditPage:
        if not 1 <= limit <= PAGE_MAX:
            raise InputInvalid(f"limit must be between 1 and {PAGE_MAX}", hint="ask for the next page with 'before'")
        if before and not (before.isascii() and before.isdecimal() and len(before) < 20):
            raise InputInvalid(f"'{before[:60]}' is not where a page ends", hint="give what 'next' said")
        if not self._reader.home.is_there:
            return AuditPage(())
        found = self._reader.store.server_records.audit(
            self._reader.project, before=int(before) if before else None, limit=limit + 1, who=who, action=action
        )
        shown = found[:limit]
        return AuditPage(tuple(shown), str(shown[-1].id) if len(found) > limit else None)

    def record(self, action: str, target: str, *, why: str = "", source: str = "") -> None:
        """Note a change that was made without a server."""
        record = AuditRecord(
            at=self._now(),
            who=self._by,
            action=action,
            target=target,
            status=200,
            project=self._reader.project or "",
            why=why,
            source=source,
        )
        self._reader.store.server_records.add_audit([record])
