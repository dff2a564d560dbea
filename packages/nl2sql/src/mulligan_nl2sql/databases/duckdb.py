"""DuckDB: a file that is opened for reading alone, without access to other files, and with settings that stay.

It has nothing that would ask for each table and column. Its own parser is asked instead what a statement is, and which
tables it names: a second opinion that does not come from the library that checked the statement.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb

from mulligan_nl2sql.execution.messages import Finding, Request
from mulligan_nl2sql.failures import Code, QueryFailed
from mulligan_nl2sql.limits import Limits
from mulligan_nl2sql.policy import Policy
from mulligan_nl2sql.schema import Column, ForeignKey, Schema, Table, fold_ascii

MAIN = "main"
_CHUNK_ROWS = 500
_THREADS = 2
# The second layer. No setting can be changed once `lock_configuration` is set.
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_unsigned_extensions": False,
    # A table that does not exist is not looked for among the variables of this program.
    "python_enable_replacements": False,
    # Nothing is written to a file when memory is short.
    "temp_directory": "",
    "lock_configuration": True,
}
# Joins that look at each pair of rows.
_PAIRWISE = ("CROSS_PRODUCT", "NESTED_LOOP_JOIN", "BLOCKWISE_NL_JOIN", "PIECEWISE_MERGE_JOIN", "IE_JOIN")
# How DuckDB writes the name of a table: parts in quotes where needed, and an alias.
_PART = re.compile(r'"(?:[^"]|"")*"|[^.]+')
_ALIAS = re.compile(r' AS (?:"(?:[^"]|"")*"|\S+)$')
_CARDINALITY = "Estimated Cardinality"

# DuckDB 1 shows how a column is generated as its default: beside a generated column, one with a default counts as one.
_COLUMNS = """
SELECT c.schema_name, c.table_name, c.column_name, c.data_type, c.is_nullable, coalesce(c.comment, ''),
    t.sql ILIKE '%GENERATED ALWAYS%' AND c.column_default IS NOT NULL
FROM duckdb_columns() c LEFT JOIN duckdb_tables() t USING (database_oid, table_oid)
WHERE c.database_name = current_database() AND NOT c.internal AND list_contains($schemas, c.schema_name)
ORDER BY c.schema_name, c.table_name, c.column_index
"""
_TABLES = """
SELECT schema_name, table_name, coalesce(comment, ''), false, estimated_size FROM duckdb_tables()
WHERE database_name = current_database() AND NOT internal
UNION ALL
SELECT schema_name, view_name, coalesce(comment, ''), true, -1 FROM duckdb_views()
WHERE database_name = current_database() AND NOT internal
"""
_KEYS = """
SELECT schema_name, table_name, constraint_type, constraint_column_names, referenced_table, referenced_column_names
FROM duckdb_constraints()
WHERE database_name = current_database() AND constraint_type IN ('PRIMARY KEY', 'FOREIGN KEY')
"""


def check_kind(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """The third layer: DuckDB's own parser finds exactly one statement, and it is a SELECT."""
    kinds = [statement.type.name for statement in connection.extract_statements(sql)]
    if kinds != ["SELECT"]:
        raise duckdb.PermissionException(f"one SELECT is expected, and this is {', '.join(kinds) or 'nothing'}")


def check_tables(connection: duckdb.DuckDBPyConnection, sql: str, schema: Schema) -> None:
    """The fourth layer: DuckDB names the tables of a statement, without those of its own catalogue.

    In the place of a view it names what the view reads, so nothing can be said where one may be read.
    """
    if any(table.is_view for table in schema.tables):
        return
    readable = {fold_ascii(table.full_name) for table in schema.tables}
    for name in connection.get_table_names(sql, qualified=True):
        parts = [_unquoted(part) for part in _PART.findall(_ALIAS.sub("", name))]
        if len(parts) == 1:
            parts = [*schema.default_schemas[:1], *parts]
        if fold_ascii(".".join(parts)) not in readable:
            raise duckdb.PermissionException(f"the table {name} may not be read")


def plan_cost(connection: duckdb.DuckDBPyConnection, sql: str) -> float:
    """The fifth layer: the rows that the operators of DuckDB's own plan handle. The statement is not executed."""
    (_, text), *_ = connection.execute(f"EXPLAIN (FORMAT JSON) {sql}").fetchall()
    return sum(_node_cost(node)[1] for node in json.loads(text))


def _node_cost(node: Mapping[str, Any]) -> tuple[float, float]:
    """The rows that come out of an operator, and those that it and all operators below it handle."""
    inner = [_node_cost(child) for child in node.get("children", ())]
    pairs = 1.0
    for rows, _ in inner:
        pairs *= max(rows, 1.0)
    is_pairwise = str(node.get("name", "")).strip() in _PAIRWISE
    known = node.get("extra_info", {}).get(_CARDINALITY)
    out = float(known) if known is not None else pairs if is_pairwise else max((rows for rows, _ in inner), default=1.0)
    return out, sum(total for _, total in inner) + (max(out, pairs) if is_pairwise else out)


