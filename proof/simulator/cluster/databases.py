"""The stores of a simulated cluster: real stores, in memory. Each `open` is the connection of one more process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import count
from pathlib import Path
from typing import Protocol

import apsw

from mulligan.ports import Clock, Store
from mulligan.store.sqlite.sqlite import SqliteStore
from mulligan.store.sqlite.sqlite_file import SqliteFile, data_version
from mulligan.testing.memory.memory_store import MemoryStore
from mulligan.testing.memory.memory_tables import MemoryTables
from proof.invariants.store_contents import StoreContents, memory_values, read_memory, read_tables, table_values
from proof.simulator.fault_budget import StoreKind

LEASE_SECONDS = 30.0
_MEMORY_VFS = "memdb"
_names = count(1)


class Database(Protocol):
    """The store of one cluster, seen from outside."""

    is_shared: bool

    def open(self, clock: Clock) -> Store:
        """Open a connection for a process with this clock."""

    def read_contents(self) -> StoreContents: ...

    def lease_tokens(self) -> set[int]:
        """Return the tokens of all leases."""

    def count_messages(self) -> int:
        """Return how many messages are in all inboxes."""

    def answered(self) -> set[int]:
        """Return the messages whose answers are there."""

    def raw_values(self) -> Iterator[bytes]: ...

    def version(self) -> int:
        """Return a number that changes with every write."""

    def hold_lock(self) -> AbstractContextManager[None]:
        """Hold the write lock, for longer than anything waits."""

    def close(self) -> None: ...


class MemoryDatabase:
    """The memory store; `is_shared`: like a server that several hosts share."""

    def __init__(self, *, is_shared: bool = False) -> None:
        self.is_shared = is_shared
        self._shelf = MemoryTables()

    def open(self, clock: Clock) -> Store:
        return MemoryStore(clock=clock, lease_seconds=LEASE_SECONDS, tables=self._shelf, is_shared=self.is_shared)

    def read_contents(self) -> StoreContents:
        return read_memory(self._shelf)

    def lease_tokens(self) -> set[int]:
        return {kept.number for kept in self._shelf.tasks.values() if kept.worker}

    def count_messages(self) -> int:
        return len(self._shelf.messages)

    def answered(self) -> set[int]:
        return set(self._shelf.answers)

    def raw_values(self) -> Iterator[bytes]:
        return memory_values(self._shelf)

    def version(self) -> int:
        return self._shelf.writes

    def hold_lock(self) -> AbstractContextManager[None]:
        """The memory store has no locks."""
        return nullcontext()

    def close(self) -> None:
        """Nothing to close."""


class SqliteDatabase:
    """The SQLite store, with a file that is in memory too."""

    is_shared = False

    def __init__(self) -> None:
        self._path = f"/cluster {next(_names)}"
        # The file exists while this connection is open.
        self._db = apsw.Connection(self._path, vfs=_MEMORY_VFS)
        with self._db.backup("main", _empty_file(), "main") as copying:
            copying.step()
        self._free: list[SqliteFile] = []

    def open(self, clock: Clock) -> Store:
        return _PooledStore(self._path, self._free, clock)

    def read_contents(self) -> StoreContents:
        return read_tables(self._db)

    def lease_tokens(self) -> set[int]:
        return {ticket for (ticket,) in self._db.execute("SELECT ticket FROM tasks WHERE worker <> ''")}

    def count_messages(self) -> int:
        return len(self._db.execute("SELECT id FROM messages").fetchall())

    def answered(self) -> set[int]:
        return {id_ for (id_,) in self._db.execute("SELECT message_id FROM answers")}

    def raw_values(self) -> Iterator[bytes]:
        return table_values(self._db)

    def version(self) -> int:
        return data_version(self._db.cursor())

    @contextmanager
    def hold_lock(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            self._db.execute("ROLLBACK")

    def close(self) -> None:
        for file in self._free:
            file.close()
        self._db.close()


class _PooledStore(SqliteStore):
    """The real store, over a connection that other stores have used and will use again.

    Opening one and preparing all statements takes a fifth of the time of a history.
    """

    def __init__(self, path: str, free: list[SqliteFile], clock: Clock) -> None:
        self._free = free
        super().__init__(path, clock=clock, lease_seconds=LEASE_SECONDS, busy_seconds=0.0, vfs=_MEMORY_VFS)

    def _open(self, path: Path, busy_seconds: float, vfs: str) -> SqliteFile:
        return self._free.pop() if self._free else super()._open(path, busy_seconds, vfs)

    def close(self) -> None:
        """Return the connection to the pool."""
        if self._file.connection.in_transaction:
            raise AssertionError("promise 8: a connection is closed in the middle of a transaction")
        self._free.append(self._file)
        del self._file, self._db


@cache
def _empty_file() -> apsw.Connection:
    """Return a file with empty tables: copying it takes a tenth of the time of creating it."""
    path = f"/cluster {next(_names)}"
    db = apsw.Connection(path, vfs=_MEMORY_VFS)
    SqliteStore(path, vfs=_MEMORY_VFS).close()
    return db


DATABASES: dict[StoreKind, Callable[[], Database]] = {
    "memory": MemoryDatabase,
    "shared": lambda: MemoryDatabase(is_shared=True),
    "sqlite": SqliteDatabase,
}
