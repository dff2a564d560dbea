"""One Dask cluster for all tests of a module: two workers, which a test may kill if it starts its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.dask_executor.cluster_processes import Process, Processes


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    found = Processes(tmp_path_factory.mktemp("dask"))
    yield found
    found.close()


@pytest.fixture(scope="session")
def scheduler(processes: Processes) -> Process:
    """A scheduler with two workers that nobody kills. Its settings are those that Dask comes with."""
    found = processes.scheduler()
    processes.worker(found, name="first", resources={"big": 1})
    processes.worker(found, name="second")
    return found


@pytest.fixture
def own_scheduler(processes: Processes) -> Iterator[Process]:
    """A scheduler without workers, for a test that kills some."""
    found = processes.scheduler()
    yield found
    found.kill()


@pytest.fixture
def own_worker(processes: Processes, own_scheduler: Process) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(**options: object) -> Process:
        started.append(processes.worker(own_scheduler, **options))
        return started[-1]

    yield start
    for worker in started:
        worker.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
