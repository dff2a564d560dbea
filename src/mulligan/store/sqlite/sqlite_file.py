"""One SQLite file: opening, migrating, transactions, and translating its errors."""

from __future__ import annotations

import errno
import os
import time

# Not from `threading`, which takes a command a millisecond to import.
from _thread import RLock
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import apsw

from mulligan.errors import MulliganError, StoreRefused, StoreUnavailable
from mulligan.ports import TableSize
from mulligan.store.encoding import encoded
from mulligan.store.read_only import read_only
from mulligan.store.sql.sql_arrays import Array, Columns
from mulligan.store.sql.sql_database import Statement
from mulligan.store.statements import SEARCH, SQLITE_NEEDED, missing, statements

Result = TypeVar("Result")

SQL = statements("sqlite")

# "MULL": identifies our files to `file` and to us.
_APPLICATION_ID = 0x4D554C4C

_AGAIN_SECONDS = 0.005

# Of each file that this process has opened: who writes has it.
_WRITERS: dict[str, RLock] = {}

_SETTINGS = (
    # The file may come from someone else: its schema must not call functions with side effects.
    "PRAGMA trusted_schema = OFF",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    # Larger than the default: a checkpoint costs two fsyncs, and a turn changes about six pages.
    "PRAGMA wal_autocheckpoint = 2000",
    "PRAGMA cache_size = -8000",
)


def iterate(db: apsw.Cursor, sql: str, *params: Any) -> Iterator[Any]:
    """The rows of a statement, one by one, inside the caller's transaction."""
    return iter(db.execute(sql, params))


def fetch_all(db: apsw.Cursor, sql: str, *params: Any) -> list[Any]:
    """The rows of a statement, inside the caller's transaction."""
    return db.execute(sql, params).fetchall()


def data_version(db: apsw.Cursor) -> int:
    """A number that changes when another connection has written."""
    # Not Connection.data_version(): that one changes with our own commits as well.
    version: int = fetch_all(db, "PRAGMA data_version")[0][0]
    return version


def admit(db: apsw.Connection) -> None:
    """Give a connection the function that whoever commits turns and leases tasks must have. Nothing calls it."""
    db.create_scalar_function(SQLITE_NEEDED, lambda *_: None, 0, flags=apsw.SQLITE_INNOCUOUS)


