"""A small shop in a database of its own on the server of the tests, with a role that owns it and one that may read."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from mulligan_nl2sql.database_urls import Database, parse_url

from .shop import customers_of_the_shop, orders_of_the_shop

_numbers = count(1)
_TABLES = """
create table customers (id integer primary key, name text, city text, email text);
create table orders (id integer primary key, customer_id integer references customers, total double precision,
    placed date, status text);
create table salaries (id integer primary key, amount double precision);
create materialized view payroll as select sum(amount) as amount from salaries;
create sequence counter;
comment on table orders is 'what was bought';
comment on column orders.total is 'in euro';
"""


_FILE_FUNCTIONS = (
    "pg_read_file(text)",
    "pg_read_binary_file(text)",
    "pg_ls_dir(text)",
    "pg_stat_file(text)",
    "lo_import(text)",
)


class PostgresShop:
    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self.name = f"shop_{os.getpid()}_{next(_numbers)}"
        self.folder = Path(tempfile.mkdtemp(prefix="nl2sql-"))
        self._connections: dict[str, psycopg.Connection[Any]] = {}

    @classmethod
    @contextmanager
    def made(cls, server_url: str) -> Iterator[PostgresShop]:
        shop = cls(server_url)
        try:
            shop._make()
            yield shop
        finally:
            shop._drop()

    @property
    def owner_url(self) -> str:
        return self._url(f"{self.name}_owner")

    @property
    def reader_url(self) -> str:
        return self._url(f"{self.name}_reader")

    @property
    def superuser_url(self) -> str:
        return self._url(None)

    def reader(self) -> Database:
        return parse_url(self.reader_url, name="shop")

    def owner(self) -> Database:
        return parse_url(self.owner_url, name="shop")

    def connection(self, url: str) -> psycopg.Connection[Any]:
        if url not in self._connections:
            # `discard all` would leave the library with names of statements that the server has forgotten.
            self._connections[url] = psycopg.connect(url, autocommit=True, prepare_threshold=None)
        return self._connections[url]

    def reset(self, url: str) -> None:
        """Take back what a statement did; a connection that is broken or changed is replaced."""
        connection = self._connections.pop(url)
        has_committed = connection.info.transaction_status == TransactionStatus.IDLE
        try:
            connection.execute("rollback")
            connection.execute("discard all")
            if has_committed and self.contents() != self._first:
                self.fill()
            self._connections[url] = connection
        except psycopg.Error:
            connection.close()

    def contents(self) -> list[Any]:
        """What a statement could have changed."""
        query = (
            "select (select count(*) from customers), (select count(*) from orders), (select sum(id) from orders), "
            "(select count(*) from pg_class where relnamespace = 'public'::regnamespace)"
        )
        return self.connection(self._url(None)).execute(query.encode()).fetchall()

    def _make(self) -> None:
        owner, reader = f"{self.name}_owner", f"{self.name}_reader"
        self.folder.chmod(0o777)
        (self.folder / "secret.csv").write_text("1,a,b,c\n")
        (self.folder / "in.csv").write_text("98\ta\tb\tc\n")
        for path in self.folder.iterdir():
            path.chmod(0o666)
        with psycopg.connect(self._server_url, autocommit=True) as connection:
            connection.execute(f"create role {owner} login".encode())
            connection.execute(f"create role {reader} login".encode())
            connection.execute(
                f"grant pg_read_server_files, pg_write_server_files, pg_execute_server_program to {owner}".encode()
            )
            connection.execute(f"create database {self.name} owner {owner}".encode())
        with psycopg.connect(self._url(None), autocommit=True) as connection:
            for function in _FILE_FUNCTIONS:
                connection.execute(f"grant execute on function {function} to {owner}".encode())
        with psycopg.connect(self.owner_url, autocommit=True) as connection:
            connection.execute(_TABLES.encode())
            for table in ("customers", "orders", "salaries"):
                # It counts the rows once a minute: the schema would be another one in the middle of a test.
                connection.execute(f"alter table {table} set (autovacuum_enabled = off)".encode())
            connection.execute(f"grant select (id, name, city) on customers to {reader}".encode())
            connection.execute(f"grant select on orders to {reader}".encode())
        self.fill()
        self._first = self.contents()

    def fill(self) -> None:
        with psycopg.connect(self.owner_url, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("truncate customers, orders, salaries")
            cursor.executemany("insert into customers values (%s, %s, %s, %s)", customers_of_the_shop(30))
            cursor.executemany("insert into orders values (%s, %s, %s, %s, %s)", orders_of_the_shop(60, 30))
            cursor.execute("insert into salaries values (1, 5000)")

    def _drop(self) -> None:
        for connection in self._connections.values():
            connection.close()
        with psycopg.connect(self._server_url, autocommit=True) as connection:
            connection.execute(f"drop database if exists {self.name} with (force)".encode())
            for role in ("owner", "reader"):
                connection.execute(f"drop role if exists {self.name}_{role}".encode())
        shutil.rmtree(self.folder, ignore_errors=True)

    def _url(self, user: str | None) -> str:
        parts = conninfo_to_dict(self._server_url)
        host = quote(str(parts["host"]), safe="")
        return f"postgresql://{user or parts.get('user', 'postgres')}@/{self.name}?host={host}"
