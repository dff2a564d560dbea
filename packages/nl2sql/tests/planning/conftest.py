from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import date

import pytest

from mulligan_nl2sql.demo.shop import fill, shop_schema
from mulligan_nl2sql.schema import Schema

TODAY = date(2025, 11, 17)


@pytest.fixture(scope="session")
def schema() -> Schema:
    return shop_schema()


@pytest.fixture(scope="session")
def shop() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    fill(connection)
    yield connection
    connection.close()
