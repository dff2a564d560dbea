"""Where a simulated world keeps its runs: the real stores, in memory; each `open` is one more process's connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import count
from pathlib import Path
from typing import Protocol

import apsw

from mulligan.ports import Clock, Store
from mulligan.store.memory import MemoryStore
from mulligan.store.memory_tables import MemoryTables
from mulligan.store.sqlite import SqliteStore
from mulligan.store.sqlite_file import SqliteFile, data_version
from mulligan.testing.fault_budget import StoreKind
from mulligan.testing.store_contents import (
    StoreContents,
    contents_of_memory,
    contents_of_tables,
    look_into_memory,
    look_into_tables,
)

LEASE_SECONDS = 30.0
_MEMORY_VFS = "memdb"
_names = count(1)


class Database(Protocol):
    """One world's store, seen from outside."""

    is_shared: bool

    def open(self, clock: Clock) -> Store:
        """A connection of somebody who goes by this clock."""

    def look(self) -> StoreContents: ...

    def leased(self) -> set[int]:
        """The tokens of all leases that there are."""

    def contents(self) -> Iterator[bytes]: ...

    def version(self) -> int:
        """A number that changes when anything was written."""

    def busy(self) -> AbstractContextManager[None]:
        """While it lasts somebody else writes, and takes too long for anybody to wait."""

    def close(self) -> None: ...


class InMemory:
    """The store in memory; `is_shared`: as a server that several hosts share."""

    def __init__(self, *, is_shared: bool = False) -> None:
        self.is_shared = is_shared
        self._tables = MemoryTables()

    def open(self, clock: Clock) -> Store:
        return MemoryStore(clock=clock, lease_seconds=LEASE_SECONDS, tables=self._tables, is_shared=self.is_shared)

    def look(self) -> StoreContents:
        return look_into_memory(self._tables)

    def leased(self) -> set[int]:
        return {kept.ticket for kept in self._tables.tasks.values() if kept.worker}

    def contents(self) -> Iterator[bytes]:
        return contents_of_memory(self._tables)

    def version(self) -> int:
        return self._tables.writes

    def busy(self) -> AbstractContextManager[None]:
        """Nobody is in anybody's way."""
        return nullcontext()

    def close(self) -> None:
        """Nothing is left of it when nobody has it."""


class InSqlite:
    """The store of one file, which is in memory as well."""

    is_shared = False

    def __init__(self) -> None:
        self._path = f"/world {next(_names)}"
        # As long as somebody has it open, it is there.
        self._db = apsw.Connection(self._path, vfs=_MEMORY_VFS)
        with self._db.backup("main", _empty(), "main") as copying:
            copying.step()
        self._free: list[SqliteFile] = []

    def open(self, clock: Clock) -> Store:
        return _Lent(self._path, self._free, clock)

    def look(self) -> StoreContents:
        return look_into_tables(self._db)

    def leased(self) -> set[int]:
        return {ticket for (ticket,) in self._db.execute("SELECT ticket FROM tasks WHERE worker <> ''")}

    def contents(self) -> Iterator[bytes]:
        return contents_of_tables(self._db)

    def version(self) -> int:
        return data_version(self._db.cursor())

    @contextmanager
    def busy(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            self._db.execute("ROLLBACK")

    def close(self) -> None:
        for file in self._free:
            file.close()
        self._db.close()


class _Lent(SqliteStore):
    """The real store. What it knows is its own; the connection below it was another's before, and will be again.

    To open one and to prepare all statements again takes a fifth of the time of a history.
    """

    def __init__(self, path: str, free: list[SqliteFile], clock: Clock) -> None:
        self._free = free
        super().__init__(path, clock=clock, lease_seconds=LEASE_SECONDS, busy_seconds=0.0, vfs=_MEMORY_VFS)

    def _open(self, path: Path, busy_seconds: float, vfs: str) -> SqliteFile:
        return self._free.pop() if self._free else super()._open(path, busy_seconds, vfs)

    def close(self) -> None:
        """Nobody says anything through it from now on."""
        if self._file.connection.in_transaction:
            raise AssertionError("promise 8: a connection is closed in the middle of a transaction")
        self._free.append(self._file)
        del self._file


@cache
def _empty() -> apsw.Connection:
    """A file with all its tables and nothing in them: to copy it takes a tenth of the time that it takes to make it."""
    path = f"/world {next(_names)}"
    db = apsw.Connection(path, vfs=_MEMORY_VFS)
    SqliteStore(path, vfs=_MEMORY_VFS).close()
    return db


DATABASES: dict[StoreKind, Callable[[], Database]] = {
    "memory": InMemory,
    "shared": lambda: InMemory(is_shared=True),
    "sqlite": InSqlite,
}
