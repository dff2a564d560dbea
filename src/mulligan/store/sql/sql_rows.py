"""The rows that commits of runs write besides those of the runs, with the types of their columns."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mulligan.core.effects.tasks import Task
from mulligan.ports import AuditRecord, NoticeRecord, SettledNotice, TargetPause
from mulligan.store.breaker_transaction import breaker_columns
from mulligan.store.encoding import encoded, micros
from mulligan.store.sql.sql_arrays import Bigints, Blobs, Texts

TASK_KEY = (Bigints, Texts, Bigints)
BREAKER = (Texts, Texts, Bigints, Bigints, Bigints, Bigints)
ATTRIBUTE = (Bigints, Texts, Texts, Texts)
MESSAGE = (Bigints, Blobs, Texts, Bigints)
AUDIT = (Bigints, Texts, Texts, Texts, Bigints, Texts, Texts, Texts, Texts)
NOTICE = (Texts, Texts, Bigints, Bigints, Texts, Texts, Bigints, Bigints, Texts, Blobs)
SETTLED = (Bigints, Texts, Bigints, Bigints, Texts)


def audit_row(record: AuditRecord) -> tuple[Any, ...]:
    return (
        *(micros(record.at), record.who, record.action, record.target, record.status),
        *(record.project, record.token_id, record.why, record.source),
    )


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


def task_columns(task: Task) -> tuple[Any, ...]:
    """The columns of a task behind those that say who has it."""
    labels = encoded(task.labels).decode() if task.labels else "[]"
    return (
        *(task.cpus, task.memory or 0, task.gpus, labels, task.host, encoded(task)),
        *(("", "") if task.guard is None else breaker_columns(task)),
        *(task.nodes, task.seconds_needed or None),
    )
