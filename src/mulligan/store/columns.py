"""Checks the columns of rows that another program may have written: a wrong type is an error with a message.

SQLite accepts any value in any column. PostgreSQL checks types, but not the words that a status may be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

import msgspec

from mulligan.core.deciding.workers.breaker import Circuit
from mulligan.core.effects.run_lists import Attribute, LeasedTask, OpenTasks, OpenTimer, QueuedShape
from mulligan.core.model.reports import AnyReport, Unreadable
from mulligan.errors import CodecError
from mulligan.ports import BreakerRecord, Lease, Message, RunRecord, StopRequest, Turn, WaitingPlace
from mulligan.store.encoding import moment_from, report_from, task_from

_RunStatus = Literal["new", "running", "paused", "completed", "failed", "cancelled"]
_Flag = bool | Literal[0, 1]
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


Record = TypeVar("Record", bound=msgspec.Struct)


class Columns:
    """The columns of one kind of row, in the order in which a statement selects them."""

    def __init__(self, what: str, **types: Any) -> None:
        self._what = what
        self._types = types

    @cached_property
    def _row(self) -> type[msgspec.Struct]:
        """A struct: what a tuple of types means would be worked out anew for every row. A command reads few kinds."""
        return msgspec.defstruct("Row", list(self._types.items()), array_like=True, forbid_unknown_fields=True)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._types)

    def read(self, row: Sequence[Any]) -> tuple[Any, ...]:
        """The row. CodecError if a column has a value of the wrong type."""
        try:
            values = msgspec.structs.astuple(msgspec.convert(row, self._row))
        except msgspec.ValidationError as error:
            raise CodecError(f"{self._what} in the store cannot be read: {self._reason(row)}") from error
        return values

    def guess(self, row: Sequence[Any], **others: Any) -> dict[str, Any]:
        """The row as far as its columns have values of the right type; in place of the rest, these others."""
        found = dict(others)
        for (name, type_), value in zip(self._types.items(), row, strict=False):
            with suppress(msgspec.ValidationError):
                found[name] = msgspec.convert(value, type_)
        return found

    def _reason(self, row: Sequence[Any]) -> str:
        """The first column that does not fit, and why."""
        for (name, type_), value in zip(self._types.items(), row, strict=False):
            try:
                msgspec.convert(value, type_)
            except msgspec.ValidationError as error:
                return f"column '{name}': {error}"
        return f"it has {len(row)} columns"


def due_from(due_at: int | None) -> datetime | None:
    return moment_from(due_at) if due_at else None


# The types of times in a record: what reads them from the store, and what they are there.
_TIMES: dict[Any, Callable[[Any], Any]] = {datetime: moment_from, datetime | None: due_from}
_STORED_TIMES: dict[Any, Any] = {datetime: int, datetime | None: int | None}


class Records(Generic[Record]):
    """Rows that are records: a column has the name and the type of a field, and a time is a number.

    `texts` are the columns that are bytes in the store, each with what reads them.
    """

    def __init__(self, what: str, of: type[Record], columns: str, **texts: Callable[[bytes], Any]) -> None:
        self._what, self._of, self._names, self._texts = what, of, columns.split(), texts

    @cached_property
    def _columns_and_readers(self) -> tuple[Columns, dict[str, Callable[[Any], Any]]]:
        """The columns as they are stored, and what reads those that are stored as something else."""
        types = {field.name: field.type for field in msgspec.structs.fields(self._of) if field.name in self._names}
        readers = {name: _TIMES[type_] for name, type_ in types.items() if type_ in _TIMES} | self._texts
        times = {name: _STORED_TIMES[type_] for name, type_ in types.items() if type_ in _STORED_TIMES}
        stored = types | times | dict.fromkeys(self._texts, bytes)
        return Columns(self._what, **{name: stored[name] for name in self._names}), readers

    def read(self, row: Sequence[Any]) -> Record:
        columns, readers = self._columns_and_readers
        found = dict(zip(self._names, columns.read(row), strict=True))
        for name, read in readers.items():
            found[name] = read(found[name])
        return self._of(**found)


_RUN = Columns(
    "the row of a run",
    run_id=int,
    workflow=str,
    version=str,
    status=_RunStatus,
    round=int,
    seq=int,
    created_at=int,
    updated_at=int,
    degraded=_Flag,
    reason=str,
    parent_run_id=int | None,
    parent_place=str,
    parent_attempt=int,
    root_run_id=int,
    holder=str,
    started_by=str,
    project=str,
)
# As statements select them.
RUN_COLUMNS = _RUN.names
_KEPT = Columns("a row of the tables", run_id=int, key=str, data=bytes)
_LATELY = Columns("a row of the tables", run_id=int, data=bytes)
_TAGGED = Columns("a row of the tables", run_id=int, status=str, key=str, data=bytes)
_BREAKER = Columns(
    "a breaker",
    name=str,
    status=Literal["closed", "open", "half_open"],
    failures=int,
    retry_at=int | None,
    waiting=int,
    running=int,
    max_running=int | None,
)
_CIRCUIT = Columns(
    "a breaker",
    name=str,
    status=Literal["closed", "open", "half_open"],
    failures=int,
    retry_at=int | None,
    probe=int | None,
    max_running=int | None,
)
_MESSAGE = Columns("a message", id=int, run_id=int, report=bytes, is_asking=_Flag)
_TIMER = Columns("a timer", run_id=int, kind=str, place=str, number=int)
_QUEUED = Columns("a task", place=str, attempt=int)
_LEASED = Columns("a task", task=bytes, ticket=int)
_STOPPED = Columns("a task", ticket=int, grace_seconds=float | None)
_ATTRIBUTE = Columns("an attribute of a run", run_id=int, kind=Literal["input", "label"], name=str, value=str)
_QUEUED_SHAPE = Columns(
    "a task", cpus=float, memory=int, gpus=int, labels=str, nodes=int, timeout=float | None, count=int
)
_TURN = Columns("the row of a run", run_id=int, fence=int)


def run_from(row: Sequence[Any]) -> RunRecord:
    """The row of a run. One that cannot be read does not hide the others: it says so, and counts as ended."""
    try:
        return whole_run_from(row)
    except CodecError as error:
        return _damaged_run(row, error.message)


def whole_run_from(row: Sequence[Any]) -> RunRecord:
    """The row of a run. CodecError if it cannot be read."""
    run_id, workflow, version, status, round_, seq, created, updated, degraded, *rest = _RUN.read(row)
    moments = (moment_from(created), moment_from(updated))
    return RunRecord(run_id, workflow, version, status, round_, seq, *moments, bool(degraded), *rest)


def _damaged_run(row: Sequence[Any], damage: str) -> RunRecord:
    run_id = row[0] if isinstance(row[0], int) else 0
    # A project that cannot be read is no project of anybody.
    neutral = {"workflow": "?", "version": "", "status": "failed", "round": 1, "seq": 0, "root_run_id": run_id}
    found = _RUN.guess(row, **neutral, project="?", created_at=0, updated_at=0, degraded=False)
    moments = dict.fromkeys(("created_at", "updated_at"), _NO_TIME)
    for name in moments:
        with suppress(CodecError):
            moments[name] = moment_from(found[name])
    return RunRecord(**{**found, **moments, "run_id": run_id, "degraded": bool(found["degraded"]), "damage": damage})


def breaker_from(row: Sequence[Any]) -> BreakerRecord:
    name, status, failures, retry_at, *counts = _BREAKER.read(row)
    return BreakerRecord(name, status, failures, _retry_at(status, retry_at), *counts)


def _retry_at(status: str, retry_at: int | None) -> datetime | None:
    if retry_at is None and status == "open":
        raise CodecError("a breaker in the store cannot be read: it is open and has no time of its next probe")
    return None if retry_at is None else moment_from(retry_at)


def attribute_from(row: Sequence[Any]) -> tuple[int, Attribute]:
    run_id, kind, name, value = _ATTRIBUTE.read(row)
    return run_id, (kind, name, value)


def queued_shape_from(row: Sequence[Any]) -> QueuedShape:
    cpus, memory, gpus, labels, nodes, timeout, count = _QUEUED_SHAPE.read(row)
    return QueuedShape(cpus, memory, gpus, nodes, tuple(msgspec.json.decode(labels, type=list[str])), timeout, count)


def stopped_from(row: Sequence[Any]) -> StopRequest:
    return StopRequest(*_STOPPED.read(row))


def message_from(row: Sequence[Any]) -> Message:
    id_, run_id, data, is_asking = _MESSAGE.read(row)
    report: AnyReport
    try:
        report = report_from(data)
    except CodecError as error:
        # The run says so when it takes it up: one message must not keep an engine from all others.
        report = Unreadable(_NO_TIME, error.message)
    return Message(id_, run_id, report, bool(is_asking))


def lease_from(row: Sequence[Any], worker: str) -> Lease:
    task, token = _LEASED.read(row)
    return Lease(task_from(task), worker, token)


def turn_from(row: Sequence[Any], holder: str) -> Turn:
    run_id, fence = _TURN.read(row)
    return Turn(run_id, holder, fence)


def circuit_from(row: Sequence[Any]) -> tuple[str, Circuit]:
    """The name of a breaker and its state."""
    name, status, failures, retry_at, probe, max_running = _CIRCUIT.read(row)
    return name, Circuit(status, failures, _retry_at(status, retry_at), probe, max_running)


waiting_from = Records("a row of what waits for a person", WaitingPlace, "run_id place kind root_run_id").read
open_tasks_from = Records("a task", OpenTasks, "root_run_id run_id place attempt worker breaker count").read
open_timer_from = Records("a timer", OpenTimer, "root_run_id run_id kind place due count").read
leased_task_from = Records("a task", LeasedTask, "worker run_id workflow place attempt cpus memory gpus leased_at").read

# Rows that need no conversion.
kept_row, lately_row, timer_row, queued_row = _KEPT.read, _LATELY.read, _TIMER.read, _QUEUED.read
tagged_row = _TAGGED.read
