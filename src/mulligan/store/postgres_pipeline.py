"""Many statements in one round trip, directly on libpq: a commit is small, so the overhead must be small too.

Each statement is prepared once for a connection. All statements before the end of the pipeline are one transaction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import psycopg
from psycopg import errors, pq

from mulligan.store.postgres_arrays import Array
from mulligan.store.postgres_connection import TimeoutConnection
from mulligan.store.statements import statements

Statement = tuple[str, Any]

SQL = statements("postgres")

_TEXT, _BINARY = 0, 1
_BOOLEAN, _INTEGERS = 16, frozenset({20, 21, 23})
_PLACE = re.compile(r"%(?:%|s|\((\w+)\)s)")


def pipeline(connection: TimeoutConnection, prepared: set[str], asked: Sequence[Statement]) -> list[list[Any]]:
    """The rows of each statement. `prepared` has the names of those that the connection has prepared already."""
    for name in {name for name, _ in asked} - prepared:
        _prepare(connection, name)
        prepared.add(name)
    sent = [(name.encode(), *_values(name, params)) for name, params in asked]
    try:
        results = _exchanged(connection, sent)
    except BaseException:
        # The state of the pipeline is unknown.
        connection.close()
        raise
    return [_rows(connection, found) for found in results]


def _prepare(connection: TimeoutConnection, name: str) -> None:
    connection.pgconn.send_prepare(name.encode(), _numbered(name)[0])
    connection.flush()
    for result in connection.results():
        _checked(result, connection)


# -- what is sent ----------------------------------------------------------------------------------------------------


@cache
def _numbered(name: str) -> tuple[bytes, tuple[str, ...]]:
    """The statement with `$1` and so on, and the names of its parameters if they have any."""
    names: list[str] = []
    count = 0

    def number(place: re.Match[str]) -> str:
        nonlocal count
        if place.group() == "%%":
            return "%"
        if place.group(1) is None:
            count += 1
            return f"${count}"
        if place.group(1) not in names:
            names.append(place.group(1))
        return f"${names.index(place.group(1)) + 1}"

    return _PLACE.sub(number, SQL[name]).encode(), tuple(names)


def _values(name: str, params: Sequence[Any] | Mapping[str, Any]) -> tuple[list[bytes | None], list[int]]:
    if isinstance(params, Mapping):
        params = [params[key] for key in _numbered(name)[1]]
    sent = [_sent(param) for param in params]
    return [value for value, _ in sent], [form for _, form in sent]


def _sent(param: Any) -> tuple[bytes | None, int]:
    """A parameter as the server expects it, and its format."""
    if isinstance(param, Array):
        return param.encoded(), _BINARY
    if isinstance(param, bytes):
        return param, _BINARY
    return None if param is None else str(param).encode(), _TEXT


def _exchanged(connection: TimeoutConnection, sent: Sequence[tuple[bytes, Any, Any]]) -> list[list[pq.abc.PGresult]]:
    """The answers of the server. Without the end of the pipeline the result of all statements is unknown."""
    pgconn = connection.pgconn
    pgconn.enter_pipeline_mode()
    for name, values, formats in sent:
        pgconn.send_query_prepared(name, values, formats, _TEXT)
    pgconn.pipeline_sync()
    connection.flush()
    results = [connection.results() for _ in sent]
    end = connection.results()
    if not end or end[-1].status != pq.ExecStatus.PIPELINE_SYNC:
        raise psycopg.OperationalError(pgconn.get_error_message())
    pgconn.exit_pipeline_mode()
    return results


# -- what comes back -------------------------------------------------------------------------------------------------


def _rows(connection: TimeoutConnection, results: list[pq.abc.PGresult]) -> list[Any]:
    rows: list[Any] = []
    for result in results:
        _checked(result, connection)
        if result.status == pq.ExecStatus.TUPLES_OK:
            readers = [_reader(result.ftype(column)) for column in range(result.nfields)]
            rows.extend(_row(result, number, readers) for number in range(result.ntuples))
    return rows


def _row(result: pq.abc.PGresult, number: int, readers: Sequence[Any]) -> tuple[Any, ...]:
    values = (result.get_value(number, column) for column in range(len(readers)))
    return tuple(None if value is None else read(value) for read, value in zip(readers, values, strict=True))


def _reader(oid: int) -> Any:
    if oid in _INTEGERS:
        return int
    return (lambda value: value == b"t") if oid == _BOOLEAN else bytes.decode


def _checked(result: pq.abc.PGresult, connection: TimeoutConnection) -> None:
    if result.status == pq.ExecStatus.FATAL_ERROR:
        raise errors.error_from_result(result, encoding=connection.info.encoding)
    if result.status == pq.ExecStatus.PIPELINE_ABORTED:
        raise errors.InFailedSqlTransaction("a statement before it was refused")
