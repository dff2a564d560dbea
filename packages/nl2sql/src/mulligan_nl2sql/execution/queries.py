"""The doors for statements: what one is expected to cost, and its rows. Every statement is checked here."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from mulligan_nl2sql.checking.allowed_functions import NAMES
from mulligan_nl2sql.checking.check import CheckedQuery, check
from mulligan_nl2sql.database_urls import Database
from mulligan_nl2sql.execution.messages import Answer, Task, make_request
from mulligan_nl2sql.execution.processes import ask
from mulligan_nl2sql.failures import Code, QueryFailed, Stage
from mulligan_nl2sql.policy import Policy
from mulligan_nl2sql.schema import Schema


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The rows are in a file of JSON lines. `cut` is the limit that has cut them, `rows` or `bytes`, or empty."""

    path: str
    columns: tuple[str, ...]
    rows: int
    bytes: int
    cut: str
    seconds: float
    cost: float
    sql: str
    tables: tuple[str, ...]


def explain(database: Database, sql: str, schema: Schema, policy: Policy) -> float:
    """Return what the statement is expected to cost. QUERY_TOO_EXPENSIVE if it is more than the limit."""
    query = _checked(sql, schema, policy, database)
    return _ask("explain", database, policy, schema=schema, query=query).cost or 0.0


def execute(database: Database, sql: str, schema: Schema, policy: Policy, *, file: Path) -> Result:
    """Check the statement, bound its cost, execute it, and write its rows to `file`, which appears when it is whole."""
    started = time.monotonic()
    query = _checked(sql, schema, policy, database)
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        rows_fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise QueryFailed(
            Code.UNUSABLE, f"'{file}' cannot be written: {(error.strerror or '').lower()}", stage=Stage.EXECUTE
        ) from None
    try:
        with os.fdopen(rows_fd, "wb"):
            answer = _ask("execute", database, policy, schema=schema, query=query, rows_fd=rows_fd)
        written = answer.written
        assert written is not None
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)
    return Result(
        path=str(file),
        columns=query.columns,
        rows=written.rows,
        bytes=written.bytes,
        cut=written.cut,
        seconds=round(time.monotonic() - started, 3),
        cost=answer.cost or 0.0,
        sql=query.sql,
        tables=query.tables,
    )


def _checked(sql: str, schema: Schema, policy: Policy, database: Database) -> CheckedQuery:
    if schema.dialect != database.dialect:
        raise QueryFailed(
            Code.UNUSABLE,
            f"the schema is one of {schema.dialect}, but the database '{database.name}' is {database.dialect}",
            stage=Stage.CHECK,
        )
    return check(sql, schema, policy.limits, functions=policy.functions)


def _ask(
    task: Task,
    database: Database,
    policy: Policy,
    *,
    schema: Schema,
    query: CheckedQuery,
    rows_fd: int = -1,
) -> Answer:
    return ask(
        make_request(
            task,
            database,
            policy,
            schema=schema,
            functions=tuple(sorted(NAMES[database.dialect] | {name.lower() for name in policy.functions})),
            sql=query.sql,
            columns=query.columns,
            aliases=query.aliases,
            defined=query.defined,
            rows_max=query.rows_max,
            rows_fd=rows_fd,
        )
    )
