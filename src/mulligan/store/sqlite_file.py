"""One SQLite file: opened, migrated, written in transactions; what goes wrong is told in our words."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import apsw

from mulligan.errors import MulliganError, StoreRefused, StoreUnavailable
from mulligan.store.statements import missing

Result = TypeVar("Result")

# Says whose file it is to `file` and to us: "MULL".
_APPLICATION_ID = 0x4D554C4C

_AGAIN_SECONDS = 0.005

_SETTINGS = (
    # The file may be somebody else's: what stands in its schema calls nothing that does more than compute.
    "PRAGMA trusted_schema = OFF",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    # Larger than the default: a checkpoint costs two fsyncs, and a turn dirties about six pages.
    "PRAGMA wal_autocheckpoint = 2000",
    "PRAGMA cache_size = -8000",
)


def iterate(db: apsw.Cursor, sql: str, *params: Any) -> Iterator[Any]:
    """The rows that a statement gives, one by one, inside somebody's transaction."""
    return iter(db.execute(sql, params))


def fetch_all(db: apsw.Cursor, sql: str, *params: Any) -> list[Any]:
    """The rows that a statement gives, inside somebody's transaction."""
    return db.execute(sql, params).fetchall()


def data_version(db: apsw.Cursor) -> int:
    """A number that changes when another connection has written."""
    # Not Connection.data_version(): that one changes with our own commits too.
    version: int = fetch_all(db, "PRAGMA data_version")[0][0]
    return version


