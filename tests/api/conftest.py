"""A server in this process, and the home that it serves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.api_client import Client, open_client
from tests.support.store_files import write_empty_store

from mulligan.service.home import DATABASE, Home
from mulligan.service.service import Service


@pytest.fixture
def home(tmp_path: Path) -> Home:
    write_empty_store(tmp_path / "home" / DATABASE)
    return Home(tmp_path / "home")


@pytest.fixture
def client(home: Home) -> Iterator[Client]:
    """A server over an empty home."""
    opened = open_client(home)
    yield opened
    opened.close()


@pytest.fixture
def service(home: Home) -> Iterator[Service]:
    """The same home, as the command line opens it."""
    with Service(home, "a tester") as opened:
        yield opened