class SqliteFile:
    """A connection to the file. A process may have several; each belongs to one thread."""

    def __init__(self, path: Path, busy_seconds: float, vfs: str = "") -> None:
        self.path = path
        # A text: a path is turned into one at every use.
        self._name = str(path)
        self._turn = _WRITERS.setdefault(os.path.realpath(path), RLock())
        self._busy_seconds = busy_seconds
        try:
            self.connection = self._connect(vfs)
        except UnicodeEncodeError as error:
            message = f"'{path}' cannot be opened: its name is not valid Unicode"
            raise StoreRefused(message, hint=_OTHER_PLACE) from error
        except (apsw.Error, OSError) as error:
            raise self._cannot_open(error) from error
        self._opened = None if vfs else _identity(self._name)
        # One cursor for everything: a new one would cost as much as a small statement.
        self.cursor = self.connection.cursor()
        try:
            self._prepare()
        except BaseException:
            self.connection.close()
            raise

    def close(self) -> None:
        try:
            self.connection.close()
        except apsw.Error as error:
            self._translate(error)

    @property
    def is_in_place(self) -> bool:
        """Whether the file at our path is still the one that we have open."""
        return self._opened is None or self._opened == _identity(self._name)

    # -- use

    def version(self) -> int:
        """A number that changes when another connection has written."""
        try:
            return data_version(self.cursor)
        except apsw.Error as error:
            self._translate(error)

    def read(self, sql: str, /, *params: Any, **named: Any) -> list[Any]:
        """The rows of one statement, in its own transaction."""
        try:
            return self.cursor.execute(sql, named or params).fetchall()
        except apsw.Error as error:
            self._translate(error)

    def query(self, name: str, /, *params: Any, **named: Any) -> list[Any]:
        """The rows of one statement, in its own transaction."""
        try:
            return self.cursor.execute(SQL[name], _bound(named or params)).fetchall()
        except apsw.Error as error:
            self._translate(error)

    def execute(self, name: str, /, *params: Any, **named: Any) -> list[Any]:
        """The rows of one statement, inside the current transaction."""
        return self.cursor.execute(SQL[name], _bound(named or params)).fetchall()

    def iterate(self, name: str, /, *params: Any) -> Iterator[Any]:
        """The rows of a statement, one by one, inside the current transaction."""
        return iter(self.cursor.execute(SQL[name], _bound(params)))

    def execute_rows(self, name: str, /, columns: Columns, rows: Iterable[Sequence[Any]]) -> int:
        """Write these rows, inside the current transaction; how many were written, if the statement returns them."""
        return len(self.execute_each(name, rows))

    def execute_each(self, name: str, rows: Iterable[Sequence[Any]]) -> list[Any]:
        """Execute a statement for each of these rows, inside the current transaction; what it returns."""
        return self.cursor.executemany(SQL[name], rows).fetchall()

    def execute_batch(self, asked: Sequence[Statement]) -> list[list[Any]]:
        """The rows of each statement, in one transaction."""
        return self.write(
            lambda: [
                self.execute(name, **given) if isinstance(given, dict) else self.execute(name, *given)
                for name, given in asked
            ]
        )

    def read_snapshot(self, work: Callable[[], Result]) -> Result:
        """Run `work` in a read transaction: it sees one snapshot."""
        return self._transact("BEGIN", work)

    def write(self, work: Callable[[], Result]) -> Result:
        """Run `work` in a write transaction: all of it is durable afterwards, or nothing."""
        # Threads of one process wait for each other here: SQLite would let them sleep, and try again too late.
        if not self._turn.acquire(timeout=self._busy_seconds):
            self._translate(apsw.BusyError())
        try:
            return self._transact("BEGIN IMMEDIATE", work)
        finally:
            self._turn.release()

    def write_rows(self, name: str, columns: Columns, rows: Iterable[Sequence[Any]]) -> int:
        """Write these rows in a transaction of their own; how many were written, if the statement returns them."""
        return self.write(lambda: self.execute_rows(name, columns, rows))

    def lock(self, what: str) -> None:
        """Nothing to do: only one transaction writes at a time."""

    def table_sizes(self) -> list[TableSize]:
        sizes = dict(self.query("table_bytes"))
        names = [name for (name,) in self.query("tables")]
        counts = {name: self.read(f'SELECT count(*) FROM "{name}"')[0][0] for name in names}
        return [TableSize(name, counts[name], sizes.get(name, 0)) for name in names]

    def _transact(self, begin: str, work: Callable[[], Result]) -> Result:
        cursor = self.cursor
        try:
            cursor.execute(begin)
            found = work()
            cursor.execute("COMMIT")
            return found
        except BaseException as error:
            self._roll_back()
            if isinstance(error, apsw.Error):
                self._translate(error)
            raise

    def _roll_back(self) -> None:
        # After a full disk SQLite may have rolled back already, and reports that as an error.
        with suppress(apsw.Error):
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    # -- opening

    def _connect(self, vfs: str) -> apsw.Connection:
        if not vfs:
            _create_private(self.path)
        return apsw.Connection(self._name, vfs=vfs or None)

    def _configure(self) -> int:
        """Set up the connection; the version of the schema."""
        self.connection.set_busy_timeout(int(self._busy_seconds * 1000))
        # Query plans must not depend on bound values: otherwise a statement that could use a partial index is
        # prepared again for every value, which takes forty times as long as the statement.
        self.connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        found, application, is_empty = self._retry_while_busy(self._look)
        if application != _APPLICATION_ID and not is_empty:
            raise StoreRefused(f"'{self.path}' is a database of another program", hint=_OTHER_FILE)
        return found

    def _prepare(self) -> None:
        try:
            admit(self.connection)
            if self.connection.readonly("main"):
                raise apsw.ReadOnlyError
            found = self._configure()
            for setting in _SETTINGS:
                self._retry_while_busy(partial(fetch_all, self.cursor, setting))
        except apsw.Error as error:
            self._translate(error)
        if missing("sqlite", found, f"'{self.path}'"):
            self.write(self._migrate)

    def _look(self) -> tuple[int, int, bool]:
        """Schema version, application id, and whether the file is empty.

        They are read in one snapshot, since another process may be creating the file.
        """
        self.connection.execute("BEGIN")
        try:
            is_empty = not self.connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
            return self.connection.pragma("user_version"), self.connection.pragma("application_id"), is_empty
        finally:
            self.connection.execute("ROLLBACK")

    def _retry_while_busy(self, work: Callable[[], Result]) -> Result:
        """Retry `work`: if two processes create the file at once, SQLite does not wait for the switch to WAL."""
        until = time.monotonic() + self._busy_seconds
        while True:
            try:
                return work()
            except apsw.BusyError:
                if time.monotonic() > until:
                    raise
                time.sleep(_AGAIN_SECONDS)

    def _migrate(self) -> None:
        """Apply missing migrations. Checked again under the lock: another process may have been first."""
        for migration in missing("sqlite", self.connection.pragma("user_version"), f"'{self.path}'"):
            self.cursor.execute(migration.sql)
            if migration.number == SEARCH:
                from mulligan.store.sql.sql_backfill import backfill_search

                backfill_search(self)
            self.connection.pragma("user_version", migration.number)
        self.connection.pragma("application_id", _APPLICATION_ID)

    # -- trouble

    def _cannot_open(self, error: Exception) -> MulliganError:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        return StoreRefused(f"'{self.path}' cannot be opened: {_small(reason)}", hint=_OTHER_PLACE)

    def _translate(self, error: apsw.Error) -> NoReturn:
        raise self._to_our_error(error) from error

    def _to_our_error(self, error: apsw.Error) -> MulliganError:
        path = self.path
        match error:
            case apsw.BusyError() | apsw.LockedError():
                locked = StoreUnavailable(
                    f"'{path}' has been locked by another process for more than {self._busy_seconds:g}s",
                    hint=f"wait and try again, or find the process: fuser '{path}'",
                )
                locked.is_locked = True
                return locked
            case apsw.FullError():
                return StoreUnavailable(f"the disk is full: '{path}' cannot be written", hint="free space on its disk")
            case apsw.NotADBError():
                return StoreRefused(f"'{path}' is not a database", hint=_OTHER_FILE)
            case apsw.CorruptError():
                return StoreRefused(f"'{path}' is damaged: {error}", hint=_OTHER_COPY)
            case apsw.CantOpenError():
                return self._cannot_open(error)
            case apsw.ReadOnlyError() | apsw.PermissionsError():
                return read_only(path.parent)
            case apsw.IOError() if _is_full(path.parent):
                # Not even the file for its locks can be created; SQLite does not say why.
                return self._to_our_error(apsw.FullError())
            case apsw.IOError():
                return StoreUnavailable(f"'{path}' cannot be read or written: {error}", hint=_LOOK)
            case apsw.SQLError():
                # The tables were changed: waiting does not help.
                message = f"'{path}' does not have the tables that this Mulligan expects: {error}"
                return self._migrated_meanwhile() or StoreRefused(message, hint=_OTHER_COPY)
        return StoreUnavailable(f"'{path}' does not answer: {error}")

    def _migrated_meanwhile(self) -> MulliganError | None:
        """The error for a file that a newer Mulligan has migrated since we opened it; None for another cause."""
        try:
            missing("sqlite", self.connection.pragma("user_version"), f"'{self.path}'")
        except StoreRefused as newer:
            return newer
        except apsw.Error:
            pass
        return None


