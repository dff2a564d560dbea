"""What DuckDB is never asked to do, and which of the layers between a statement and the data would have stopped it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from mulligan_nl2sql.checking.check import check
from mulligan_nl2sql.database_urls import Database
from mulligan_nl2sql.databases import duckdb as layers_of_duckdb
from mulligan_nl2sql.limits import Limits

from .hostile_statements import Layer, assert_layers, assert_nothing_is_executed, assert_severe
from .shop import make_duckdb_shop, schema_of

SCHEMA = schema_of("duckdb")
COST_MAX = 3_000.0
TRANSACTIONAL = frozenset(
    "SELECT INSERT UPDATE DELETE MERGE_INTO CREATE CREATE_FUNC DROP ALTER COPY EXPLAIN CALL".split()
)

Guard = Callable[[duckdb.DuckDBPyConnection, str], None]


def kind(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    layers_of_duckdb.check_kind(connection, text)


def tables(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    layers_of_duckdb.check_tables(connection, text, SCHEMA)


def cost(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    try:
        assert layers_of_duckdb.plan_cost(connection, text) <= COST_MAX
    except (duckdb.Error, ValueError):
        # No statement that has a plan. The layer bounds costs and nothing else.
        pass


class Shop:
    """A copy of the shop that is made anew when a statement has changed more than a transaction can take back."""

    def __init__(self, shop: Path, copy: Path, *, is_read_only: bool = False, has_settings: bool = False) -> None:
        self._shop, self._copy, self._is_read_only = shop, copy, is_read_only
        # Extensions would come from a folder that does not exist: whoever looks there was not stopped.
        self._repository = str(copy.parent / "repository")
        self._settings: dict[str, str | bool | int | float | list[str]] = {
            "custom_extension_repository": self._repository,
            "autoinstall_extension_repository": self._repository,
            "extension_directory": str(copy.parent),
            "home_directory": str(copy.parent),
        }
        if has_settings:
            self._settings = dict(layers_of_duckdb.SETTINGS)
        self._connection: duckdb.DuckDBPyConnection | None = None

    def run(self, text: str, *guards: Guard) -> None:
        connection = self._connection or self._open()
        for guard in guards:
            guard(connection, text)
        is_transaction = can_be_rolled_back(connection, text)
        if is_transaction:
            connection.execute("begin")
        try:
            connection.execute(text).fetchall()
            if not is_transaction:
                self.close()
        except duckdb.Error as error:
            if self._repository not in str(error):
                raise
        finally:
            if self._connection is not None:
                roll_back(self._connection)

    def _open(self) -> duckdb.DuckDBPyConnection:
        shutil.copyfile(self._shop, self._copy)
        self._connection = duckdb.connect(
            str(self._copy), read_only=self._is_read_only, config={**self._settings, "threads": 1}
        )
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._copy.unlink(missing_ok=True)
        self._copy.with_suffix(".duckdb.wal").unlink(missing_ok=True)


def roll_back(connection: duckdb.DuckDBPyConnection) -> None:
    try:
        connection.execute("rollback")
    except duckdb.TransactionException:
        # There is no transaction: it was no statement that needs one.
        pass


def can_be_rolled_back(connection: duckdb.DuckDBPyConnection, text: str) -> bool:
    try:
        kinds = [statement.type.name for statement in connection.extract_statements(text)]
    except duckdb.Error:
        return True
    return len(kinds) == 1 and kinds[0] in TRANSACTIONAL


@pytest.fixture
def layers(shop: Path, tmp_path: Path) -> Iterator[dict[str, Layer]]:
    """Each layer alone, on a copy of the shop that the statement may destroy."""
    (tmp_path / "secret.csv").write_text("id,amount\n2,2\n")
    (tmp_path / "secret.json").write_text("[1]")
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "schema.sql").write_text("create table imported (a integer);")
    (tmp_path / "backup" / "load.sql").write_text("")
    shops = {
        "writable": Shop(shop, tmp_path / "shop.duckdb"),
        "read-only": Shop(shop, tmp_path / "read" / "shop.duckdb", is_read_only=True),
        "settings": Shop(shop, tmp_path / "set" / "shop.duckdb", has_settings=True),
        "both": Shop(shop, tmp_path / "both" / "shop.duckdb", is_read_only=True, has_settings=True),
    }
    for name in ("read", "set", "both"):
        (tmp_path / name).mkdir()
    yield {
        "check": lambda text: check(text, SCHEMA, Limits()),
        "read-only": shops["read-only"].run,
        "settings": shops["settings"].run,
        "kind": lambda text: shops["writable"].run(text, kind),
        "tables": lambda text: shops["writable"].run(text, tables),
        "cost": lambda text: shops["writable"].run(text, cost),
        "all but the check": lambda text: shops["both"].run(text, kind, tables, cost),
    }
    for one in shops.values():
        one.close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_duckdb_shop(tmp_path_factory.mktemp("shop") / "shop.duckdb")


@pytest.mark.nightly
def test_each_layer_alone_lets_through_what_the_table_says(layers: dict[str, Layer], tmp_path: Path) -> None:
    assert_layers(SCHEMA, layers, tmp_path)


def test_no_hostile_statement_is_executed(shop: Path, tmp_path: Path) -> None:
    before = shop.read_bytes()

    assert_nothing_is_executed(Database("duckdb", str(shop), "shop"), SCHEMA, tmp_path, cost_max=COST_MAX)

    assert shop.read_bytes() == before


def test_what_cannot_be_a_mistake_of_a_planner_is_critical() -> None:
    assert_severe(SCHEMA)
