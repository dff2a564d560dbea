"""A worker on a full disk: it says why its tasks fail, takes no more of them, and tries again by itself."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.work import Work

from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.workflow import Secret
from mulligan.store.artifact_files import ArtifactFiles
from mulligan.worker.secrets.secrets import problem_of, read_secret_file
from mulligan.worker.slots.machine_trouble import BROKEN_PYTHON, full_disk, trouble_of
from mulligan.worker.task_reports import report_spawn_error, report_start_error

FILL = "head -c 400000 /dev/zero > big; exit 1"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of its own, of 200 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", str(folder)], capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_task_that_fails_on_a_full_disk_says_so(work: Work, small: Path) -> None:
    report = work.run_shell(FILL, home=str(small))

    assert report.outcome.exit_code == 1
    assert report.outcome.machine == f"the disk of '{small}' is full"
    # Other runs work elsewhere.
    assert (report.outcome.is_machine_broken, work.executor.offer().tasks_max) == (False, 2)


def test_a_task_that_fails_elsewhere_says_nothing_of_the_machine(work: Work) -> None:
    assert work.run_shell("exit 1").outcome.machine == ""
    assert work.run_python("def main(): return 1 / 0").outcome.machine == ""


@pytest.fixture
def cramped(small: Path) -> Iterator[Work]:
    """A worker on a small disk, which is full."""
    work = Work(small)
    work.run_shell("true")
    (small / "big").write_bytes(b"x" * (150_000))
    yield work
    work.close()


def test_a_worker_on_a_full_disk_pauses_until_there_is_room_and_then_tries_one_task(cramped: Work) -> None:
    big = cramped.home.parent / "big"
    waiting = cramped.shell("true")

    failed = cramped.run_shell("exit 1")
    assert (failed.outcome.is_machine_broken, cramped.executor.trouble) == (True, "")
    assert (cramped.executor.fits(waiting.task), cramped.executor.offer().tasks_max) == (False, 0)
    # A look shows that it is still full: no task has to try.
    cramped.wait_for(lambda: cramped.executor.offer().tasks_max or cramped.executor._health.known.pauses > 1)
    assert (cramped.executor.offer().tasks_max, cramped.executor._health.known.failed) == (0, 1)

    big.unlink()
    cramped.wait_for(lambda: cramped.executor.offer().tasks_max == 1)
    cramped.run(waiting)
    assert cramped.executor.offer().tasks_max == 2


def test_a_worker_that_fails_everything_is_in_trouble(cramped: Work) -> None:
    cramped.start(cramped.shell("exit 1"), cramped.shell("exit 1"))
    cramped.reports(2)

    assert cramped.executor.trouble == f"the disk of '{cramped.home}' is full"


def test_an_output_that_a_full_disk_cannot_keep_is_trouble_of_the_machine(tmp_path: Path, small: Path) -> None:
    """The task was done, and its output is lost: it is not its fault, and others would fare the same."""
    (small / "big").write_bytes(b"x" * 150_000)
    work = Work(tmp_path, artifacts=ArtifactFiles(small / "artifacts"))

    work.start(*(work.shell("head -c 150000 /dev/zero | tr '\\0' x") for _ in range(2)))
    reports = work.reports(2)
    work.close()

    assert [one.outcome.code for one in reports if isinstance(one, TaskEnded)] == ["EXCEPTION", "EXCEPTION"]
    assert {one.outcome.machine for one in reports if isinstance(one, TaskEnded)} == {"the disk is full"}
    assert work.executor.trouble == "the disk is full"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC])
def test_what_the_system_refuses_to_any_task_is_trouble_of_the_machine(work: Work, number: int) -> None:
    task = work.shell("true").task

    assert report_spawn_error(task, "", number, "no").outcome.machine
    assert report_start_error(task, OSError(number, "no")).outcome.machine


def test_a_broken_program_of_ours_is_trouble_and_one_of_the_workflow_is_not(work: Work) -> None:
    ours, theirs = work.shell("true").task, work.shell("true", interpreter="nowhere").task

    assert report_spawn_error(ours, "", errno.ENOENT, "no such file").outcome.machine
    assert not report_spawn_error(theirs, "", errno.ENOENT, "no such file").outcome.machine
    assert not report_spawn_error(ours, "", errno.E2BIG, "too long").outcome.machine


def test_a_python_that_ends_before_it_reads_its_step_is_trouble_of_the_machine(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert work.run_python("def main(): return 1").outcome.machine == ""
    theirs = work.run(work.lease("python", {"code": "def main(): return 1", "interpreter": "false"})).outcome
    ended = work.run_python("import os; os._exit(1)").outcome
    # Not that of the supervisor, which is up already.
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    broken = [work.run_python("def main(): return 1").outcome for _ in range(2)]

    assert (theirs.machine, ended.machine) == ("", "")
    assert {(one.machine, one.is_machine_broken) for one in broken} == {(BROKEN_PYTHON, True)}
    assert work.executor.trouble == BROKEN_PYTHON


@pytest.fixture
def no_descriptors() -> Iterator[None]:
    """This process cannot open another file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 2, hard))
    held: list[int] = []
    with suppress(OSError):
        while True:
            held.append(os.open("/", os.O_RDONLY))
    yield
    for fd in held:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_secret_that_no_task_could_read_is_trouble_of_the_machine(tmp_path: Path, no_descriptors: None) -> None:
    with pytest.raises(OSError, match="Too many open files") as refused:
        read_secret_file("word", str(tmp_path))

    assert trouble_of(refused.value.errno) == "the worker has too many open files"
    # Whoever only looks gets it in words.
    assert "open files" in (problem_of(Secret(file="word"), str(tmp_path), {}) or "")


def test_what_is_no_disk_is_not_full() -> None:
    assert full_disk(("/proc", "/nowhere")) == ""
