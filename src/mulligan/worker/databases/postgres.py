"""PostgreSQL, through psycopg."""

from __future__ import annotations

import re
import select
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import capabilities
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ExecStatus
from psycopg.types.json import Jsonb
from psycopg.types.string import TextLoader

from mulligan import StepError
from mulligan.core.model.text.database_urls import NOT_SHOWN, is_unclear, url_problem
from mulligan.worker.child.json_encoding import EncodedJson
from mulligan.worker.databases.failures import (
    READ_ONLY,
    connection_lost,
    invalid,
    rejected,
    temporary_failure,
    timed_out,
)
from mulligan.worker.databases.kept_connections import KEPT
from mulligan.worker.databases.statements import Dialect, RenderedStatement, Statement
from mulligan.worker.databases.values import collect_rows

DIALECT = Dialect.POSTGRES
# Defaults for what the URL does not set. A server that vanishes is noticed within half a minute.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    "application_name": "mulligan",
}
# Times as ISO 8601. From version 14 on the server checks the connection, so that a step that is killed leaves no query
# running.
_SETTINGS = {"intervalstyle": "iso_8601", "datestyle": "ISO"}
_WATCHFUL = {"client_connection_check_interval": "1000"}
_WATCHFUL_SINCE = 140_000
_CHUNK_ROWS = 500
_WRITING = frozenset("INSERT UPDATE DELETE MERGE INTO".split())
_READING = frozenset("SELECT VALUES TABLE WITH".split())
_TALKING = frozenset("STDIN STDOUT".split())
_CHANGING = frozenset("INSERT UPDATE DELETE MERGE COPY".split())
# What `DISCARD ALL` does not undo, or what we cannot look into: the name of a setting that did not exist, a library,
# the state of `random`, a block of code. And settings that count from the next connection on.
_LASTING = frozenset("SET LOAD DO CALL".split())
# The functions also in quotes, and behind escapes.
_LASTING_FUNCTIONS = re.compile(r'set_config|setseed|u&"', re.IGNORECASE)
# How long the server may take to reset a session. A new connection is there within that time.
_RESET_SECONDS_MAX = 1.0
_SET_FOR_LATER = frozenset("ROLE USER DATABASE SYSTEM".split())
# Conflicts with other sessions: serialization, deadlock, a lock, no free connection.
_AGAIN = frozenset("40001 40P01 55P03 53300 55006".split())
_PROTOCOL_VIOLATION = "08P01"
_QUERY_CANCELED, _TRANSACTION_TIMEOUT, _READ_ONLY_TRANSACTION = "57014", "25P04", "25006"
_MOMENT = re.compile(r"(\d{4,}-\d\d-\d\d )?(\d\d:\d\d:\d\d(?:\.\d+)?)([+-]\d\d)?(:\d\d)*")
# Messages of a server that refuses the connection for good.
_UNWELCOME = re.compile(
    r"password authentication failed|no password supplied|authentication failed|does not exist"
    r"|no pg_hba\.conf entry|permission denied for database|not permitted to log in|invalid \w+ value"
)


class Session:
    """One transaction, which the server rolls back unless committed, however the connection ends."""

    def __init__(self, connection: psycopg.Connection[Any], is_read_only: bool) -> None:
        self._connection = connection
        self._leaves_traces = self._is_committed = False
        self.changed = 0
        connection.execute("BEGIN READ ONLY" if is_read_only else "BEGIN")
        has_watch = connection.info.server_version >= _WATCHFUL_SINCE
        settings = {**_SETTINGS, **_WATCHFUL} if has_watch else _SETTINGS
        calls = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
        # After a query, the step cannot turn the read-only transaction into a writing one.
        connection.execute(f"SELECT {calls}".encode())

    def execute(self, statement: Statement, values: Mapping[str, Any], keep_rows: bool) -> EncodedJson | None:
        """Return the rows; None for a statement that never has any."""
        if statement.words[:1] == ["COPY"] and _TALKING.intersection(statement.words):
            raise invalid("'copy' from stdin or to stdout is not possible in a step")
        names = list(dict.fromkeys(placeholder.name for placeholder in statement.placeholders))
        rendered = statement.render([f"${names.index(placeholder.name) + 1}" for placeholder in statement.placeholders])
        self._leaves_traces = self._leaves_traces or _leaves_traces(statement)
        with _translate_errors(rendered):
            bound = [_bound(values[name]) for name in names]
            return self._execute(rendered.text, bound, keep_rows, _is_reading(statement.words))

    def commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except psycopg.Error as error:
            raise _uncertain(error) if self._connection.broken else _failure(error) from None
        self._is_committed = True

    def request_reset(self) -> bool:
        """Ask the server to reset the session; return whether another task may use the connection, if it does so.

        Temporary tables, settings, prepared statements, cursors, advisory locks and channels are gone then. The answer
        is not waited for: the task has been committed, and would run again if it took too long to say so.
        """
        if not self._is_committed or self._leaves_traces:
            return False
        pgconn = self._connection.pgconn
        try:
            pgconn.send_query(b"DISCARD ALL")
            return pgconn.flush() == 0
        except psycopg.Error:
            return False

    def _encoded(self, text: str) -> bytes:
        """Encode the text as the server decodes it: in another encoding it would see quotes where there are none."""
        encoding = self._connection.info.encoding
        try:
            return text.encode(encoding)
        except UnicodeEncodeError as error:
            shown = ascii(text[error.start])
            raise invalid(
                f"the query has {shown}, which the connection's encoding '{encoding}' does not have"
            ) from None

    def _execute(self, text: str, bound: list[Any], keep_rows: bool, is_reading: bool) -> EncodedJson | None:
        with self._connection.cursor() as cursor:
            if is_reading:
                # Streamed, because the number of rows is unknown.
                size = _CHUNK_ROWS if capabilities.has_stream_chunked() else 1
                rows = cursor.stream(self._encoded(text), bound or None, size=size)
                return collect_rows(lambda: _columns(cursor), rows, keep_rows)
            cursor.execute(self._encoded(text), bound or None)
            self.changed += _changed(cursor)
            if cursor.description is None:
                return None
            return collect_rows(lambda: _columns(cursor), cursor, keep_rows)


