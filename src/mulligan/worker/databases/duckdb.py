"""DuckDB, through its own library."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import duckdb

from mulligan import StepError
from mulligan.worker.child.json_encoding import EncodedJson
from mulligan.worker.databases.address import MEMORY, refuse_missing
from mulligan.worker.databases.failures import READ_ONLY, connection_lost, invalid, rejected, temporary_failure
from mulligan.worker.databases.statements import Dialect, RenderedStatement, Statement
from mulligan.worker.databases.values import collect_rows

DIALECT = Dialect.DUCKDB
_CHUNK_ROWS = 500
# A database in memory cannot be opened read-only, and a read-only one can still write files.
_WRITING = frozenset("INSERT UPDATE DELETE MERGE_INTO CREATE CREATE_FUNC ALTER DROP COPY COPY_DATABASE EXPORT".split())
_CHANGING = frozenset("INSERT UPDATE DELETE MERGE_INTO COPY CREATE".split())
_REJECTIONS = (duckdb.ProgrammingError, duckdb.DataError, duckdb.IntegrityError, duckdb.NotSupportedError)
_JSON = "JSON"


class Session:
    """One transaction, which is rolled back unless committed, also if this process dies."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, is_read_only: bool) -> None:
        self._connection = connection
        self._is_read_only = is_read_only
        self.changed = 0
        connection.execute("SET errors_as_json = true")
        connection.execute("BEGIN TRANSACTION")

    def execute(self, statement: Statement, values: Mapping[str, Any], keep_rows: bool) -> EncodedJson | None:
        """Return the rows; None for a statement that never has any."""
        rendered = statement.render([f"${placeholder.name}" for placeholder in statement.placeholders])
        bound = {placeholder.name: _bound(values[placeholder.name]) for placeholder in statement.placeholders}
        with _translate_errors(rendered):
            # DuckDB splits some statements (`pivot`): the last one is the original.
            (*_, parsed) = self._connection.extract_statements(rendered.text)
            if self._is_read_only and parsed.type.name in _WRITING:
                raise rejected(READ_ONLY)
            self._connection.execute(rendered.text, bound)
            return self._rows(parsed.type.name, keep_rows)

    def commit(self) -> None:
        with _translate_errors():
            self._connection.execute("COMMIT")

    def _rows(self, kind: str, keep_rows: bool) -> EncodedJson | None:
        columns = [(name, str(of)) for name, of, *_ in self._connection.description or ()]
        rows = _chunks(self._connection)
        if columns == [("Count", "BIGINT")] and kind in _CHANGING:
            self.changed += sum(count for (count,) in rows)
            return None
        if not columns or columns == [("Success", "BOOLEAN")]:
            return None
        are_json = [of == _JSON for _, of in columns]
        read = (tuple(map(_read, row, are_json)) for row in rows) if any(are_json) else rows
        return collect_rows(lambda: [name for name, _ in columns], read, keep_rows)


@contextmanager
def open_session(location: str, is_read_only: bool) -> Iterator[Session]:
    """Open a transaction on the file. A missing file is created unless it is read-only."""
    if is_read_only:
        refuse_missing(location)
    try:
        connection = duckdb.connect(location, read_only=is_read_only and location != MEMORY)
    except duckdb.Error as error:
        raise _not_opened(error, location) from None
    try:
        with _translate_errors():
            session = Session(connection, is_read_only)
        yield session
    finally:
        connection.close()


def _chunks(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while rows := connection.fetchmany(_CHUNK_ROWS):
        yield from rows


def _read(value: Any, is_json: bool) -> Any:
    """Parse a JSON column, which comes as text."""
    return json.loads(value) if is_json and isinstance(value, str) else value


def _bound(value: Any) -> Any:
    """Keep a list of plain values, for `in (select unnest(:ids))`; a list with mappings or lists in it becomes JSON."""
    is_nested = isinstance(value, list) and any(isinstance(inner, (list, dict)) for inner in value)
    return json.dumps(value, ensure_ascii=False) if is_nested or isinstance(value, dict) else value


# -- failures


@contextmanager
def _translate_errors(rendered: RenderedStatement | None = None) -> Iterator[None]:
    """Convert DuckDB's errors to failures of the step."""
    try:
        yield
    except duckdb.Error as error:
        raise _failure(error, rendered) from None


def _failure(error: duckdb.Error, rendered: RenderedStatement | None) -> StepError:
    fields = _message_of(error)
    message = fields["exception_message"]
    if "'pytz'" in message:
        return invalid("DuckDB needs 'pytz' for a time with a zone: pip install 'mulligan[duckdb]'")
    if message.startswith("Values were not provided"):
        return invalid("the query uses DuckDB's own syntax for parameters: write ':name' for each value")
    if rendered is not None and "position" in fields:
        message += rendered.excerpt(byte=int(fields["position"]))
    details = {"duckdb": fields.get("exception_type") or type(error).__name__}
    if isinstance(error, duckdb.TransactionException):
        return connection_lost(message, details)
    return (rejected if isinstance(error, _REJECTIONS) else temporary_failure)(message, details)


def _message_of(error: duckdb.Error) -> dict[str, Any]:
    """Return the fields of an error, if DuckDB sends them (see `errors_as_json`)."""
    text = str(error).strip()
    try:
        return dict(json.loads(text[text.index("{") :]))
    except ValueError:
        return {"exception_message": text}


def _not_opened(error: duckdb.Error, location: str) -> StepError:
    message = str(error).strip()
    if "Could not set lock on file" in message:
        return connection_lost(f"the file '{location}' is in use by another process")
    return invalid(f"the file '{location}' cannot be opened: {message}")
