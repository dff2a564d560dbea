"""What runs of a server have left with a remote worker is removed after a while."""

from __future__ import annotations

import os
import time
from pathlib import Path

from mulligan.service.home import Home
from mulligan.service.host.gc import RunRetention, collect_garbage
from mulligan.service.runs.stored.run_reader import RunReader
from mulligan.service.server.remote_run_folders import ASKED_MAX, KEPT_SECONDS, LOOKED_MAX, EndedRunFolders
from mulligan.worker import lock


def left(home: Path, run_id: int, age: float = KEPT_SECONDS + 60) -> Path:
    """The folder of a run to which nothing was written for so long."""
    folder = home / "runs" / str(run_id)
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "a#1.out").write_text("said")
    for path in (folder / "logs" / "a#1.out", folder / "logs", folder):
        os.utime(path, (time.time() - age,) * 2)
    return folder


def test_the_folders_of_ended_runs_are_removed_after_a_while(tmp_path: Path) -> None:
    old, waiting, running = (left(tmp_path, run_id) for run_id in (1, 2, 3))
    young = left(tmp_path, 4, age=60.0)
    asked: list[list[int]] = []

    def ended(run_ids: list[int]) -> list[int]:
        asked.append(run_ids)
        return [1, 99]

    assert EndedRunFolders(tmp_path).remove(ended, running=[3]) == ([1], False)

    assert asked == [[1, 2]]
    assert [folder.exists() for folder in (old, waiting, running, young)] == [False, True, True, True]


def test_a_folder_with_a_log_that_has_to_be_sent_stays_and_others_go(tmp_path: Path) -> None:
    """A busy worker has such a note at any time."""
    unsent, old = left(tmp_path, 1), left(tmp_path, 2)
    (tmp_path / "unshipped").mkdir()
    (tmp_path / "unshipped" / "w#1").write_text('{"run_id": 1, "place": "a", "attempt": 1}')
    (tmp_path / "unshipped" / "w#2").write_text('{"run')

    assert EndedRunFolders(tmp_path).remove(lambda run_ids: run_ids) == ([2], False)
    assert (unsent.exists(), old.exists()) == (True, False)


def test_what_is_more_than_a_batch_follows_and_runs_that_have_not_ended_do_not_hold_it_up(tmp_path: Path) -> None:
    for run_id in range(1, ASKED_MAX + 11):
        left(tmp_path, run_id)
    for run_id in range(ASKED_MAX + 11, ASKED_MAX + LOOKED_MAX + 11):
        (tmp_path / "runs" / str(run_id)).mkdir()
    last = left(tmp_path, ASKED_MAX + LOOKED_MAX + 11)
    folders = EndedRunFolders(tmp_path)

    found = [folders.remove(lambda run_ids: [one for one in run_ids if one > ASKED_MAX]) for _ in range(3)]

    assert found == [
        ([], True),
        (list(range(ASKED_MAX + 1, ASKED_MAX + 11)), True),
        ([ASKED_MAX + LOOKED_MAX + 11], False),
    ]
    assert not last.exists()
    # It begins again.
    assert folders.remove(lambda run_ids: run_ids[:1]) == ([1], True)


def test_gc_removes_them_where_no_worker_runs_any_more(tmp_path: Path) -> None:
    served, held = tmp_path / "servers" / "one_8642", tmp_path / "servers" / "two_8642"
    old, young, of_worker = left(served, 1), left(served, 2, age=60.0), left(held, 1)
    alive = lock.acquire(held / "workers", "w")
    reader = RunReader(Home(tmp_path))
    try:
        planned = collect_garbage(reader, RunRetention(), is_dry=True)
        assert old.exists()
        found = collect_garbage(reader, RunRetention())
    finally:
        alive.release()
        reader.close()

    assert [one.name for one in found.workers] == [one.name for one in planned.workers] == ["servers/one_8642/runs/1"]
    assert [folder.exists() for folder in (old, young, of_worker)] == [False, True, True]
