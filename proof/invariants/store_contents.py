"""What a store contains besides logs and state rows: tasks, timers, turns, inboxes, breakers, workers.

Read from the tables themselves (the same SQL for SQLite and PostgreSQL) or from the memory store's tables, never
through the store's methods, which are what is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from mulligan.core.state.transitions import RUN_ENDED
from mulligan.store.encoding import encoded, moment_from
from mulligan.testing.memory.memory_tables import MemoryTables, StoredRun, StoredTask
from proof.invariants.liveness import PendingWork

TaskKey = tuple[int, str, int]
TimerKey = tuple[int, str, str, int]


class RunRow(msgspec.Struct, frozen=True):
    """The row of a run: its status, and the holder of its turn."""

    run_id: int
    status: str
    round: int
    seq: int
    holder: str
    fence: int
    parent_run_id: int | None
    parent_place: str
    parent_attempt: int

    @property
    def has_ended(self) -> bool:
        return self.status in RUN_ENDED


class TaskRow(msgspec.Struct, frozen=True):
    """A task that is queued or, with a worker, leased: then the number is the token of the lease."""

    run_id: int
    place: str
    attempt: int
    number: int
    worker: str
    # The breaker that guards it, or "".
    breaker: str
    # Its worker was asked to end it.
    is_stopping: bool = False
    # For a program: which of the turns of its attempt it is.
    turn: int = 0

    @property
    def key(self) -> TaskKey:
        return self.run_id, self.place, self.attempt

    def __str__(self) -> str:
        return f"attempt {self.attempt} of '{self.place}' in run {self.run_id}"


class MessageRow(msgspec.Struct, frozen=True):
    id: int
    run_id: int
    is_asking: bool


class BreakerRow(msgspec.Struct, frozen=True):
    name: str
    status: str
    probe: int | None
    # In a row.
    failures: int = 0


class NoticeRow(msgspec.Struct, frozen=True):
    """A notice of the outbox: the event that it is about, as its body says."""

    run_id: int
    target: str
    kind: str
    seq: int
    key: str = ""
    status: str = "waiting"


class StoreContents(msgspec.Struct, frozen=True):
    """A snapshot of a store."""

    runs: dict[int, RunRow]
    tasks: list[TaskRow]
    timers: dict[TimerKey, datetime]
    messages: list[MessageRow]
    # Messages that were answered and whose answer was not fetched.
    answers: frozenset[int]
    breakers: list[BreakerRow]
    # The workers that are not expired, with their last heartbeats.
    workers: dict[str, datetime]
    notices: list[NoticeRow] = []

    def pending_work_of(self, run_id: int) -> PendingWork:
        """Return what is pending for one run."""
        return PendingWork(
            [(task.place, task.attempt) for task in self.tasks if task.run_id == run_id],
            [
                (run.parent_place, run.parent_attempt)
                for run in self.runs.values()
                # One that is asked for another round has ended until it reads that.
                if run.parent_run_id == run_id and (not run.has_ended or run.run_id in self.run_ids_with_messages)
            ],
            {key[1:]: due for key, due in self.timers.items() if key[0] == run_id},
        )

    def queued(self, run_id: int) -> list[tuple[str, int]]:
        """Return the run's tasks that are not leased."""
        return [(task.place, task.attempt) for task in self.tasks if task.run_id == run_id and not task.worker]

    @property
    def leases(self) -> list[TaskRow]:
        return [task for task in self.tasks if task.worker]

    @property
    def run_ids_with_messages(self) -> set[int]:
        """Return the runs that have messages in their inboxes."""
        return {message.run_id for message in self.messages}


# -- the tables of a database ----------------------------------------------------------------------------------------


class Answered(Protocol):
    def fetchall(self) -> Sequence[Any]: ...


class Connection(Protocol):
    """What `apsw.Connection` and `psycopg.Connection` have in common."""

    def execute(self, statement: str, /) -> Answered: ...


_RUNS = (
    "SELECT run_id, status, round, seq, holder, fence, parent_run_id, parent_place, parent_attempt "
    "FROM runs ORDER BY run_id"
)
_TASKS = "SELECT run_id, place, attempt, ticket, worker, breaker, is_stopping, task FROM tasks ORDER BY ticket"
_TIMERS = "SELECT run_id, kind, place, number, due FROM timers ORDER BY due, run_id, kind, place, number"
_MESSAGES = "SELECT id, run_id, is_asking FROM messages ORDER BY id"
_ANSWERS = "SELECT message_id FROM answers"
_BREAKERS = "SELECT name, status, probe, failures FROM breakers ORDER BY name"
_NOTICES = "SELECT run_id, target, body, key, status FROM notices ORDER BY id"
_WORKERS = "SELECT name, beat_at FROM workers ORDER BY name"


