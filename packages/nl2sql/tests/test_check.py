"""The check: what passes and what is executed instead of it, what is refused and how."""

from __future__ import annotations

import msgspec
import pytest
from tests.support.nightly import examples

from mulligan_nl2sql.checking.check import CheckedQuery, check
from mulligan_nl2sql.checking.generated_text import check_text
from mulligan_nl2sql.failures import Code, Position, QueryFailed, Repair, Stage
from mulligan_nl2sql.limits import Limits

from .accepted_statements import ACCEPTED, accepted
from .shop import schema_of

SQLITE = schema_of("sqlite")
POSTGRES = schema_of("postgres", "public")
DUCKDB = schema_of("duckdb")
SCHEMAS = {schema.dialect: schema for schema in (SQLITE, POSTGRES, DUCKDB)}


def checked(text: str, dialect: str = "sqlite", **limits: int) -> CheckedQuery:
    return check(text, SCHEMAS[dialect], Limits(**limits))


def refused(text: str, dialect: str = "sqlite", **limits: int) -> QueryFailed:
    with pytest.raises(QueryFailed) as caught:
        checked(text, dialect, **limits)
    assert caught.value.stage == Stage.CHECK
    return caught.value


@pytest.mark.parametrize("dialect", ACCEPTED)
def test_what_is_written_is_checked_to_itself(dialect: str) -> None:
    queries = [checked(text, dialect) for text in accepted(dialect)[:: examples(3, 1)]]

    assert [checked(query.sql, dialect).sql for query in queries] == [query.sql for query in queries]


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        (
            "select * from customers c -- all of them",
            'SELECT "c"."id" AS "id", "c"."name" AS "name", "c"."city" AS "city" '
            'FROM "main"."customers" AS "c" LIMIT 1001',
        ),
        (
            "SELECT COUNT(*) FROM Orders WHERE Status = 'it''s' LIMIT 5",
            'SELECT COUNT(*) AS "_col_0" FROM "main"."orders" AS "orders" '
            """WHERE "orders"."status" = 'it''s' LIMIT 5""",
        ),
        (
            "(select id from customers union select id from orders limit 5000)",
            'SELECT "customers"."id" AS "id" FROM "main"."customers" AS "customers" '
            'UNION SELECT "orders"."id" AS "id" FROM "main"."orders" AS "orders" LIMIT 1001',
        ),
    ],
)
def test_names_are_written_out_stars_expanded_and_limits_added(text: str, sql: str) -> None:
    assert checked(text).sql == sql


def test_tables_results_and_definitions_are_reported() -> None:
    query = checked("with big as (select id, total from orders) select c.id, b.id, b.total from customers c, big b")

    assert query.tables == ("main.customers", "main.orders") or query.tables == ("main.orders", "main.customers")
    assert query.columns == ("id", "id_2", "total")
    assert query.defined == ("big",)
    assert ("c", "main.customers") in query.aliases


def test_statements_that_differ_in_form_alone_have_the_same_fingerprint() -> None:
    first = checked("select city from customers where id = 1")

    assert checked('SELECT\n  "CITY" /* ? */ FROM [Customers] WHERE (ID) = 1').fingerprint != first.fingerprint
    assert checked('SELECT\n  "CITY" /* ? */ FROM [Customers] WHERE ID = 1;').fingerprint == first.fingerprint
    assert checked("select city from customers where id = 2").fingerprint != first.fingerprint


def test_postgresql_keeps_the_case_of_names_in_quotes() -> None:
    tables = (msgspec.structs.replace(POSTGRES.tables[0], name="Customers"), POSTGRES.tables[1])
    schema = msgspec.structs.replace(POSTGRES, tables=tables)

    assert '"public"."Customers"' in check('select name from "Customers"', schema, Limits()).sql
    with pytest.raises(QueryFailed, match="no table 'customers'; did you mean 'Customers'"):
        check("select name from Customers", schema, Limits())


@pytest.mark.parametrize(
    ("text", "code", "node", "position", "repair"),
    [
        ("select nam from customers", Code.COLUMN_UNKNOWN, "Column", Position(1, 8, 7, 10), Repair.SCHEMA),
        ("select name\nfrom custmers", Code.TABLE_UNKNOWN, "Table", Position(2, 6, 17, 25), Repair.SCHEMA),
        ("select id from customers, orders", Code.COLUMN_AMBIGUOUS, "Column", Position(1, 8, 7, 9), Repair.SCHEMA),
        ("select nosuch(id) from orders", Code.FUNCTION_UNKNOWN, "Anonymous", Position(1, 8, 7, 13), Repair.MESSAGE),
        ("select email from customers", Code.COLUMN_FORBIDDEN, "Column", Position(1, 8, 7, 12), Repair.NONE),
        ("select * from salaries", Code.TABLE_FORBIDDEN, "Table", Position(1, 15, 14, 22), Repair.NONE),
        ("select load_extension('x')", Code.FUNCTION_FORBIDDEN, "Anonymous", Position(1, 8, 7, 21), Repair.NONE),
        ("select 1; select 2", Code.MANY_STATEMENTS, "Select", Position(1, 18, 17, 18), Repair.NONE),
        ("drop table orders", Code.NOT_A_QUERY, "Drop", Position(1, 12, 11, 17), Repair.NONE),
        ("select id from orders where id in (1", Code.SYNTAX, "", Position(1, 36), Repair.MESSAGE),
    ],
)
def test_a_refusal_says_what_where_and_whether_a_planner_can_repair_it(
    text: str, code: Code, node: str, position: Position | None, repair: Repair
) -> None:
    failure = refused(text)

    assert (failure.code, failure.node, failure.position, failure.repair) == (code, node, position, repair)
    assert not failure.retryable
    assert failure.severity == ("error" if repair else "critical")


