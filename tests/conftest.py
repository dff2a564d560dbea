"""Empty stores and fast workers for the tests of the project. What its packages use too is in the conftest.py above."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support import forked_supervisor
from tests.support.nightly import IS_NIGHTLY, examples
from tests.support.store_schemas import StoreSchemas

from mulligan.worker.supervisor import supervisor_client
from proof.simulator.both_ways import both_ways, one_way


@pytest.fixture(scope="session", autouse=True)
def _both_ways() -> Iterator[None]:
    """Each third ordinary turn of these processes, at night each, is also taken at length: both are compared."""
    with both_ways(one_of=examples(3, 1)):
        yield


@pytest.fixture
def taken_once() -> Iterator[None]:
    """Ordinary turns are taken as the product takes them: for tests that count what they cost."""
    with one_way():
        yield


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


@pytest.fixture
def forked_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor and the warm children of a worker are forked by day: for tests that are not about processes."""
    if forked_supervisor.CLONE is not None and not IS_NIGHTLY:
        monkeypatch.setattr(supervisor_client, "start_supervisor", forked_supervisor.start_supervisor)
