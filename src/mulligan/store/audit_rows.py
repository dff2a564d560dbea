"""Rows of the audit. Apart from the other server columns, since the transaction that creates runs writes them too."""

from __future__ import annotations

from typing import Any

from mulligan.ports import AuditRecord
from mulligan.store.encoding import micros


def audit_row(record: AuditRecord) -> tuple[Any, ...]:
    return (
        *(micros(record.at), record.who, record.action, record.target, record.status),
        *(record.project, record.token_id, record.why, record.source),
    )
