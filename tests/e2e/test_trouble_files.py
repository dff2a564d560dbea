"""A full disk, a home that may not be written, a database that somebody else holds: it is said, and nothing is lost."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from mulligan.service.home import DATABASE
from proof.stage import Stage, answered, heard, wait_until

from .forked_stage import ForkedStage
from .three import THREE, begun, expect_done_once

# -- a full disk -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, check=False, text=True
    )
    if made.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> Path:
    """Not a byte is left."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return filler


def test_a_run_waits_while_the_disk_is_full_and_goes_on_when_there_is_room(small_disk: Path, tmp_path: Path) -> None:
    stage = ForkedStage(tmp_path, home=small_disk / "home")
    process = begun(stage)

    filler = fill(small_disk)
    (tmp_path / "go").touch()
    said = heard(process, "waiting for it")
    filler.unlink()

    expect_done_once(stage, process, said)
    assert f"! the disk is full: '{stage.home.folder / DATABASE}' cannot be written; waiting for it\n" in said


def test_a_run_is_not_begun_on_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    stage = ForkedStage(tmp_path, home=small_disk / "home")
    fill(small_disk)

    code, shown, said = answered(stage.start("run", stage.workflow(THREE), "--json"))

    assert (code, shown) == (1, None)
    assert said == (
        f"error[store.unavailable]: the disk is full: '{stage.home.folder / DATABASE}' cannot be written\n"
        "  free space on its disk\n"
    )


FAILS = """
name: fails
steps: [{step: build, shell: 'sh $ACT build; test -e mended'}]
"""


def test_nothing_is_begun_or_lost_by_what_is_asked_of_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    stage = ForkedStage(tmp_path, home=small_disk / "home")
    failed = answered(stage.start("run", stage.workflow(FAILS), "--json"))
    (tmp_path / "mended").touch()
    filler = fill(small_disk)

    refused = {verb: answered(stage.start(*words)) for verb, words in ASKED.items()}
    filler.unlink()
    retried = answered(stage.start("retry", "1", "--follow", "--json"))

    full = f"error[store.unavailable]: the disk is full: '{stage.home.folder / DATABASE}' cannot be written\n"
    assert (failed[0], failed[1]["status"]) == (1, "failed")
    assert refused == dict.fromkeys(ASKED, (1, None, f"{full}  free space on its disk\n"))
    assert (retried[0], retried[1]["status"]) == (0, "completed"), retried
    assert [line.verb for line in stage.lines()] == ["start", "end"] * 2
    with stage.service() as service:
        stage.expect_promises(service, 1)


# SQLite needs a little room even to look, and to make some.
ASKED = {"retry": ("retry", "1", "--follow", "--json"), "show": ("show", "1", "--json"), "gc": ("gc", "--json")}


# -- a home that may not be written ----------------------------------------------------------------------------------


# Even root is told no when it has given up the right to ignore permissions.
_WITHOUT_PRIVILEGE = """
import ctypes, os, sys
drop, override, search = 24, 1, 2
for right in (override, search):
    ctypes.CDLL(None).prctl(drop, right, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def answered_without_privilege(stage: Stage, *words: str) -> tuple[int, object, str]:
    """How a command line ends for whom permissions hold."""
    probe = stage.start_program("-c", _WITHOUT_PRIVILEGE, "-c", "import os; print(int(os.access('/proc', os.W_OK)))")
    if answered(probe)[1]:
        pytest.skip("the right to ignore permissions cannot be given up here")
    return answered(stage.start_program("-c", _WITHOUT_PRIVILEGE, "-m", "mulligan", *words))


@pytest.fixture
def closed_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that may be read and not be written."""
    folder = tmp_path / "closed"
    folder.mkdir()
    folder.chmod(0o500)
    yield folder
    folder.chmod(0o700)


def test_a_home_that_cannot_be_made_is_refused(closed_folder: Path, tmp_path: Path) -> None:
    stage = ForkedStage(tmp_path, home=closed_folder / "home")

    code, shown, said = answered_without_privilege(stage, "run", stage.workflow(THREE))

    assert (code, shown) == (1, None)
    assert said == (
        f"error[home.unusable]: '{closed_folder}/home' cannot be created: permission denied\n"
        "  choose another folder with --home DIR or MULLIGAN_HOME, or get permission to read and write this one\n"
    )


