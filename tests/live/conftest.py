"""What the live tests share: the runner, once on each kind of store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.nightly import POSTGRES
from tests.support.runner import Live, opened


@pytest.fixture(autouse=True)
def _no_home_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the terminal of the tests is set to is nothing to them."""
    for name in [name for name in os.environ if name.startswith("MULLIGAN_") and name != "MULLIGAN_TEST_POSTGRES"]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _forked(forked_children: None) -> None:
    """None of these tests is about the processes that run a step."""


@pytest.fixture(params=["sqlite", POSTGRES])
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Live]:
    """The runner, on each kind of store."""
    store_url = request.getfixturevalue("store_schema_url") if request.param == "postgres" else ""
    with opened(tmp_path, store_url) as found:
        yield found


@pytest.fixture
def live_file(tmp_path: Path) -> Iterator[Live]:
    """The runner on SQLite: for what no store can change."""
    with opened(tmp_path, "") as found:
        yield found


@pytest.fixture
def live_server(tmp_path: Path, store_schema_url: str) -> Iterator[Live]:
    """The runner on PostgreSQL: for what several hosts share."""
    with opened(tmp_path, store_schema_url) as found:
        yield found
