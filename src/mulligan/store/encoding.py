"""What the stores write as bytes, and back: tasks, reports, answers, workers as JSON; moments as microseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from ..core.reports import AnyReport
from ..core.tasks import Task
from ..ports import Answer, WorkerRecord

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

encoded = msgspec.json.Encoder().encode
report_from = msgspec.json.Decoder(AnyReport).decode
task_from = msgspec.json.Decoder(Task).decode
answer_from = msgspec.json.Decoder(Answer).decode
worker_from = msgspec.json.Decoder(WorkerRecord).decode


def micros(moment: datetime) -> int:
    """The moment as a whole number of microseconds, exactly."""
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def moment_from(number: int) -> datetime:
    return _EPOCH + timedelta(microseconds=number)
