"""What runs of a server have left with a remote worker is removed after a while."""

from __future__ import annotations

import os
import time
from pathlib import Path

from mulligan.service import Home, RunRetention
from mulligan.service.gc import collect_garbage
from mulligan.service.remote_run_folders import KEPT_SECONDS, remove_ended_runs
from mulligan.service.run_reader import RunReader
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

    assert remove_ended_runs(tmp_path, ended, running=[3]) == [1]

    assert asked == [[1, 2]]
    assert [folder.exists() for folder in (old, waiting, running, young)] == [False, True, True, True]


def test_nothing_is_removed_while_a_log_has_to_be_sent(tmp_path: Path) -> None:
    old = left(tmp_path, 1)
    (tmp_path / "unshipped").mkdir()
    (tmp_path / "unshipped" / "w#1").write_text("{}")

    assert remove_ended_runs(tmp_path, lambda run_ids: run_ids) == []
    assert old.exists()


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
