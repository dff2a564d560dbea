"""The shop of the demo, and the planner on real databases."""

from __future__ import annotations

import sqlite3
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
from msgspec.structs import replace

from mulligan_nl2sql.database_urls import parse_url
from mulligan_nl2sql.demo import shop as demo
from mulligan_nl2sql.demo.make_file import make_file
from mulligan_nl2sql.demo.shop_tables import TABLES
from mulligan_nl2sql.execution.queries import execute
from mulligan_nl2sql.execution.schema_reading import read_schema
from mulligan_nl2sql.planning.planner import Plan
from mulligan_nl2sql.planning.rules.planner import plan
from mulligan_nl2sql.schema import Schema, Table

from ..shop import patient
from .answered_questions import ANSWERED, SORTED

TODAY = date(2025, 11, 17)


def normal(value: Any) -> Any:
    """Values as SQLite has them."""
    match value:
        case bool():
            return int(value)
        case Decimal() | float():
            return round(float(value), 6)
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S")
        case date():
            return value.isoformat()
        case _:
            return value


def rows_of(found: list[Any]) -> list[tuple[Any, ...]]:
    return sorted((tuple(normal(value) for value in row) for row in found), key=repr)


def comparable(table: Table) -> Table:
    """Without what the demo does not say: the number of rows, and values of columns that hold dates."""
    columns = tuple(one if one.type == "TEXT" else replace(one, values=()) for one in table.columns)
    keys = tuple(sorted(table.foreign_keys, key=lambda one: one.columns))
    return replace(table, rows=-1, columns=columns, foreign_keys=keys)


def test_the_schema_that_is_read_from_the_file_is_that_of_the_demo(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    demo.make_shop(path)

    found = read_schema(parse_url(f"sqlite:///{path}"), patient())

    def by_name(schema: Schema) -> dict[str, Table]:
        return {table.name: comparable(table) for table in schema.tables}

    assert by_name(found) == by_name(demo.shop_schema())


def test_a_question_is_answered_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    demo.make_shop(path)
    database = parse_url(f"sqlite:///{path}")
    schema = read_schema(database, patient())
    found = plan("how many products over 50 euros are there", schema, TODAY)
    assert isinstance(found, Plan)

    result = execute(database, found.sql, schema, patient(), file=tmp_path / "rows.jsonl")

    assert msgspec.json.decode(Path(result.path).read_bytes()) == {"product_count": 15}
    assert result.tables == ("main.products",)


def test_the_shop_is_the_same_every_time_and_replaces_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "shop.db"
    monkeypatch.setattr("sys.argv", ["shop", str(path)])

    first, second = make_file("shop", demo.make_shop), make_file("shop", demo.make_shop)

    assert (first, second) == (0, 2)
    assert "exists already" in capsys.readouterr().err
    assert demo.shop_rows() == demo.shop_rows()
    assert {name: len(rows) for name, rows in demo.shop_rows().items()} == {
        **{"categories": 6, "suppliers": 4, "products": 40, "customers": 45, "employees": 12},
        **{"orders": 180, "order_items": 416, "shipments": 128, "payments": 183, "reviews": 90},
    }


@pytest.mark.nightly
def test_answers_are_the_same_in_duckdb(schema: Schema, shop: sqlite3.Connection) -> None:
    database = duckdb.connect(":memory:")
    rows = demo.shop_rows()
    for table in TABLES:
        columns = ", ".join(f"{one.name} {one.type.replace('REAL', 'DOUBLE')}" for one in table.columns)
        values = ", ".join(str(tuple(row)).replace("None", "NULL") for row in rows[table.name])
        database.execute(f"CREATE TABLE {table.name} ({columns}); INSERT INTO {table.name} VALUES {values}")
    other = replace(schema, dialect="duckdb")

    for question, sql in (*ANSWERED[::3], *SORTED):
        found = plan(question, other, TODAY)
        assert isinstance(found, Plan)
        assert rows_of(database.execute(found.sql).fetchall()) == rows_of(shop.execute(sql).fetchall()), question
