"""Notices as rows of the outbox. Apart from the other server columns, since commits of runs write notices too."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mulligan.ports import NoticeRecord, SettledNotice, TargetPause
from mulligan.store.encoding import micros


def notice_row(notice: NoticeRecord) -> tuple[Any, ...]:
    return (
        *(notice.key, notice.target, micros(notice.created_at), notice.run_id, notice.project),
        *(notice.status, notice.attempts, due_column(notice.due_at), notice.reason, notice.body),
    )


def settled_row(settled: SettledNotice) -> tuple[Any, ...]:
    return settled.id, settled.status, settled.attempts, due_column(settled.due_at), settled.reason


def pause_row(pause: TargetPause) -> tuple[Any, ...]:
    return pause.target, pause.failures, micros(pause.since), micros(pause.retry_at), pause.reason


def due_column(due_at: datetime | None) -> int:
    """0 is in the past: what has no time is due at once."""
    return 0 if due_at is None else micros(due_at)
