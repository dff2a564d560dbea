"""The server of the tests goes with those who use it, whatever ends them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from mulligan.testing.postgres import GIVEN, own_schema, shared_server

SRC = Path(__file__).parents[2] / "src"

HOLDER = """
import sys
from mulligan.testing.postgres import own_server
with own_server() as server:
    print(server.folder, flush=True)
    sys.stdin.readline()
"""


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


def test_who_names_the_same_folder_has_the_same_server(tmp_path: Path) -> None:
    with shared_server(tmp_path) as first, shared_server(tmp_path) as second:
        assert first == second
        with psycopg.connect(second) as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.skipif(GIVEN in os.environ, reason="a server was given, and it stays")
def test_the_server_of_those_who_left_is_not_given_to_those_who_come_later(tmp_path: Path) -> None:
    with shared_server(tmp_path) as first:
        pass

    with shared_server(tmp_path) as second, psycopg.connect(second) as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
    assert first != second


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
