"""Real processes, real signals, real databases: a stage for each test, and nothing of it left behind."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.nightly import POSTGRES

from mulligan.worker.supervisor.processes import Process, environment_of, send_signal, snapshot
from proof.stage import Stage

from .forked_stage import ForkedStage, end_forked


@pytest.fixture(autouse=True)
def _nothing_runs_on(tmp_path: Path) -> Iterator[None]:
    """However the test goes, what it started ends with it."""
    yield
    end_forked()
    while found := _started_below(tmp_path):
        send_signal(found, signal.SIGKILL)


def _started_below(folder: Path) -> list[Process]:
    """The processes of all stages in the folder. Those that are stopped, too."""
    return [process for process in snapshot().values() if _is_below(environment_of(process.pid), bytes(folder))]


def _is_below(environment: dict[bytes, bytes], folder: bytes) -> bool:
    stage = environment.get(b"STAGE", b"")
    return stage == folder or stage.startswith(folder + b"/")


@pytest.fixture(params=["sqlite", POSTGRES])
def store_url(request: pytest.FixtureRequest) -> str:
    """Where the store is: "" for a file in the home."""
    return request.getfixturevalue("store_schema_url") if request.param == "postgres" else ""


@pytest.fixture
def stage(tmp_path: Path, store_url: str) -> Stage:
    """A stage on each kind of store."""
    return ForkedStage(tmp_path, store_url)


@pytest.fixture
def file_stage(tmp_path: Path) -> Stage:
    """A stage on SQLite."""
    return ForkedStage(tmp_path)


@pytest.fixture
def server_stage(tmp_path: Path, store_schema_url: str) -> Stage:
    """A stage on PostgreSQL."""
    return ForkedStage(tmp_path, store_schema_url)


@pytest.fixture
def named_url(store_schema_url: str) -> str:
    """A PostgreSQL store whose connections have a name of their own on the server, so that they can be cut."""
    return f"{store_schema_url}&application_name={uuid4().hex}"
