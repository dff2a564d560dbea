"""What every test can rely on: generated examples are the same on every machine, and a PostgreSQL server is there.

The server is started by the first test that asks for it, and by no other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from mulligan.testing.postgres import own_schema, shared_server

# A test that fails only sometimes teaches people to run it again. No deadline: a busy machine is no bug of ours.
settings.register_profile("mulligan", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("mulligan")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three processes on two cores: a third of the time of a test is waiting for processes, disks and timers."""
    return max(2, len(os.sched_getaffinity(0)) * 3 // 2)


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of the session: no test builds in that of the user, or removes anything from it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MULLIGAN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        yield


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One PostgreSQL server for all processes of the session."""
    folder = tmp_path_factory.getbasetemp()
    with shared_server(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) as url:
        yield url


@pytest.fixture
def schema_url(server_url: str) -> Iterator[str]:
    """An empty schema on it, for one test."""
    with own_schema(server_url) as url:
        yield url
