"""What SQLite is never asked to do, and which of the layers between a statement and the data would have stopped it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from mulligan_nl2sql.checking.allowed_functions import NAMES
from mulligan_nl2sql.checking.check import check
from mulligan_nl2sql.database_urls import Database
from mulligan_nl2sql.databases import sqlite
from mulligan_nl2sql.limits import Limits

from .hostile_statements import Layer, assert_layers, assert_nothing_is_executed, assert_severe
from .shop import make_shop, schema_of

SCHEMA = schema_of("sqlite")
# The deadline is over when the statement starts: what needs more than a few thousand steps is stopped.
OVER = 0.0
COST_MAX = 3_000.0

Guard = Callable[[apsw.Connection], None]


def authorize(connection: apsw.Connection) -> None:
    connection.authorizer = sqlite.authorizer(SCHEMA, sorted(NAMES["sqlite"]))


def interrupt(connection: apsw.Connection) -> None:
    sqlite.set_deadline(connection, OVER)


class Layers:
    """Each layer alone, on a copy of the shop that the statement may destroy."""

    def __init__(self, shop: Path, folder: Path) -> None:
        self._shop = shop
        self._copy = folder / "shop.db"
        self.by_name: dict[str, Layer] = {
            "check": lambda text: check(text, SCHEMA, Limits()),
            "read-only": lambda text: self._run(text, is_read_only=True),
            "switches": lambda text: self._run(text, sqlite.set_switches),
            "authorizer": lambda text: self._run(text, authorize),
            "cost": self._explain,
            "deadline": lambda text: self._run(text, interrupt),
            "all but the check": lambda text: self._run(
                text, sqlite.set_switches, authorize, interrupt, is_read_only=True
            ),
        }

    def _explain(self, text: str) -> None:
        connection = sqlite.open_read_only(str(self._shop))
        try:
            assert sqlite.plan_cost(connection, text, sqlite.table_sizes(connection), ()) <= COST_MAX
        except apsw.Error:
            # No statement that has a plan. The layer bounds costs and nothing else.
            pass
        finally:
            connection.close(True)

    def _run(self, text: str, *guards: Guard, is_read_only: bool = False) -> None:
        shutil.copyfile(self._shop, self._copy)
        connection = sqlite.open_read_only(str(self._copy)) if is_read_only else apsw.Connection(str(self._copy))
        try:
            for guard in guards:
                guard(connection)
            for _ in connection.execute(text):
                pass
        finally:
            connection.close(True)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shop(tmp_path_factory.mktemp("shop") / "shop.db")


def test_each_layer_alone_lets_through_what_the_table_says(shop: Path, tmp_path: Path) -> None:
    assert_layers(SCHEMA, Layers(shop, tmp_path).by_name, tmp_path)


def test_no_hostile_statement_is_executed(shop: Path, tmp_path: Path) -> None:
    before = shop.read_bytes()

    assert_nothing_is_executed(Database("sqlite", str(shop), "shop"), SCHEMA, tmp_path, cost_max=COST_MAX)

    assert shop.read_bytes() == before


def test_what_cannot_be_a_mistake_of_a_planner_is_critical() -> None:
    assert_severe(SCHEMA)
