"""Three kinds of stores under one suite: a test that takes `place`, `opened` or `store` runs on each of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mulligan.ports import Store
from mulligan.testing.postgres import own_schema, shared_server

from .keeping import Memory, Open, Place, PostgresSchema, SqliteFolder


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One PostgreSQL server for all processes of the session."""
    folder = tmp_path_factory.getbasetemp()
    with shared_server(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) as url:
        yield url


@pytest.fixture
def schema_url(server_url: str) -> Iterator[str]:
    with own_schema(server_url) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return SqliteFolder(tmp_path)
    return Memory() if request.param == "memory" else PostgresSchema(request.getfixturevalue("schema_url"))


@pytest.fixture
def opened(place: Place) -> Iterator[Open]:
    """Opens the place once more: another process, as far as the store can tell."""
    with ExitStack() as stack:

        def open_one() -> Store:
            store = place.open()
            stack.callback(store.close)
            return store

        yield open_one


@pytest.fixture
def store(opened: Open) -> Store:
    return opened()
