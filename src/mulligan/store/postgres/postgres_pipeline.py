"""Many statements in one round trip, directly on libpq: a commit is small, so the overhead must be small too.

Each statement is prepared once for a connection. All statements before the end of a group are one transaction.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import psycopg
from psycopg import errors, pq

from mulligan.store.postgres.postgres_arrays import encode
from mulligan.store.postgres.postgres_connection import TimeoutConnection
from mulligan.store.sql.sql_arrays import Array
from mulligan.store.sql.sql_database import Statement
from mulligan.store.statements import statements

SQL = statements("postgres")

_TEXT, _BINARY = 0, 1
_FLOAT = struct.Struct("!d")
# At the end of the name of a statement: it gets one row of values instead of arrays.
OF_ONE = "/1"
_UNNEST = re.compile(r"unnest\(((?:%s::\w+\[\](?:,\s*)?)+)\)")
_PLACE = re.compile(r"%(?:%|s|\((\w+)\)s)")


def pipeline(
    connection: TimeoutConnection, prepared: set[str], asked: Sequence[Statement], notices: Sequence[Statement] = ()
) -> list[list[Any]]:
    """The rows of each statement. `prepared` has the names of those that the connection has prepared already.

    `notices` are executed after the transaction, in one of their own, in the same round trip. What they return and
    whether they succeed does not matter.
    """
    groups = [asked, notices] if notices else [asked]
    sent = [[(name, *_values(name, params)) for name, params in group] for group in groups]
    try:
        results = _exchanged(connection, prepared, sent)
    except BaseException:
        # The state of the pipeline is unknown.
        connection.close()
        raise
    return [_rows(connection, found) for found in results[0]]


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

    return _PLACE.sub(number, _sql(name)).encode(), tuple(names)


def _sql(name: str) -> str:
    """The statement. Of one row: with `VALUES` in place of the arrays, which the server would unpack one by one."""
    if not name.endswith(OF_ONE):
        return SQL[name]
    return _UNNEST.sub(lambda found: f"(VALUES ({found[1].replace('[]', '')}))", SQL[name.removesuffix(OF_ONE)])


def _values(name: str, params: Sequence[Any] | dict[str, Any]) -> tuple[list[bytes | None], list[int]]:
    """The parameters as the server expects them, and their formats."""
    if isinstance(params, dict):
        params = [params[key] for key in _numbered(name)[1]]
    values: list[bytes | None] = []
    formats: list[int] = []
    for param in params:
        if type(param) is bytes:
            values.append(param)
            formats.append(_BINARY)
        elif isinstance(param, Array):
            values.append(encode(type(param), param.values))
            formats.append(_BINARY)
        else:
            values.append(None if param is None else _text(param))
            formats.append(_TEXT)
    return values, formats


def _text(param: Any) -> bytes:
    data = str(param).encode()
    if b"\0" in data:
        # The server would read it as the end.
        raise psycopg.DataError("a text contains NUL")
    return data


def _exchanged(
    connection: TimeoutConnection, prepared: set[str], groups: Sequence[Sequence[tuple[str, Any, Any]]]
) -> list[list[list[pq.abc.PGresult]]]:
    """The answers of the server, by group. Without the end of a group the result of its statements is unknown."""
    pgconn = connection.pgconn
    pgconn.enter_pipeline_mode()
    new: list[str] = []
    for sent in groups:
        for name, values, formats in sent:
            if name not in prepared and name not in new:
                pgconn.send_prepare(name.encode(), _numbered(name)[0])
                new.append(name)
            pgconn.send_query_prepared(name.encode(), values, formats, _BINARY)
        pgconn.pipeline_sync()
    connection.flush()
    answers = []
    for sent in groups:
        results = []
        for name, _, _ in sent:
            refusal = []
            if name in new:
                refusal = _prepared(connection, prepared, name)
                new.remove(name)
            results.append(refusal + connection.results())
        end = connection.results()
        if not end or end[-1].status != pq.ExecStatus.PIPELINE_SYNC:
            raise psycopg.OperationalError(pgconn.get_error_message())
        answers.append(results)
    pgconn.exit_pipeline_mode()
    return answers


def _prepared(connection: TimeoutConnection, prepared: set[str], name: str) -> list[pq.abc.PGresult]:
    """Note that the statement is prepared. If it is not: what the server said."""
    results = connection.results()
    if any(result.status != pq.ExecStatus.COMMAND_OK for result in results):
        return results
    prepared.add(name)
    return []


# -- what comes back -------------------------------------------------------------------------------------------------


def _rows(connection: TimeoutConnection, results: list[pq.abc.PGresult]) -> list[Any]:
    rows: list[Any] = []
    for result in results:
        if result.status == pq.ExecStatus.TUPLES_OK:
            if result.ntuples:
                rows.extend(_tuples(result))
        else:
            _checked(result, connection)
    return rows


def _tuples(result: pq.abc.PGresult) -> Iterator[tuple[Any, ...]]:
    readers = [_READERS[result.ftype(column)] for column in range(result.nfields)]
    get_value = result.get_value
    for number in range(result.ntuples):
        values = [get_value(number, column) for column in range(len(readers))]
        yield tuple([None if value is None else read(value) for read, value in zip(readers, values, strict=True)])


def _integer(value: bytes) -> int:
    return int.from_bytes(value, signed=True)


def _float(value: bytes) -> float:
    found: float = _FLOAT.unpack(value)[0]
    return found


# By the oid of a type: boolean, bytea, name, int8, int2, int4, text, float8, void.
_READERS: dict[int, Callable[[bytes], Any]] = {
    16: lambda value: value == b"\1",
    17: bytes,
    19: bytes.decode,
    20: _integer,
    21: _integer,
    23: _integer,
    25: bytes.decode,
    701: _float,
    2278: bytes.decode,
}


def _checked(result: pq.abc.PGresult, connection: TimeoutConnection) -> None:
    if result.status == pq.ExecStatus.FATAL_ERROR:
        raise errors.error_from_result(result, encoding=connection.info.encoding)
    if result.status == pq.ExecStatus.PIPELINE_ABORTED:
        raise errors.InFailedSqlTransaction("a statement before it was refused")
