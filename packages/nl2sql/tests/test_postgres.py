"""PostgreSQL: its schema, its rows, its limits, and the role that is used."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from mulligan.testing.postgres import GIVEN
from mulligan_nl2sql.checking.check import check
from mulligan_nl2sql.database_urls import parse_url
from mulligan_nl2sql.databases import postgres
from mulligan_nl2sql.execution.queries import execute, explain
from mulligan_nl2sql.execution.schema_reading import inspect, read_schema
from mulligan_nl2sql.failures import Code, QueryFailed
from mulligan_nl2sql.limits import Limits
from mulligan_nl2sql.policy import Policy
from mulligan_nl2sql.schema import ForeignKey

from .accepted_statements import accepted
from .postgres_shop import PostgresShop
from .shop import CITIES, SECONDS, patient, schema_of

pytestmark = pytest.mark.skipif(GIVEN in os.environ, reason="needs roles and a database of its own")

SCHEMA = schema_of("postgres", "public")
# What the role may not read is hidden without a policy.
POLICY = patient()


@pytest.fixture(scope="module")
def shop(server_url: str) -> Iterator[PostgresShop]:
    with PostgresShop.made(server_url) as made:
        yield made


def limited(**limits: Any) -> Policy:
    return msgspec.structs.replace(POLICY, limits=Limits(**{"seconds": SECONDS, **limits}))


def test_the_schema_has_what_the_role_may_read_with_keys_comments_and_values(shop: PostgresShop) -> None:
    schema = read_schema(shop.reader(), POLICY)
    customers, orders = schema.tables

    assert schema.default_schemas == ("public",)
    assert [column.name for column in customers.columns] == ["id", "name", "city"]
    assert (customers.primary_key, customers.hidden_columns) == (("id",), ("email",))
    assert customers.columns[2].values == CITIES
    assert (orders.comment, orders.columns[2].comment) == ("what was bought", "in euro")
    assert orders.columns[2].type == "double precision"
    assert orders.foreign_keys == (ForeignKey(("customer_id",), "public", "customers", ("id",)),)


def test_rows_are_written_as_json_lines_and_cut(shop: PostgresShop, tmp_path: Path) -> None:
    sql = "select id, placed, total::numeric(10, 2) as t, 'a%b' as text, null as nothing from orders order by id"

    result = execute(shop.reader(), sql, SCHEMA, limited(rows=2), file=tmp_path / "rows.jsonl")

    assert [json.loads(line) for line in Path(result.path).read_text().splitlines()] == [
        {"id": 1, "placed": "2026-01-02", "t": 1.5, "text": "a%b", "nothing": None},
        {"id": 2, "placed": "2026-01-03", "t": 3.0, "text": "a%b", "nothing": None},
    ]
    assert (result.rows, result.cut) == (2, "rows")


def test_postgresql_executes_what_the_check_writes(shop: PostgresShop) -> None:
    connection = shop.connection(shop.reader_url)
    for text in accepted("postgres"):
        query = check(text, SCHEMA, Limits())
        postgres.begin_read_only(connection)
        postgres.limit_session(connection, 60)
        try:
            postgres.open_cursor(connection, query.sql)
            row = next(iter(postgres.fetch_rows(connection, time.monotonic() + 60)), None)
        except psycopg.Error as error:
            raise AssertionError(f"{error}: {query.sql}") from error
        finally:
            connection.execute("rollback")

        assert row is None or len(row) == len(query.columns)


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"seconds": 1.5, "cost": 1e300}, Code.TIMEOUT),
        ({"cost": 100_000}, Code.TOO_EXPENSIVE),
    ],
)
def test_a_statement_beyond_a_limit_fails(
    shop: PostgresShop, tmp_path: Path, limits: dict[str, float], code: Code
) -> None:
    sql = "select count(*) from " + ", ".join(f"orders o{n}" for n in range(7))

    with pytest.raises(QueryFailed) as caught:
        execute(shop.reader(), sql, SCHEMA, limited(**limits), file=tmp_path / "rows.jsonl")

    assert caught.value.code == code
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_executed_by_a_role_that_may_write(shop: PostgresShop, tmp_path: Path, server_url: str) -> None:
    def refused(url: str, policy: Policy) -> QueryFailed:
        with pytest.raises(QueryFailed) as caught:
            explain(parse_url(url), "select id from orders", SCHEMA, policy)
        return caught.value

    owner, superuser = refused(shop.owner_url, POLICY), refused(server_url, POLICY)

    assert (owner.code, owner.severity) == (Code.UNSAFE, "critical")
    assert "is a member of 'pg_execute_server_program'" in owner.message
    assert any("may write to public.customers" in problem for problem in owner.details["problems"])
    assert "is a superuser" in superuser.message
    assert explain(shop.owner(), "select id from orders", SCHEMA, patient(allow_writing_role=True)) > 0


def test_doctor_says_what_a_role_may_do(shop: PostgresShop) -> None:
    reader, owner = inspect(shop.reader(), POLICY), inspect(shop.owner(), POLICY)

    assert [finding.is_problem for finding in reader] == [False]
    assert "in read-only transactions" in reader[0].message
    assert sum(finding.is_problem for finding in owner) == 4


def test_a_session_can_neither_write_nor_find_what_others_have_put_in_its_way(shop: PostgresShop) -> None:
    connection = shop.connection(shop.owner_url)
    postgres.begin_read_only(connection)
    try:
        postgres.limit_session(connection, 60)
        ((path, is_read_only),) = connection.execute(
            "select current_setting('search_path'), current_setting('transaction_read_only')"
        ).fetchall()
        with pytest.raises(psycopg.errors.ActiveSqlTransaction):
            connection.execute("set transaction read write")
    finally:
        connection.execute("rollback")

    assert (path, is_read_only) == ("pg_catalog", "on")


def test_a_server_that_is_not_there_may_be_tried_again(tmp_path: Path) -> None:
    url = f"postgresql://ann:hush@/shop?host={tmp_path}"

    with pytest.raises(QueryFailed) as caught:
        read_schema(parse_url(url), POLICY)

    assert (caught.value.code, caught.value.retryable) == (Code.UNREACHABLE, True)
    assert "hush" not in caught.value.message


def test_a_role_that_is_not_let_in_is_not_tried_again(shop: PostgresShop) -> None:
    url = shop.reader_url.replace("_reader@", "_nobody@")

    with pytest.raises(QueryFailed) as caught:
        read_schema(parse_url(url), POLICY)

    assert (caught.value.code, caught.value.retryable) == (Code.UNUSABLE, False)


def test_a_generated_column_is_hidden_with_what_it_may_be_made_of(shop: PostgresShop) -> None:
    with psycopg.connect(shop.owner_url, autocommit=True) as connection:
        connection.execute("create schema pins")
        connection.execute("create table pins.t (id int, pin int, copy int generated always as (pin) stored)")
    try:
        (table,) = read_schema(shop.owner(), patient(schemas=("pins",), hidden=("t.pin",))).tables
    finally:
        with psycopg.connect(shop.owner_url, autocommit=True) as connection:
            connection.execute("drop schema pins cascade")

    assert ([column.name for column in table.columns], table.hidden_columns) == (["id"], ("pin", "copy"))
