"""Schemas that tempt a planner to guess."""

from __future__ import annotations

import sqlite3
from datetime import date

import pytest

from mulligan_nl2sql.planning.planner import Plan, Refusal, RefusalReason
from mulligan_nl2sql.planning.rules.planner import plan
from mulligan_nl2sql.schema import Column, ForeignKey, Schema, Table

TODAY = date(2025, 11, 17)


def key(column: str, table: str) -> ForeignKey:
    return ForeignKey((column,), "main", table, ("id",))


def table(name: str, *columns: Column, keys: tuple[ForeignKey, ...] = (), schema: str = "main") -> Table:
    return Table(schema, name, (Column("id", "INTEGER", False), *columns), ("id",), keys)


def schema_of(*tables: Table, dialect: str = "sqlite", default: str = "main") -> Schema:
    return Schema(dialect, tables, (default,))


def sql_of(question: str, schema: Schema) -> str:
    found = plan(question, schema, TODAY)
    assert isinstance(found, Plan), found
    return found.sql


def refusal_of(question: str, schema: Schema) -> Refusal:
    found = plan(question, schema, TODAY)
    assert isinstance(found, Refusal), found
    return found


CITY = Column("city", "TEXT", False, "", ("Berlin", "Bonn"))


def test_a_value_in_two_columns_is_refused_unless_the_column_is_named() -> None:
    shops = table(
        "shops", Column("city", "TEXT", False, "", ("Berlin",)), Column("home_town", "TEXT", False, "", ("Berlin",))
    )
    schema = schema_of(shops)

    refused = refusal_of("shops in Berlin", schema)

    assert refused.reason is RefusalReason.AMBIGUOUS
    assert refused.words == ("Berlin",)
    assert refused.candidates == ("shops.city", "shops.home_town")
    assert "shops.home_town = 'Berlin'" in sql_of("shops with home town Berlin", schema)


def test_two_keys_to_the_same_table_are_refused() -> None:
    towns = table("towns", Column("name", "TEXT", False, "", ("Berlin", "Bonn")))
    trips = table(
        "trips",
        Column("start_id", "INTEGER"),
        Column("goal_id", "INTEGER"),
        keys=(key("start_id", "towns"), key("goal_id", "towns")),
    )

    refused = refusal_of("how many trips in Berlin", schema_of(towns, trips))

    assert refused.reason is RefusalReason.AMBIGUOUS
    assert refused.candidates == ("trips.start_id = towns.id", "trips.goal_id = towns.id")


@pytest.mark.parametrize("preposition", ["from", "by", "to"])
def test_a_direction_is_not_guessed_from_a_key_that_is_named_after_a_role(preposition: str) -> None:
    users = table("users", CITY)
    messages = table("messages", Column("recipient_id", "INTEGER"), keys=(key("recipient_id", "users"),))
    schema = schema_of(users, messages)

    assert "city = 'Berlin'" in sql_of("messages of users in Berlin", schema)
    refusal_of(f"messages {preposition} users in Berlin", schema)


def test_a_reading_that_is_ambiguous_makes_the_question_so() -> None:
    """The customers are in Berlin, or the orders are: and then they have two cities."""
    customers, shops = table("customers", CITY), table("shops", CITY)
    keys = (key("customer_id", "customers"), key("shop_id", "shops"))
    orders = table("orders", Column("customer_id", "INTEGER"), Column("shop_id", "INTEGER"), keys=keys)
    schema = schema_of(customers, shops, orders)

    assert refusal_of("orders of customers in Berlin", schema).candidates == ("customers.city", "shops.city")
    assert "customers.city = 'Berlin'" in sql_of("orders with customer city Berlin", schema)


def test_a_state_that_has_not_happened_yet_is_not_guessed() -> None:
    schema = schema_of(table("loans", Column("due_on", "DATE"), Column("returned_on", "DATE")))

    assert "NOT loans.returned_on IS NULL" in sql_of("loans returned", schema)
    refusal_of("loans due", schema)


def test_a_shipment_from_a_city_is_none_to_it() -> None:
    shipments = table("shipments", Column("destination_city", "TEXT", False, "", ("Berlin",)))
    schema = schema_of(shipments)

    assert "destination_city = 'Berlin'" in sql_of("shipments to Berlin", schema)
    refusal_of("shipments from Berlin", schema)


def test_two_tables_that_refer_to_a_third_are_not_related() -> None:
    """Orders and reviews of the same customer: a join would relate each with each."""
    customers = table("customers")
    orders = table("orders", Column("customer_id", "INTEGER"), keys=(key("customer_id", "customers"),))
    reviews = table("reviews", Column("customer_id", "INTEGER"), keys=(key("customer_id", "customers"),))
    schema = schema_of(customers, orders, reviews)

    refusal_of("orders with reviews", schema)
    refusal_of("number of orders per review", schema)