@contextmanager
def open_session(location: str, is_read_only: bool) -> Iterator[Session]:
    """Open a transaction on the server, in a session that no other task has left anything in."""
    key = KEPT.key_of(location)
    connection, session, opened_at = _kept(key, is_read_only) or _opened(location, is_read_only)
    is_kept = False
    try:
        yield session
        is_kept = KEPT.is_keeping and session.request_reset()
    finally:
        if not is_kept:
            connection.close()
    if is_kept:
        KEPT.put_back(key, connection, opened_at)


_Opened = tuple[psycopg.Connection[Any], Session, float]


def _kept(key: bytes, is_read_only: bool) -> _Opened | None:
    """Begin the transaction on a connection that was kept; None if there is none, or the server has closed it.

    Nothing of the task has been sent when that is noticed, so nothing is executed twice.
    """
    found = KEPT.take(key)
    if found is None:
        return None
    connection, opened_at = found
    assert isinstance(connection, psycopg.Connection)
    session: Session | None = None
    try:
        if _is_reset(connection):
            session = Session(connection, is_read_only)
    except psycopg.Error:
        return None
    finally:
        if session is None:
            connection.close()
    return None if session is None else (connection, session, opened_at)


def _is_reset(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server has reset the session: it says so within a moment."""
    pgconn, until = connection.pgconn, time.monotonic() + _RESET_SECONDS_MAX
    statuses: list[int] = []
    readable = select.poll()
    readable.register(pgconn.socket, select.POLLIN)
    while True:
        while pgconn.is_busy():
            if not readable.poll(max(0.0, until - time.monotonic()) * 1000):
                return False
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:
            return statuses == [ExecStatus.COMMAND_OK]
        statuses.append(result.status)


def _opened(location: str, is_read_only: bool) -> _Opened:
    connection, opened_at = _connected(location), time.monotonic()
    session: Session | None = None
    try:
        with _translate_errors():
            session = Session(connection, is_read_only)
    finally:
        if session is None:
            connection.close()
    return connection, session, opened_at


def _connected(location: str) -> psycopg.Connection[Any]:
    problem = url_problem(location)
    if problem:
        raise invalid(f"'connection' is not a URL that PostgreSQL understands: {problem}")
    try:
        options = {**_DEFAULTS, **conninfo_to_dict(location)}
    except psycopg.Error as error:
        # The rest may be any part of the URL.
        reason = str(error).partition('"')[0].strip(" :")
        raise invalid(f"'connection' is not a URL that PostgreSQL understands: {reason}") from None
    try:
        connection = psycopg.connect(
            **options, autocommit=True, prepare_threshold=None, cursor_factory=psycopg.RawCursor
        )
    except psycopg.Error as error:
        raise _not_connected(error, is_shown=not is_unclear(location)) from None
    for name in ("timestamp", "timestamptz", "time", "timetz"):
        connection.adapters.register_loader(name, _MomentLoader)
    for name in ("date", "interval"):
        connection.adapters.register_loader(name, TextLoader)
    return connection


class _MomentLoader(TextLoader):
    """Load times as ISO 8601; unchanged if ISO cannot express them: infinity, BC."""

    def load(self, data: Any) -> str:
        text = str(super().load(data))
        match = _MOMENT.fullmatch(text)
        if match is None:
            return text
        return text.replace(" ", "T") + (":00" if match[3] and not match[4] else "")


def _is_reading(words: list[str]) -> bool:
    return bool(_READING.intersection(words[:1])) and not _WRITING.intersection(words)


def _leaves_traces(statement: Statement) -> bool:
    """Whether the session may differ from a new one after `DISCARD ALL`."""
    words = statement.words
    if _LASTING_FUNCTIONS.search(statement.query, statement.start, statement.end):
        return True
    is_setting = words[:1] == ["ALTER"] and not _SET_FOR_LATER.isdisjoint(words[1:2])
    return is_setting or not _LASTING.isdisjoint(words[:1])


def _columns(cursor: psycopg.Cursor[Any]) -> list[str]:
    return [column.name for column in cursor.description or ()]


def _changed(cursor: psycopg.Cursor[Any]) -> int:
    command = (cursor.statusmessage or "").partition(" ")[0]
    is_table_made = command == "SELECT" and cursor.description is None
    return max(0, cursor.rowcount) if command in _CHANGING or is_table_made else 0


def _bound(value: Any) -> Any:
    """Pass a list of plain values as an array, for `= any(:ids)`; with mappings or lists in it, as JSON."""
    if isinstance(value, dict):
        return Jsonb(value)
    return Jsonb(value) if isinstance(value, list) and not _is_array(value) else value


def _is_array(values: list[Any]) -> bool:
    """Whether PostgreSQL has such an array: all values of one type."""
    kinds = {float if type(value) is int else type(value) for value in values if value is not None}
    return len(kinds) <= 1 and not kinds & {dict, list}


# -- failures


@contextmanager
def _translate_errors(rendered: RenderedStatement | None = None) -> Iterator[None]:
    """Convert PostgreSQL's errors to failures of the step."""
    try:
        yield
    except psycopg.Error as error:
        raise _failure(error, rendered) from None


def _failure(error: psycopg.Error, rendered: RenderedStatement | None = None) -> StepError:
    state = error.sqlstate or ""
    message = _message_of(error) + _where(error, rendered)
    details = {"sqlstate": state, **_about(error)}
    if state == _PROTOCOL_VIOLATION and "bind message" in message:
        return invalid("the query uses PostgreSQL's own syntax for parameters: write ':name' for each value")
    if state in _AGAIN or state[:2] == "08" or state[:3] == "57P" or (not state and _is_operational(error)):
        return connection_lost(message, details)
    if state == _TRANSACTION_TIMEOUT or (state == _QUERY_CANCELED and "user request" not in message):
        return timed_out(message, {**details, "limit": _LIMITS.get(state)})
    if state == _READ_ONLY_TRANSACTION:
        return rejected(f"{READ_ONLY}: {message}", details)
    if not state:
        # psycopg rejected a value.
        return invalid(message)
    return (temporary_failure if state[:2] in ("53", "57", "58", "XX") else rejected)(message, details)


# The server's settings that end a query.
_LIMITS = {_TRANSACTION_TIMEOUT: "transaction_timeout", _QUERY_CANCELED: "statement_timeout"}


def _is_operational(error: psycopg.Error) -> bool:
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError))


