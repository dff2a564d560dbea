"""DuckDB, by its own library."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import duckdb

from mulligan import StepError
from mulligan.worker.databases.address import MEMORY, refuse_missing
from mulligan.worker.databases.failures import READ_ONLY, invalid, lost, refused, troubled
from mulligan.worker.databases.statements import Dialect, Sent, Statement
from mulligan.worker.databases.values import gathered
from mulligan.worker.encodable import Encoded

DIALECT = Dialect.DUCKDB
_CHUNK_ROWS = 500
# A database in memory cannot be opened for reading only, and one that is can still write files.
_WRITING = frozenset("INSERT UPDATE DELETE MERGE_INTO CREATE CREATE_FUNC ALTER DROP COPY COPY_DATABASE EXPORT".split())
_CHANGING = frozenset("INSERT UPDATE DELETE MERGE_INTO COPY CREATE".split())
_SAYS_NO = (duckdb.ProgrammingError, duckdb.DataError, duckdb.IntegrityError, duckdb.NotSupportedError)
_JSON = "JSON"


class Session:
    """One transaction: what is not committed is rolled back when it is closed, or when this process dies."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, is_read_only: bool) -> None:
        self._connection = connection
        self._is_read_only = is_read_only
        self.changed = 0
        connection.execute("SET errors_as_json = true")
        connection.execute("BEGIN TRANSACTION")

    def execute(self, statement: Statement, values: Mapping[str, Any], is_kept: bool) -> Encoded | None:
        """The rows, or None of a statement that gives none whatever happens."""
        sent = statement.sent([f"${spot.name}" for spot in statement.spots])
        bound = {spot.name: _bound(values[spot.name]) for spot in statement.spots}
        with _in_words(sent):
            # DuckDB makes several of some (`pivot`): the last is the one that was written.
            (*_, parsed) = self._connection.extract_statements(sent.text)
            if self._is_read_only and parsed.type.name in _WRITING:
                raise refused(READ_ONLY)
            self._connection.execute(sent.text, bound)
            return self._given(parsed.type.name, is_kept)

    def commit(self) -> None:
        with _in_words():
            self._connection.execute("COMMIT")

    def _given(self, kind: str, is_kept: bool) -> Encoded | None:
        columns = [(name, str(of)) for name, of, *_ in self._connection.description or ()]
        rows = _chunks(self._connection)
        if columns == [("Count", "BIGINT")] and kind in _CHANGING:
            self.changed += sum(count for (count,) in rows)
            return None
        if not columns or columns == [("Success", "BOOLEAN")]:
            return None
        are_json = [of == _JSON for _, of in columns]
        read = (tuple(map(_read, row, are_json)) for row in rows) if any(are_json) else rows
        return gathered(lambda: [name for name, _ in columns], read, is_kept)


@contextmanager
def opened(place: str, is_read_only: bool) -> Iterator[Session]:
    """A transaction at the file. One that is not there is made, unless it may only be read."""
    if is_read_only:
        refuse_missing(place)
    try:
        connection = duckdb.connect(place, read_only=is_read_only and place != MEMORY)
    except duckdb.Error as error:
        raise _not_opened(error, place) from None
    try:
        with _in_words():
            session = Session(connection, is_read_only)
        yield session
    finally:
        connection.close()


def _chunks(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while rows := connection.fetchmany(_CHUNK_ROWS):
        yield from rows


def _read(value: Any, is_json: bool) -> Any:
    """A column of JSON comes as text."""
    return json.loads(value) if is_json and isinstance(value, str) else value


def _bound(value: Any) -> Any:
    """A list of plain values is a list, for `in (select unnest(:ids))`; what has mappings or lists in it is JSON."""
    is_nested = isinstance(value, list) and any(isinstance(inner, (list, dict)) for inner in value)
    return json.dumps(value, ensure_ascii=False) if is_nested or isinstance(value, dict) else value


# -- failures


@contextmanager
def _in_words(sent: Sent | None = None) -> Iterator[None]:
    """Whatever DuckDB says, as the ladder wants it."""
    try:
        yield
    except duckdb.Error as error:
        raise _failure(error, sent) from None


def _failure(error: duckdb.Error, sent: Sent | None) -> StepError:
    said = _said(error)
    message = said["exception_message"]
    if "'pytz'" in message:
        return invalid("DuckDB needs 'pytz' for a time with a zone: pip install 'mulligan[duckdb]'")
    if message.startswith("Values were not provided"):
        return invalid("the query has a parameter of DuckDB's own: write ':name' for each value")
    if sent is not None and "position" in said:
        message += sent.excerpt(byte=int(said["position"]))
    details = {"duckdb": said.get("exception_type") or type(error).__name__}
    if isinstance(error, duckdb.TransactionException):
        return lost(message, details)
    return (refused if isinstance(error, _SAYS_NO) else troubled)(message, details)


def _said(error: duckdb.Error) -> dict[str, Any]:
    """What DuckDB says, in pieces where it gives them (see `errors_as_json`)."""
    text = str(error).strip()
    try:
        return dict(json.loads(text[text.index("{") :]))
    except ValueError:
        return {"exception_message": text}


def _not_opened(error: duckdb.Error, place: str) -> StepError:
    message = str(error).strip()
    if "Could not set lock on file" in message:
        return lost(f"the file '{place}' is in use by somebody else")
    return invalid(f"the file '{place}' cannot be opened: {message}")
