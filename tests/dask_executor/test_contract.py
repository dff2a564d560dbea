"""What an executor promises holds on a Dask cluster as for local tasks: the same tests, on two Dask workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.dask_executor.cluster_processes import Process
from tests.support.work import GIB, Work, no_history
from tests.worker import test_ends, test_python, test_shell
from tests.worker.conftest import announcements as announcements

from mulligan.dask_executor.executor import DaskExecutor
from mulligan.dask_executor.store_answers import LogFiles, StoreAnswers
from mulligan.store.artifact_files import ArtifactFiles
from mulligan.store.clock import ProcessClock
from mulligan.worker.folders import Folders
from mulligan.worker.supervisor import processes as worker_processes

CONTRACT = {
    test_ends: (
        "what_a_task_left_in_the_background_is_dead_when_its_end_is_told",
        "a_stop_ends_the_whole_tree",
        "a_stopped_task_has_its_grace_and_that_it_was_stopped_is_told",
        "a_second_stop_shortens_the_grace",
        "no_grace_at_all_lets_a_task_finish",
        "a_stop_of_what_does_not_run_is_nothing",
        "all_that_is_stopped_is_interrupted",
        "what_is_dropped_is_dead_and_forgotten",
        "the_time_of_the_visit_bounds_that_of_the_task",
        "a_task_above_its_memory_is_killed_and_told_so",
    ),
    test_shell: (
        "death_by_a_signal_is_told_as_such",
        "a_folder_that_is_not_there_is_refused_and_the_next_task_runs",
        "the_output_folder_is_there_and_the_same_for_all_of_a_run",
        "half_of_a_character_is_refused",
        "logs_have_the_name_of_the_attempt",
        "a_log_can_be_read_while_the_task_runs",
    ),
    test_python: (
        "the_output_is_what_main_returns",
        "an_exception_is_told_with_the_lines_of_the_user_alone",
        "two_steps_at_once_have_two_children",
    ),
}
for _module, _names in CONTRACT.items():
    globals().update({f"test_{name}": getattr(_module, f"test_{name}") for name in _names})


class DaskWork(Work):
    """Work on a Dask cluster."""

    def __init__(self, folder: Path, scheduler: str) -> None:
        super().__init__(folder)
        self.executor.close()
        lock = self.home / "workers" / "lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
        self.executor: Any = DaskExecutor(
            self.name,
            "here",
            self.home,
            address=scheduler,
            lock=str(lock),
            clock=ProcessClock(),
            answers=StoreAnswers(ArtifactFiles(folder / "artifacts"), lambda tag, limit: [], no_history),
            logs=LogFiles(Folders(self.home)),
            lease_seconds=30.0,
            is_shared=False,
            memory=GIB,
            log_bytes_max=GIB,
        )

    def leftovers(self) -> list[int]:
        names = [f"{self.name}.{number}" for number in (1, 2)]
        found = (worker_processes.find_with_variable(b"MULLIGAN_WORKER", name.encode()) for name in names)
        return [process.pid for processes in found for process in processes]


@pytest.fixture(scope="module")
def shared_work(tmp_path_factory: pytest.TempPathFactory, scheduler: Process) -> Iterator[DaskWork]:
    """One executor for all of these tests: a session in each Dask worker takes time to start."""
    work = DaskWork(tmp_path_factory.mktemp("contract"), scheduler.address)
    yield work
    work.close()
    assert work.leftovers() == []


@pytest.fixture
def work(shared_work: DaskWork, tmp_path: Path) -> Iterator[DaskWork]:
    shared_work.folder = tmp_path / "here"
    shared_work.folder.mkdir()
    yield shared_work
    assert shared_work.executor.running == []
