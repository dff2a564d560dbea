"""What PostgreSQL is never asked to do, and which of the layers between a statement and the data would have stopped it.

The layers are tried by a role that owns the tables and may read and write files of the server and start programs there:
a role as one should not have it. `role` is tried by one that may read two tables.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mulligan.testing.postgres import GIVEN
from mulligan_nl2sql.checking.check import check
from mulligan_nl2sql.databases import postgres
from mulligan_nl2sql.limits import Limits

from .hostile_statements import Layer, assert_layers, assert_nothing_is_executed, assert_severe
from .postgres_shop import PostgresShop
from .shop import schema_of

pytestmark = pytest.mark.skipif(
    GIVEN in os.environ, reason="statements that attack are sent to a server of our own alone"
)

SCHEMA = schema_of("postgres", "public")
COST_MAX = 50_000.0
# What stands for `{long}` where something should stop the statement, and where nothing does.
LONG, SHORT = "600", "0.001"
# A statement that takes long is stopped after the first; all others have the second, whatever the machine is doing.
STOPPED_SECONDS, GENEROUS_SECONDS = 0.15, 60

Guard = Callable[[psycopg.Connection[Any]], None]
Run = Callable[[psycopg.Connection[Any], str], None]


def plainly(connection: psycopg.Connection[Any], text: str) -> None:
    connection.execute(text.encode())


@contextmanager
def preparing(connection: psycopg.Connection[Any]) -> Iterator[None]:
    connection.prepare_threshold = 1_000_000
    try:
        yield
    finally:
        connection.prepare_threshold = None


def by_cursor(connection: psycopg.Connection[Any], text: str) -> None:
    with preparing(connection):
        postgres.open_cursor(connection, text)
    # Some rows: a statement gets no more from the process of a query either.
    seconds = float(
        connection.execute("select setting from pg_settings where name = 'statement_timeout'").fetchall()[0][0]
    )
    next(iter(postgres.fetch_rows(connection, time.monotonic() + (seconds / 1000 or GENEROUS_SECONDS))), None)


def explained(connection: psycopg.Connection[Any], text: str) -> None:
    connection.execute("savepoint explaining")
    try:
        with preparing(connection):
            cost = postgres.plan_cost(connection, text.replace("{long}", LONG))
    except psycopg.Error:
        # No statement that has a plan. The layer bounds costs and nothing else.
        connection.execute("rollback to savepoint explaining")
        cost = 0.0
    connection.execute("release savepoint explaining")
    assert cost <= COST_MAX
    plainly(connection, text.replace("{long}", SHORT))


class Layers:
    """Each layer alone, in a transaction that is rolled back."""

    def __init__(self, shop: PostgresShop) -> None:
        self._shop = shop
        self.by_name: dict[str, Layer] = {
            "check": lambda text: check(text.replace("{long}", LONG), SCHEMA, Limits()),
            "role": lambda text: self._run(text, shop.reader_url, plainly),
            "read-only": lambda text: self._run(text, shop.owner_url, plainly, is_read_only=True),
            "timeout": lambda text: self._run(text, shop.owner_url, plainly, is_limited=True),
            "cursor": lambda text: self._run(text, shop.owner_url, by_cursor),
            "cost": lambda text: self._run(text, shop.owner_url, explained),
            "all but the check": lambda text: self._run(
                text, shop.reader_url, by_cursor, is_read_only=True, is_limited=True
            ),
        }

    def _run(self, text: str, url: str, run: Run, *, is_read_only: bool = False, is_limited: bool = False) -> None:
        connection = self._shop.connection(url)
        connection.execute("begin read only" if is_read_only else "begin")
        try:
            if is_limited:
                seconds = STOPPED_SECONDS if "{long}" in text else GENEROUS_SECONDS
                connection.execute(f"set local statement_timeout = {int(seconds * 1000)}".encode())
            if run is not explained:
                text = text.replace("{long}", LONG if is_limited else SHORT)
            run(connection, text)
        finally:
            self._shop.reset(url)


@pytest.fixture(scope="module")
def shop(server_url: str) -> Iterator[PostgresShop]:
    with PostgresShop.made(server_url) as made:
        yield made


@pytest.fixture
def folder(shop: PostgresShop) -> Path:
    """A folder that the server's own user can use."""
    return shop.folder


@pytest.mark.nightly
def test_each_layer_alone_lets_through_what_the_table_says(shop: PostgresShop, folder: Path) -> None:
    assert_layers(SCHEMA, Layers(shop).by_name, folder)


def test_no_hostile_statement_is_executed(shop: PostgresShop, tmp_path: Path) -> None:
    before = shop.contents()

    assert_nothing_is_executed(shop.reader(), SCHEMA, tmp_path, cost_max=COST_MAX)

    assert shop.contents() == before


def test_what_cannot_be_a_mistake_of_a_planner_is_critical() -> None:
    assert_severe(SCHEMA)