def test_a_home_that_may_not_be_written_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    stage = ForkedStage(tmp_path)
    (tmp_path / "go").touch()
    first = answered(stage.start("run", stage.workflow(THREE), "--json"))
    for path in [*stage.home.folder.rglob("*"), stage.home.folder]:
        path.chmod(0o500 if stat.S_ISDIR(path.stat().st_mode) else 0o400)

    code, shown, said = answered_without_privilege(stage, "run", "flow.yaml", "--json")

    for path in [stage.home.folder, *stage.home.folder.rglob("*")]:
        path.chmod(0o700)
    assert first[0] == 0
    assert (code, shown) == (1, None)
    assert said == (
        f"error[home.read_only]: the home '{stage.home.folder}' is read-only\n"
        "  its runs can be listed, shown and explained; "
        "to change something, copy it to a folder that you can write to\n"
    )
    with stage.service() as service:
        assert [run.status for run in service.reader.runs()] == ["completed"]


# -- a database that somebody holds ----------------------------------------------------------------------------------


def test_a_run_waits_while_another_process_holds_the_database(file_stage: Stage) -> None:
    process = begun(file_stage)

    path = file_stage.home.folder / DATABASE
    holder = apsw.Connection(str(path))
    holder.set_busy_timeout(60_000)
    holder.execute("BEGIN EXCLUSIVE")
    (file_stage.folder / "go").touch()
    said = heard(process, "waiting for it")
    holder.execute("ROLLBACK")
    holder.close()

    expect_done_once(file_stage, process, said)
    assert f"! '{path}' has been locked by another process for more than 5s; waiting for it\n" in said


def test_a_run_is_not_begun_while_another_process_holds_the_database(file_stage: Stage) -> None:
    file_stage.home.open().close()
    path = file_stage.home.folder / DATABASE
    holder = apsw.Connection(str(path))
    holder.execute("BEGIN EXCLUSIVE")

    code, shown, said = answered(file_stage.start("run", file_stage.workflow(THREE), "--json"))

    holder.close()
    assert (code, shown) == (1, None)
    assert said == (
        f"error[store.unavailable]: '{path}' has been locked by another process for more than 5s\n"
        f"  wait and try again, or find the process: fuser '{path}'\n"
    )
    # It was never registered, so nobody has to find out that it is gone.
    assert list(file_stage.home.locks.iterdir()) == []


# -- two at once -----------------------------------------------------------------------------------------------------


def test_a_run_that_a_live_process_drives_is_not_resumed_and_the_process_is_named(stage: Stage) -> None:
    process = begun(stage)

    code, shown, said = answered(stage.start("resume", "1", "--json"))
    (stage.folder / "go").touch()

    assert (code, shown) == (2, None)
    assert said == (
        f"error[run.driven]: run 1 is driven by process {process.pid} on {os.uname().nodename}\n"
        "  it continues there; to stop it: mulligan cancel 1\n"
    )
    expect_done_once(stage, process)


def test_two_runs_in_one_home_do_not_disturb_each_other(stage: Stage) -> None:
    words = ("run", stage.workflow(THREE), "--json")
    both = [stage.start(*words) for _ in range(2)]
    wait_until(lambda: [line.name for line in stage.lines()].count("two") >= 2, "they did not begin")
    (stage.folder / "go").touch()

    ends = [answered(process) for process in both]

    assert [code for code, _, _ in ends] == [0, 0], ends
    assert [shown["status"] for _, shown, _ in ends] == ["completed"] * 2
    assert {shown["run_id"] for _, shown, _ in ends} == {1, 2}
    for run_id in (1, 2):
        done = [line.name for line in stage.lines() if line.verb == "start" and line.run_id == run_id]
        assert done == ["one", "two", "three"]
        with stage.service() as service:
            stage.expect_promises(service, run_id)
    stage.expect_nothing_left()
