"""One Dask cluster for the tests that follow each other: two workers, which a test may kill if it starts its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import pytest
from tests.dask_executor.cluster_processes import Process, Processes


class Shared:
    """Processes that several tests use."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes

    @cached_property
    def scheduler(self) -> Process:
        found = self.processes.scheduler()
        self.processes.worker(found, name="first", resources={"big": 1})
        self.processes.worker(found, name="second")
        return found


_SHARED: list[Shared] = []


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    if not _SHARED:
        _SHARED.append(Shared(Processes(tmp_path_factory.mktemp("dask"))))
    return _SHARED[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """After the last of these tests nobody waits for the cluster: while it is there, it is busy with itself."""
    yield
    if _SHARED and (nextitem is None or not nextitem.path.is_relative_to(Path(__file__).parent)):
        _SHARED.pop().processes.close()


@pytest.fixture(scope="module")
def processes(shared: Shared) -> Processes:
    return shared.processes


@pytest.fixture(scope="module")
def scheduler(shared: Shared) -> Process:
    """A scheduler with two workers that nobody kills. Its settings are those that Dask comes with."""
    return shared.scheduler


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
