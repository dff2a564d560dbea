"""`sql`: a query, as one transaction. Its output is the rows, or how many rows it changed."""

from __future__ import annotations

import importlib
import sys
from contextlib import AbstractContextManager
from typing import Any, Protocol, cast

from mulligan import StepError
from mulligan.worker.child.json_encoding import EncodedJson
from mulligan.worker.databases.address import Address, read_address
from mulligan.worker.databases.failures import invalid
from mulligan.worker.databases.kept_connections import KEPT
from mulligan.worker.databases.parameters import bind_parameters
from mulligan.worker.databases.statements import Dialect, Statement, statements

_TITLES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "duckdb": "DuckDB"}
# Statements that would end the step's transaction.
_ENDINGS = frozenset("BEGIN START COMMIT END ABORT".split())


class Session(Protocol):
    """One transaction."""

    # How many rows were inserted, changed or deleted.
    changed: int

    def execute(self, statement: Statement, values: dict[str, Any], keep_rows: bool, /) -> EncodedJson | None: ...

    def commit(self) -> None: ...


class Database(Protocol):
    """A module of `databases`."""

    DIALECT: Dialect

    def open_session(self, location: str, is_read_only: bool, /) -> AbstractContextManager[Session]: ...


def run(
    connection: object, query: object, params: object = None, read_only: bool = False, rows: str = "json"
) -> EncodedJson | dict[str, int]:
    """Return the rows of the last statement that has any; `{"rowcount": N}` if none has, or with `rows: none`.

    It is all or nothing: after any failure, and if this process dies, the transaction is rolled back.
    """
    address = read_address(connection)
    try:
        # A process that runs this action runs nothing but our own actions.
        with KEPT.keep_connections():
            return _run(address, query, params, is_read_only=read_only, keep_rows=rows == "json")
    except StepError as error:
        shown = redact_error(error, address)
        # Print it to the log too, with the line and the caret.
        print(shown.message, file=sys.stderr)
        raise shown from None


def _run(
    address: Address, query: object, params: object, *, is_read_only: bool, keep_rows: bool
) -> EncodedJson | dict[str, int]:
    database = database_of(address.kind)
    if not isinstance(query, str):
        raise invalid(f"'query' must be text, and is of type '{type(query).__name__}'")
    parsed = statements(query, database.DIALECT)
    values = bind_parameters(parsed, params, database.DIALECT)
    check_statements(parsed)
    rows: EncodedJson | None = None
    with database.open_session(address.location, is_read_only) as session:
        for statement in parsed:
            result = session.execute(statement, values, keep_rows)
            rows = result if result is not None else rows
        session.commit()
    return rows if rows is not None and keep_rows else {"rowcount": session.changed}


def database_of(kind: str) -> Database:
    """Import a database's module when it is needed: its library may be slow to load, or missing."""
    try:
        return cast(Database, importlib.import_module(f"mulligan.worker.databases.{kind}"))
    except ImportError:
        message = f"{_TITLES[kind]} needs a library that this worker does not have: pip install 'mulligan[{kind}]'"
        raise invalid(message) from None


def check_statements(parsed: list[Statement]) -> None:
    """Raise INPUT_INVALID if there are no statements, or if one would end the transaction."""
    if not parsed:
        raise invalid("the query is empty")
    for words in (statement.words for statement in parsed):
        is_ending = words[:1] == ["ROLLBACK"] and "TO" not in words[1:3]
        if is_ending or words[:2] == ["PREPARE", "TRANSACTION"] or _ENDINGS.intersection(words[:1]):
            raise invalid(f"a step is one transaction: remove '{words[0].lower()}' from its query")


def redact_error(error: StepError, address: Address) -> StepError:
    """Return the failure without the password, wherever the database repeated it."""
    details = {
        name: address.redact(value) if isinstance(value, str) else value for name, value in error.details.items()
    }
    return StepError(error.code, address.redact(error.message), retryable=error.retryable, details=details)
