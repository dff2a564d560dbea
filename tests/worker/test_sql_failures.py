"""Databases that say no, are in somebody else's hands, go away, or were never there."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import psycopg
import pytest
from tests.support.fake_postgres import says, serving
from tests.support.work import Work

from mulligan import StepError
from mulligan.core.model.reports import TaskEnded
from mulligan.language.readers.actions import SQL_SCHEMES
from mulligan.testing.postgres import own_server
from mulligan.worker.databases import sqlite
from mulligan.worker.databases.address import MEMORY, SCHEMES, read_address

from .databases import asked, invalid, refused, wait_for

# By day: none of these tests is about how a child starts.
pytestmark = pytest.mark.usefixtures("forked_children")

KNOWN = "sqlite:///file.db, postgresql://user@host/name and duckdb:///file.duckdb"


# -- addresses


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        ("mysql://root:geheim@db/x", f"unknown database 'mysql://…'; known are {KNOWN}"),
        ("people.db", f"'connection' has no '://'; known are {KNOWN}"),
        ("sqlite:people.db", f"'connection' has no '://'; known are {KNOWN}"),
        (
            "sqlite://people.db",
            "'sqlite://people.db' has a host, but sqlite has none: write 'sqlite:///people.db' for a file here",
        ),
        ("sqlite:///a\0b", "'connection' contains a NUL byte"),
        ("", f"'connection' is empty; a database URL is expected, such as {KNOWN}"),
        (" ", f"'connection' is blank; a database URL is expected, such as {KNOWN}"),
        (None, f"'connection' is empty; a database URL is expected, such as {KNOWN}"),
        (7, f"'connection' is of type 'int'; a database URL is expected, such as {KNOWN}"),
        (
            "postgresql://u:ge%heim@localhost/x",
            "'connection' is not a URL that PostgreSQL understands: a '%' is not followed by two hexadecimal digits: "
            "write '%25' for the character '%'",
        ),
        (
            "postgresql://u@localhost/x?pass=geheim",
            "'connection' is not a URL that PostgreSQL understands: invalid URI query parameter",
        ),
    ],
)
def test_an_address_that_is_none_is_refused(connection: object, message: str) -> None:
    assert refused(connection, "select 1") == invalid(message)


@pytest.mark.parametrize(
    "address", ["sqlite://", "sqlite:///:memory:", "SQLite:///", "duckdb://", "duckdb:///:memory:"]
)
def test_without_a_file_it_is_in_memory(address: str) -> None:
    assert read_address(address).location == MEMORY
    assert asked(address, "select 1 as a") == [{"a": 1}]


def test_files_are_named_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "a b%20?mode=ro#x.db"

    asked(f"sqlite:///{file}", "create table t (a)")

    assert file.exists()


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("postgresql://u:geheim@h/x", "geheim"),
        ("postgresql://u:geh%65im@h/x", "geh%65im geheim"),
        ("postgresql://u:ge@heim@h/x", "ge@heim heim"),
        ("postgresql://h/x?password=geheim&user=u", "geheim"),
        ("postgres://u:geheim@h", "geheim"),
    ],
)
def test_a_password_is_never_shown(address: str, text: str) -> None:
    redacted = read_address(address).redact(f"it was {text}")

    assert redacted == "it was " + " ".join("***" for _ in text.split())


# -- no


def test_what_a_database_does_not_understand_is_shown_with_its_line(schema_url: str) -> None:
    query = "select 1;\n-- ü\nselect 'ü', :long_name,\n  nope from (values (1)) v(a)"
    where = "\n  4 |   nope from (values (1)) v(a)\n    |   ^"

    said = [refused(url, query, {"long_name": "x"})["message"] for url in ("sqlite://", "duckdb://", f"{schema_url}")]

    assert said[0] == 'near "(": syntax error\n  4 |   nope from (values (1)) v(a)\n    |                           ^'
    assert said[1] == 'Referenced column "nope" not found in FROM clause!\nCandidate bindings: "a"' + where
    assert said[2] == 'column "nope" does not exist' + where


@pytest.mark.parametrize(
    ("query", "report"),
    [
        (
            "insert into t values (1)",
            {
                "message": 'duplicate key value violates unique constraint "t_pkey"\n'
                "detail: Key (a)=(1) already exists.",
                "details": {"sqlstate": "23505", "table": "t", "constraint": "t_pkey"},
            },
        ),
        (
            "insert into t values (null)",
            {
                "message": 'null value in column "a" of relation "t" violates not-null constraint\n'
                "detail: Failing row contains (null).",
                "details": {"sqlstate": "23502", "table": "t", "column": "a"},
            },
        ),
        ("vacuum", {"message": "VACUUM cannot run inside a transaction block", "details": {"sqlstate": "25001"}}),
        (
            "do $$ begin commit; end $$",
            {"message": "invalid transaction termination", "details": {"sqlstate": "2D000"}},
        ),
        ("select 1 / 0", {"message": "division by zero", "details": {"sqlstate": "22012"}}),
    ],
)
def test_what_postgresql_refuses_is_not_worth_another_try(
    schema_url: str, query: str, report: dict[str, object]
) -> None:
    asked(schema_url, "create table t (a int primary key); insert into t values (1)")

    assert refused(schema_url, query) == {"code": "EXCEPTION", "retryable": False, **report}


def test_copying_to_the_client_is_refused(schema_url: str) -> None:
    assert refused(schema_url, "copy (select 1) to stdout") == invalid(
        "'copy' from stdin or to stdout is not possible in a step"
    )


def test_a_limit_of_the_database_is_a_timeout(schema_url: str) -> None:
    assert refused(schema_url, "set local statement_timeout = 1; select pg_sleep(3600)") == {
        "code": "TIMEOUT",
        "message": "canceling statement due to statement timeout",
        "retryable": True,
        "details": {"sqlstate": "57014", "limit": "statement_timeout"},
    }


# -- files


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_file_that_is_no_database_is_not_touched(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("Dear diary, " * 1000)

    report = refused(f"{kind}:///{file}", "create table t (a int)")

    why = {
        "sqlite": "the file is not a readable SQLite database: file is not a database",
        "duckdb": f"the file '{file}' cannot be opened: IO Error: The file \"{file}\" exists, but it is not "
        "a valid DuckDB database file!",
    }
    assert (report["message"], report["retryable"]) == (why[kind], False)
    assert file.read_text() == "Dear diary, " * 1000


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert refused(f"sqlite:///{tmp_path}/no/a.db", "select 1") == invalid(
        f"the file '{tmp_path}/no/a.db' cannot be opened: check that its folder exists and is writable"
    )


def test_a_sqlite_file_that_somebody_else_writes_to_may_be_free_later(tmp_path: Path) -> None:
    other = apsw.Connection(str(tmp_path / "a.db"))
    other.execute("begin exclusive")

    with pytest.raises(StepError) as error, sqlite.open_session(str(tmp_path / "a.db"), False, busy_milliseconds=1):
        pass

    assert error.value.report() == {
        "code": "CONNECTION",
        "message": "the database is in use by another process: database is locked",
        "retryable": True,
        "details": {"sqlite": "SQLITE_BUSY"},
    }
    other.close()


def test_a_duckdb_file_that_another_process_has_may_be_free_later(tmp_path: Path) -> None:
    program = f"import duckdb; held = duckdb.connect('{tmp_path}/a.db'); print('open', flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "open\n"

    report = refused(f"duckdb:///{tmp_path}/a.db", "select 1")

    assert report == {
        "code": "CONNECTION",
        "message": f"the file '{tmp_path}/a.db' is in use by another process",
        "retryable": True,
    }
    other.communicate("\n")


# -- servers


def test_a_server_that_is_not_there_may_be_there_later() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]

    report = refused(f"postgresql://u:geheim@127.0.0.1:{port}/x", "select 1")

    assert report == {
        "code": "CONNECTION",
        "message": f'connection failed: connection to server at "127.0.0.1", port {port} failed: Connection refused '
        "Is the server running on that host and accepting TCP/IP connections?",
        "retryable": True,
    }


@pytest.mark.parametrize(
    ("code", "message", "retryable"),
    [
        ("28P01", 'password authentication failed for user "u"', False),
        ("3D000", 'database "x" does not exist', False),
        ("57P03", "the database system is starting up", True),
        ("53300", "sorry, too many clients already", True),
    ],
)
def test_who_is_not_let_in_may_come_again_where_that_may_help(code: str, message: str, retryable: bool) -> None:
    with serving(says(code, f"{message} geheim")) as url:
        report = refused(url, "select 1")

    assert report["code"] == ("CONNECTION" if retryable else "EXCEPTION")
    assert report["retryable"] is retryable
    assert report["message"].endswith(f"failed: FATAL: {message} ***")


def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    met = threading.Event()

    def answer(client: socket.socket) -> None:
        client.recv(4096)
        met.wait()

    with serving(answer) as url:
        report = refused(url, "select 1")
        met.set()

    assert (report["code"], report["message"]) == ("CONNECTION", "connection timeout expired")


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 1000])
def test_a_server_that_is_none_is_a_connection_that_did_not_come_about(said: bytes) -> None:
    def answer(client: socket.socket) -> None:
        client.recv(4096)
        client.sendall(said)

    with serving(answer) as url:
        report = refused(url, "select 1")

    assert report["code"] == "CONNECTION"
    assert "geheim" not in str(report)


def test_a_server_that_goes_away_during_a_query_is_a_lost_connection(schema_url: str) -> None:
    assert refused(schema_url, "select pg_terminate_backend(pg_backend_pid())") == {
        "code": "CONNECTION",
        "message": "terminating connection due to administrator command",
        "retryable": True,
        "details": {"sqlstate": "57P01"},
    }


def test_a_server_that_crashes_while_a_step_waits_for_it_fails_the_step(work: Work) -> None:
    with own_server() as server:
        work.start(work.lease("sql", {"connection": server.url, "query": "select pg_sleep(3600)"}))
        work.wait_for(lambda: _is_asleep(server.url))

        server.stop("immediate")

        (ended,) = work.reports()
        assert isinstance(ended, TaskEnded)

    (report,) = ended.outcome.reported
    assert (report["code"], report["retryable"]) == ("CONNECTION", True)


def _is_asleep(url: str) -> bool:
    query = "select 1 from pg_stat_activity where query = 'select pg_sleep(3600)' and state = 'active'"
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchone() is not None


def test_a_connection_that_is_lost_during_the_commit_says_that_nobody_knows(schema_url: str) -> None:
    asked(
        schema_url,
        """
        create table t (a int);
        create function die() returns trigger language plpgsql as $$
          begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$;
        create constraint trigger dying after insert on t deferrable initially deferred
          for each row execute function die();
        """,
    )

    assert refused(schema_url, "insert into t values (1)") == {
        "code": "CONNECTION",
        "message": "the connection was lost during the commit, so it is unknown whether it was committed: "
        "terminating connection due to administrator command CONTEXT: SQL statement "
        '"SELECT pg_terminate_backend(pg_backend_pid())" PL/pgSQL function die() line 2 at PERFORM',
        "retryable": True,
        "details": {"sqlstate": "57P01", "is_committed": "unknown"},
    }


def test_a_constraint_that_is_checked_at_the_commit_is_no_lost_connection(schema_url: str) -> None:
    asked(schema_url, "create table t (a int unique deferrable initially deferred)")

    report = refused(schema_url, "insert into t values (1), (1)")

    assert (report["code"], report["retryable"], report["details"]["sqlstate"]) == ("EXCEPTION", False, "23505")


def test_who_stood_in_the_way_may_be_gone_at_the_next_try(schema_url: str) -> None:
    asked(schema_url, "create table t (a int)")
    with psycopg.connect(schema_url) as other:
        other.execute("lock table t")

        report = refused(schema_url, "lock table t nowait")

    assert (report["code"], report["retryable"], report["details"]["sqlstate"]) == ("CONNECTION", True, "55P03")


def test_a_transaction_that_could_not_be_put_in_a_row_may_be_tried_again(schema_url: str) -> None:
    asked(schema_url, "create table t (a int); insert into t values (1)")
    # A session's settings hold for the step's transaction; the other one comes between its two statements.
    url = f"{schema_url}%20-cdefault_transaction_isolation%3Dserializable"
    reached = "select pg_advisory_xact_lock(hashtext(current_schema()))"
    with psycopg.connect(schema_url) as other:
        other.execute(reached)
        found: list[dict[str, object]] = []
        query = f"select a from t; {reached}; update t set a = 3"
        step = threading.Thread(target=lambda: found.append(refused(url, query)))
        step.start()
        mine = "select objid from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'"
        waiting = f"select 1 from pg_locks where locktype = 'advisory' and not granted and objid in ({mine})"
        wait_for(lambda: other.execute(waiting).fetchone())
        other.execute("update t set a = 2")
        other.commit()
        step.join()

    (report,) = found
    assert (report["code"], report["retryable"]) == ("CONNECTION", True)
    assert report["details"] == {"sqlstate": "40001"}


def test_what_is_refused_at_load_is_what_no_worker_knows() -> None:
    """The child that runs a query loads nothing of the language: the two lists are held together here."""
    assert {f"{scheme}://" for scheme in SCHEMES} == set(SQL_SCHEMES)
