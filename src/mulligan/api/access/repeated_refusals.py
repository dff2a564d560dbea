"""Which refusals become rows of the audit: the first of a caller at a route, and then their number, once a minute.

Whoever may do nothing could otherwise fill the store: each refusal that is written takes more room than it cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from mulligan.ports.server_records import AuditRecord

# How long refusals of one kind are counted before another row is written.
INTERVAL_SECONDS = 60.0
# How many kinds are counted. Beyond that, all callers who are refused with one status count as one.
KINDS_MAX = 1_000
# The codes of those who were not let in. Others are counted by what they were about.
_NOT_LET_IN = (
    *("token.refused", "token.scope", "run.unknown", "not_found"),
    *("webhook.unknown", "webhook.signature", "webhook.time"),
)


@dataclass
class _Kind:
    """Refusals of one kind: since when they are counted, and how many have no row."""

    since: float
    last: AuditRecord
    unwritten: int = 0


class RepeatedRefusals:
    """The refusals of the last minute, by caller and route."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kinds: dict[tuple[str, ...], _Kind] = {}

    def rows_for(self, refused: Iterable[AuditRecord]) -> list[AuditRecord]:
        """The rows to write now: of refusals that are the first of their kind, and of kinds whose minute is over."""
        now = self._clock()
        over = [key for key, kind in self._kinds.items() if now - kind.since >= INTERVAL_SECONDS]
        counted = [kind for kind in map(self._kinds.pop, over) if kind.unwritten]
        rows = [replace(one.last, why=f"{one.last.why} ({one.unwritten} more within a minute)") for one in counted]
        for record in refused:
            key = self._key(record)
            kind = self._kinds.get(key)
            if kind is None:
                self._kinds[key] = _Kind(now, record)
                rows.append(record)
            else:
                kind.last, kind.unwritten = record, kind.unwritten + 1
        return rows

    def _key(self, record: AuditRecord) -> tuple[str, ...]:
        status, is_stranger = str(record.status), record.why in _NOT_LET_IN
        # Strangers have no name: they are known by where they come from, and not by what they ask for.
        who = record.token_id or record.who or (record.source if is_stranger else "")
        about = () if is_stranger else (record.target, record.why.partition(":")[0])
        key = (status, record.action, who, record.project, *about)
        return key if key in self._kinds or len(self._kinds) < KINDS_MAX else (status,)
