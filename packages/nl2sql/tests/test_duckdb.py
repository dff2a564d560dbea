"""DuckDB: its schema, its rows, its limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest

from mulligan_nl2sql.checking.check import check
from mulligan_nl2sql.database_urls import Database, parse_url
from mulligan_nl2sql.databases import duckdb as layers_of_duckdb
from mulligan_nl2sql.execution.queries import execute
from mulligan_nl2sql.execution.schema_reading import inspect, read_schema
from mulligan_nl2sql.failures import Code, QueryFailed
from mulligan_nl2sql.limits import MEBIBYTE, Limits
from mulligan_nl2sql.policy import Policy
from mulligan_nl2sql.schema import ForeignKey

from .accepted_statements import accepted
from .shop import CITIES, POLICY, SECONDS, make_duckdb_shop, make_shop, patient, schema_of

SCHEMA = schema_of("duckdb")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Database:
    return parse_url(f"duckdb:///{make_duckdb_shop(tmp_path_factory.mktemp('shop') / 'shop.duckdb')}")


def limited(**limits: Any) -> Policy:
    return msgspec.structs.replace(POLICY, limits=Limits(**{"seconds": SECONDS, **limits}))


def test_the_schema_has_what_the_policy_leaves_with_keys_comments_and_values(shop: Database) -> None:
    schema = read_schema(shop, POLICY)
    customers, orders = schema.tables

    assert schema.hidden == ("main.payroll", "main.salaries")
    assert [column.name for column in customers.columns] == ["id", "name", "city"]
    assert (customers.primary_key, customers.rows, customers.hidden_columns) == (("id",), 30, ("email",))
    assert customers.columns[2].values == CITIES
    assert (orders.comment, orders.columns[2].comment, orders.columns[2].type) == (
        "what was bought",
        "in euro",
        "DOUBLE",
    )
    assert orders.foreign_keys == (ForeignKey(("customer_id",), "main", "customers", ("id",)),)


def test_rows_are_written_as_json_lines_and_cut(shop: Database, tmp_path: Path) -> None:
    sql = "select id, placed, total::decimal(10, 1) as t, null as nothing from orders order by id"

    result = execute(shop, sql, SCHEMA, limited(rows=2), file=tmp_path / "rows.jsonl")

    assert [json.loads(line) for line in Path(result.path).read_text().splitlines()] == [
        {"id": 1, "placed": "2026-01-02", "t": 1.5, "nothing": None},
        {"id": 2, "placed": "2026-01-03", "t": 3.0, "nothing": None},
    ]
    assert (result.rows, result.cut) == (2, "rows")


def test_duckdb_executes_what_the_check_writes(shop: Database) -> None:
    with duckdb.connect(shop.location, read_only=True) as connection:
        for text in accepted("duckdb"):
            query = check(text, SCHEMA, Limits())

            layers_of_duckdb.check_kind(connection, query.sql)
            layers_of_duckdb.check_tables(connection, query.sql, SCHEMA)
            assert {len(row) for row in connection.execute(query.sql).fetchall()} <= {len(query.columns)}, query.sql


def test_the_estimate_counts_pairs_of_rows(shop: Database) -> None:
    def cost(text: str) -> float:
        return layers_of_duckdb.plan_cost(connection, check(text, SCHEMA, Limits()).sql)

    with duckdb.connect(shop.location, read_only=True) as connection:
        assert cost("select name from customers") < 30 * 10
        assert cost("select a.id from customers a, orders b") >= 30 * 60
        assert cost("select a.id from customers a join orders b on a.id < b.id") >= 30 * 60


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"seconds": 0.8, "cost": 1e300}, Code.TIMEOUT),
        ({"cost": 1_000_000}, Code.TOO_EXPENSIVE),
    ],
)
def test_a_statement_beyond_a_limit_fails(shop: Database, tmp_path: Path, limits: dict[str, float], code: Code) -> None:
    sql = "select count(*) from " + ", ".join(f"orders o{n}" for n in range(7))

    with pytest.raises(QueryFailed) as caught:
        execute(shop, sql, SCHEMA, limited(**limits), file=tmp_path / "rows.jsonl")

    assert caught.value.code == code
    assert list(tmp_path.iterdir()) == []


def test_memory_has_a_limit(shop: Database, tmp_path: Path) -> None:
    texts = "a.name || b.name || c.name || d.name"
    sql = f"select string_agg({texts}, '') from customers a, customers b, customers c, customers d"

    with pytest.raises(QueryFailed) as caught:
        execute(shop, sql, SCHEMA, limited(memory_bytes=16 * MEBIBYTE), file=tmp_path / "rows.jsonl")

    assert caught.value.code == Code.MEMORY


def test_the_database_itself_refuses_tables_that_it_was_not_shown(shop: Database) -> None:
    """As if the check had a hole."""
    with duckdb.connect(shop.location, read_only=True) as connection:
        with pytest.raises(duckdb.PermissionException):
            layers_of_duckdb.check_tables(connection, 'select * from "main"."salaries" as "customers"', SCHEMA)
        with pytest.raises(duckdb.PermissionException):
            layers_of_duckdb.check_kind(connection, "select 1; select 2")


def test_a_file_that_is_written_to_is_busy(tmp_path: Path) -> None:
    path = make_duckdb_shop(tmp_path / "shop.duckdb")
    with duckdb.connect(str(path)), pytest.raises(QueryFailed) as caught:
        read_schema(parse_url(f"duckdb:///{path}"), patient())

    assert (caught.value.code, caught.value.retryable) == (Code.BUSY, True)


def test_a_file_that_is_no_database_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "text.duckdb").write_text("no database " * 100)

    with pytest.raises(QueryFailed, match="cannot be read as a DuckDB database") as caught:
        inspect(parse_url(f"duckdb:///{tmp_path}/text.duckdb"), patient())

    assert caught.value.code == Code.UNUSABLE


def test_a_generated_column_is_hidden_with_what_it_may_be_made_of(tmp_path: Path) -> None:
    connection = duckdb.connect(str(tmp_path / "t.duckdb"))
    connection.execute("create table t (id int, pin int, copy int generated always as (pin))")
    connection.close()

    (table,) = read_schema(parse_url(f"duckdb:///{tmp_path}/t.duckdb"), patient(hidden=("t.pin",))).tables

    assert table.hidden_columns == ("pin", "copy")


def test_a_file_of_another_database_is_said_to_be_none_of_duckdb(tmp_path: Path) -> None:
    path = make_shop(tmp_path / "shop.db")

    with pytest.raises(QueryFailed, match="cannot be read as a DuckDB database: it is not one") as caught:
        read_schema(parse_url(f"duckdb:///{path}"), patient())

    assert caught.value.code == Code.UNUSABLE
