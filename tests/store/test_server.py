"""The server of the tests goes with those who use it, whatever ends them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from tests.support.keeping import new_run, worker
from tests.support.store_schemas import StoreSchemas

from mulligan.errors import StoreRefused
from mulligan.store.postgres.postgres import PostgresStore
from mulligan.testing.postgres import GIVEN, own_schema, shared_server

SRC = Path(__file__).parents[2] / "src"

HOLDER = """
import sys
from mulligan.testing.postgres import own_server
with own_server() as server:
    print(server.folder, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_a_server_goes_when_its_holder(how: str) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    folder = Path(holder.stdout.readline().strip())
    assert (folder / "data").is_dir()

    if how == "is killed":
        holder.kill()
    holder.communicate("\n" if how == "ends" else None)

    assert is_gone(folder)


def is_gone(folder: Path, seconds: float = 60.0) -> bool:
    """Whether the folder goes away: its watchdog takes a moment."""
    deadline = time.monotonic() + seconds
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not folder.exists()


@pytest.mark.nightly
def test_who_names_the_same_folder_has_the_same_server_and_who_comes_when_all_have_left_another(tmp_path: Path) -> None:
    with shared_server(tmp_path) as first, shared_server(tmp_path) as second:
        assert first == second
        with psycopg.connect(second) as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]

    with shared_server(tmp_path) as third, psycopg.connect(third) as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
    # A server that was given stays.
    assert (first != third) == (GIVEN not in os.environ)


def test_each_schema_is_empty_and_goes(server_url: str) -> None:
    with own_schema(server_url) as one, own_schema(server_url) as two:
        with psycopg.connect(one) as connection:
            connection.execute("CREATE TABLE a (b bigint)")
            ((name,),) = connection.execute("SELECT current_schema()").fetchall()
        with psycopg.connect(two) as connection:
            assert connection.execute("SELECT to_regclass('a')").fetchall() == [(None,)]

    with psycopg.connect(server_url) as connection:
        rows = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [name]).fetchall()
    assert rows == []


def test_a_store_that_was_used_is_empty_for_the_next_and_has_another_name(server_url: str) -> None:
    schemas = StoreSchemas(server_url)
    with schemas.take() as first:
        before, tables = contents(first), oid_of_runs(first)
        with closing(PostgresStore(first)) as store:
            store.create([new_run()])
            store.register(worker())

    with schemas.take() as second, closing(PostgresStore(second)) as store:
        assert contents(second) == before
        # Not made anew: that takes fifteen times as long.
        assert oid_of_runs(second) == tables
        assert [turn.run_id for turn in store.create([new_run()])] == [1]
    with pytest.raises(StoreRefused):
        PostgresStore(first)

    schemas.drop_all()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE runs ADD COLUMN other bigint",
        "CREATE TABLE other (a bigint)",
        "CREATE OR REPLACE FUNCTION now_micros() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
        "INSERT INTO artifacts SELECT 'a' || n, '', 0, 0 FROM generate_series(0, 2000) AS n",
    ],
)
def test_a_store_whose_tables_were_changed_or_filled_is_given_to_nobody_else(server_url: str, change: str) -> None:
    schemas = StoreSchemas(server_url)
    with schemas.take() as url, psycopg.connect(url) as connection:
        tables = oid_of_runs(url)
        connection.execute(change)
        connection.commit()

    with schemas.take() as url, psycopg.connect(url) as connection:
        assert oid_of_runs(url) != tables
        assert connection.execute("SELECT * FROM artifacts").fetchall() == []

    schemas.drop_all()


def oid_of_runs(url: str) -> int:
    """What the table keeps under whatever name, until it is dropped."""
    with psycopg.connect(url) as connection:
        ((oid,),) = connection.execute("SELECT 'runs'::regclass::oid").fetchall()
    return int(oid)


def contents(url: str) -> dict[str, list[object]]:
    """The rows of all tables."""
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
        return {table: connection.execute(f'SELECT * FROM "{table}"').fetchall() for (table,) in tables}
