"""Make the shop: the same rows every time, on any machine.

python -m mulligan_nl2sql.demo.shop shop.db
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import msgspec

from mulligan_nl2sql.demo.make_file import make_file
from mulligan_nl2sql.demo.shop_tables import MAIN, TABLES
from mulligan_nl2sql.schema import Column, Schema, Table

_VALUES_MAX = 20
_FIRST_DAY = date(2023, 1, 2)
_CITIES = (
    *(("Berlin", "Germany"), ("Munich", "Germany"), ("Hamburg", "Germany"), ("Paris", "France"), ("Lyon", "France")),
    *(("Vienna", "Austria"), ("New York", "United States")),
)
_FIRST_NAMES = ("Ada", "Boris", "Clara", "David", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas")
_LAST_NAMES = ("Adler", "Braun", "Costa", "Dupont", "Eriksen")
_CATEGORIES = ("Books", "Games", "Garden", "Kitchen", "Music", "Office")
_SUPPLIERS = (("Nordwind", "Germany"), ("Petit Atelier", "France"), ("Alpenware", "Austria"), ("Blue Harbor", "Italy"))
_THINGS = ("Lamp", "Kettle", "Spade", "Notebook", "Puzzle", "Guitar", "Chair", "Novel")
_KINDS = ("Classic", "Deluxe", "Compact", "Basic", "Royal")
_STATUSES = ("pending", "shipped", "delivered", "cancelled", "delivered", "returned")
_CARRIERS = ("DHL", "UPS", "Hermes")
_METHODS = ("credit card", "bank transfer", "invoice")
_DEPARTMENTS = ("Sales", "Support", "Logistics")


class _Numbers:
    """Numbers that look random and are the same in every version of Python."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def below(self, limit: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self._state >> 33) % limit


def make_shop(path: Path) -> None:
    """Write the shop to a new SQLite file."""
    if path.exists():
        raise FileExistsError(f"{path} exists already")
    with closing(sqlite3.connect(path)) as connection, connection:
        fill(connection)


def fill(connection: sqlite3.Connection) -> None:
    """Make the tables of the shop and their rows."""
    rows = shop_rows()
    for table in TABLES:
        connection.execute(_definition(table))
        marks = ", ".join("?" for _ in table.columns)
        connection.executemany(f"INSERT INTO {table.name} VALUES ({marks})", rows[table.name])


def shop_schema() -> Schema:
    """The schema of the shop, with comments, and with the values of text columns that have few."""
    rows = shop_rows()
    tables = []
    for table in TABLES:
        columns = tuple(
            _with_values(column, [row[at] for row in rows[table.name]]) for at, column in enumerate(table.columns)
        )
        tables.append(msgspec.structs.replace(table, columns=columns, rows=len(rows[table.name])))
    return Schema("sqlite", tuple(tables), (MAIN,))