def test_a_sum_over_a_join_does_not_count_twice() -> None:
    """The credit of a customer with two orders is counted once, or not at all."""
    customers = table("customers", Column("credit", "REAL", False), CITY)
    orders = table("orders", Column("customer_id", "INTEGER", False), keys=(key("customer_id", "customers"),))
    schema = schema_of(customers, orders)
    database = sqlite3.connect(":memory:")
    database.executescript(
        "create table customers (id integer, credit real, city text);"
        "create table orders (id integer, customer_id integer);"
        "insert into customers values (1, 10, 'Berlin'), (2, 5, 'Bonn');"
        "insert into orders values (1, 1), (2, 1), (3, 2);"
    )

    total = sql_of("total credit of customers with orders", schema)

    assert database.execute(total).fetchall() == [(15.0,)]
    refusal_of("total credit of orders", schema)
    refusal_of("average credit per order", schema)


def test_columns_of_the_same_name_belong_to_the_table_that_is_named() -> None:
    people = table("people", Column("name", "TEXT"), Column("weight", "REAL"))
    parcels = table("parcels", Column("name", "TEXT"), Column("weight", "REAL"))
    schema = schema_of(people, parcels)

    assert sql_of("average weight of parcels", schema) == "SELECT AVG(parcels.weight) AS average_weight FROM parcels"
    assert refusal_of("average weight", schema).candidates == ("people.weight", "parcels.weight")


def test_a_measure_that_two_columns_may_mean_is_refused() -> None:
    schema = schema_of(table("products", Column("list_price", "REAL"), Column("sale_price", "REAL")))

    assert refusal_of("average price of products", schema).candidates == ("products.list_price", "products.sale_price")
    assert refusal_of("the most expensive product", schema).candidates == ("products.list_price", "products.sale_price")
    assert "AVG(products.sale_price)" in sql_of("average sale price of products", schema)


def test_names_in_camel_case_and_snake_case_are_split() -> None:
    schema = schema_of(
        table("OrderLines", Column("unitPrice", "REAL"), Column("shipTo_City", "TEXT", False, "", ("Berlin",)))
    )

    assert 'AVG("OrderLines"."unitPrice")' in sql_of("average unit price of order lines", schema)
    assert "'Berlin'" in sql_of("order lines with ship to city Berlin", schema)


def test_a_value_that_is_a_word_of_the_grammar_must_be_written_as_it_is_stored() -> None:
    schema = schema_of(table("people", Column("country", "TEXT", False, "", ("IN", "NO", "DE")), CITY))

    assert "country" not in sql_of("people in Berlin", schema).split("WHERE")[1]
    assert "country = 'IN'" in sql_of("people in IN", schema)
    assert "country = 'NO'" in sql_of("people from NO", schema)


def test_values_that_differ_in_case_alone_are_one_value() -> None:
    schema = schema_of(table("people", Column("city", "TEXT", False, "", ("Berlin", "BERLIN", "Bonn"))))

    assert "IN ('Berlin', 'BERLIN')" in sql_of("people in berlin", schema)


def test_a_quote_in_a_value_stays_in_its_literal() -> None:
    schema = schema_of(table("people", Column("name", "TEXT"), CITY))

    assert sql_of("""people named "O'Hara'; drop table people" """, schema).endswith(
        "WHERE people.name = 'O''Hara''; drop table people'"
    )


def test_words_of_sql_in_names_are_quoted() -> None:
    schema = schema_of(table("order", Column("group", "TEXT", False, "", ("a1", "b2")), Column("Größe", "REAL")))

    assert '"order"."group" = \'a1\'' in sql_of("orders with group a1", schema)
    assert 'AVG("order"."Größe")' in sql_of("average größe of orders", schema)


@pytest.mark.parametrize(
    ("dialect", "month"),
    [
        ("sqlite", "STRFTIME('%Y-%m', visits.visited_on)"),
        ("postgres", "TO_CHAR(visits.visited_on, 'YYYY-MM')"),
        ("duckdb", "STRFTIME(visits.visited_on, '%Y-%m')"),
    ],
)
def test_each_dialect_has_its_own_sql(dialect: str, month: str) -> None:
    schema = schema_of(table("visits", Column("visited_on", "DATE", False)), dialect=dialect)

    assert month in sql_of("number of visits per month", schema)


def test_a_table_of_another_schema_is_written_with_it() -> None:
    people = table("people", schema="archive")

    assert "FROM archive.people AS people" in sql_of("how many people are there", schema_of(people, dialect="postgres"))


def test_rows_without_a_group_are_shown_in_a_group_of_their_own() -> None:
    teams = table("teams", Column("name", "TEXT"))
    people = table("people", Column("team_id", "INTEGER", True), keys=(key("team_id", "teams"),))

    assert "LEFT JOIN teams" in sql_of("number of people per team", schema_of(teams, people))


