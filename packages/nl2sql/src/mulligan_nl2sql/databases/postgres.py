"""PostgreSQL: a transaction that is read-only, limits that the server keeps, a cursor, and a role that can only read.

The search path is `pg_catalog` alone while a statement runs: tables are written with their schemas, and a function or
an operator that somebody has put into another schema is not found.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors, sql

from mulligan_nl2sql.execution.messages import Finding, Request
from mulligan_nl2sql.failures import Code, QueryFailed
from mulligan_nl2sql.limits import Limits
from mulligan_nl2sql.policy import Policy
from mulligan_nl2sql.schema import Column, ForeignKey, Schema, Table

_CHUNK_ROWS = 500
_CURSOR = "nl2sql_rows"
_LOCK_MILLISECONDS = 1_000
# Not every version has each of them.
_SETTINGS: Mapping[str, str] = {
    "lock_timeout": str(_LOCK_MILLISECONDS),
    "idle_in_transaction_session_timeout": "60000",
    # The server notices within a second that the process of the query was killed.
    "client_connection_check_interval": "1000",
    "search_path": "pg_catalog",
    "standard_conforming_strings": "on",
    "row_security": "on",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    "datestyle": "ISO, YMD",
    "intervalstyle": "iso_8601",
}
_DANGEROUS_ROLES = ("pg_read_server_files", "pg_write_server_files", "pg_execute_server_program", "pg_write_all_data")
_ROLE = """
SELECT rolname, rolsuper, rolcreaterole, rolcreatedb, rolreplication
FROM pg_catalog.pg_roles WHERE rolname = current_user
"""
_MEMBERSHIPS = """
SELECT rolname FROM pg_catalog.pg_roles
WHERE rolname = ANY(%s) AND pg_catalog.pg_has_role(current_user, oid, 'MEMBER') ORDER BY rolname
"""
_USER_SCHEMAS = "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'"
_WRITABLE = f"""
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'f') AND {_USER_SCHEMAS}
    AND pg_catalog.has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
ORDER BY 1 LIMIT 3
"""
_CREATABLE = f"""
SELECT n.nspname FROM pg_catalog.pg_namespace n
WHERE {_USER_SCHEMAS} AND pg_catalog.has_schema_privilege(n.oid, 'CREATE') ORDER BY 1 LIMIT 3
"""
_TABLES = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, greatest(c.reltuples, -1)::bigint,
    coalesce(pg_catalog.obj_description(c.oid, 'pg_class'), '')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_any_column_privilege(c.oid, 'SELECT')
ORDER BY n.nspname, c.relname
"""
_COLUMNS = """
SELECT a.attrelid::bigint, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
    coalesce(pg_catalog.col_description(a.attrelid, a.attnum), ''), t.typcategory::text,
    pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT'),
    a.attgenerated <> ''
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = ANY(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum
"""
_KEYS = """
SELECT c.conrelid::bigint, c.contype::text, n.nspname, f.relname,
    ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(c.conkey) WITH ORDINALITY AS k (number, place)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number ORDER BY k.place),
    ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(c.confkey) WITH ORDINALITY AS k (number, place)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.number ORDER BY k.place)
FROM pg_catalog.pg_constraint c
LEFT JOIN pg_catalog.pg_class f ON f.oid = c.confrelid LEFT JOIN pg_catalog.pg_namespace n ON n.oid = f.relnamespace
WHERE c.conrelid = ANY(%s) AND c.contype IN ('p', 'f') ORDER BY c.conrelid, c.conname
"""
# Categories of types whose values are words: texts and enumerations.
_WORDS = frozenset("SE")
_REFUSED_LOGIN = ("28", "3D")
_REFUSED = re.compile(r"\bFATAL:|fe_sendauth|no password supplied")
_FOR_NOW = re.compile(r"starting up|shutting down|recovery mode|too many|remaining connection slots|not yet accepting")
_LOST = ("08", "57P")


def begin_read_only(connection: psycopg.Connection[Any]) -> None:
    """The first layer: a transaction in which nothing can be written, and which cannot be made writable again."""
    connection.execute("BEGIN READ ONLY")


def limit_session(connection: psycopg.Connection[Any], seconds: float) -> None:
    """The second layer: limits that the server keeps, also if this process is gone. Ends with the transaction."""
    known = connection.execute("SELECT name FROM pg_catalog.pg_settings WHERE name = ANY(%s)", [list(_SETTINGS)])
    for (name,) in known.fetchall():
        connection.execute("SELECT pg_catalog.set_config(%s, %s, true)", [name, _SETTINGS[name]])
    _limit_statements(connection, seconds)


