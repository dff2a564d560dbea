"""Schemas that hold the tables of an empty store, for tests that do not care how these tables are made.

To make the tables and to drop them takes PostgreSQL fifteen times as long as to empty them. A schema that a test has
left is emptied and gets another name: a process that the test forgot does not find it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from os import getpid
from typing import Any

import msgspec
import psycopg
from psycopg import sql

from mulligan.store import open_store
from mulligan.store.statements import newest

# A schema in which a test has left more rows is dropped: what is deleted still takes its place in the tables.
ROWS_MAX = 2000
# A test that left a transaction open holds locks.
LOCK_SECONDS_MAX = 5

_RELATIONS = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = %s"
# Changes with every statement that makes, changes or drops a table, an index, a view or a function.
_FINGERPRINT = """
SELECT count(*), max(xmin::text::bigint) FROM (
    SELECT xmin FROM pg_class WHERE relnamespace = current_schema()::regnamespace
    UNION ALL SELECT xmin FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
)
"""


class _Schema(msgspec.Struct):
    name: str
    fingerprint: Any
    tables: list[str]
    sequences: list[str]
    # What the tables hold from the start.
    first_rows: dict[str, list[Any]]


class StoreSchemas:
    """Schemas of one process, on one server. Whoever takes one has it alone."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._numbers = count(1)
        self._free: list[_Schema] = []
        # Kept: PostgreSQL takes longer to serve a new connection than to empty a schema.
        self._cleaner: psycopg.Connection[Any] | None = None

    @contextmanager
    def take(self) -> Iterator[str]:
        """The URL of an empty store, until the context ends."""
        schema = self._free.pop() if self._free else self._make()
        try:
            yield self._url(schema.name)
        finally:
            self._put_back(schema)

    def drop_all(self) -> None:
        while self._free:
            self._drop(self._free.pop())
        if self._cleaner is not None:
            self._cleaner.close()

    def _make(self) -> _Schema:
        name = self._next_name()
        with psycopg.connect(self._server_url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
        open_store(self._url(name)).close()
        with psycopg.connect(self._url(name)) as connection:
            tables = [relation for (relation,) in connection.execute(_RELATIONS, ["r"])]
            sequences = [relation for (relation,) in connection.execute(_RELATIONS, ["S"])]
            rows = {one: connection.execute(_statement("SELECT * FROM {}", one)).fetchall() for one in tables}
            fingerprint = connection.execute(_FINGERPRINT).fetchone()
        return _Schema(name, fingerprint, tables, sequences, {table: some for table, some in rows.items() if some})

    def _put_back(self, schema: _Schema) -> None:
        try:
            is_as_before = self._empty(schema)
        except psycopg.OperationalError:
            # Another process still holds its locks.
            is_as_before = False
        if is_as_before:
            self._free.append(schema)
        else:
            self._drop(schema)

    def _empty(self, schema: _Schema) -> bool:
        """Whether it can be used again; then it is empty, under another name."""
        name = self._next_name()
        if self._cleaner is None or self._cleaner.closed:
            # A statement that was prepared in one schema is not for another.
            self._cleaner = psycopg.connect(self._server_url, autocommit=True, prepare_threshold=None)
        connection = self._cleaner
        with connection.transaction():
            connection.execute(_statement("SET LOCAL search_path = {}", schema.name))
            # The tables refuse who does not say that it knows them.
            connection.execute(f"SET LOCAL mulligan.schema = '{newest('postgres')}'")
            if connection.execute(_FINGERPRINT).fetchone() != schema.fingerprint:
                return False
            connection.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS_MAX}s'")
            deleted = sum(connection.execute(_statement("DELETE FROM {}", table)).rowcount for table in schema.tables)
            if deleted > ROWS_MAX:
                return False
            for table, rows in schema.first_rows.items():
                values = sql.SQL(", ").join([sql.Placeholder()] * len(rows[0]))
                insert = sql.SQL("INSERT INTO {} VALUES ({})").format(sql.Identifier(table), values)
                connection.cursor().executemany(insert, rows)
            connection.execute("SELECT setval(name, 1, false) FROM unnest(%s::text[]) AS name", [schema.sequences])
            rename = sql.SQL("ALTER SCHEMA {} RENAME TO {}")
            connection.execute(rename.format(sql.Identifier(schema.name), sql.Identifier(name)))
        schema.name = name
        return True

    def _drop(self, schema: _Schema) -> None:
        with psycopg.connect(self._server_url, autocommit=True) as connection:
            connection.execute("SET client_min_messages = warning")
            connection.execute(_statement("DROP SCHEMA IF EXISTS {} CASCADE", schema.name))

    def _next_name(self) -> str:
        return f"test_store_{getpid()}_{next(self._numbers)}"

    def _url(self, name: str) -> str:
        return f"{self._server_url}{'&' if '?' in self._server_url else '?'}options=-csearch_path%3D{name}"


def _statement(text: str, name: str) -> sql.Composed:
    return sql.SQL(text).format(sql.Identifier(name))  # type: ignore[arg-type]
