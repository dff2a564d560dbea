"""What the tests of the stores keep: small runs, tasks and turns, and a place where any store can be opened again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import psycopg
from psycopg.pq import ExecStatus

from mulligan.core.effects.tasks import Task
from mulligan.core.model import reports as r
from mulligan.core.model.events import Entry, RunPaused
from mulligan.core.model.workflow import encode, version
from mulligan.language import load_text
from mulligan.ports import Commit, Lease, NewRun, Offer, Store, Turn, WorkerRecord
from mulligan.store.postgres.postgres import PostgresStore
from mulligan.store.sqlite.sqlite import SqliteStore
from mulligan.testing.clock import START, JumpingClock
from mulligan.testing.memory.memory_store import MemoryStore
from mulligan.testing.memory.memory_tables import MemoryTables

T0 = START
LEASE_SECONDS = 30.0


# -- where stores are ------------------------------------------------------------------------------------------------


class Place(Protocol):
    """Where one kind of store keeps its data; each `open` is one more process, as far as the store can tell."""

    def open(self) -> Store: ...

    def now(self) -> datetime: ...

    def pass_time(self, seconds: float) -> None: ...


class Memory:
    def __init__(self) -> None:
        self.clock, self.tables = JumpingClock(), MemoryTables()
        self.now, self.pass_time = self.clock.now, self.clock.advance

    def open(self) -> Store:
        return MemoryStore(clock=self.clock, lease_seconds=LEASE_SECONDS, tables=self.tables)


class SqliteFolder:
    def __init__(self, folder: Path) -> None:
        self.clock, self.path = JumpingClock(), folder / "home" / "runs.db"
        self.now, self.pass_time = self.clock.now, self.clock.advance

    def open(self) -> Store:
        return SqliteStore(self.path, clock=self.clock, lease_seconds=LEASE_SECONDS)


class PostgresSchema:
    """The server's clock cannot be set: that time has passed is written into what was kept instead."""

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self) -> Store:
        return PostgresStore(self.url, lease_seconds=LEASE_SECONDS)

    def now(self) -> datetime:
        with psycopg.connect(self.url) as connection:
            ((now,),) = connection.execute("SELECT clock_timestamp()").fetchall()
        return now.astimezone(UTC)

    def pass_time(self, seconds: float) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute("UPDATE workers SET beat_at = beat_at - %s", [round(seconds * 1_000_000)])
            connection.execute("UPDATE timers SET due = due - %s", [round(seconds * 1_000_000)])
            connection.execute("UPDATE breakers SET retry_at = retry_at - %s", [round(seconds * 1_000_000)])


# -- what is kept ----------------------------------------------------------------------------------------------------


SOUND = "name: nightly\nsteps:\n  - step: build\n    shell: echo built\n"


def worker(name: str = "w", host: str = "here", **fields: Any) -> WorkerRecord:
    return WorkerRecord(name, host, 4711, **fields)


def new_run(name: str = "nightly", **fields: Any) -> NewRun:
    return NewRun(b'{"name":"nightly"}', "v1", name, r.RunRequested(T0, 0, {"a": 1}, by="somebody"), **fields)


def sound_run(text: str = SOUND, inputs: dict[str, Any] | None = None, **fields: Any) -> NewRun:
    """A run whose definition can be run, as a client prepares it."""
    workflow = load_text(text)
    data = encode(workflow)
    request = r.RunRequested(T0, 0, inputs or {}, version(data), by="somebody", uid="0" * 12)
    return NewRun(data, version(data), workflow.name, request, **fields)


def task(run_id: int, place: str = "build", attempt: int = 1, **fields: Any) -> Task:
    return Task(run_id, place, attempt, "shell", {"text": "true"}, "nightly", "v1", place, 1, **fields)


def offer(**fields: Any) -> Offer:
    whole: dict[str, Any] = {"cpus": 64, "memory": 2**40, "gpus": 8, "labels": (), "host": "here", "tasks_max": 99}
    return Offer(**{**whole, **fields})


def entries(after: int, count: int = 1) -> list[Entry]:
    return [Entry(seq, T0 + timedelta(seconds=seq), 0, RunPaused()) for seq in range(after + 1, after + count + 1)]


def commit(turn: Turn, after: int = 0, events: int = 1, **fields: Any) -> Commit:
    """A turn that writes `events` entries behind `after`."""
    line: dict[str, Any] = {"status": "running", "round": 1, "at": T0, "rows": ()}
    return Commit(turn=turn, after=after, entries=entries(after, events), **{**line, **fields})


def started(store: Store, *, holder: str = "w", **fields: Any) -> Turn:
    """The turn of a new run whose request was read; its holder is registered."""
    if holder not in {known.name for known in store.workers()}:
        store.register(worker(holder))
    (turn,) = store.create([new_run(**fields)], holder)
    store.commit([commit(turn, 0, 0, drained=[(message.id, None) for message in store.inbox([turn.run_id])])])
    return turn


def reports(store: Store, run_id: int) -> list[r.Report]:
    return [message.report for message in store.inbox([run_id])]


def queue(store: Store, turn: Turn, *tasks: Task) -> None:
    store.commit([commit(turn, store.run(turn.run_id).seq, 0, queued=tasks)])


def take(store: Store, turn: Turn, *tasks: Task) -> Sequence[Lease]:
    (done,) = store.commit([commit(turn, store.run(turn.run_id).seq, 0, taken=tasks)])
    return done.leases


def has_news(store: Store) -> bool:
    """Whether there is news among all that was written so far; for the next question all of it is old.

    A notification comes some time after it was sent, but before the answer to a statement that the connection that
    listens sends after it: so an empty one is sent first.
    """
    if isinstance(store, PostgresStore):
        answer = store._client._listening().pgconn.exec_(b"")
        assert answer.status == ExecStatus.EMPTY_QUERY
    return store.has_changes()


def ended(place: str = "build", attempt: int = 1) -> r.TaskEnded:
    return r.TaskEnded(T0, place, attempt, output="done")


Open = Callable[[], Store]