def test_the_date_of_a_row_is_not_guessed() -> None:
    made_later = Column("updated_at", "TIMESTAMP")
    created = Column("created_at", "TIMESTAMP")
    teams = table("teams")
    tasks = table("tasks", Column("team_id", "INTEGER"), created, made_later, keys=(key("team_id", "teams"),))
    schema = schema_of(teams, tasks)

    assert refusal_of("tasks in 2024", schema).candidates == ("tasks.created_at", "tasks.updated_at")
    assert "tasks.updated_at >= '2024-01-01'" in sql_of("tasks updated in 2024", schema)
    assert "tasks.created_at < '2024-01-01'" in sql_of("tasks created before 2024", schema)


def test_a_column_that_is_no_date_is_never_compared_with_one() -> None:
    schema = schema_of(table("orders", Column("ordered_on", "TEXT")))

    refusal_of("orders in 2024", schema)
    refusal_of("orders with ordered on after 2024-01-01", schema)


def test_dates_that_are_written_in_another_way_are_not_compared() -> None:
    orders = table("orders", Column("ordered_on", "DATE", False, "", ("03/04/2024", "04/04/2024")))

    refusal_of("orders since 2024", schema_of(orders))


def test_tables_and_columns_that_may_not_be_read_are_unknown_words() -> None:
    """A planner is never shown them, so it can name neither them nor their values."""
    people = Table("main", "people", (Column("id", "INTEGER"),), ("id",), hidden_columns=("salary",))
    schema = Schema("sqlite", (people,), ("main",), ("main.secrets",))

    assert refusal_of("average salary of people", schema).words == ("salary",)
    assert refusal_of("how many secrets are there", schema).words == ("secrets",)


# -- many rows -------------------------------------------------------------------------------------------------------

DOCTORS = table("doctors", Column("name", "TEXT", False, "", ("Emma", "Noor", "Ole")), Column("salary", "REAL", False))
PATIENTS = table(
    "patients",
    Column("name", "TEXT", False),
    Column("city", "TEXT", True, "", ("Bergen", "Oslo")),
    Column("doctor_id", "INTEGER", True),
    keys=(key("doctor_id", "doctors"),),
)
VISITS = table(
    "visits",
    Column("patient_id", "INTEGER", False),
    Column("drug", "TEXT", False, "", ("aspirin", "insulin")),
    Column("status", "TEXT", False, "", ("cancelled", "completed")),
    Column("fee", "REAL", True),
    Column("planned_on", "DATE", False),
    keys=(key("patient_id", "patients"),),
)
CLINIC = schema_of(DOCTORS, PATIENTS, VISITS)
CLINIC_ROWS = """
create table doctors (id integer, name text, salary real);
create table patients (id integer, name text, city text, doctor_id integer);
create table visits (id integer, patient_id integer, drug text, status text, fee real, planned_on date);
insert into doctors values (1, 'Emma', 50), (2, 'Noor', 70), (3, 'Ole', 60);
insert into patients values (1, 'Ada', 'Oslo', 1), (2, 'Bo', 'Bergen', 1), (3, 'Cy', 'Oslo', 2), (4, 'Di', null, null);
insert into visits values (1, 1, 'aspirin', 'completed', 10, '2024-01-01'),
  (2, 1, 'insulin', 'cancelled', 5, '2024-01-02'), (3, 2, 'aspirin', 'cancelled', 7, '2024-01-03');
"""


def clinic_rows(question: str) -> list[tuple[object, ...]]:
    database = sqlite3.connect(":memory:")
    database.executescript(CLINIC_ROWS)
    return database.execute(sql_of(question, CLINIC)).fetchall()


@pytest.mark.parametrize(
    ("question", "word"),
    [
        # Which of many rows this is said of is not certain.
        ("doctors with patients in Oslo and in Bergen", "Bergen"),
        ("doctors with patients in Oslo and Bergen", "and"),
        ("doctors with patients in Oslo but not in Bergen", "Bergen"),
        ("doctors with patients not in Oslo but in Bergen", "Oslo"),
        ("doctors without patients in Oslo but not in Bergen", "Bergen"),
        ("patients with visits of insulin and aspirin", "insulin"),
        ("doctors with all patients in Oslo", "all"),
        ("patients with every visit cancelled", "every"),
        ("patients who have all visits completed", "all"),
        # A value of what is asked for, reached through something else.
        ("doctors of the patients of Emma", "Emma"),
        # Groups without such a row are not seen.
        ("which city has the fewest patients with visits", "city"),
    ],
)
def test_what_may_be_said_of_one_or_of_all_of_many_rows_is_refused(question: str, word: str) -> None:
    assert word in refusal_of(question, CLINIC).words


