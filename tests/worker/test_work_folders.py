"""In which folder a task works, and which folders a worker does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.core.effects.tasks import Task
from mulligan.ports import Lease
from mulligan.worker.work_folders import FOLDERS_MAX, LOOK_SECONDS, MissingFolders, in_own_folder


def lease(home: str, called_from: str = "") -> Lease:
    task = Task(
        run_id=1,
        place="a",
        attempt=1,
        kind="shell",
        params={},
        workflow="w",
        version="v",
        step="a",
        visit=1,
        home=home,
        called_from=called_from,
    )
    return Lease(task, "w", 1)


@pytest.mark.parametrize(
    ("home", "called_from", "started_in"),
    [(".", "", "/own"), ("/srv", "", "/srv"), ("/srv/worktree", ".", "/own"), ("/srv/worktree", "/srv", "/srv")],
)
def test_only_the_folder_of_the_worker_is_filled_in(home: str, called_from: str, started_in: str) -> None:
    task = in_own_folder(lease(home, called_from), "/own").task

    assert task.home == ("/own" if home == "." else home)
    assert task.started_in == started_in


def test_a_missing_folder_is_looked_for_again_after_a_while(tmp_path: Path) -> None:
    now = 100.0
    folders = MissingFolders(lambda: now)
    folder = tmp_path / "later"

    assert folders.lacks(str(folder)) and not folders.lacks(str(tmp_path)) and not folders.lacks("")
    folder.mkdir()
    assert folders.found == (str(folder),)
    now += LOOK_SECONDS
    assert folders.found == ()


def test_a_worker_remembers_a_bounded_number_of_missing_folders(tmp_path: Path) -> None:
    folders = MissingFolders()

    for number in range(FOLDERS_MAX + 5):
        folders.lacks(f"{tmp_path}/{number}")

    assert len(folders.found) == FOLDERS_MAX
    assert f"{tmp_path}/4" not in folders.found
