"""What the stores write as bytes, and back: tasks, reports, answers, workers as JSON; moments as microseconds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.reports import AnyReport
from mulligan.errors import CodecError
from mulligan.ports import Answer, WorkerRecord

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

encoded = msgspec.json.Encoder().encode


@cache
def _decoder(of: Any) -> Callable[[Any], Any]:
    """Made when something of its kind is first read: a short run only writes."""
    return msgspec.json.Decoder(of).decode


def _read(of: Any, data: bytes, what: str) -> Any:
    """What was kept; CodecError where somebody, or a broken disk, has put something else in its place."""
    try:
        return _decoder(of)(data)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise CodecError(f"{what} that was kept cannot be read: {error}") from error


def report_from(data: bytes) -> AnyReport:
    return _read(AnyReport, data, "a message")


def task_from(data: bytes) -> Task:
    return _read(Task, data, "a task")


def answer_from(data: bytes) -> Answer:
    return _read(Answer, data, "an answer")


def worker_from(data: bytes) -> WorkerRecord:
    return _read(WorkerRecord, data, "what a worker said of itself and")


def micros(moment: datetime) -> int:
    """The moment as a whole number of microseconds, exactly."""
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def moment_from(number: int) -> datetime:
    """The moment; CodecError where the number is of none."""
    try:
        return _EPOCH + timedelta(microseconds=number)
    except (TypeError, OverflowError) as error:
        raise CodecError(f"a time that was kept cannot be read: {error}") from error
