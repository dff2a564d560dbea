"""The connections to a PostgreSQL server: opened when needed, dropped when broken; errors in our words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from typing import Any, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict

from mulligan.core.model.database_urls import NOT_SHOWN, is_unclear, redact, secret_parts, url_problem
from mulligan.errors import (
    DatabaseMissing,
    LoginRefused,
    MulliganError,
    NoFreeConnection,
    StoreForbidden,
    StoreRefused,
    StoreUnavailable,
)
from mulligan.store import postgres_arrays
from mulligan.store.encoding import moment_from
from mulligan.store.postgres_patience import PatientConnection
from mulligan.store.postgres_pipeline import SQL, Statement, pipeline
from mulligan.store.statements import missing

Found = TypeVar("Found")

# A connection that is silently gone and that nobody uses is noticed within half a minute.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "application_name": "mulligan",
}
# One that is used is given up when nothing that was sent has arrived for this share of the lease. The kernel sends it
# again less and less often: after a short outage a worker would come back too late to keep its lease.
_UNACKNOWLEDGED_SHARE_MAX = 1 / 3
_UNACKNOWLEDGED_SECONDS_MIN = 1.0
# How much of a lease a transaction may last, and do nothing in between.
_LIMITS = {
    "idle_in_transaction_session_timeout": 1 / 6,
    # What takes longer was given up by the others anyway. Servers before 17 do not know it.
    "transaction_timeout": 1,
}
# How long the tables may take to be made, or brought up to date.
_MIGRATION_SECONDS_MAX = 3600.0
# How long a server that is only looked at may be silent.
_LOOK_SECONDS_MAX = 30.0
# What a server says to whom it does not take, in its own words: what that is here, and what to do about it.
_TURNED_AWAY: tuple[tuple[type[MulliganError], str, str, str], ...] = (
    (
        NoFreeConnection,
        r"too many clients|too many connections|connection slots are reserved",
        "{where} has no free connection: {said}",
        "a worker holds two connections, any other command one: end some, or raise 'max_connections' of the server",
    ),
    (
        StoreUnavailable,
        r"the database system is (starting up|shutting down|in recovery mode|not yet accepting)",
        "{where} does not answer yet: {said}",
        "wait until the server is up, and try again",
    ),
    (
        DatabaseMissing,
        r'database ".*" does not exist',
        "{where} does not exist: {said}",
        "create it (createdb NAME, or CREATE DATABASE), or correct the name in the URL; Mulligan makes the tables",
    ),
    (
        LoginRefused,
        r'role ".*" does not exist|authentication failed|no password supplied|no pg_hba\.conf entry'
        r"|not permitted to log in|permission denied for database",
        "{where} does not let us in: {said}",
        "see that user and password in the URL (or ~/.pgpass) are right, and that the user may connect to the database",
    ),
)
# Somebody else's transaction stood in the way, and ours was taken back: it can be done again.
_AGAIN = (pg.DeadlockDetected, pg.SerializationFailure)
_TRIES_MAX = 5


class Unexpected(Exception):
    """`expect` in the database has found something else: the transaction is taken back."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class PostgresLink:
    """One connection for statements and, once somebody asks for news, one that listens."""

    def __init__(self, url: str, lease_seconds: float) -> None:
        self._url = url
        self._lease_seconds = lease_seconds
        self._connection: PatientConnection | None = None
        # The statements that the connection has prepared for pipelines.
        self._prepared: set[str] = set()
        self._listener: PatientConnection | None = None
        self._is_behind = False
        self._hears_ends = False
        self._has_opened = False
        self._secrets = secret_parts(url)
        self.where = _where(url)
        try:
            schema = self._open()
        except BaseException:
            self.close()
            raise
        # Channels belong to a database; a name has 63 bytes at most.
        self.channel = f"mulligan {schema}"[:60]
        # Apart, so that no worker is woken for it.
        self.ends_channel = f"mulligan ends {schema}"[:60]

    def close(self) -> None:
        for connection in (self._connection, self._listener):
            if connection is not None:
                connection.close()
        self._connection = self._listener = None

    # -- use

    def connected(self) -> PatientConnection:
        """The connection for statements. Each is a transaction of its own, unless one was begun."""
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
            self._prepared = set()
        return self._connection

    def ask(self, name: str, *params: Any, **named: Any) -> list[Any]:
        """The rows of one statement, inside whatever transaction there is."""
        cursor = self.connected().execute(SQL[name], named or params, binary=True)
        return cursor.fetchall() if cursor.description else []

    def read(self, name: str, *params: Any, **named: Any) -> list[Any]:
        """The rows of one statement that is a transaction of its own."""
        with self._translated():
            return self.ask(name, *params, **named)

    def together(self, asked: Sequence[Statement]) -> list[list[Any]]:
        """The rows of each statement, all in one transaction and one round trip. `Unexpected` takes all back."""
        return self._again(lambda: self.ask_all(asked))

    def ask_all(self, asked: Sequence[Statement]) -> list[list[Any]]:
        """The rows of each statement, in one round trip, inside whatever transaction there is."""
        return pipeline(self.connected(), self._prepared, asked)

    def write(self, work: Callable[[], Found]) -> Found:
        """Do `work`, which asks more than once, in one transaction."""

        def transact() -> Found:
            try:
                with self.connected().transaction():
                    return work()
            except BaseException:
                # With a rollback psycopg lets the server forget every prepared statement, also those of pipelines.
                self._prepared.clear()
                raise

        return self._again(transact)

    def _again(self, work: Callable[[], Found]) -> Found:
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

    def has_news(self) -> bool:
        """Whether somebody else has notified us; also when nobody has listened for a while."""
        with self._translated():
            try:
                has_any = self._consume(self._listening())
            except psycopg.Error:
                self._drop_listener()
                self._listening()
                has_any = True
        has_any, self._is_behind = has_any or self._is_behind, False
        return has_any

    def hear_ends(self) -> None:
        """It is news from now on that a run has ended."""
        self._hears_ends = True
        if self._listener is not None:
            # The next one listens to both.
            self._drop_listener()

    def _consume(self, listener: PatientConnection) -> bool:
        # Until there is nothing more to read: a server that says good-bye has closed behind that.
        while listener.has_something():
            listener.pgconn.consume_input()
        ours = self._connection.info.backend_pid if self._connection is not None else 0
        has_any = False
        while (notify := listener.pgconn.notifies()) is not None:
            has_any = has_any or notify.be_pid != ours
        return has_any

    def _listening(self) -> PatientConnection:
        if self._listener is None:
            listener = self._connect()
            _listen(listener, self.channel)
            if self._hears_ends:
                _listen(listener, self.ends_channel)
            # What was sent before is not heard any more.
            self._listener, self._is_behind = listener, True
        return self._listener

    # -- opening

    def _open(self) -> str:
        with self._translated(), self.connected().transaction():
            schema: str | None = self.ask("schema")[0][0]
            if schema is None:
                raise StoreRefused(f"the schema of {self.where} does not exist", hint="create it: CREATE SCHEMA …")
            self._migrate()
        self.connected().patience_seconds = self._lease_seconds
        self._has_opened = True
        return schema

    def _connect(self) -> PatientConnection:
        given = conninfo_to_dict(self._url)
        unacknowledged = max(_UNACKNOWLEDGED_SECONDS_MIN, self._lease_seconds * _UNACKNOWLEDGED_SHARE_MAX)
        wanted = {**_DEFAULTS, "tcp_user_timeout": int(unacknowledged * 1000)}
        options = {name: value for name, value in wanted.items() if name not in given}
        connection = PatientConnection.connect(self._url, autocommit=True, prepare_threshold=0, **options)
        # By then the others have given us up.
        connection.patience_seconds = self._lease_seconds
        postgres_arrays.register(connection)
        self._limit(connection)
        return connection

    def _limit(self, connection: PatientConnection) -> None:
        """One that hangs in the middle of a transaction loses it, since others wait for what it has locked.

        Soon enough that they do not miss their own heartbeats.
        """
        for name, share in _LIMITS.items():
            seconds = self._lease_seconds * share
            connection.execute(
                "SELECT set_config(name, %s, false) FROM pg_settings WHERE name = %s", (f"{seconds * 1000:.0f}", name)
            )

    def _migrate(self) -> None:
        if self._missing():
            self._take_time()
            # Whoever waits here finds that another process has done it.
            self.ask("lock_schema")
            for number, sql in self._missing():
                self.connected().execute(sql, prepare=False)
                self.ask("create_schema_version")
                self.ask("delete_schema_version")
                self.ask("insert_schema_version", number)

    def _take_time(self) -> None:
        """In this transaction: large tables are not changed within a lease, and no worker here is up yet to miss it."""
        self.connected().patience_seconds = _MIGRATION_SECONDS_MAX
        for name in _LIMITS:
            self.connected().execute("SELECT set_config(name, '0', true) FROM pg_settings WHERE name = %s", [name])

    def _missing(self) -> list[Any]:
        _, has_version = self.ask("schema")[0]
        found = self.ask("schema_version")[0][0] if has_version else 0
        return missing("postgres", found, self.where)

    # -- trouble

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Errors of the server and of the way to it in our words; a connection in doubt is not used again."""
        try:
            yield
        except pg.RaiseException as error:
            raise Unexpected(str(error.diag.message_primary)) from error
        except psycopg.Error as error:
            self._drop()
            raise self._told(error) from (None if is_unclear(self._url) else error)

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

    def _told(self, error: psycopg.Error) -> MulliganError:
        said = NOT_SHOWN if is_unclear(self._url) else redact(_said(error), self._secrets)
        told = self._turned_away(error, said)
        if told is not None:
            return told
        match error:
            case pg.DuplicateTable() | pg.DuplicateFunction() | pg.DuplicateObject():
                return StoreRefused(
                    f"{self.where} holds tables of another program: {said}",
                    hint="give Mulligan a schema of its own: …?options=-csearch_path%3Dmulligan",
                )
            case pg.InsufficientPrivilege() | pg.ReadOnlySqlTransaction():
                return StoreForbidden(
                    f"{self.where} may not be written: {said}",
                    hint="the user must be able to create tables in the schema: GRANT USAGE, CREATE ON SCHEMA … TO …",
                )
            case pg.UndefinedTable() | pg.UndefinedColumn() | pg.UndefinedFunction():
                # Tables that are not as we made them: no waiting makes them fit.
                return StoreRefused(
                    f"{self.where} does not hold what this Mulligan expects: {said}",
                    hint="restore it from a copy, or name another database or schema",
                )
            case pg.DiskFull():
                return StoreUnavailable(f"the disk of {self.where} is full", hint="make room on its disk")
        return StoreUnavailable(f"{self.where} does not answer: {said}", hint="see that the server runs, and try again")

    def _turned_away(self, error: psycopg.Error, said: str) -> MulliganError | None:
        """The server answers, and does not take us. It has no SQLSTATE then: there are only its words."""
        words = _said(error)
        for kind, pattern, message, hint in _TURNED_AWAY:
            if re.search(pattern, words):
                # A worker that is up waits also for what was taken from it, and says so: it may be given back.
                of = StoreUnavailable if self._has_opened and issubclass(kind, StoreRefused) else kind
                return of(message.format(where=self.where, said=said), hint=hint)
        return None


def _listen(listener: PatientConnection, channel: str) -> None:
    listener.execute(f'LISTEN "{channel.replace(chr(34), chr(34) * 2)}"')


def server_time(url: str) -> datetime:
    """What time it is by the server's clock."""
    with closing(PostgresLink(url, _LOOK_SECONDS_MAX)) as link:
        ((now,),) = link.read("now")
    return moment_from(now)


def _where(url: str) -> str:
    """The server as messages name it: never with its password."""
    problem = url_problem(url)
    if problem:
        raise _unreadable(problem)
    given = _given(url)
    if given is None:
        raise _unreadable("it has a parameter behind the '?' that PostgreSQL does not know, or not with such a value")
    if is_unclear(url):
        return "the PostgreSQL database"
    host = given.get("host") or given.get("hostaddr") or "localhost"
    return f"the PostgreSQL database '{given.get('dbname') or given.get('user') or ''}' on '{host}'"


def _given(url: str) -> dict[str, Any] | None:
    """What the URL says; None where libpq cannot read it. Its error is forgotten, since it repeats the URL."""
    try:
        return dict(conninfo_to_dict(url))
    except psycopg.Error:
        return None


def _unreadable(problem: str) -> StoreRefused:
    return StoreRefused(
        f"the URL of the PostgreSQL database cannot be read: {problem}",
        hint="write it like 'postgresql://user:password@host:5432/database'",
    )


def _said(error: psycopg.Error) -> str:
    """The server's own words in one line, without where in a statement of ours it stumbled."""
    said = " ".join((error.diag.message_primary or str(error)).split())
    return re.sub("^connection (failed|is bad): ", "", said)
