"""Three kinds of stores under one suite: a test that takes `place`, `opened` or `store` runs on each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.keeping import Memory, Open, Place, PostgresSchema, SqliteFolder
from tests.support.nightly import POSTGRES
from tests.support.store_files import write_empty_store

from mulligan.ports import Store


@pytest.fixture(params=["sqlite", POSTGRES, "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        folder = SqliteFolder(tmp_path)
        write_empty_store(folder.path)
        return folder
    return Memory() if request.param == "memory" else PostgresSchema(request.getfixturevalue("store_schema_url"))


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
