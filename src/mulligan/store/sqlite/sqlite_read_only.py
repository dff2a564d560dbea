"""A SQLite file that can be read and not written: what it holds is shown, every change is refused.

To read a file in WAL mode, SQLite needs two more files beside it, which it cannot make there. If they are there, as a
process has the file open or died with it, SQLite reads it as always, beside any writer. Otherwise it is read without
locks: as it is, or with what is left in its log. If another process, which may write where we may not, changes it
meanwhile, it is opened again and read once more, so that no answer mixes two states.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

import apsw

from mulligan.errors import MulliganError, StoreUnavailable
from mulligan.store.read_only import older_read_only, read_only
from mulligan.store.sqlite.sqlite_file import SqliteFile, fetch_all
from mulligan.store.statements import missing

Result = TypeVar("Result")

# How often a read is tried while another process writes the file.
_TRIES = 20
# Above any number of changes that one connection sees.
_OPENINGS = 1 << 32


def connect_to_read(path: str) -> tuple[apsw.Connection, bool]:
    """A connection that only reads, and whether SQLite protects it from writers."""
    if os.path.exists(f"{path}-wal") and os.path.exists(f"{path}-shm"):
        try:
            db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
            db.pragma("user_version")
            return db, True
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            pass  # they may not be ours to read
    if _size(f"{path}-wal"):
        # Its log is read into memory, without the file that processes would share.
        db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY, vfs="unix-none")
        db.pragma("locking_mode", "exclusive")
        return db, False
    uri = f"file:{quote(os.path.abspath(path))}?immutable=1"
    return apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI), False


class ReadOnlyFile(SqliteFile):
    """A connection that reads a file, and refuses everything else."""

    _openings = 0

    def _connect(self, vfs: str) -> apsw.Connection:
        self._openings += 1
        # Before it is opened: what changes from now on is noticed.
        self._files = _state(self._name)
        db, self._is_guarded = connect_to_read(self._name)
        return db

    def _prepare(self) -> None:
        try:
            fetch_all(self.cursor, "PRAGMA trusted_schema = OFF")
            found = self._configure()
        except apsw.Error as error:
            self._translate(error)
        if missing("sqlite", found, f"'{self.path}'"):
            raise older_read_only(self.path.parent)

    def version(self) -> int:
        self._reopen_if_changed()
        return super().version() + self._openings * _OPENINGS

    def read(self, sql: str, /, *params: Any, **named: Any) -> list[Any]:
        return self._of_one_state(lambda: SqliteFile.read(self, sql, *params, **named))

    def query(self, name: str, /, *params: Any, **named: Any) -> list[Any]:
        return self._of_one_state(lambda: SqliteFile.query(self, name, *params, **named))

    def read_snapshot(self, work: Callable[[], Result]) -> Result:
        return self._of_one_state(lambda: SqliteFile.read_snapshot(self, work))

    def write(self, work: Callable[[], Result]) -> Result:
        raise read_only(self.path.parent)

    def _of_one_state(self, read: Callable[[], Result]) -> Result:
        for _ in range(_TRIES):
            self._reopen_if_changed()
            try:
                found = read()
            except MulliganError:
                if self._is_changed():
                    continue
                raise
            if not self._is_changed():
                return found
        raise StoreUnavailable(
            f"'{self.path}' is written by another process all the time, and cannot be locked from here",
            hint="try again, or read it where it can be written",
        )

    def _is_changed(self) -> bool:
        return not self._is_guarded and _state(self._name) != self._files

    def _reopen_if_changed(self) -> None:
        if self._is_changed():
            self.connection.close()
            try:
                self.connection = self._connect("")
            except apsw.Error as error:
                self._translate(error)
            self.cursor = self.connection.cursor()
            self._prepare()


def _state(path: str) -> tuple[object, ...]:
    """What differs when another process has written the file or its log."""
    return tuple(_stat(name) for name in (path, f"{path}-wal"))


def _stat(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