class DuckdbConnection:
    def __init__(self, request: Request) -> None:
        self._request = request
        settings = {**SETTINGS, "memory_limit": f"{request.limits.memory_bytes // 1024}KiB", "threads": _THREADS}
        try:
            self._connection = duckdb.connect(request.database.location, read_only=True, config=settings)
        except duckdb.Error as error:
            raise self._not_opened(error) from None
        self._is_late = False
        timer = threading.Timer(max(0.0, request.deadline - time.monotonic()), self._interrupt)
        timer.daemon = True
        timer.start()

    def _interrupt(self) -> None:
        self._is_late = True
        self._connection.interrupt()

    def cost(self, sql: str) -> float:
        with self._failures():
            check_kind(self._connection, sql)
            if self._request.schema is not None:
                check_tables(self._connection, sql, self._request.schema)
            return plan_cost(self._connection, sql)

    def rows(self, sql: str) -> Iterator[Sequence[Any]]:
        with self._failures():
            self._connection.execute(sql)
            while rows := self._connection.fetchmany(_CHUNK_ROWS):
                yield from rows

    def read_schema(self, policy: Policy, limits: Limits) -> Schema:
        schemas = policy.schemas or (MAIN,)
        with self._failures():
            schema = Schema("duckdb", tuple(self._tables(schemas)), schemas)
            readable = policy.apply(schema).tables
            return schema.with_values_of(self._with_values(table, limits) for table in readable)

    def findings(self, policy: Policy) -> list[Finding]:
        return [Finding("connection", f"DuckDB {duckdb.__version__}, opened for reading alone, without other files")]

    def close(self) -> None:
        self._connection.close()

    def _tables(self, schemas: Sequence[str]) -> Iterator[Table]:
        ((catalogue,),) = self._all("SELECT current_database()")
        if catalogue in schemas and catalogue != MAIN:
            raise self._request.failure(
                Code.UNUSABLE,
                f"the schema '{catalogue}' has the name of the file, which DuckDB confuses: rename the file",
            )
        columns: dict[tuple[str, str], list[Column]] = {}
        for owner, table, name, kind, is_nullable, comment, is_generated in self._all(
            _COLUMNS, {"schemas": list(schemas)}
        ):
            column = Column(name, kind, bool(is_nullable), comment, (), bool(is_generated))
            columns.setdefault((owner, table), []).append(column)
        primary: dict[tuple[str, str], tuple[str, ...]] = {}
        foreign: dict[tuple[str, str], list[ForeignKey]] = {}
        for owner, table, kind, names, other, other_names in self._all(_KEYS):
            if kind == "PRIMARY KEY":
                primary[owner, table] = tuple(names)
            elif other:
                key = ForeignKey(tuple(names), owner, other, tuple(other_names))
                foreign.setdefault((owner, table), []).append(key)
        for owner, name, comment, is_view, size in sorted(self._all(_TABLES)):
            if (owner, name) in columns:
                yield Table(
                    schema=owner,
                    name=name,
                    columns=tuple(columns[owner, name]),
                    primary_key=primary.get((owner, name), ()),
                    foreign_keys=tuple(foreign.get((owner, name), ())),
                    comment=comment,
                    is_view=is_view,
                    rows=size,
                )

    def _with_values(self, table: Table, limits: Limits) -> Table:
        """Add the values of columns that have few. A view is not asked: it may cost anything."""
        if table.is_view or not limits.sample_values:
            return table
        return table.with_columns(self._with_column_values(table, column, limits) for column in table.columns)

    def _with_column_values(self, table: Table, column: Column, limits: Limits) -> Column:
        if not column.type.startswith(("VARCHAR", "ENUM")):
            return column
        name, source = _quoted(column.name), f"{_quoted(table.schema)}.{_quoted(table.name)}"
        found = self._all(
            f"SELECT DISTINCT {name}::VARCHAR FROM (SELECT {name} FROM {source} LIMIT {limits.sample_rows}) "
            f"WHERE {name} IS NOT NULL LIMIT {limits.sample_values + 1}"
        )
        return column.with_values([value for (value,) in found], limits.sample_values)

    def _all(self, sql: str, bound: Mapping[str, Any] | None = None) -> list[Any]:
        return self._connection.execute(sql, bound or {}).fetchall()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as error:
            raise self._failure(error) from None

    def _failure(self, error: duckdb.Error) -> QueryFailed:
        request, message = self._request, _first_line(error)
        if isinstance(error, duckdb.InterruptException) or self._is_late:
            return request.timed_out()
        if isinstance(error, duckdb.OutOfMemoryException):
            return request.memory_exceeded()
        is_write = isinstance(error, duckdb.InvalidInputException) and "read-only" in str(error)
        if isinstance(error, duckdb.PermissionException) or is_write:
            return request.failure(Code.FORBIDDEN_BY_DATABASE, f"DuckDB refused the statement: {message}")
        return request.failure(Code.REJECTED, f"DuckDB refused the statement: {message}")

    def _not_opened(self, error: duckdb.Error) -> QueryFailed:
        location = self._request.database.location
        if "lock on file" in str(error):
            return self._request.failure(Code.BUSY, f"the file '{location}' is in use by another process")
        if not _has_magic_bytes(location):
            return self._request.failure(
                Code.UNUSABLE, f"'{location}' cannot be read as a DuckDB database: it is not one"
            )
        return self._request.failure(
            Code.UNUSABLE, f"'{location}' cannot be read as a DuckDB database: {_first_line(error)}"
        )


def open_connection(request: Request) -> DuckdbConnection:
    return DuckdbConnection(request)


def _has_magic_bytes(location: str) -> bool:
    """Whether the file begins as DuckDB's files do. It takes others for those of extensions that may not be loaded."""
    try:
        with open(location, "rb") as file:
            return file.read(12)[8:] == b"DUCK"
    except OSError:
        return True


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
