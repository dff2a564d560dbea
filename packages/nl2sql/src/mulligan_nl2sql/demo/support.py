"""Make the tickets of the shop, a second and smaller database: the same rows every time.

python -m mulligan_nl2sql.demo.support support.db
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path

from mulligan_nl2sql.demo.make_file import make_file

_TABLES = """
CREATE TABLE customers ( -- people who have asked for help
  id INTEGER NOT NULL,
  name TEXT NOT NULL,
  city TEXT NOT NULL, -- town of residence
  PRIMARY KEY (id)
);
CREATE TABLE tickets ( -- requests for help
  id INTEGER NOT NULL,
  customer_id INTEGER NOT NULL,
  priority TEXT NOT NULL,
  opened_on DATE NOT NULL,
  closed_on DATE,
  PRIMARY KEY (id),
  FOREIGN KEY (customer_id) REFERENCES customers (id)
);
"""
_NAMES = ("Ada Adler", "Clara Braun", "Elif Costa", "Greta Dupont", "Ines Eriksen", "Jonas Adler")
_CITIES = ("Berlin", "Paris", "Vienna")
_PRIORITIES = ("low", "normal", "urgent")
_FIRST_DAY = date(2024, 1, 8)
_TICKETS = 24


def make_support(path: Path) -> None:
    """Write the database to a new SQLite file."""
    if path.exists():
        raise FileExistsError(f"{path} exists already")
    customers = [(at, name, _CITIES[at % len(_CITIES)]) for at, name in enumerate(_NAMES, start=1)]
    tickets = []
    for at in range(1, _TICKETS + 1):
        opened = _FIRST_DAY + timedelta(days=11 * at)
        closed = None if at % 5 == 0 else (opened + timedelta(days=at % 7)).isoformat()
        priority = _PRIORITIES[at // 2 % len(_PRIORITIES)]
        tickets.append((at, 1 + at % len(_NAMES), priority, opened.isoformat(), closed))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(_TABLES)
        connection.executemany("INSERT INTO customers VALUES (?, ?, ?)", customers)
        connection.executemany("INSERT INTO tickets VALUES (?, ?, ?, ?, ?)", tickets)


if __name__ == "__main__":
    sys.exit(make_file("support", make_support))