@pytest.mark.parametrize(
    ("question", "ids"),
    [
        ("all patients in Oslo", [1, 3]),
        ("patients in Oslo but not in Bergen", [1, 3]),
        ("patients in Oslo and Bergen", [1, 2, 3]),
        ("all doctors with patients in Oslo", [1, 2]),
        ("doctors with patients not in Oslo", [1]),
        ("patients with visits of insulin or aspirin", [1, 2]),
        ("visits of all patients in Oslo", [1, 2]),
        # As many as are asked for, and not only those that share the first place.
        ("2 doctors with the highest salary", [2, 3]),
        ("the 2 doctors with the lowest salary", [1, 3]),
        ("which 2 doctors have the highest salary?", [2, 3]),
        ("2 patients with the most visits", [1, 2]),
        ("doctors with the highest salary", [2]),
    ],
)
def test_what_is_certain_about_many_rows_is_answered(question: str, ids: list[int]) -> None:
    assert [row[0] for row in clinic_rows(question)] == ids


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("total fee for each patient", [(1, "Ada", 15), (2, "Bo", 7), (3, "Cy", None), (4, "Di", None)]),
        (
            "total fee of completed visits for each patient",
            [(1, "Ada", 10), (2, "Bo", None), (3, "Cy", None), (4, "Di", None)],
        ),
        ("number of visits for each patient in Oslo", [(1, "Ada", 2), (3, "Cy", 0)]),
        ("number of patients for each doctor", [(1, "Emma", 2), (2, "Noor", 1), (3, "Ole", 0)]),
        ("total fee for each doctor", [(1, "Emma", 22), (2, "Noor", None), (3, "Ole", None)]),
        ("total fee per patient", [(1, "Ada", 15), (2, "Bo", 7)]),
        # There is no average of nothing.
        ("average fee for each patient", [(1, "Ada", 7.5), (2, "Bo", 7)]),
        ("number of patients per city", [(None, 1), ("Bergen", 1), ("Oslo", 2)]),
    ],
)
def test_for_each_shows_also_those_that_have_none(question: str, expected: list[tuple[object, ...]]) -> None:
    assert clinic_rows(question) == expected


def test_a_word_that_is_a_value_and_a_time_is_refused() -> None:
    branches = table("branches", Column("name", "TEXT", False, "", ("May", "North")))
    titles = Column("title", "TEXT", False, "", ("1984", "Emma"))
    books = table("books", titles, Column("published_on", "DATE", False))
    loans = table(
        "loans", Column("branch_id", "INTEGER", False), Column("lent_on", "DATE"), keys=(key("branch_id", "branches"),)
    )
    schema = schema_of(branches, books, loans)

    assert refusal_of("loans lent in May", schema).candidates == ("value of branches.name", "a time")
    assert refusal_of("May loans", schema).words == ("May",)
    assert refusal_of("books in 1984", schema).candidates == ("value of books.title", "a time")
    assert sql_of("loans in branch North", schema) == sql_of("loans of branch North", schema)
    assert "branches.name = 'May'" in sql_of("loans of branch May", schema)
    assert "books.title = '1984'" in sql_of("books with the title 1984", schema)
    assert "books.published_on >= '1984-01-01'" in sql_of("books published in 1984", schema)


def test_a_refusal_says_how_to_ask() -> None:
    assert "write 'planned in …'" in refusal_of("visits in 2024", CLINIC).message
    assert "planned_on >= '2024-01-01'" in sql_of("visits planned in 2024", CLINIC)
    assert "write" not in refusal_of("number of visits per month", CLINIC).message
    assert refusal_of("?", CLINIC).message == "the question has no words"


def test_a_reading_that_no_row_can_fulfil_is_not_the_one_that_is_meant() -> None:
    branches = table("branches", Column("name", "TEXT", False, "", ("North", "South")))
    keys = (key("branch_id", "branches"),)
    members = table("members", Column("branch_id", "INTEGER", False), keys=keys)
    also = (*keys, key("member_id", "members"))
    loans = table("loans", Column("branch_id", "INTEGER", False), Column("member_id", "INTEGER", False), keys=also)
    schema = schema_of(branches, members, loans)

    sql = sql_of("members of branch North with loans in South", schema)

    assert "branches_2.name = 'South'" in sql
    assert "EXISTS" in sql
    assert refusal_of("members of branch North and in South", schema).candidates == ("either", "both")


def test_a_question_with_several_readings_names_where_they_differ() -> None:
    ordered = table("orders", Column("ordered_on", "DATE", False))
    payments = table(
        "payments",
        Column("paid_on", "DATE", False),
        Column("order_id", "INTEGER", False),
        keys=(key("order_id", "orders"),),
    )

    message = refusal_of("payments of orders in 2024", schema_of(ordered, payments)).message

    assert "payments.paid_on" in message
    assert "orders.ordered_on" in message