class SqliteFile:
    """A connection to the file. One process may have several; one connection belongs to one thread."""

    def __init__(self, path: Path, busy_seconds: float, vfs: str = "") -> None:
        self.path = path
        self._busy_seconds = busy_seconds
        try:
            if not vfs:
                _create_private(path)
            self._db = apsw.Connection(str(path), vfs=vfs or None)
        except UnicodeEncodeError as error:
            raise StoreRefused(f"'{path}' cannot be opened: its name is no Unicode text", hint=_OTHER_PLACE) from error
        except (apsw.Error, OSError) as error:
            raise self._cannot_open(error) from error
        self._opened = None if vfs else _identity(path)
        # One for everything: a new one for each statement would cost as much as a small statement.
        self._cursor = self._db.cursor()
        try:
            self._prepare()
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        try:
            self._db.close()
        except apsw.Error as error:
            self._translate(error)

    @property
    def is_in_place(self) -> bool:
        """Whether the file at our path is still the one that we have open."""
        return self._opened is None or self._opened == _identity(self.path)

    # -- use

    @property
    def connection(self) -> apsw.Connection:
        return self._db

    def version(self) -> int:
        """A number that changes when another connection has written."""
        try:
            return data_version(self._cursor)
        except apsw.Error as error:
            self._translate(error)

    def read(self, sql: str, *params: Any) -> list[Any]:
        """The rows that one statement gives, which is a transaction of its own."""
        try:
            return fetch_all(self._cursor, sql, *params)
        except apsw.Error as error:
            self._translate(error)

    def read_together(self, work: Callable[[apsw.Cursor], Result]) -> Result:
        """What `work` reads, all of it from one moment."""
        return self._transact("BEGIN", work)

    def write(self, work: Callable[[apsw.Cursor], Result]) -> Result:
        """Do `work` in one transaction: all of it is on the disk then, or nothing."""
        return self._transact("BEGIN IMMEDIATE", work)

    def _transact(self, begin: str, work: Callable[[apsw.Cursor], Result]) -> Result:
        cursor = self._cursor
        try:
            cursor.execute(begin)
            found = work(cursor)
            cursor.execute("COMMIT")
            return found
        except BaseException as error:
            self._roll_back()
            if isinstance(error, apsw.Error):
                self._translate(error)
            raise

    def _roll_back(self) -> None:
        # After a full disk SQLite may have done it already, and may say so.
        with suppress(apsw.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    # -- opening

    def _prepare(self) -> None:
        try:
            self._db.set_busy_timeout(int(self._busy_seconds * 1000))
            # Plans never look at what is bound: else one that might, for the sake of a partial index, is made again
            # for every value, which takes forty times as long as the statement.
            self._db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            if self._db.readonly("main"):
                raise apsw.ReadOnlyError
            found, application, is_empty = self._retry_while_busy(self._look)
            if application != _APPLICATION_ID and not is_empty:
                raise StoreRefused(f"'{self.path}' is a database of another program", hint=_OTHER_FILE)
            for setting in _SETTINGS:
                self._retry_while_busy(partial(fetch_all, self._cursor, setting))
        except apsw.Error as error:
            self._translate(error)
        if missing("sqlite", found, f"'{self.path}'"):
            self.write(self._migrate)

    def _look(self) -> tuple[int, int, bool]:
        """The schema's number, whose file it is, whether it is empty: of one moment, since another may be making it."""
        self._db.execute("BEGIN")
        try:
            is_empty = not self._db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
            return self._db.pragma("user_version"), self._db.pragma("application_id"), is_empty
        finally:
            self._db.execute("ROLLBACK")

    def _retry_while_busy(self, work: Callable[[], Result]) -> Result:
        """Two processes that make the file at the same moment: SQLite does not wait for the one that turns WAL on."""
        until = time.monotonic() + self._busy_seconds
        while True:
            try:
                return work()
            except apsw.BusyError:
                if time.monotonic() > until:
                    raise
                time.sleep(_AGAIN_SECONDS)

    def _migrate(self, db: apsw.Cursor) -> None:
        """Asked again under the lock: another process may have come first."""
        for migration in missing("sqlite", self._db.pragma("user_version"), f"'{self.path}'"):
            db.execute(migration.sql)
            self._db.pragma("user_version", migration.number)
        self._db.pragma("application_id", _APPLICATION_ID)

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
                return StoreUnavailable(
                    f"'{path}' is locked by another process for more than {self._busy_seconds:g}s",
                    hint=f"wait and try again, or see who has it: fuser '{path}'",
                )
            case apsw.FullError():
                return StoreUnavailable(f"the disk is full: '{path}' cannot be written", hint="free space on its disk")
            case apsw.NotADBError():
                return StoreRefused(f"'{path}' is not a database", hint=_OTHER_FILE)
            case apsw.CorruptError():
                return StoreRefused(f"'{path}' is damaged: {error}", hint=_OTHER_COPY)
            case apsw.CantOpenError():
                return self._cannot_open(error)
            case apsw.ReadOnlyError() | apsw.PermissionsError():
                return StoreRefused(f"'{path}' may not be written by this user", hint=_OTHER_PLACE)
            case apsw.IOError() if _is_full(path.parent):
                # Not even the file for its locks can be made: SQLite does not say why.
                return self._to_our_error(apsw.FullError())
            case apsw.IOError():
                return StoreUnavailable(f"'{path}' cannot be read or written: {error}", hint=_LOOK)
            case apsw.SQLError():
                # Tables that are not as we made them: no waiting makes them fit.
                misfit = StoreRefused(f"'{path}' does not hold what this Mulligan expects: {error}", hint=_OTHER_COPY)
                return self._migrated_meanwhile() or misfit
        return StoreUnavailable(f"'{path}' does not answer: {error}")

    def _migrated_meanwhile(self) -> MulliganError | None:
        """Says so, where a newer Mulligan has opened the file since we did: no copy has to be restored for that."""
        try:
            missing("sqlite", self._db.pragma("user_version"), f"'{self.path}'")
        except StoreRefused as newer:
            return newer
        except apsw.Error:
            pass
        return None


_LOOK = "look at its disk: it may be full"
_OTHER_COPY = "restore it from a copy, or use another --home"
_OTHER_FILE = "name a file that does not exist yet, or one that Mulligan has made"
_OTHER_PLACE = "name a folder that you may write with --home or $MULLIGAN_HOME"


def _is_full(folder: Path) -> bool:
    try:
        return os.statvfs(folder).f_bavail == 0
    except OSError:
        return False


def _small(reason: str) -> str:
    return reason[:1].lower() + reason[1:]


def _identity(path: Path) -> tuple[int, int] | None:
    """Tells the file at `path` from any other; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _create_private(path: Path) -> None:
    """Make the file and its folder for this user alone: a run's outputs are nobody else's business."""
    if path.exists():
        return
    if not path.parent.is_dir():
        _create_folder(path.parent)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _create_folder(folder: Path) -> None:
    """The folder and those above it: who may write into one of them may put another file in the place of ours."""
    if not os.path.lexists(folder.parent):
        _create_folder(folder.parent)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
