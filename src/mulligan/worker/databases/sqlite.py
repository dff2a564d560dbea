"""SQLite, through apsw, the library that the store uses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import apsw

from mulligan import StepError
from mulligan.worker.child.json_encoding import EncodedJson
from mulligan.worker.databases.address import MEMORY, refuse_missing
from mulligan.worker.databases.failures import READ_ONLY, connection_lost, invalid, rejected, temporary_failure
from mulligan.worker.databases.statements import Dialect, RenderedStatement, Statement
from mulligan.worker.databases.values import collect_rows

DIALECT = Dialect.SQLITE
# Wait this long for another writer; after that, the step's retry policy applies.
_BUSY_MILLISECONDS = 5000
# Signals are handled once per this many virtual machine steps.
_STEPS_PER_LOOK = 100_000
_BUSY = (apsw.BusyError, apsw.LockedError, apsw.ProtocolError, apsw.SchemaChangeError)
_REJECTIONS = (
    apsw.SQLError,
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.RangeError,
    apsw.TooBigError,
    apsw.AuthError,
)
_NO_DATABASE = (apsw.NotADBError, apsw.CorruptError, apsw.FormatError)


class Session:
    """One transaction, which is rolled back unless committed, also if this process dies."""

    def __init__(self, connection: apsw.Connection, is_read_only: bool) -> None:
        self._connection = connection
        connection.execute("BEGIN" if is_read_only else "BEGIN IMMEDIATE")
        self._columns: tuple[str, ...] = ()
        self.changed = 0

    def execute(self, statement: Statement, values: Mapping[str, Any], keep_rows: bool) -> EncodedJson | None:
        """Return the rows; None for a statement that never has any."""
        rendered = statement.render([f":{placeholder.name}" for placeholder in statement.placeholders])
        bound = {
            placeholder.name: _bound(placeholder.name, values[placeholder.name])
            for placeholder in statement.placeholders
        }
        before = self._connection.total_changes()
        cursor = self._connection.cursor()
        cursor.exec_trace = self._note_columns
        with _translate_errors(rendered):
            rows = collect_rows(lambda: self._columns, cursor.execute(rendered.text, bound), keep_rows)
        if self._connection.total_changes() > before:
            self.changed += self._connection.changes()
        return rows if self._columns else None

    def commit(self) -> None:
        with _translate_errors():
            self._connection.execute("COMMIT")

    def _note_columns(self, cursor: apsw.Cursor, *_: object) -> bool:
        """Note the columns before the statement runs: afterwards they are unknown if there was no row."""
        self._columns = tuple(name for name, _ in cursor.get_description())
        return True


@contextmanager
def open_session(location: str, is_read_only: bool, busy_milliseconds: int = _BUSY_MILLISECONDS) -> Iterator[Session]:
    """Open a transaction on the file. A missing file is created unless it is read-only."""
    if is_read_only:
        refuse_missing(location)
    is_file_read_only = is_read_only and location != MEMORY
    how = apsw.SQLITE_OPEN_READONLY if is_file_read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    with _translate_errors(location=location):
        connection = apsw.Connection(location, flags=how)
        connection.set_busy_timeout(busy_milliseconds)
    try:
        with _translate_errors(location=location):
            _set_up(connection, is_read_only)
            session = Session(connection, is_read_only)
        yield session
    finally:
        connection.close(True)


def _set_up(connection: apsw.Connection, is_read_only: bool) -> None:
    connection.set_progress_handler(lambda: False, _STEPS_PER_LOOK)
    # It has no effect within a transaction.
    connection.execute("PRAGMA foreign_keys = ON")
    if is_read_only:
        connection.execute("PRAGMA query_only = ON")


def _bound(name: str, value: Any) -> Any:
    """Pass lists and mappings as JSON text, which `json_each` and the like read."""
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise invalid(f"the value of ':{name}' has more than 64 bits, which SQLite cannot store")
    return value


@contextmanager
def _translate_errors(rendered: RenderedStatement | None = None, location: str = "") -> Iterator[None]:
    """Convert SQLite's errors to failures of the step."""
    try:
        yield
    except UnicodeDecodeError:
        raise rejected("a text in the rows is not UTF-8: read it with 'cast(… as blob)'") from None
    except (KeyError, apsw.BindingsError):
        raise invalid("the query uses SQLite's own syntax for parameters: write ':name' for each value") from None
    except apsw.Error as error:
        raise _failure(error, rendered, location) from None


def _failure(error: apsw.Error, rendered: RenderedStatement | None, location: str) -> StepError:
    message, details = f"{error}{_where(error, rendered)}", {"sqlite": _code(error)}
    if isinstance(error, _BUSY):
        return connection_lost(f"the database is in use by another process: {error}", details)
    if isinstance(error, apsw.CantOpenError) and location:
        return invalid(f"the file '{location}' cannot be opened: check that its folder exists and is writable")
    if isinstance(error, apsw.ReadOnlyError):
        return rejected(READ_ONLY if not location else f"'{location}' is not writable", details)
    if isinstance(error, _NO_DATABASE):
        return rejected(f"the file is not a readable SQLite database: {error}", details)
    return (rejected if isinstance(error, _REJECTIONS) else temporary_failure)(message, details)


# apsw sets these fields and does not declare them.


def _code(error: apsw.Error) -> str:
    extended = apsw.mapping_extended_result_codes.get(getattr(error, "extendedresult", -1))
    return str(extended or apsw.mapping_result_codes.get(getattr(error, "result", -1), ""))


def _where(error: apsw.Error, rendered: RenderedStatement | None) -> str:
    offset: int = getattr(error, "error_offset", -1)
    return rendered.excerpt(byte=offset) if rendered is not None and offset >= 0 else ""
