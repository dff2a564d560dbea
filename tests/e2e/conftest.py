"""Real processes, real signals, real databases: a stage for each test, and nothing of it left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from mulligan.worker.processes import kill_marked

from .stage import Stage


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """Where the store is: "" for a file in the home."""
    return request.getfixturevalue("schema_url") if request.param == "postgres" else ""


@pytest.fixture
def stage(tmp_path: Path, store_url: str) -> Iterator[Stage]:
    """A stage on each kind of store."""
    yield from _cleared(Stage(tmp_path, store_url))


@pytest.fixture
def file_stage(tmp_path: Path) -> Iterator[Stage]:
    """A stage on SQLite."""
    yield from _cleared(Stage(tmp_path))


@pytest.fixture
def server_stage(tmp_path: Path, schema_url: str) -> Iterator[Stage]:
    """A stage on PostgreSQL."""
    yield from _cleared(Stage(tmp_path, schema_url))


@pytest.fixture
def named_url(schema_url: str) -> str:
    """A PostgreSQL store whose connections have a name of their own on the server, so that they can be cut."""
    return f"{schema_url}&application_name={uuid4().hex}"


def _cleared(stage: Stage) -> Iterator[Stage]:
    """However the test goes, nothing of it runs on."""
    yield stage
    kill_marked(b"STAGE", bytes(stage.folder))
