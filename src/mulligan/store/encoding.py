"""What the stores write as bytes, and back: tasks, reports, answers, workers as JSON; moments as microseconds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from ..core.reports import AnyReport
from ..core.tasks import Task
from ..ports import Answer, WorkerRecord

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

encoded = msgspec.json.Encoder().encode


@cache
def _decoder(of: Any) -> Callable[[Any], Any]:
    """Made when something of its kind is first read: a short run only writes."""
    return msgspec.json.Decoder(of).decode


def report_from(data: bytes) -> AnyReport:
    return _decoder(AnyReport)(data)


def task_from(data: bytes) -> Task:
    return _decoder(Task)(data)


def answer_from(data: bytes) -> Answer:
    return _decoder(Answer)(data)


def worker_from(data: bytes) -> WorkerRecord:
    return _decoder(WorkerRecord)(data)


def micros(moment: datetime) -> int:
    """The moment as a whole number of microseconds, exactly."""
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def moment_from(number: int) -> datetime:
    return _EPOCH + timedelta(microseconds=number)