def _limit_statements(connection: psycopg.Connection[Any], seconds: float) -> None:
    milliseconds = str(max(1, int(seconds * 1000)))
    connection.execute("SELECT pg_catalog.set_config('statement_timeout', %s, true)", [milliseconds])


def open_cursor(connection: psycopg.Connection[Any], text: str) -> None:
    """The third layer: the server itself accepts one statement, and only a query, for a cursor.

    The statement is prepared: a server takes no second statement then.
    """
    connection.execute(f"DECLARE {_CURSOR} NO SCROLL CURSOR FOR {text}".encode(), prepare=True)


def fetch_rows(connection: psycopg.Connection[Any], deadline: float) -> Iterator[Sequence[Any]]:
    """The rows of the cursor. The server's limit is one of each statement, so each FETCH gets the time that is left."""
    while True:
        _limit_statements(connection, deadline - time.monotonic())
        rows = connection.execute(f"FETCH {_CHUNK_ROWS} FROM {_CURSOR}".encode()).fetchall()
        if not rows:
            return
        yield from rows


def plan_cost(connection: psycopg.Connection[Any], text: str) -> float:
    """The fourth layer: what the server's own plan costs. The statement is not executed."""
    ((plan,),) = connection.execute(f"EXPLAIN (FORMAT JSON) {text}".encode(), prepare=True).fetchall()
    return float(plan[0]["Plan"]["Total Cost"])


def role_findings(connection: psycopg.Connection[Any]) -> list[Finding]:
    """The fifth layer: a role that could write, or that reaches files and programs of the server, is a problem."""
    ((name, *powers),) = connection.execute(_ROLE).fetchall()
    words = ("a superuser", "allowed to create roles", "allowed to create databases", "allowed to replicate")
    found = [
        Finding("role", f"the role '{name}' is {word}", is_problem=True)
        for word, has_it in zip(words, powers, strict=True)
        if has_it
    ]
    if powers[0]:
        return found
    for (group,) in connection.execute(_MEMBERSHIPS, [list(_DANGEROUS_ROLES)]).fetchall():
        found.append(Finding("role", f"the role '{name}' is a member of '{group}'", is_problem=True))
    tables = [table for (table,) in connection.execute(_WRITABLE.encode()).fetchall()]
    if tables:
        message = f"the role '{name}' may write to {', '.join(tables)}: revoke it, or use a role that may only read"
        found.append(Finding("tables", message, is_problem=True))
    places = [place for (place,) in connection.execute(_CREATABLE.encode()).fetchall()]
    if places:
        found.append(Finding("schemas", f"the role '{name}' may create tables in {', '.join(places)}"))
    return found


