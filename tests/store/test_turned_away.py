"""Why a PostgreSQL store cannot be opened: each reason has its own code, and says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.support.fake_postgres import says, serving
from tests.support.runner import wait_until

from mulligan.errors import (
    DatabaseMissing,
    LoginRefused,
    NoFreeConnection,
    StoreForbidden,
    StoreRefused,
    StoreUnavailable,
)
from mulligan.ports import WorkerRecord
from mulligan.store import open_store
from mulligan.store.postgres.postgres_client import WORKERS_HEARD_MAX, PostgresClient
from mulligan.testing.postgres import GIVEN

needs_own_server = pytest.mark.skipif(GIVEN in os.environ, reason="another server may ask for passwords")


def at(server_url: str, user: str = "postgres", database: str = "postgres") -> str:
    host = conninfo_to_dict(server_url)["host"]
    return f"postgresql://{user}@/{database}?host={quote(str(host), safe='')}"


@pytest.fixture
def newcomer(server_url: str) -> Iterator[str]:
    """A user that may connect, and nothing else; with one connection at a time."""
    name = f"newcomer_{os.getpid()}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN CONNECTION LIMIT 1".encode())
        yield name
        connection.execute(f"DROP ROLE {name}".encode())


@needs_own_server
def test_a_database_that_is_not_there_is_said_not_to_exist(server_url: str) -> None:
    with pytest.raises(DatabaseMissing) as refused:
        open_store(at(server_url, database="nowhere"))

    assert "'nowhere'" in refused.value.message
    assert "CREATE DATABASE" in refused.value.hint


@needs_own_server
def test_a_user_that_is_not_there_is_not_let_in(server_url: str) -> None:
    with pytest.raises(LoginRefused) as refused:
        open_store(at(server_url, user="nobody_at_all"))

    assert 'role "nobody_at_all" does not exist' in refused.value.message


@needs_own_server
def test_a_user_that_may_not_create_tables_is_told_what_it_needs(server_url: str, newcomer: str) -> None:
    with pytest.raises(StoreForbidden) as refused:
        open_store(at(server_url, user=newcomer))

    assert "GRANT USAGE, CREATE ON SCHEMA" in refused.value.hint


@needs_own_server
def test_a_server_without_a_free_connection_may_have_one_later(server_url: str, newcomer: str) -> None:
    with psycopg.connect(at(server_url, user=newcomer)), pytest.raises(NoFreeConnection) as unavailable:
        open_store(at(server_url, user=newcomer))

    assert isinstance(unavailable.value, StoreUnavailable)
    assert "max_connections" in unavailable.value.hint


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("53300", "sorry, too many clients already", NoFreeConnection),
        ("53300", "remaining connection slots are reserved for roles with the SUPERUSER attribute", NoFreeConnection),
        ("57P03", "the database system is starting up", StoreUnavailable),
        ("57P03", "the database system is shutting down", StoreUnavailable),
        ("57P03", "the database system is in recovery mode", StoreUnavailable),
        ("28P01", 'password authentication failed for user "u"', LoginRefused),
        ("28000", 'no pg_hba.conf entry for host "10.0.0.1", user "u", database "x", no encryption', LoginRefused),
        ("42501", 'permission denied for database "x"', LoginRefused),
        ("3D000", 'database "x" does not exist', DatabaseMissing),
    ],
)
def test_what_a_server_says_to_whom_it_does_not_take_is_told_apart(code: str, message: str, kind: type) -> None:
    with serving(says(code, message)) as url, pytest.raises((StoreUnavailable, StoreRefused)) as told:
        open_store(url)

    assert type(told.value) is kind
    assert told.value.message.endswith(message)
    assert told.value.hint


@needs_own_server
def test_a_store_that_was_open_is_waited_for_whatever_the_server_says_now(server_url: str, newcomer: str) -> None:
    """A worker has tasks that run: what was taken from it may be given back."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        # A user's own schema is the first in its search path.
        connection.execute(f"CREATE SCHEMA {newcomer} AUTHORIZATION {newcomer}".encode())
        store = open_store(at(server_url, user=newcomer))
        try:
            connection.execute(f"ALTER ROLE {newcomer} NOLOGIN".encode())
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [newcomer])

            told = [_told(store.runs) for _ in range(2)]

            assert {type(error) for error in told} == {StoreUnavailable}
            assert "not permitted to log in" in told[-1].message
        finally:
            store.close()
            connection.execute(f"DROP SCHEMA {newcomer} CASCADE".encode())


def _told(call: Callable[[], object]) -> StoreUnavailable:
    with pytest.raises(StoreUnavailable) as told:
        call()
    return told.value


# -- without the library ---------------------------------------------------------------------------------------------

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Missing())
missing, *words = sys.argv[1:]
from mulligan.cli.words.dispatch import exit_code
sys.argv[1:] = [missing]
sys.exit(exit_code(words))
"""


@pytest.mark.parametrize("words", [("worker",), ("doctor",)], ids=" ".join)
def test_without_its_library_a_command_says_what_to_install(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, "psycopg", *words],
        env={"MULLIGAN_STORE": "postgresql://app:s3cret@127.0.0.1:1/runs", "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )

    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert "pip install 'mulligan[postgres]'" in said
    assert "internal.bug" not in said and "s3cret" not in said
    assert words == ("doctor",) or said.startswith("error[store.library_missing]: ")


# -- how many connections it takes -----------------------------------------------------------------------------------


def test_a_store_takes_one_connection_and_one_more_once_somebody_waits_for_news(
    schema_url: str, server_url: str
) -> None:
    """These are the figures of docs/operate/workers.md: a worker waits for news, `list` does not."""
    url = f"{schema_url}&application_name=counted"
    with psycopg.connect(server_url, autocommit=True) as checker:

        def count() -> int:
            asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counted'"
            return int(checker.execute(asked).fetchall()[0][0])

        store = open_store(url)
        store.register(WorkerRecord("w", "here", 1))
        assert count() == 1
        store.fileno()
        store.record_heartbeat("w")
        store.has_changes()
        assert count() == 2
        # A server has a worker for each decision about a run that nobody drives, with this store.
        store.retire("w")
        wait_until(lambda: count() == 1)
        store.close()


def test_a_server_that_registers_many_workers_listens_for_the_newest(store_schema_url: str) -> None:
    client = PostgresClient(store_schema_url, 30.0)

    for number in range(3 * WORKERS_HEARD_MAX):
        client.listen_as(f"worker {number}")
        client.listen_as(f"moment {number}")
        client.stop_listening_as(f"moment {number}")
    client.close()

    assert client.workers_heard == [f"worker {n}" for n in range(2 * WORKERS_HEARD_MAX, 3 * WORKERS_HEARD_MAX)][1:]