def read_tables(connection: Connection) -> StoreContents:
    """Read the tables with the checker's own connection. Consistent only within a snapshot transaction."""

    def rows(statement: str) -> Sequence[Any]:
        return connection.execute(statement).fetchall()

    return StoreContents(
        {row[0]: RunRow(*row) for row in rows(_RUNS)},
        [TaskRow(*(*row[:7], _turn(row[7]))) for row in rows(_TASKS)],
        {(run_id, kind, place, number): moment_from(due) for run_id, kind, place, number, due in rows(_TIMERS)},
        messages=[MessageRow(id_, run_id, bool(is_asking)) for id_, run_id, is_asking in rows(_MESSAGES)],
        answers=frozenset(id_ for (id_,) in rows(_ANSWERS)),
        breakers=[BreakerRow(*row) for row in rows(_BREAKERS)],
        workers={name: moment_from(beat_at) for name, beat_at in rows(_WORKERS)},
        notices=_notices(connection),
    )


def _notices(connection: Connection) -> list[NoticeRow]:
    return [_notice_row(*row) for row in connection.execute(_NOTICES).fetchall()]


def _notice_row(run_id: int, target: str, body: bytes, key: str, status: str) -> NoticeRow:
    said = msgspec.json.decode(bytes(body))
    # A notice about a schedule is about no event.
    return NoticeRow(run_id, target, said["event"], said.get("seq", 0), key, status)


# Every table, so that tables of later releases are included.
SQLITE_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
POSTGRES_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"


def table_values(connection: Connection, tables: str = SQLITE_TABLES) -> Iterator[bytes]:
    """Yield every text and binary value of every table, as bytes."""
    for (table,) in connection.execute(tables).fetchall():
        for row in connection.execute(f'SELECT * FROM "{table}"').fetchall():
            for value in row:
                if isinstance(value, str):
                    yield value.encode()
                elif isinstance(value, bytes | memoryview):
                    yield bytes(value)


# -- the tables of the store in memory --------------------------------------------------------------------------------


def read_memory(tables: MemoryTables) -> StoreContents:
    """Read the tables that memory stores share."""
    records = tables.kept_server_records
    return StoreContents(
        {run.run_id: _run_row(run) for run in tables.runs.values()},
        sorted((_task_row(row) for row in tables.tasks.values()), key=lambda task: task.number),
        {(*key,): due for key, due in tables.timers.items()},
        messages=[MessageRow(id_, row.message.run_id, row.message.is_asking) for id_, row in tables.messages.items()],
        answers=frozenset(tables.answers),
        breakers=[
            BreakerRow(name, one.status, one.probe, one.failures) for name, one in sorted(tables.breakers.items())
        ],
        workers={name: row.beat_at for name, row in sorted(tables.workers.items())},
        notices=[] if records is None else _notices(records.connection),
    )


def _run_row(run: StoredRun) -> RunRow:
    line = (run.run_id, run.status, run.round, run.seq, run.holder, run.fence, run.parent_run_id)
    return RunRow(*line, run.new.parent_place, run.new.parent_attempt)


def _task_row(row: StoredTask) -> TaskRow:
    breaker = "" if row.task.guard is None else row.task.guard.name
    turn = 0 if row.task.turn is None else row.task.turn.turn
    return TaskRow(*row.task_key, row.number, row.worker, breaker, row.is_stopping, turn)


class _Turn(msgspec.Struct):
    turn: int


class _TaskOfProgram(msgspec.Struct):
    turn: _Turn | None = None


def _turn(task: bytes) -> int:
    """Return which turn of a program a stored task is; 0 if it is none, as one that somebody has forged."""
    found = msgspec.json.decode(task, type=_TaskOfProgram).turn if task else None
    return 0 if found is None else found.turn


def memory_values(tables: MemoryTables) -> Iterator[bytes]:
    """Yield everything in the tables, as bytes."""
    for run in tables.runs.values():
        yield encoded((run.new, run.record(), run.log))
        for (kind, key), (tag, data) in run.rows.items():
            yield f"{kind} {key} {tag}".encode()
            yield data
    for row in (tables.messages, tables.answers, tables.breakers, tables.workers):
        yield encoded(list(row.values()))
    yield encoded([task.task for task in tables.tasks.values()])
    yield from (data for data, _ in tables.artifacts.values())