def shop_rows() -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each table."""
    numbers = _Numbers(20)
    rows: dict[str, list[tuple[Any, ...]]] = {
        "categories": list(enumerate(_CATEGORIES, start=1)),
        "suppliers": [(at, name, country) for at, (name, country) in enumerate(_SUPPLIERS, start=1)],
        "products": list(_products(numbers)),
        "customers": list(_customers(numbers)),
        "employees": list(_employees(numbers)),
        "orders": [],
        "order_items": [],
        "shipments": [],
        "payments": [],
        "reviews": [],
    }
    for order in range(1, 181):
        _add_order(order, numbers, rows)
    for review in range(1, 91):
        # The last five products and the last customers have no review.
        product, customer = 1 + numbers.below(35), 1 + numbers.below(30)
        written = _FIRST_DAY + timedelta(days=numbers.below(1040))
        rows["reviews"].append((review, product, customer, 1 + numbers.below(5), written.isoformat()))
    return rows


def _products(numbers: _Numbers) -> Iterator[tuple[Any, ...]]:
    for at in range(40):
        name = f"{_KINDS[at % 5]} {_THINGS[at % 8]}"
        price = 4 + numbers.below(9000) / 100
        supplier = None if at % 13 == 12 else 1 + numbers.below(3)
        weight = None if at % 11 == 10 else (1 + numbers.below(90)) / 10
        yield (at + 1, name, 1 + numbers.below(5), supplier, price, numbers.below(60), weight, int(at % 9 == 4))


def _customers(numbers: _Numbers) -> Iterator[tuple[Any, ...]]:
    for at in range(45):
        name = f"{_FIRST_NAMES[at % 10]} {_LAST_NAMES[at // 10]}"
        email = None if at % 7 == 3 else f"{name.lower().replace(' ', '.')}@example.org"
        city, country = _CITIES[numbers.below(len(_CITIES))]
        signed_up = _FIRST_DAY + timedelta(days=numbers.below(900))
        yield (at + 1, name, email, city, country, signed_up.isoformat(), int(at % 4 == 0))


def _employees(numbers: _Numbers) -> Iterator[tuple[Any, ...]]:
    for at in range(12):
        name = f"{_FIRST_NAMES[(at * 3) % 10]} {_LAST_NAMES[(at * 2) % 5]}"
        hired = _FIRST_DAY - timedelta(days=numbers.below(2500))
        manager = None if at < 3 else 1 + at % 3
        yield (at + 1, name, _DEPARTMENTS[at % 3], 2800.0 + 50 * numbers.below(60), hired.isoformat(), manager)


def _add_order(order: int, numbers: _Numbers, rows: dict[str, list[tuple[Any, ...]]]) -> None:
    """Add an order, its items, and what became of it."""
    # The last customers and the last product have no order.
    customer, status = 1 + numbers.below(38), _STATUSES[numbers.below(len(_STATUSES))]
    ordered = _FIRST_DAY + timedelta(days=numbers.below(1045))
    total = 0.0
    for product in sorted({1 + numbers.below(39) for _ in range(1 + numbers.below(4))}):
        quantity, price = 1 + numbers.below(4), rows["products"][product - 1][4]
        total += quantity * price
        rows["order_items"].append((order, product, quantity, price))
    total = round(total, 2)
    rows["orders"].append((order, customer, status, ordered.isoformat(), total))
    if status in ("shipped", "delivered", "returned"):
        shipped = ordered + timedelta(days=1 + numbers.below(6))
        delivered = None if status == "shipped" else (shipped + timedelta(days=1 + numbers.below(5))).isoformat()
        carrier = _CARRIERS[numbers.below(len(_CARRIERS))]
        rows["shipments"].append((len(rows["shipments"]) + 1, order, carrier, shipped.isoformat(), delivered))
    if status != "cancelled" and numbers.below(10):
        # Some are paid in two parts: whoever joins payments and items counts twice.
        parts = (round(total / 2, 2), round(total - round(total / 2, 2), 2)) if numbers.below(5) == 0 else (total,)
        for part in parts:
            paid = f"{(ordered + timedelta(days=numbers.below(20))).isoformat()} {8 + numbers.below(12):02}:30:00"
            method = _METHODS[numbers.below(len(_METHODS))]
            rows["payments"].append((len(rows["payments"]) + 1, order, method, part, paid))


def _definition(table: Table) -> str:
    """The statement that makes a table. SQLite keeps its text, with the comments."""
    lines = []
    for column in table.columns:
        required = "" if column.is_nullable else " NOT NULL"
        lines.append((f"{column.name} {column.type}{required}", column.comment))
    lines.append((f"PRIMARY KEY ({', '.join(table.primary_key)})", ""))
    for key in table.foreign_keys:
        columns, others = ", ".join(key.columns), ", ".join(key.to_columns)
        lines.append((f"FOREIGN KEY ({columns}) REFERENCES {key.to_table} ({others})", ""))
    text = ""
    for at, (line, comment) in enumerate(lines):
        comma = "," if at + 1 < len(lines) else ""
        text += f"  {line}{comma}{f' -- {comment}' if comment else ''}\n"
    about = f" -- {table.comment}" if table.comment else ""
    return f"CREATE TABLE {table.name} ({about}\n{text})"


def _with_values(column: Column, found: list[Any]) -> Column:
    values = sorted({value for value in found if isinstance(value, str)})
    if column.type != "TEXT" or len(values) > _VALUES_MAX:
        return column
    return msgspec.structs.replace(column, values=tuple(values))


if __name__ == "__main__":
    sys.exit(make_file("shop", make_shop))
