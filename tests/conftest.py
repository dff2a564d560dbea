"""Empty stores for the tests of the project. What its packages use too is in the conftest.py above."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.store_schemas import StoreSchemas


@pytest.fixture(scope="session")
def _store_schemas(server_url: str) -> Iterator[StoreSchemas]:
    schemas = StoreSchemas(server_url)
    yield schemas
    schemas.drop_all()


@pytest.fixture
def store_schema_url(_store_schemas: StoreSchemas) -> Iterator[str]:
    """A schema on it that holds an empty store, for one test."""
    with _store_schemas.take() as url:
        yield url