class PostgresConnection:
    def __init__(self, request: Request) -> None:
        self._request = request
        left = max(1, int(request.deadline - time.monotonic()))
        with self._failures():
            self._connection = psycopg.connect(
                request.database.location, autocommit=True, connect_timeout=left, application_name="nl2sql"
            )
            begin_read_only(self._connection)
            ((path,),) = self._all("SELECT pg_catalog.current_schemas(false)::text[]")
            self._schemas: tuple[str, ...] = request.policy.schemas or tuple(path)
            limit_session(self._connection, request.deadline - time.monotonic())
        if request.sql and not request.policy.allow_writing_role:
            self._refuse_writing_role()

    def _refuse_writing_role(self) -> None:
        with self._failures():
            problems = [one.message for one in role_findings(self._connection) if one.is_problem]
        if problems:
            raise self._request.failure(
                Code.UNSAFE,
                f"{problems[0]}: nothing is executed with it unless the policy has 'allow_writing_role = true'",
                problems=problems,
            )

    def cost(self, text: str) -> float:
        with self._failures():
            return plan_cost(self._connection, text)

    def rows(self, text: str) -> Iterator[Sequence[Any]]:
        with self._failures():
            open_cursor(self._connection, text)
            yield from fetch_rows(self._connection, self._request.deadline)

    def read_schema(self, policy: Policy, limits: Limits) -> Schema:
        with self._failures():
            kinds: dict[tuple[str, str, str], str] = {}
            schema = Schema("postgres", tuple(self._tables(kinds)), self._schemas)
            readable = policy.apply(schema).tables
            return schema.with_values_of(self._with_values(table, kinds, limits) for table in readable)

    def findings(self, policy: Policy) -> list[Finding]:
        with self._failures():
            ((version,),) = self._all("SELECT pg_catalog.current_setting('server_version')")
            found = role_findings(self._connection)
        return [Finding("connection", f"PostgreSQL {version}, in read-only transactions"), *found]

    def close(self) -> None:
        self._connection.close()

    def _tables(self, kinds: dict[tuple[str, str, str], str]) -> Iterator[Table]:
        tables = self._all(_TABLES, [list(self._schemas)])
        numbers = [number for number, *_ in tables]
        columns: dict[int, list[Column]] = {}
        unreadable: dict[int, list[str]] = {}
        names = {number: (owner, name) for number, owner, name, *_ in tables}
        for number, name, kind, is_nullable, comment, category, is_readable, is_generated in self._all(
            _COLUMNS, [numbers]
        ):
            if is_readable:
                columns.setdefault(number, []).append(Column(name, kind, is_nullable, comment, (), is_generated))
                kinds[(*names[number], name)] = category
            else:
                unreadable.setdefault(number, []).append(name)
        primary: dict[int, tuple[str, ...]] = {}
        foreign: dict[int, list[ForeignKey]] = {}
        for number, kind, to_schema, to_table, own, others in self._all(_KEYS, [numbers]):
            if kind == "p":
                primary[number] = tuple(own)
            else:
                foreign.setdefault(number, []).append(ForeignKey(tuple(own), to_schema, to_table, tuple(others)))
        for number, owner, name, relation, size, comment in tables:
            yield Table(
                schema=owner,
                name=name,
                columns=tuple(columns.get(number, ())),
                primary_key=primary.get(number, ()),
                foreign_keys=tuple(foreign.get(number, ())),
                comment=comment,
                # A foreign table reads another server: like a view, it must be named where a policy hides anything.
                is_view=relation in ("v", "m", "f"),
                rows=size,
                hidden_columns=tuple(unreadable.get(number, ())),
            )

    def _with_values(self, table: Table, kinds: Mapping[tuple[str, str, str], str], limits: Limits) -> Table:
        """Add the values of columns that have few. A view is not asked: it may cost anything."""
        if table.is_view or not limits.sample_values:
            return table
        return table.with_columns(
            self._with_column_values(table, column, limits)
            if kinds[table.schema, table.name, column.name] in _WORDS
            else column
            for column in table.columns
        )

    def _with_column_values(self, table: Table, column: Column, limits: Limits) -> Column:
        query = sql.SQL(
            "SELECT DISTINCT v::text FROM (SELECT {column} AS v FROM {table} LIMIT {rows}) AS s "
            "WHERE v IS NOT NULL LIMIT {values}"
        ).format(
            column=sql.Identifier(column.name),
            table=sql.Identifier(table.schema, table.name),
            rows=sql.Literal(limits.sample_rows),
            values=sql.Literal(limits.sample_values + 1),
        )
        found = self._connection.execute(query).fetchall()
        return column.with_values([value for (value,) in found], limits.sample_values)

    def _all(self, query: str, bound: Sequence[Any] = ()) -> list[Any]:
        return self._connection.execute(query.encode(), bound or None).fetchall()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise self._failure(error) from None

    def _failure(self, error: psycopg.Error) -> QueryFailed:
        request, state = self._request, error.sqlstate or ""
        message = error.diag.message_primary or _last_reason(str(error))
        details = {"sqlstate": state} if state else {}
        if isinstance(error, errors.QueryCanceled):
            return request.timed_out()
        if isinstance(error, errors.OutOfMemory):
            return request.memory_exceeded()
        if isinstance(error, (errors.ReadOnlySqlTransaction, errors.InsufficientPrivilege)):
            return request.failure(
                Code.FORBIDDEN_BY_DATABASE, f"PostgreSQL refused the statement: {message}", **details
            )
        if isinstance(error, errors.LockNotAvailable) or state.startswith("40"):
            return request.failure(Code.BUSY, f"the table is locked: {message}", **details)
        # While it connects, psycopg gives the server's words and no code.
        is_refusal = not state and _REFUSED.search(str(error)) and not _FOR_NOW.search(str(error))
        if state.startswith(_REFUSED_LOGIN) or is_refusal:
            return request.failure(Code.UNUSABLE, f"PostgreSQL refuses the login: {message}", **details)
        if state.startswith(_LOST) or state == "53300" or (isinstance(error, psycopg.OperationalError) and not state):
            return request.failure(Code.UNREACHABLE, f"PostgreSQL cannot be reached: {message}", **details)
        return request.failure(Code.REJECTED, f"PostgreSQL refused the statement: {message}", **details)


def _last_reason(text: str) -> str:
    """The last line that says what happened: below it may stand a question to the user."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return next((line for line in reversed(lines) if line and not line.endswith("?")), "")


def open_connection(request: Request) -> PostgresConnection:
    return PostgresConnection(request)
