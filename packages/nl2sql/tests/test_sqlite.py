"""SQLite: its schema, its rows, its limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from mulligan_nl2sql.checking.check import check
from mulligan_nl2sql.database_urls import Database, parse_url
from mulligan_nl2sql.databases import sqlite
from mulligan_nl2sql.execution.queries import Result, execute, explain
from mulligan_nl2sql.execution.schema_reading import inspect, read_schema
from mulligan_nl2sql.failures import Code, QueryFailed
from mulligan_nl2sql.limits import Limits
from mulligan_nl2sql.policy import Policy
from mulligan_nl2sql.schema import Column, ForeignKey, Schema, Table

from .accepted_statements import accepted
from .shop import CITIES, POLICY, SECONDS, STATUSES, make_shop, patient, schema_of

SCHEMA = schema_of("sqlite")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Database:
    return parse_url(f"sqlite:///{make_shop(tmp_path_factory.mktemp('shop') / 'shop.db')}")


def limited(**limits: Any) -> Policy:
    return msgspec.structs.replace(POLICY, limits=Limits(**{"seconds": SECONDS, **limits}))


def rows_of(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(result.path).read_text().splitlines()]


def test_the_schema_has_what_the_policy_leaves_with_keys_and_values(shop: Database) -> None:
    schema = read_schema(shop, POLICY)
    customers, orders = schema.tables

    assert schema.hidden == ("main.payroll", "main.salaries")
    assert [(column.name, column.type) for column in customers.columns] == [
        ("id", "INTEGER"),
        ("name", "TEXT"),
        ("city", "TEXT"),
    ]
    assert (customers.primary_key, customers.rows, customers.hidden_columns) == (("id",), 30, ("email",))
    assert customers.columns[1].values == () and customers.columns[2].values == CITIES
    assert orders.columns[4].values == STATUSES
    assert orders.foreign_keys == (ForeignKey(("customer_id",), "main", "customers", ("id",)),)


def test_rows_are_written_as_json_lines(shop: Database, tmp_path: Path) -> None:
    sql = "select city, count(*) as n from customers group by city order by city"

    result = execute(shop, sql, SCHEMA, POLICY, file=tmp_path / "rows.jsonl")

    assert rows_of(result) == [{"city": city, "n": 10} for city in CITIES]
    assert (result.rows, result.cut, result.columns, result.tables) == (3, "", ("city", "n"), ("main.customers",))
    assert result.bytes == Path(result.path).stat().st_size
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_sqlite_executes_what_the_check_writes(shop: Database) -> None:
    connection = sqlite.open_read_only(shop.location)
    for text in accepted("sqlite"):
        query = check(text, SCHEMA, Limits())

        assert {len(row) for row in connection.execute(query.sql)} <= {len(query.columns)}, query.sql
    connection.close()


def test_a_statement_that_would_cost_too_much_is_not_executed(shop: Database, tmp_path: Path) -> None:
    sql = "select count(*) from orders a, orders b, orders c, orders d"

    with pytest.raises(QueryFailed) as caught:
        execute(shop, sql, SCHEMA, limited(cost=100_000), file=tmp_path / "rows.jsonl")

    assert (caught.value.code, caught.value.repair) == (Code.TOO_EXPENSIVE, "message")
    assert caught.value.details["cost"] > 60**4
    assert list(tmp_path.iterdir()) == []


def test_the_estimate_multiplies_loops_and_adds_subqueries(shop: Database) -> None:
    connection = sqlite.open_read_only(shop.location)
    sizes = sqlite.table_sizes(connection)

    def cost(text: str) -> float:
        query = check(text, SCHEMA, Limits())
        return sqlite.plan_cost(connection, query.sql, sizes, query.aliases)

    assert cost("select name from customers") == 30
    assert cost("select name from customers where id = 3") == 1
    assert cost("select a.id from customers a, orders b") > 30 * 60
    assert cost("select id from customers union all select id from orders") == 90
    assert 30 * 2 < cost("select (select max(id) from orders o where o.customer_id = c.id) from customers c") < 30 * 60
    connection.close()


def test_the_database_itself_refuses_what_it_was_not_shown(shop: Database) -> None:
    """As if the check had a hole: the authorizer knows less than the statement reads."""
    connection = sqlite.open_read_only(shop.location)
    connection.authorizer = sqlite.authorizer(SCHEMA, ["count"])
    with pytest.raises(apsw.AuthError):
        connection.execute("select amount from main.salaries")
    with pytest.raises(apsw.Error):
        connection.execute("select lower(name) from main.customers")
    assert list(connection.execute("with x as (select id from main.orders) select count(id) from x")) == [(60,)]
    connection.close()


def test_a_file_that_is_no_database_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database " * 100)

    with pytest.raises(QueryFailed, match="cannot be read as a SQLite database") as caught:
        read_schema(parse_url(f"sqlite:///{tmp_path}/text.db"), patient())

    assert caught.value.code == Code.UNUSABLE


def test_a_locked_database_is_busy_and_may_be_tried_again(tmp_path: Path) -> None:
    path = make_shop(tmp_path / "shop.db")
    writer = apsw.Connection(str(path))
    writer.execute("begin exclusive")

    with pytest.raises(QueryFailed) as caught:
        explain(parse_url(f"sqlite:///{path}"), "select id from orders", SCHEMA, POLICY)
    writer.close()

    assert (caught.value.code, caught.value.retryable) == (Code.BUSY, True)


def test_doctor_says_how_it_is_opened(shop: Database) -> None:
    (finding,) = inspect(shop, POLICY)

    assert "opened for reading alone" in finding.message and not finding.is_problem


def test_what_a_virtual_table_keeps_elsewhere_is_not_readable_there(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "d.db"))
    connection.execute(
        "create virtual table diary using fts5(body); insert into diary values ('dear diary');"
        "create virtual table places using rtree(id, low, high); create table notes (id integer)"
    )
    connection.close()
    database = parse_url(f"sqlite:///{tmp_path}/d.db")
    everything, restricted = read_schema(database, patient()), read_schema(database, patient(hidden=("diary",)))

    result = execute(database, "select body from diary", everything, patient(), file=tmp_path / "rows.jsonl")

    assert [table.name for table in everything.tables] == ["diary", "notes", "places"]
    assert [table.name for table in restricted.tables] == ["notes"]
    assert rows_of(result) == [{"body": "dear diary"}]
    for number, table in enumerate(("diary_content", "places_node")):
        with pytest.raises(QueryFailed) as caught:
            execute(database, f"select * from {table}", everything, patient(), file=tmp_path / f"{number}.jsonl")
        assert caught.value.code == Code.TABLE_UNKNOWN


def test_the_authorizer_lets_only_a_module_read_its_shadow_tables() -> None:
    table = Table("main", "diary_content", (Column("c0"),))
    is_running = False
    asked = sqlite.authorizer(
        Schema("sqlite", (table,), ("main",)),
        (),
        shadows=frozenset({"diary_content"}),
        is_running=lambda: is_running,
    )

    assert asked(apsw.SQLITE_READ, "diary_content", "c0", "main", None) == apsw.SQLITE_DENY
    is_running = True
    assert asked(apsw.SQLITE_READ, "diary_content", "c0", "main", None) == apsw.SQLITE_OK


def test_a_generated_column_is_hidden_with_what_it_may_be_made_of(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "t.db"))
    connection.execute("create table t (id, pin, copy generated always as (pin), kept as (pin) stored)")
    connection.close()
    database = parse_url(f"sqlite:///{tmp_path}/t.db")

    (hidden,) = read_schema(database, patient(hidden=("t.pin",))).tables
    (named,) = read_schema(database, patient(columns={"t": ("id", "copy")})).tables

    assert [column.name for column in hidden.columns] == ["id"]
    assert [column.name for column in named.columns] == ["id", "copy"]


def test_only_ascii_letters_are_folded(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "u.db"))
    connection.execute('create table "Ünits" (a, "Ä"); create table "ünits" (b); insert into "ünits" values (1)')
    connection.close()
    database = parse_url(f"sqlite:///{tmp_path}/u.db")
    policy = patient(hidden=("Ünits",))
    schema = read_schema(database, policy)

    result = execute(database, 'select B from "üNITS"', schema, policy, file=tmp_path / "rows.jsonl")
    with pytest.raises(QueryFailed) as caught:
        execute(database, 'select * from "Ünits"', schema, policy, file=tmp_path / "none.jsonl")

    assert rows_of(result) == [{"b": 1}]
    assert caught.value.code == Code.TABLE_FORBIDDEN


def test_a_text_that_is_not_utf_8_hides_only_the_values_of_its_column(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "b.db"))
    connection.execute("create table t (good, bad); insert into t values ('a', cast(x'ff41' as text))")
    connection.close()
    database = parse_url(f"sqlite:///{tmp_path}/b.db")
    schema = read_schema(database, patient())

    result = execute(database, "select good from t", schema, patient(), file=tmp_path / "rows.jsonl")
    with pytest.raises(QueryFailed, match=r"not UTF-8: b'\\xffA'") as caught:
        execute(database, "select bad from t", schema, patient(), file=tmp_path / "none.jsonl")

    assert [column.values for column in schema.tables[0].columns] == [("a",), ()]
    assert rows_of(result) == [{"good": "a"}]
    assert caught.value.code == Code.REJECTED


def test_columns_may_have_the_names_of_keywords(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "k.db"))
    connection.execute('create table t ("group by", "a""b"); insert into t values (1, 2)')
    connection.close()
    database = parse_url(f"sqlite:///{tmp_path}/k.db")

    result = execute(
        database, "select * from t", read_schema(database, patient()), patient(), file=tmp_path / "r.jsonl"
    )

    assert rows_of(result) == [{"group by": 1, 'a"b': 2}]
