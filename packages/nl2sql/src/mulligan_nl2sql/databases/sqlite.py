"""SQLite: a connection that cannot write, an authorizer that asks the policy, a progress handler that has the clock."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import apsw

from mulligan_nl2sql.databases.sqlite_comments import Comments, read_comments
from mulligan_nl2sql.execution.messages import Finding, Request
from mulligan_nl2sql.failures import Code, QueryFailed
from mulligan_nl2sql.limits import MEBIBYTE, Limits
from mulligan_nl2sql.policy import Policy
from mulligan_nl2sql.schema import Column, ForeignKey, Schema, Table, fold_ascii

MAIN = "main"
# Steps of SQLite's machine between two looks at the clock: a fraction of a millisecond.
_STEPS_PER_LOOK = 5_000
_BUSY_MILLISECONDS = 1_000
# What SQLite itself bounds. Lengths of values and rows are those of the result.
_LIMITS = {
    apsw.SQLITE_LIMIT_ATTACHED: 0,
    apsw.SQLITE_LIMIT_COLUMN: 500,
    apsw.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: 200,
    apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    apsw.SQLITE_LIMIT_SQL_LENGTH: 200_000,
    apsw.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_SWITCHES = {
    apsw.SQLITE_DBCONFIG_DEFENSIVE: 1,
    apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION: 0,
    apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER: 0,
    apsw.SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER: 0,
    apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA: 0,
    # A name in double quotes is a name, and never a text.
    apsw.SQLITE_DBCONFIG_DQS_DML: 0,
    apsw.SQLITE_DBCONFIG_DQS_DDL: 0,
}
_UNAVAILABLE = (apsw.BusyError, apsw.LockedError)
_NO_DATABASE = (apsw.NotADBError, apsw.CorruptError, apsw.CantOpenError, apsw.IOError)
# Rows that a search by an index is expected to find, unless the index is unique.
_ROWS_PER_SEARCH = 10
_BYTES_SHOWN_MAX = 40
_KINDS = "SELECT name, type FROM pragma_table_list WHERE schema = 'main'"
_SHADOW_SUFFIXES = (
    *("content", "data", "idx", "docsize", "config"),  # FTS5
    *("segments", "segdir", "stat"),  # FTS3, FTS4
    *("node", "parent", "rowid"),  # R*Tree
    "vocab",  # spellfix1
)
_SCAN = re.compile(r"(SCAN|SEARCH) (?:CONSTANT ROW|(\S+))(.*)")
_PART = re.compile(r"(?:MATERIALIZE|CO-ROUTINE) (\S+)")

Authorizer = Callable[[int, str | None, str | None, str | None, str | None], int]


def open_read_only(location: str) -> apsw.Connection:
    """The first layer: the file is opened by SQLite for reading alone."""
    return apsw.Connection(f"file:{quote(location)}?mode=ro", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def set_switches(connection: apsw.Connection) -> None:
    """The second layer: no extensions, no triggers, no attached files, no statement of unlimited size."""
    for switch, value in _SWITCHES.items():
        connection.config(switch, value)
    for limit, value in _LIMITS.items():
        connection.limit(limit, value)
    connection.execute("PRAGMA query_only = ON; PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0")


def shadow_tables(connection: apsw.Connection) -> frozenset[str]:
    """The tables in which virtual tables keep what they hold: nothing of them may be read, except by their modules."""
    kinds = {fold_ascii(name): kind for name, kind in connection.execute(_KINDS)}
    virtual = [name for name, kind in kinds.items() if kind == "virtual"]
    # SQLite does not know the shadow tables of a module that it does not have.
    guessed = {f"{name}_{suffix}" for name in virtual for suffix in _SHADOW_SUFFIXES}
    return frozenset(name for name, kind in kinds.items() if kind == "shadow" or name in guessed)


def authorizer(
    schema: Schema,
    functions: Sequence[str],
    defined: Sequence[str] = (),
    *,
    shadows: frozenset[str] = frozenset(),
    is_running: Callable[[], bool] = lambda: False,
) -> Authorizer:
    """The third layer: SQLite asks for each table, column and function of a statement when it compiles it.

    `defined` are the names after WITH. SQLite reports them as it reports views, so the check lets none of them have the
    name of a view. While a statement runs (`is_running`), the modules of virtual tables compile statements of their
    own, which read `shadows`.
    """
    readable = {
        fold_ascii(table.name): {"", *(fold_ascii(column.name) for column in table.columns)}
        for table in schema.tables
        if table.schema == MAIN and fold_ascii(table.name) not in shadows
    }
    views = {fold_ascii(table.name) for table in schema.tables if table.is_view}
    # `like` and `glob` are what the operators call.
    callable_names = {"like", "glob", *(fold_ascii(name) for name in functions)}
    # A table of which no column is read, as in `count(*)`, comes without its database if the statement has none.
    countable = {*readable, *(fold_ascii(name) for name in defined)}

    def authorize(action: int, first: str | None, second: str | None, database: str | None, inner: str | None) -> int:
        if action == apsw.SQLITE_SELECT:
            is_allowed = True
        elif action == apsw.SQLITE_READ:
            table, column = fold_ascii(first or ""), fold_ascii(second or "")
            # Within a view: what the view was made to read.
            through_view = inner is not None and fold_ascii(inner) in views and database in (MAIN, None)
            is_counted = not column and database is None and table in countable
            by_module = database == MAIN and table in shadows and is_running()
            is_allowed = (
                through_view or is_counted or by_module or (database == MAIN and column in readable.get(table, ()))
            )
        elif action == apsw.SQLITE_FUNCTION:
            is_allowed = fold_ascii(second or "") in callable_names
        elif action == apsw.SQLITE_PRAGMA:
            # A full-text index asks whether another process has written.
            is_allowed = first == "data_version" and second is None and is_running()
        else:
            is_allowed = False
        return int(apsw.SQLITE_OK if is_allowed else apsw.SQLITE_DENY)

    return authorize


def set_deadline(connection: apsw.Connection, deadline: float) -> None:
    """The fourth layer: a statement that runs beyond the deadline is interrupted."""
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_PER_LOOK)


class SqliteConnection:
    def __init__(self, request: Request) -> None:
        self._request = request
        self._is_running = False
        apsw.hard_heap_limit(request.limits.memory_bytes)
        with self._failures():
            self._connection = open_read_only(request.database.location)
            self._connection.set_busy_timeout(_BUSY_MILLISECONDS)
            set_switches(self._connection)
            self._connection.limit(apsw.SQLITE_LIMIT_LENGTH, max(request.limits.result_bytes, MEBIBYTE))
            set_deadline(self._connection, request.deadline)
            # The file is read for the first time here: it may be none of SQLite's.
            self._all("SELECT count(*) FROM sqlite_master")
            self._sizes = table_sizes(self._connection) if request.sql else {}
            if request.schema is not None:
                self._connection.authorizer = authorizer(
                    request.schema,
                    request.functions,
                    request.defined,
                    shadows=shadow_tables(self._connection),
                    is_running=lambda: self._is_running,
                )

    def rows(self, sql: str) -> Iterator[Sequence[Any]]:
        cursor = self._connection.cursor()
        # Called when the statement has been compiled, before its first step.
        cursor.exec_trace = self._begin_to_run
        with self._failures():
            yield from cursor.execute(sql)
        self._is_running = False

    def _begin_to_run(self, *_: object) -> bool:
        self._is_running = True
        return True

    def cost(self, sql: str) -> float:
        """The number of rows that nested loops look at. SQLite has no estimate of its own that it would say."""
        with self._failures():
            return plan_cost(self._connection, sql, self._sizes, self._request.aliases)

    def read_schema(self, policy: Policy, limits: Limits) -> Schema:
        with self._failures():
            schema = Schema("sqlite", tuple(self._tables()), (MAIN,))
            readable = policy.apply(schema).tables
            return schema.with_values_of(self._with_values(table, limits) for table in readable)

    def findings(self, policy: Policy) -> list[Finding]:
        version = f"SQLite {apsw.sqlite_lib_version()}, opened for reading alone, with an authorizer"
        return [Finding("connection", version)]

    def close(self) -> None:
        self._connection.close(True)

    def _tables(self) -> Iterator[Table]:
        query = """
            SELECT m.name, l.type, m.sql FROM sqlite_master m JOIN pragma_table_list l ON l.name = m.name
            WHERE m.type IN ('table', 'view') AND l.schema = 'main' ORDER BY m.name
        """
        shadows = shadow_tables(self._connection)
        sizes = table_sizes(self._connection)
        for name, kind, definition in self._all(query):
            if fold_ascii(name).startswith("sqlite_") or fold_ascii(name) in shadows:
                continue
            comments = read_comments(definition or "") if kind == "table" else Comments()
            columns, keys = [], []
            # Hidden columns of virtual tables have the value 1, generated ones 2 or 3.
            for row in self._all('SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?)', [name]):
                column, declared, is_required, key, hidden = row
                if hidden != 1:
                    comment = comments.columns.get(fold_ascii(column), "")
                    columns.append(Column(column, declared or "", not is_required, comment, (), hidden in (2, 3)))
                    keys.append((key, column))
            yield Table(
                schema=MAIN,
                name=name,
                columns=tuple(columns),
                primary_key=tuple(column for key, column in sorted(keys) if key),
                foreign_keys=tuple(self._foreign_keys(name)),
                comment=comments.table,
                # A virtual table may show what another table holds: like a view, it must be named.
                is_view=kind in ("view", "virtual"),
                rows=sizes.get(fold_ascii(name), -1),
            )

    def _foreign_keys(self, table: str) -> Iterator[ForeignKey]:
        query = 'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id, seq'
        by_id: dict[int, tuple[str, list[str], list[str]]] = {}
        for number, other, column, to_column in self._all(query, [table]):
            _, columns, to_columns = by_id.setdefault(number, (other, [], []))
            columns.append(column)
            to_columns.append(to_column or self._primary_key(other, len(columns) - 1))
        for other, columns, to_columns in by_id.values():
            yield ForeignKey(tuple(columns), MAIN, other, tuple(to_columns))

    def _primary_key(self, table: str, at: int) -> str:
        """A foreign key that names no columns refers to the primary key."""
        rows = self._all("SELECT name FROM pragma_table_xinfo(?) WHERE pk ORDER BY pk", [table])
        return str(rows[at][0]) if at < len(rows) else ""

    def _with_values(self, table: Table, limits: Limits) -> Table:
        """Add the values of columns that have few. A view is not asked: it may cost anything."""
        if table.is_view or not limits.sample_values:
            return table
        return table.with_columns(self._with_column_values(table, column, limits) for column in table.columns)

    def _with_column_values(self, table: Table, column: Column, limits: Limits) -> Column:
        name = _quoted(column.name)
        query = (
            f"SELECT DISTINCT {name} FROM (SELECT {name} FROM {_quoted(table.name)} LIMIT {limits.sample_rows}) "
            f"WHERE typeof({name}) = 'text' LIMIT {limits.sample_values + 1}"
        )
        try:
            found = self._all(query)
        except UnicodeDecodeError:
            # SQLite stores any bytes as a text. Without its values, the column can still be asked for.
            return column
        return column.with_values([value for (value,) in found], limits.sample_values)

    def _all(self, sql: str, bound: Sequence[Any] = ()) -> list[Any]:
        return list(self._connection.execute(sql, bound))

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise self._failure(error) from None
        except UnicodeDecodeError as error:
            found = bytes(error.object[:_BYTES_SHOWN_MAX])
            raise self._request.failure(
                Code.REJECTED, f"a text in the database is not UTF-8: {found!r}; leave its column out"
            ) from None

    def _failure(self, error: apsw.Error) -> QueryFailed:
        request, location = self._request, self._request.database.location
        if isinstance(error, apsw.InterruptError):
            return request.timed_out()
        if isinstance(error, apsw.NoMemError):
            return request.memory_exceeded()
        if isinstance(error, apsw.AuthError) or "prohibited" in str(error) or "not authorized" in str(error):
            return request.failure(Code.FORBIDDEN_BY_DATABASE, f"SQLite refused the statement: {error}")
        if isinstance(error, apsw.ReadOnlyError):
            return request.failure(Code.FORBIDDEN_BY_DATABASE, f"the statement writes: {error}")
        if isinstance(error, _UNAVAILABLE):
            return request.failure(Code.BUSY, f"the database is in use by another process: {error}")
        if isinstance(error, _NO_DATABASE):
            return request.failure(Code.UNUSABLE, f"'{location}' cannot be read as a SQLite database: {error}")
        return request.failure(Code.REJECTED, f"SQLite refused the statement: {error}")


def open_connection(request: Request) -> SqliteConnection:
    return SqliteConnection(request)


def table_sizes(connection: apsw.Connection) -> dict[str, int]:
    """How many rows each table has, about: the largest rowid, which costs one look."""
    sizes = {}
    for (name,) in list(connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")):
        try:
            ((size,),) = connection.execute(f"SELECT max(rowid) FROM {_quoted(name)}")
        except apsw.SQLError:
            # WITHOUT ROWID, or a virtual table.
            ((size,),) = connection.execute(f"SELECT count(*) FROM (SELECT 1 FROM {_quoted(name)} LIMIT 1000000)")
        sizes[fold_ascii(str(name))] = max(0, int(size or 0))
    return sizes


def plan_cost(
    connection: apsw.Connection, sql: str, sizes: Mapping[str, int], aliases: Sequence[tuple[str, str]]
) -> float:
    """The fifth layer: how many rows SQLite's own plan looks at. The statement is not executed."""
    known: dict[str, float] = {name: float(size) for name, size in sizes.items()}
    for alias, table in aliases:
        size = float(sizes.get(fold_ascii(table.partition(".")[2]), 0))
        known[fold_ascii(alias)] = max(size, known.get(fold_ascii(alias), 0.0))
    plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}")
    return estimate([(int(number), int(parent), str(words)) for number, parent, _, words in plan], known)


