"""Targets of nl2sql: questions for the planner that knows rules, and SQL that somebody else wrote."""

from __future__ import annotations

import re
import sqlite3
from datetime import date
from functools import cache
from pathlib import Path

import duckdb
import msgspec

from mulligan_nl2sql.benchmark.case_files import read_benchmark
from mulligan_nl2sql.checking.check import CheckedQuery, check
from mulligan_nl2sql.demo.benchmark import QUESTIONS
from mulligan_nl2sql.demo.shop import fill, shop_schema
from mulligan_nl2sql.failures import QueryFailed
from mulligan_nl2sql.limits import Limits
from mulligan_nl2sql.planning.planner import Plan
from mulligan_nl2sql.planning.rules.planner import plan
from mulligan_nl2sql.schema import Schema

from .seeds import PROJECT
from .sentences import require

TODAY = date(2026, 11, 17)
DIALECTS = ("sqlite", "duckdb", "postgres")
# Exists, and no policy shows it.
HIDDEN = "salaries"
_HOSTILE = re.compile(r"^[-x ]+\| *[\w-]+ *\| (.*)$", re.MULTILINE)
# Enough for the database of the demo; what takes longer is left.
_STEPS_MAX = 200_000
_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


def question(data: bytes) -> None:
    """A question: refused in words, or SQL that passes the check and that the database understands as a reader."""
    text = data.decode("utf-8", "replace")
    found = plan(text, _schema("sqlite"), TODAY)
    if not isinstance(found, Plan):
        require(bool(found.message), "a refusal without words")
        return
    _executed(check(found.sql, _schema("sqlite"), Limits()))


def statement(data: bytes) -> None:
    """SQL, in every dialect: refused with a code, or one statement that reads what may be read, and changes nothing."""
    text = data.decode("utf-8", "replace")
    for dialect in DIALECTS:
        try:
            checked = check(text, _schema(dialect), Limits())
        except QueryFailed as refused:
            require(bool(refused.message) and bool(refused.code), "a refusal without words")
            continue
        require(all(not one.endswith(f".{HIDDEN}") for one in checked.tables), f"what is hidden is read: {checked.sql}")
        if dialect == "sqlite":
            _executed(checked)
        elif dialect == "duckdb":
            _parsed_by_duckdb(checked.sql)


def _executed(checked: CheckedQuery) -> None:
    """Have SQLite execute it, which says what it does. An error of the database is the user's, and no harm."""
    connection, done = _database()
    done.clear()
    changes = connection.total_changes
    try:
        connection.execute(checked.sql).fetchmany(5)
    except (sqlite3.Error, sqlite3.Warning, OverflowError):
        pass
    require(done <= {name.casefold() for name in _names()}, f"it did or read {sorted(done)}: {checked.sql}")
    require(
        connection.total_changes == changes and not connection.in_transaction, f"it changed something: {checked.sql}"
    )


def _parsed_by_duckdb(sql: str) -> None:
    try:
        with duckdb.connect() as connection:
            kinds = [one.type for one in connection.extract_statements(sql)]
    except duckdb.Error:
        return
    require(kinds == [duckdb.StatementType.SELECT], f"DuckDB reads {kinds}: {sql}")


@cache
def _schema(dialect: str) -> Schema:
    """What may be read of the shop, as a database of that dialect says it."""
    schema = shop_schema()
    if dialect == "postgres":
        tables = tuple(msgspec.structs.replace(one, schema="public", foreign_keys=()) for one in schema.tables)
        return Schema(dialect, tables, ("public",), (f"public.{HIDDEN}",))
    return msgspec.structs.replace(schema, dialect=dialect, hidden=(f"main.{HIDDEN}",))


@cache
def _names() -> frozenset[str]:
    return frozenset(table.name for table in _schema("sqlite").tables)


@cache
def _database() -> tuple[sqlite3.Connection, set[str]]:
    """The shop in memory, and what the last statement read, or did beyond reading."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    fill(connection)
    connection.execute(f"create table {HIDDEN} (id integer primary key, amount real)")
    done: set[str] = set()

    def notice(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action not in _READS:
            done.add(f"action {action} {first}")
            return sqlite3.SQLITE_DENY
        # The name of a common table, or of a subquery, is none of the database.
        if action == sqlite3.SQLITE_READ and first and second:
            done.add(first.casefold())
        return sqlite3.SQLITE_OK

    connection.set_authorizer(notice)
    connection.set_progress_handler(lambda: 1, _STEPS_MAX)
    return connection, done


@cache
def question_seeds() -> list[bytes]:
    """The questions of the benchmark."""
    return [case.question.encode() for case in read_benchmark(QUESTIONS).cases]


@cache
def statement_seeds() -> list[bytes]:
    """The statements that the tests of the check refuse, and those that the benchmark expects."""
    folder = PROJECT / "packages/nl2sql/tests/hostile"
    hostile = [one for path in sorted(folder.glob("*.txt")) for one in _HOSTILE.findall(Path(path).read_text())]
    cases = read_benchmark(QUESTIONS).cases
    expected = [one.sql for case in cases for one in case.expected.values() if one.sql]
    return [text.encode() for text in dict.fromkeys([*expected, *hostile])]
