"""A file that somebody has put in the place of ours: nobody waits for it, follows it or writes through it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.work import Work

from mulligan.errors import ArtifactDamaged
from mulligan.ports import LogKey
from mulligan.service.home import Home
from mulligan.service.logs.log_ranges import LogRanges
from mulligan.service.runs.views.report.build import read_tail
from mulligan.store.artifact_files import ArtifactFiles
from mulligan.testing.memory.memory_store import MemoryStore
from mulligan.worker.folders import Folders, file_name, open_regular_file, remove_folder, write_private_file
from mulligan.worker.outputs import outputs

from .outside import Outside

VICTIM = "what is nobody's to read or write"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the user's that has nothing to do with any run."""
    path = tmp_path / "victim"
    path.write_text(VICTIM)
    return path


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    found = Work(tmp_path)
    yield found
    found.close()


def link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def pipe(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def device(path: Path, victim: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path, victim: Path) -> None:
    path.mkdir()


SWAPS = [link, pipe, device, folder]
Swap = Callable[[Path, Path], None]


@pytest.mark.parametrize("swap", SWAPS)
def test_a_log_in_whose_place_something_else_is_is_not_read(tmp_path: Path, victim: Path, swap: Swap) -> None:
    logs, key = LogRanges(Home(tmp_path / "home"), MemoryStore), LogKey(1, "build", 1, "stdout")
    log = Path(logs.path(key))
    log.parent.mkdir(parents=True)
    swap(log, victim)

    assert outputs.read_tail(str(log)) == ""
    assert read_tail(logs, key, 1000) == ("", False)
    with pytest.raises(OSError):
        open_regular_file(str(log))


@pytest.mark.parametrize("swap", SWAPS)
def test_an_artifact_in_whose_place_something_else_is_is_damaged(tmp_path: Path, victim: Path, swap: Swap) -> None:
    artifacts = ArtifactFiles(tmp_path / "artifacts")
    kept = artifacts.keep("1/build/1/1/output.txt", VICTIM.encode(), "text")
    path = Path(artifacts.path(kept))
    path.unlink()
    swap(path, victim)

    with pytest.raises(ArtifactDamaged):
        artifacts.fetch(kept)


def test_what_is_in_an_artifact_is_read_no_further_than_was_kept(tmp_path: Path) -> None:
    artifacts = ArtifactFiles(tmp_path / "artifacts")
    kept = artifacts.keep("1/build/1/1/output.txt", b"abc", "text")
    os.truncate(artifacts.path(kept), 1 << 40)

    with pytest.raises(ArtifactDamaged) as refused:
        artifacts.fetch(kept)

    assert str(refused.value) == "artifact '1/build/1/1/output.txt' is damaged: it has 4 bytes instead of 3"


@pytest.mark.parametrize("swap", [link, pipe, device])
def test_what_is_written_for_a_task_goes_through_nothing_that_another_left(
    tmp_path: Path, victim: Path, swap: Swap
) -> None:
    side = tmp_path / "1.stdin"
    swap(side, victim)

    write_private_file(str(side), "told")

    assert side.read_text() == "told"
    assert stat.S_IMODE(side.lstat().st_mode) == 0o600
    assert victim.read_text() == VICTIM


def test_a_step_that_leaves_links_in_the_place_of_side_files_harms_no_file_and_no_later_step(
    work: Work, victim: Path
) -> None:
    names = "stdin context prompt told output error"
    work.run_shell(f'for name in {names}; do ln -sf {victim} "${{MULLIGAN_OUTPUT%output}}$name"; done')

    later = [work.run_shell("cat", stdin=f"told {number}") for number in range(3)]

    assert [done.output for done in later] == ["told 0", "told 1", "told 2"]
    assert victim.read_text() == VICTIM


def test_a_report_that_nobody_named_goes_through_no_link_that_a_step_left(outside: Outside, victim: Path) -> None:
    outside.ran(f"steps: [{{step: a, shell: ln -s {victim} mulligan-report-1.html}}]")

    unnamed = outside.run("report", 1)
    named = outside.run("report", 1, "-o", "other.html")

    assert (unnamed.returncode, named.returncode) == (2, 0)
    assert b"error[file.unwritable]: 'mulligan-report-1.html' is a link" in unnamed.stderr
    assert victim.read_text() == VICTIM


def test_a_link_in_the_place_of_a_dead_workers_folder_goes_and_what_it_leads_to_stays(
    tmp_path: Path, victim: Path
) -> None:
    (tmp_path / "worker").symlink_to(victim.parent)

    remove_folder(str(tmp_path / "worker"))

    assert not os.path.lexists(tmp_path / "worker")
    assert victim.read_text() == VICTIM


@pytest.mark.parametrize(
    "place", ["../../etc/passwd", "/etc/passwd", ".", "..", "-rf", "a\nb", "a/b", "\udcff", "x" * 999]
)
def test_no_name_of_a_place_leads_out_of_the_folder_of_its_run(tmp_path: Path, place: str) -> None:
    logs = Folders(tmp_path).logs(7, place, 1)

    assert Path(logs.out).parent == tmp_path / "runs" / "7" / "logs"
    assert len(os.fsencode(Path(logs.out).name)) <= 255
    assert "\n" not in file_name(place)


def test_a_file_whose_name_begins_with_a_dash_is_a_value_and_no_option(work: Work) -> None:
    (work.folder / "-n").write_text("a file\n")

    done = work.run_shell('cat -- "$NAME"', env={"NAME": "-n"})

    assert done.output == "a file"