def _message_of(error: psycopg.Error) -> str:
    """Return the server's message."""
    diagnosis = error.diag
    if diagnosis.message_primary is None:
        return " ".join(str(error).split())
    more = {"detail": diagnosis.message_detail, "hint": diagnosis.message_hint}
    return "\n".join([diagnosis.message_primary, *(f"{name}: {text}" for name, text in more.items() if text)])


def _about(error: psycopg.Error) -> dict[str, Any]:
    diagnosis = error.diag
    return {"table": diagnosis.table_name, "column": diagnosis.column_name, "constraint": diagnosis.constraint_name}


def _where(error: psycopg.Error, rendered: RenderedStatement | None) -> str:
    position = error.diag.statement_position
    return rendered.excerpt(char=int(position) - 1) if position and rendered else ""


def _not_connected(error: psycopg.Error, *, is_shown: bool) -> StepError:
    words = " ".join(str(error).split())
    message = words if is_shown else f"no connection: {NOT_SHOWN}"
    if isinstance(error, psycopg.ProgrammingError):
        return invalid(message)
    # A refused connection has no SQLSTATE, only a message.
    return rejected(message) if _UNWELCOME.search(words) else connection_lost(message)


def _uncertain(error: psycopg.Error) -> StepError:
    reason = " ".join(str(error).split())
    message = f"the connection was lost during the commit, so it is unknown whether it was committed: {reason}"
    return connection_lost(message, {"sqlstate": error.sqlstate, "is_committed": "unknown"})
