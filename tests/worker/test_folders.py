"""The folders of runs: made once each, also by a worker that serves thousands of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.worker import folders
from mulligan.worker.folders import Folders


def test_a_worker_forgets_old_runs_and_makes_their_folders_again_if_they_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "RUNS_REMEMBERED_MAX", 3)
    made = Folders(tmp_path)
    for run_id in range(1, 5):
        made.make_run(run_id)
    logs = tmp_path / "runs" / "1" / "logs"
    logs.rmdir()

    made.make_run(1)

    assert logs.is_dir()
    assert len(made._made) <= 3