@pytest.mark.parametrize(
    ("text", "dialect", "message"),
    [
        ("select nam from customers", "sqlite", "no table of the query has a column 'nam'; did you mean 'name'?"),
        ("select * from custmers", "sqlite", "there is no table 'custmers'; did you mean 'customers'?"),
        ("delete from orders", "sqlite", "'DELETE' is no query; only SELECT may be executed"),
        ("vacuum", "sqlite", "'VACUUM' is no query; only SELECT may be executed"),
        ("select pg_sleep(9)", "postgres", "the function 'pg_sleep' may not be called"),
        ("select * from '/etc/passwd'", "duckdb", "the table '/etc/passwd' may not be read: it is a file"),
        ("", "sqlite", "there is no statement"),
    ],
)
def test_a_refusal_is_said_in_words(text: str, dialect: str, message: str) -> None:
    assert refused(text, dialect).message == message


@pytest.mark.parametrize("dialect", ["postgres", "duckdb"])
@pytest.mark.parametrize(
    "text",
    [
        "select customers from customers",
        "select c from customers c",
        "select c::text from customers c",
        "select coalesce(c) from customers c",
        "select count(c) from customers c",
        "select (c).email from customers c",
        "select (c).* from customers c",
        "select id from customers as c(a, b, x, id)",
        "select a.id from customers a join customers b using (email)",
    ],
)
def test_a_hidden_column_is_not_reached_through_the_whole_row(text: str, dialect: str) -> None:
    assert refused(text, dialect).code in (Code.UNSUPPORTED, Code.COLUMN_UNKNOWN, Code.COLUMN_FORBIDDEN)


def test_a_result_that_is_called_like_a_hidden_column_does_not_lead_to_it() -> None:
    """PostgreSQL would look for `email` among the columns of the table."""
    assert refused("select city as email from customers order by lower(email)", "postgres").repair == Repair.SCHEMA
    assert "ORDER BY" in checked("select city as email from customers order by email", "postgres").sql


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        (f"select id from orders where {' or '.join(['id = 1'] * 500)}", {"nodes": 1000}),
        (f"select {'(' * 400}1{')' * 400}", {"statement_chars": 100_000}),
        (f"select {'- ' * 3000}1", {}),
        (f"select {' + '.join(['1'] * 9000)}", {"statement_chars": 100_000}),
        ("select '" + "x" * 100 + "'", {"statement_chars": 100}),
        ("select 1 from orders a, orders b, orders c", {"tables": 2}),
        ("select 1 from orders" + " join orders a" * 60, {}),
        ("select " + "case when 1 then " * 900 + "1" + " end" * 900, {"statement_chars": 100_000}),
    ],
)
def test_a_statement_of_unreasonable_size_is_refused_in_words(text: str, limits: dict[str, int]) -> None:
    assert refused(text, **limits).code in (Code.TOO_COMPLEX, Code.SYNTAX)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT PG_SLEEP(1)",
        'SELECT "pg_sleep"(1)',
        'DELETE FROM "t"',
        'SELECT "a" INTO "b" FROM "c"',
        'SELECT "a" FROM "c"; SELECT 1',
        "SELECT E'a'",
        "SELECT $$a$$",
        'SELECT "a" -- b',
        "SELECT 1 --1",
        "SELECT 1 /*1*/",
        'SELECT /* b */ "a"',
        "SELECT a FROM b",
        "SELECT 1 \\ 2",
        "SELECT 'a",
        'SELECT COPY("a")',
        'SELECT "c"."id" AS "id" FROM "public"."customers" AS "c"("a", "b", "x", "id")',
    ],
)
def test_the_last_look_at_the_text_needs_no_parser(text: str) -> None:
    with pytest.raises(QueryFailed):
        check_text(text, "postgres", frozenset())


def test_a_policy_may_allow_further_functions() -> None:
    text = "select replace(name, 'a', 'b') from customers"

    assert refused(text).code == Code.FUNCTION_UNKNOWN
    assert "REPLACE(" in check(text, SQLITE, Limits(), functions=("replace",)).sql


def test_a_failure_is_what_a_step_reports() -> None:
    report = refused("select email from customers").report()

    assert report["code"] == "SQL_COLUMN_FORBIDDEN"
    assert report["severity"] == "critical"
    assert report["details"] == {
        "stage": "check",
        "node": "Column",
        "position": {"line": 1, "column": 8, "start": 7, "end": 12},
        "column": "email",
    }