def _bound(given: Any) -> Any:
    """Parameters as SQLite takes them: an array is a list in JSON."""
    if isinstance(given, dict):
        return {name: _json(value) if isinstance(value, Array) else value for name, value in given.items()}
    for value in given:
        if isinstance(value, Array):
            return [_json(value) if isinstance(value, Array) else value for value in given]
    return given


def _json(array: Array) -> str:
    return encoded(array.values).decode()


_LOOK = "check its disk: it may be full"
_OTHER_COPY = "restore it from a copy, or use another --home"
_OTHER_FILE = "name a file that does not exist yet, or one that Mulligan has created"
_OTHER_PLACE = "name a folder that you can write to, with --home or $MULLIGAN_HOME"


def _is_full(folder: Path) -> bool:
    try:
        return os.statvfs(folder).f_bavail == 0
    except OSError:
        return False


def _small(reason: str) -> str:
    return reason[:1].lower() + reason[1:]


def _identity(path: str) -> tuple[int, int] | None:
    """Device and inode of the file at `path`; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _create_private(path: Path) -> None:
    """Create the file and its folder for this user only: the outputs of a run are private."""
    if path.exists():
        return
    if not path.parent.is_dir():
        _create_folder(path.parent)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _create_folder(folder: Path) -> None:
    """Create the folder and its parents: a user who can write into one of them could replace our file."""
    if not os.path.lexists(folder.parent):
        _create_folder(folder.parent)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
