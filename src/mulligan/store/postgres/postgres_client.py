"""The connections to a PostgreSQL server: opened when needed, dropped when broken; and translating its errors."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict

from mulligan.core.model.text.database_urls import NOT_SHOWN, is_unclear, redact, secret_parts, url_problem
from mulligan.errors import (
    DatabaseMissing,
    InputInvalid,
    LoginRefused,
    MulliganError,
    NoFreeConnection,
    StoreForbidden,
    StoreOvertaken,
    StoreRefused,
    StoreUnavailable,
)
from mulligan.ports import TableSize
from mulligan.store.postgres.postgres_arrays import arrays
from mulligan.store.postgres.postgres_connection import TimeoutConnection
from mulligan.store.postgres.postgres_pipeline import pipeline
from mulligan.store.sql.sql_arrays import Columns
from mulligan.store.sql.sql_database import Statement
from mulligan.store.statements import SEARCH, Migration, missing, newest

Result = TypeVar("Result")

# An unused connection that has silently broken is noticed within half a minute.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "application_name": "mulligan",
}
# A used connection is given up if sent data was not acknowledged for this share of the lease. The kernel resends it
# less and less often: after a short outage a worker would come back too late to keep its lease.
_UNACKNOWLEDGED_SHARE_MAX = 1 / 3
_UNACKNOWLEDGED_SECONDS_MIN = 1.0
# How long a transaction may last, and may be idle, as a share of the lease.
_LIMITS = {
    "idle_in_transaction_session_timeout": 1 / 6,
    # After that other workers have expired us anyway. Servers before 17 do not have this setting.
    "transaction_timeout": 1,
}
# Only what the server has is limited. Our own setting is read by the functions of the tables.
_SETTINGS = """
SELECT set_config(name, milliseconds, false)
FROM pg_settings JOIN unnest(%s::text[], %s::text[]) AS t (name, milliseconds) USING (name)
UNION ALL SELECT set_config('mulligan.schema', %s, false)
"""
# How long creating or migrating the tables may take.
_MIGRATION_SECONDS_MAX = 3600.0
# Errors of a server that refuses a connection, found by its message: our error, message and hint.
_CONNECTION_REFUSALS: tuple[tuple[type[MulliganError], str, str, str], ...] = (
    (
        NoFreeConnection,
        r"too many clients|too many connections|connection slots are reserved",
        "{where} has no free connection: {said}",
        "a worker holds two connections, any other command one: stop some, or raise 'max_connections' of the server",
    ),
    (
        StoreUnavailable,
        r"the database system is (starting up|shutting down|in recovery mode|not yet accepting)",
        "{where} does not answer yet: {said}",
        "wait until the server is up and try again",
    ),
    (
        DatabaseMissing,
        r'database ".*" does not exist',
        "{where} does not exist: {said}",
        "create it (createdb NAME, or CREATE DATABASE), or correct the name in the URL; Mulligan creates the tables",
    ),
    (
        LoginRefused,
        r'role ".*" does not exist|authentication failed|no password supplied|no pg_hba\.conf entry'
        r"|not permitted to log in|permission denied for database",
        "{where} refuses the login: {said}",
        "check user and password in the URL, in the file that its passfile names (chmod 600) or in ~/.pgpass, and that "
        "the user may connect to the database",
    ),
)
# Our transaction was rolled back because of another one, and can be tried again.
_AGAIN = (pg.DeadlockDetected, pg.SerializationFailure)
_TRIES_MAX = 5
# A process has one worker at a time. A server also registers those that reach it over HTTP, which ask it for changes.
WORKERS_HEARD_MAX = 8
_BEGIN: Statement = ("begin", ())
_BEGIN_READING: Statement = ("begin_reading", ())
_COMMIT: Statement = ("commit", ())


class Unexpected(Exception):
    """A check by `expect` in the database has failed: the transaction is rolled back."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class PostgresClient:
    """One connection for statements and, after the first question for changes, one that listens."""

    def __init__(self, url: str, lease_seconds: float) -> None:
        self._url = url
        self._lease_seconds = lease_seconds
        self._connection: TimeoutConnection | None = None
        # The statements that the connection has prepared for pipelines.
        self._prepared: set[str] = set()
        # Whether the next statement begins a transaction.
        self._must_begin = False
        # Whether the last statements of a transaction have committed it.
        self._is_committed = False
        # The notifications of the current transaction. They are sent with its commit, and executed after it.
        self._notices: list[Statement] = []
        self._listener: TimeoutConnection | None = None
        self._is_behind = False
        self._hears_ends = False
        # The workers whose messages we hear, the newest last.
        self._workers: dict[str, None] = {}
        self._has_opened = False
        self._secrets = secret_parts(url)
        self.where = _where(url)
        try:
            schema = self._open()
        except BaseException:
            self.close()
            raise
        # Channels belong to a database; their names have at most 63 bytes.
        self.channel = f"mulligan {schema}"[:60]
        # A separate channel, so that it wakes no worker.
        self.ends_channel = f"mulligan ends {schema}"[:60]
        # The channel of all workers, and the beginning of the name of the channel of one worker.
        self.channels = self.channel, f"mulligan {_digest(schema)[:16]} "

    def close(self) -> None:
        for connection in (self._connection, self._listener):
            if connection is not None:
                connection.close()
        self._connection = self._listener = None

    # -- use

    def connection(self) -> TimeoutConnection:
        """The connection for statements. Each statement is its own transaction, unless one was begun."""
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
            self._prepared = set()
        return self._connection

    def execute(self, name: str, /, *params: Any, **named: Any) -> list[Any]:
        """The rows of one statement, inside the current transaction if there is one."""
        return self.execute_in_pipeline([(name, named or params)])[0]

    def query(self, name: str, /, *params: Any, **named: Any) -> list[Any]:
        """The rows of one statement, in its own transaction."""
        with self._translated():
            return self.execute(name, *params, **named)

    def execute_batch(self, asked: Sequence[Statement], notices: Sequence[Statement] = ()) -> list[list[Any]]:
        """The rows of each statement, in one transaction and one round trip. `Unexpected` rolls all back.

        `notices` are notifications that follow it: see `notify`.
        """
        return self._again(lambda: pipeline(self.connection(), self._prepared, asked, notices))

    def execute_in_pipeline(self, asked: Sequence[Statement], notices: Sequence[Statement] = ()) -> list[list[Any]]:
        """The rows of each statement, in one round trip, inside the current transaction if there is one."""
        if not self._must_begin:
            return pipeline(self.connection(), self._prepared, asked, notices)
        found = pipeline(self.connection(), self._prepared, [_BEGIN, *asked], notices)
        self._must_begin = False
        return found[1:]

    def execute_rows(self, name: str, /, columns: Columns, rows: Iterable[Sequence[Any]]) -> int:
        """Write these rows, inside the current transaction; how many were written, if the statement returns them."""
        return len(self.execute(name, *arrays(columns, rows)))

    def write_rows(self, name: str, columns: Columns, rows: Iterable[Sequence[Any]]) -> int:
        """Write these rows in a transaction of their own; how many were written, if the statement returns them."""
        return len(self.query(name, *arrays(columns, rows)))

    def lock(self, what: str) -> None:
        """Wait until no other transaction has locked the same, and lock it until the end of the current one."""
        self.execute("lock", what)

    def table_sizes(self) -> list[TableSize]:
        return [TableSize(*row) for row in self.query("table_sizes")]

    def notify(self, notice: Statement) -> None:
        """Send a notification when the current transaction has committed.

        A transaction that notifies holds a lock of the whole server until its data is on the disk: commits of all
        workers would wait for each other. A notification in a transaction of its own writes nothing and is over at
        once. If it is lost, because the server fails between the two, workers find the news when they look again.
        """
        self._notices.append(notice)

    def read_together(self, asked: Sequence[Statement]) -> list[list[Any]]:
        """The rows of each statement, in one round trip. All of them see the same state, and lock nothing."""

        def read() -> list[list[Any]]:
            connection = self.connection()
            try:
                return pipeline(connection, self._prepared, [_BEGIN_READING, *asked, _COMMIT])[1:-1]
            except BaseException:
                if not connection.closed:
                    connection.rollback()
                raise

        return self._again(read)

    def execute_last(self, asked: Sequence[Statement]) -> list[list[Any]]:
        """The rows of each statement. Their round trip also commits the current transaction."""
        found = self.execute_in_pipeline([*asked, _COMMIT], self._notices)
        self._is_committed = True
        return found[:-1]

    def write(self, work: Callable[[], Result]) -> Result:
        """Run `work`, which executes several statements, in one transaction."""
        return self._again(lambda: self._transact(work))

    def _transact(self, work: Callable[[], Result]) -> Result:
        connection = self.connection()
        # With the first statement, so that it takes no round trip.
        self._must_begin, self._is_committed, self._notices = True, False, []
        try:
            result = work()
            if not (self._must_begin or self._is_committed):
                self.execute_last(())
            return result
        except BaseException:
            if not connection.closed:
                connection.rollback()
            raise
        finally:
            self._must_begin = False

    def _again(self, work: Callable[[], Result]) -> Result:
        with self._translated():
            for _ in range(_TRIES_MAX - 1):
                try:
                    return work()
                except _AGAIN:
                    pass
            return work()

    # -- news

    def fileno(self) -> int:
        with self._translated():
            return self._listening().fileno()

    def has_changes(self) -> bool:
        """Whether another process has notified us. True also after a gap in listening."""
        with self._translated():
            try:
                has_any = self._consume(self._listening())
            except psycopg.Error:
                self._drop_listener()
                self._listening()
                has_any = True
        has_any, self._is_behind = has_any or self._is_behind, False
        return has_any

    def listen_as(self, worker: str) -> None:
        """From now on a message for a run that this worker holds counts as a change."""
        self._workers.pop(worker, None)
        self._workers[worker] = None
        if len(self._workers) > WORKERS_HEARD_MAX:
            del self._workers[next(iter(self._workers))]
        if self._listener is not None:
            # The next listener listens for it too.
            self._drop_listener()

    @property
    def workers_heard(self) -> list[str]:
        return list(self._workers)

    def stop_listening_as(self, worker: str) -> None:
        """The worker ends. A server has one for each decision about a run that nobody drives."""
        if worker in self._workers:
            del self._workers[worker]
            # It is opened again if somebody else asks for changes.
            self._drop_listener()

    def watch_run_ends(self) -> None:
        """From now on the end of a run counts as a change."""
        self._hears_ends = True
        if self._listener is not None:
            # The next listener listens to both channels.
            self._drop_listener()

    def _consume(self, listener: TimeoutConnection) -> bool:
        # Read all of it: a server that ends the connection closes it after its last message.
        while listener.has_something():
            listener.pgconn.consume_input()
        ours = self._connection.info.backend_pid if self._connection is not None else 0
        has_any = False
        while (notify := listener.pgconn.notifies()) is not None:
            has_any = has_any or notify.be_pid != ours
        return has_any

    def _listening(self) -> TimeoutConnection:
        if self._listener is None:
            listener = self._connect()
            _listen(listener, self.channel)
            if self._hears_ends:
                _listen(listener, self.ends_channel)
            for worker in self._workers:
                _listen(listener, self.channels[1] + _digest(worker)[:32])
            # Notifications that were sent before are lost.
            self._listener, self._is_behind = listener, True
        return self._listener

    # -- opening

    def _open(self) -> str:
        # A migration takes the locks of many tables, which older processes may use meanwhile.
        schema = self._again(self._migrated_schema)
        self.connection().timeout_seconds = self._lease_seconds
        self._has_opened = True
        return schema

    def _migrated_schema(self) -> str:
        with self.connection().transaction():
            schema: str | None = self.execute("schema")[0][0]
            if schema is None:
                raise StoreRefused(f"the schema of {self.where} does not exist", hint="create it: CREATE SCHEMA …")
            self._migrate()
        return schema

    def _connect(self) -> TimeoutConnection:
        given = conninfo_to_dict(self._url)
        unacknowledged = max(_UNACKNOWLEDGED_SECONDS_MIN, self._lease_seconds * _UNACKNOWLEDGED_SHARE_MAX)
        wanted = {**_DEFAULTS, "tcp_user_timeout": int(unacknowledged * 1000)}
        options = {name: value for name, value in wanted.items() if name not in given}
        # Only pipelines prepare statements: on a rollback psycopg would deallocate theirs with its own.
        connection = TimeoutConnection.connect(self._url, autocommit=True, prepare_threshold=None, **options)
        # By then other workers have expired us.
        connection.timeout_seconds = self._lease_seconds
        self._introduce(connection)
        return connection

    def _introduce(self, connection: TimeoutConnection) -> None:
        """Say which schema we know, and let the server abort a transaction that hangs, since others wait for its locks.

        Soon enough that they do not miss their own heartbeats.
        """
        limits = [f"{self._lease_seconds * share * 1000:.0f}" for share in _LIMITS.values()]
        connection.execute(_SETTINGS, (list(_LIMITS), limits, str(newest("postgres"))))

    def _migrate(self) -> None:
        if self._missing():
            self._take_time()
            # A process that has waited here finds the migration done.
            self.execute("lock_schema")
            for migration in self._missing():
                self.connection().execute(migration.sql, prepare=False)
                if migration.number == SEARCH:
                    from mulligan.store.sql.sql_backfill import backfill_search

                    backfill_search(self)
                self.execute("create_schema_version")
                self.execute("delete_schema_version")
                self.execute("insert_schema_version", migration.number)

    def _take_time(self) -> None:
        """Lift the limits in this transaction: migrating large tables may take longer than a lease."""
        self.connection().timeout_seconds = _MIGRATION_SECONDS_MAX
        for name in _LIMITS:
            self.connection().execute("SELECT set_config(name, '0', true) FROM pg_settings WHERE name = %s", [name])

    def _missing(self) -> list[Migration]:
        _, has_version = self.execute("schema")[0]
        found = self.execute("schema_version")[0][0] if has_version else 0
        return missing("postgres", found, self.where)

    # -- trouble

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate errors of the server and the network. A connection in doubt is not used again."""
        try:
            yield
        except pg.RaiseException as error:
            raise Unexpected(str(error.diag.message_primary)) from error
        except psycopg.Error as error:
            self._drop()
            raise self._to_our_error(error) from (None if is_unclear(self._url) else error)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _drop_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(psycopg.Error):
                listener.close()

    def _to_our_error(self, error: psycopg.Error) -> MulliganError:
        said = NOT_SHOWN if is_unclear(self._url) else redact(_server_message(error), self._secrets)
        refusal = self._connection_refusal(error, said)
        if refusal is not None:
            return refusal
        match error:
            case psycopg.DataError():
                # The statements are ours: what they cannot have is what somebody sent, such as a NUL in a text.
                return InputInvalid(f"a value cannot be kept in a database: {said}", hint="send another one")
            case pg.DuplicateTable() | pg.DuplicateFunction() | pg.DuplicateObject():
                return StoreRefused(
                    f"{self.where} holds tables of another program: {said}",
                    hint="give Mulligan its own schema: …?options=-csearch_path%3Dmulligan",
                )
            case pg.InsufficientPrivilege() | pg.ReadOnlySqlTransaction():
                return StoreForbidden(
                    f"{self.where} is not writable: {said}",
                    hint="the user must be able to create tables in the schema: GRANT USAGE, CREATE ON SCHEMA … TO …",
                )
            case pg.UndefinedFunction() if error.diag.constraint_name == "schema_needed":
                return StoreOvertaken(
                    f"{self.where} was migrated by a newer Mulligan while this process had it open",
                    hint="stop this process and start it with the newer version",
                )
            case pg.UndefinedTable() | pg.UndefinedColumn() | pg.UndefinedFunction():
                # The tables were changed: waiting does not help.
                return StoreRefused(
                    f"{self.where} does not have the tables that this Mulligan expects: {said}",
                    hint="restore it from a copy, or name another database or schema",
                )
            case pg.DiskFull():
                return StoreUnavailable(f"the disk of {self.where} is full", hint="free space on its disk")
        return StoreUnavailable(f"{self.where} does not answer: {said}", hint=_silence_hint(self._url))

    def _connection_refusal(self, error: psycopg.Error, said: str) -> MulliganError | None:
        """The error for a refused connection. It has no SQLSTATE: only the message shows the cause."""
        words = _server_message(error)
        for kind, pattern, message, hint in _CONNECTION_REFUSALS:
            if re.search(pattern, words):
                # A running worker waits and says why: the permission may be given back.
                of = StoreUnavailable if self._has_opened and issubclass(kind, StoreRefused) else kind
                return of(message.format(where=self.where, said=said), hint=hint)
        return None


def _silence_hint(url: str) -> str:
    """What to do if the server does not answer. That of `mulligan postgres` is known by the name of its passfile."""
    with suppress(psycopg.Error):
        folder, _, name = str(conninfo_to_dict(url).get("passfile", "")).rpartition("/")
        if name == "password" and folder:
            return f"start it again on its host: mulligan postgres start --data {shlex.quote(folder)}"
    return "check that the server runs and try again"


def _listen(listener: TimeoutConnection, channel: str) -> None:
    listener.execute(f'LISTEN "{channel.replace(chr(34), chr(34) * 2)}"')


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _where(url: str) -> str:
    """The server as messages name it, never with its password."""
    problem = url_problem(url)
    if problem:
        raise _unreadable(problem)
    given = _given(url)
    if given is None:
        raise _unreadable("it has a parameter after the '?' that PostgreSQL does not know, or a wrong value for one")
    if is_unclear(url):
        return "the PostgreSQL database"
    host = given.get("host") or given.get("hostaddr") or "localhost"
    return f"the PostgreSQL database '{given.get('dbname') or given.get('user') or ''}' on '{host}'"


def _given(url: str) -> dict[str, Any] | None:
    """The parameters of the URL; None if libpq cannot read it. Its error is dropped, since it repeats the URL."""
    try:
        return dict(conninfo_to_dict(url))
    except psycopg.Error:
        return None


def _unreadable(problem: str) -> StoreRefused:
    return StoreRefused(
        f"the URL of the PostgreSQL database cannot be read: {problem}",
        hint="write it like 'postgresql://user:password@host:5432/database'",
    )


def _server_message(error: psycopg.Error) -> str:
    """The server's message in one line, without the position in our statement."""
    said = " ".join((error.diag.message_primary or str(error)).split())
    return re.sub("^connection (failed|is bad): ", "", said)