def estimate(plan: Sequence[tuple[int, int, str]], sizes: Mapping[str, float]) -> float:
    """How many rows the loops of a plan look at. Each line has an id, the id of the line that it is part of, and words.

    Lines beside each other are loops within each other, so their rows are multiplied. A subquery costs its own rows
    once, and once for each row of the query around it if it is correlated.
    """
    children: dict[int, list[tuple[int, str]]] = {}
    for number, parent, words in plan:
        children.setdefault(parent, []).append((number, words))
    aliases = dict(sizes)

    def looked_at(parent: int) -> tuple[float, float]:
        """The rows that come out of the loops below this line, and all rows that are looked at for them."""
        product, total, correlated = 1.0, 0.0, 0.0
        for number, words in children.get(parent, ()):
            inner_rows, inner_total = looked_at(number)
            part, scan = _PART.match(words), _SCAN.match(words)
            if part:
                aliases[fold_ascii(part[1])] = inner_rows
                total += inner_total
            elif scan:
                product *= _rows_of(scan, aliases)
                total += product + inner_total
            elif words.startswith("CORRELATED"):
                correlated += inner_total
            else:
                product = max(product, inner_rows)
                total += inner_total
        return product, total + product * correlated

    return looked_at(0)[1]


def _rows_of(scan: re.Match[str], sizes: dict[str, float]) -> float:
    if scan[2] is None:
        return 1.0
    # The plan says the alias of a table alone. Behind one that is not known is a view: the largest table is assumed.
    size = sizes.get(fold_ascii(scan[2]), max(sizes.values(), default=1.0))
    if scan[1] == "SCAN":
        return max(1.0, size)
    is_unique = "INTEGER PRIMARY KEY (rowid=?)" in scan[3]
    return 1.0 if is_unique else min(max(1.0, size), _ROWS_PER_SEARCH)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
