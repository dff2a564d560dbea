"""Encodes and decodes what stores write: tasks, reports, answers and workers as JSON; times as microseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.codec import encode as encode_entry
from mulligan.core.model.events import Entry
from mulligan.core.model.reports import AnyReport, RunRequested
from mulligan.errors import CodecError
from mulligan.ports import Answer, WorkerRecord

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REQUEST = b'{"type":"RunRequested",'

encoded = msgspec.json.Encoder().encode


def entries_containing(entries: Iterable[Entry], any_of: tuple[str, ...], also: str) -> list[Entry]:
    """What `search_log` of a store gives that has its entries not as bytes."""
    texts, more = [text.encode() for text in any_of], also.encode()
    stored = ((entry, encode_entry(entry)) for entry in entries)
    return [entry for entry, data in stored if more in data and any(text in data for text in texts)]


@cache
def _decoder(of: Any) -> Callable[[Any], Any]:
    """Created on first use: a short run only writes."""
    return msgspec.json.Decoder(of).decode


def _read(of: Any, data: bytes, what: str) -> Any:
    """Decode stored data. CodecError if it was changed, or damaged by the disk."""
    try:
        return _decoder(of)(data)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise CodecError(f"{what} in the store cannot be read: {error}") from error


def report_from(data: bytes) -> AnyReport:
    # A short run reads its request and nothing else, and the decoder of all reports takes longer to create.
    is_request = isinstance(data, bytes) and data.startswith(_REQUEST)
    result: AnyReport = _read(RunRequested if is_request else AnyReport, data, "a message")
    return result


def task_from(data: bytes) -> Task:
    result: Task = _read(Task, data, "a task")
    return result


def answer_from(data: bytes) -> Answer:
    result: Answer = _read(Answer, data, "an answer")
    return result


def worker_from(data: bytes) -> WorkerRecord:
    result: WorkerRecord = _read(WorkerRecord, data, "the record of a worker")
    return result


def micros(moment: datetime) -> int:
    """The moment as a whole number of microseconds, exactly."""
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def moment_from(number: int) -> datetime:
    """The moment. CodecError if the number is out of range."""
    try:
        return _EPOCH + timedelta(microseconds=number)
    except (TypeError, OverflowError) as error:
        raise CodecError(f"a time in the store cannot be read: {error}") from error
