"""The process of one query: `python -m mulligan_nl2sql.execution.child`. The request is on stdin, the answer on stdout.

It limits itself before it opens a database, and dies with the process that started it.
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
import signal
import sys
import time
from importlib import import_module

import msgspec

from mulligan_nl2sql.databases.connection import Connection
from mulligan_nl2sql.execution.messages import Answer, FailureReport, Request
from mulligan_nl2sql.execution.rows_file import write_rows
from mulligan_nl2sql.failures import Code, QueryFailed
from mulligan_nl2sql.limits import MEBIBYTE

_MODULES = {
    "sqlite": "mulligan_nl2sql.databases.sqlite",
    "duckdb": "mulligan_nl2sql.databases.duckdb",
    "postgres": "mulligan_nl2sql.databases.postgres",
}
_EXTRAS = {"duckdb": "duckdb", "psycopg": "postgres", "psycopg_binary": "postgres"}
# The interpreter and the libraries, beyond what the query itself may use.
_OWN_MEMORY_BYTES = 192 * MEBIBYTE
_ANSWER_BYTES_MAX = 64 * MEBIBYTE
_FILES_MAX = 128
_PR_SET_PDEATHSIG = 1


def main() -> int:
    request = msgspec.json.decode(_read_all(0), type=Request)
    _die_with(request.parent_pid)
    _limit(request)
    try:
        answer = _answer(request)
    except QueryFailed as error:
        answer = _failed(error)
    except MemoryError:
        answer = _failed(request.memory_exceeded())
    _write_all(1, msgspec.json.encode(answer))
    # Nothing is left to do: a database that hangs while it closes does not matter.
    os._exit(0)


def _answer(request: Request) -> Answer:
    connection = _connect(request)
    if request.task in ("schema", "index"):
        schema = connection.read_schema(request.policy, request.limits)
        return Answer(schema=schema if request.task == "index" else request.policy.apply(schema))
    if request.task == "doctor":
        return Answer(findings=tuple(connection.findings(request.policy)))
    # Nothing is executed whose cost was not asked for first.
    cost = connection.cost(request.sql)
    if cost > request.limits.cost:
        raise request.too_expensive(cost)
    if request.task == "explain":
        return Answer(cost=cost)
    written = write_rows(
        request.rows_fd,
        request.columns,
        connection.rows(request.sql),
        rows_max=request.rows_max,
        bytes_max=request.limits.result_bytes,
    )
    return Answer(written=written, cost=cost)


def _connect(request: Request) -> Connection:
    try:
        module = import_module(_MODULES[request.database.dialect])
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        raise request.failure(
            Code.UNUSABLE,
            f"the library for {request.database.dialect} is not installed: pip install 'mulligan-nl2sql[{extra}]'",
        ) from None
    connection: Connection = module.open_connection(request)
    return connection


def _failed(error: QueryFailed) -> Answer:
    return Answer(failure=FailureReport(error.code, error.message, error.details))


def _die_with(parent: int) -> None:
    """The kernel kills this process when the one that started it is gone, in whatever way."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _limit(request: Request) -> None:
    limits = request.limits
    # DuckDB and PostgreSQL's library use threads of their own.
    cpu = math.ceil(2 * max(request.deadline - time.monotonic(), 0)) + 2
    for what, bound in (
        (resource.RLIMIT_DATA, limits.memory_bytes + _OWN_MEMORY_BYTES),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_FSIZE, max(limits.result_bytes, _ANSWER_BYTES_MAX)),
        (resource.RLIMIT_NOFILE, _FILES_MAX),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        value = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(what, (value, value))


def _read_all(file: int) -> bytes:
    chunks = []
    while chunk := os.read(file, 1 << 20):
        chunks.append(chunk)
    return b"".join(chunks)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


if __name__ == "__main__":
    sys.exit(main())
