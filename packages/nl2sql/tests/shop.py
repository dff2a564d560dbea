"""A small shop in SQLite: what may be read, a column and a table that may not, and a view over both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import duckdb

from mulligan_nl2sql.limits import Limits
from mulligan_nl2sql.policy import Policy
from mulligan_nl2sql.schema import Column, Schema, Table

TABLES = """
create table customers (id integer primary key, name text, city text, email text);
create table orders (
    id integer primary key, customer_id integer references customers, total real, placed text, status text);
create table salaries (id integer primary key, amount real);
create index orders_of_customer on orders (customer_id);
create view payroll as select sum(amount) as amount from salaries;
"""
CITIES = ("Bern", "Oslo", "Rome")
STATUSES = ("open", "paid")
# A limit that no query of these tests reaches, however busy the machine is: its process has to start in that time, too.
SECONDS = 120


def patient(**fields: Any) -> Policy:
    return Policy(limits=Limits(seconds=SECONDS), **fields)


POLICY = patient(tables=("customers", "orders"), hidden=("customers.email",))


def customers_of_the_shop(count: int) -> list[tuple[int, str, str, str]]:
    return [(n, f"customer {n}", CITIES[n % 3], f"c{n}@example.com") for n in range(1, count + 1)]


def orders_of_the_shop(count: int, customers: int) -> list[tuple[int, int, float, str, str]]:
    return [(n, n % customers + 1, n * 1.5, f"2026-01-{n % 28 + 1:02}", STATUSES[n % 2]) for n in range(1, count + 1)]


def make_duckdb_shop(path: Path) -> Path:
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "create table customers (id integer primary key, name varchar, city varchar, email varchar);"
            "create table orders (id integer primary key, customer_id integer references customers (id),"
            " total double, placed date, status varchar);"
            "create table salaries (id integer primary key, amount double);"
            "create view payroll as select sum(amount) as amount from salaries;"
            "create sequence counter;"
            "comment on table orders is 'what was bought'; comment on column orders.total is 'in euro'"
        )
        connection.executemany("insert into customers values (?, ?, ?, ?)", customers_of_the_shop(30))
        connection.executemany("insert into orders values (?, ?, ?, ?, ?)", orders_of_the_shop(60, 30))
        connection.execute("insert into salaries values (1, 5000)")
    return path


def make_shop(path: Path, *, customers: int = 30, orders: int = 60) -> Path:
    connection = apsw.Connection(str(path))
    connection.execute("pragma journal_mode = off")
    connection.execute("begin")
    connection.execute(TABLES)
    connection.executemany("insert into customers values (?, ?, ?, ?)", customers_of_the_shop(customers))
    connection.executemany("insert into orders values (?, ?, ?, ?, ?)", orders_of_the_shop(orders, customers))
    connection.execute("insert into salaries values (1, 5000)")
    connection.execute("commit")
    connection.close()
    return path


def schema_of(dialect: str, owner: str = "main") -> Schema:
    """What the policy leaves of the shop, without asking a database."""
    columns = {"customers": "id name city", "orders": "id customer_id total placed status"}
    hidden = {"customers": ("email",)}
    return Schema(
        dialect,
        tuple(
            Table(owner, name, tuple(map(Column, names.split())), hidden_columns=hidden.get(name, ()))
            for name, names in columns.items()
        ),
        (owner,),
        (f"{owner}.salaries", f"{owner}.payroll"),
    )
