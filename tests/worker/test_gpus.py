"""GPUs: how many there are, and that each task is told its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.work import Work

from mulligan.core.model.reports import TaskEnded
from mulligan.worker.slots.resource_pool import VISIBLE_GPUS, visible_gpus

TOLD = f'echo "${{{VISIBLE_GPUS}-nothing}}"'


@pytest.fixture
def gpu_work(tmp_path: Path) -> Iterator[Work]:
    """A worker with three GPUs."""
    work = Work(tmp_path, cpus=8, gpus=3)
    os.mkfifo(work.folder / "go")
    yield work
    work.close()


@pytest.mark.parametrize(
    ("said", "count"),
    [
        ("0,1", 2),
        ("2", 1),
        ("GPU-8932f937, MIG-77", 2),
        ("", 0),
        ("-1", 0),
        ("0,-1,1", 1),  # as CUDA reads it: what is behind a wrong one is not seen
        ("NoDevFiles", 0),
    ],
)
def test_the_variable_says_how_many_there_are(said: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()

    assert visible_gpus({VISIBLE_GPUS: said}, tmp_path) == count


def test_without_the_variable_the_devices_are_counted(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()

    assert (visible_gpus({}, tmp_path), visible_gpus({}, tmp_path / "nowhere")) == (2, 0)


def test_no_two_tasks_have_the_same_gpu_and_one_that_ends_gives_its_own_back(gpu_work: Work) -> None:
    holding = gpu_work.shell(f"{TOLD}; read x < go", gpus=2)
    gpu_work.start(holding)

    beside = gpu_work.run_shell(TOLD, gpus=1).output
    again = gpu_work.run_shell(TOLD, gpus=1).output
    does_a_fourth_fit = gpu_work.executor.fits(gpu_work.shell(TOLD, gpus=2).task)
    (gpu_work.folder / "go").write_text("\n")
    (first,) = gpu_work.reports()
    all_of_them = gpu_work.run_shell(TOLD, gpus=3).output

    assert isinstance(first, TaskEnded)
    assert (first.output, beside, again, does_a_fourth_fit, all_of_them) == ("0,1", "2", "2", False, "0,1,2")


def test_a_task_that_asks_for_none_is_told_nothing(gpu_work: Work) -> None:
    assert gpu_work.run_shell(TOLD).output == os.environ.get(VISIBLE_GPUS, "nothing")


def test_a_step_that_names_its_gpus_itself_has_those(gpu_work: Work) -> None:
    assert gpu_work.run_shell(TOLD, gpus=1, env={VISIBLE_GPUS: "7"}).output == "7"


def test_the_gpus_of_a_worker_are_called_as_it_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE_GPUS, "GPU-b,GPU-a")
    work = Work(tmp_path, gpus=2)

    assert work.run_shell(TOLD, gpus=2).output == "GPU-b,GPU-a"
    work.close()


def test_a_python_step_with_a_gpu_has_a_process_of_its_own_that_ends_with_it(gpu_work: Work) -> None:
    code = f"import os\ndef main(): return [os.getpid(), os.environ.get({VISIBLE_GPUS!r})]"

    plain = gpu_work.run_python(code).output
    first = gpu_work.run_python(code, gpus=1).output
    second = gpu_work.run_python(code, gpus=1).output
    after = gpu_work.run_python(code).output

    assert (first[1], second[1]) == ("0", "0")
    assert len({plain[0], first[0], second[0]}) == 3
    assert after == plain
    assert not any(Path(f"/proc/{pid}").exists() for pid in (first[0], second[0]))
