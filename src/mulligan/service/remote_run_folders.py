"""What the runs of a server have left on the host of a remote worker: logs, which the server has, and kept files.

The worker removes the folders of ended runs after a while, and `mulligan gc` those that no worker looks after.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from mulligan.worker import lock
from mulligan.worker.folders import Folders

# The folder of an ended run is kept so long after something was written to it: another round may use its files.
KEPT_SECONDS = 7 * 24 * 3600.0
# How often a worker looks, and how many runs it asks about at once.
LOOK_SECONDS = 3600.0
ASKED_MAX = 500


def unused_run_folders(home: Path, now: float, kept_seconds: float = KEPT_SECONDS) -> dict[int, Path]:
    """The folders of runs to which nothing was written for so long, by run. Not those with a log to be sent."""
    if os.path.isdir(unshipped := Folders(home).unshipped) and os.listdir(unshipped):
        return {}
    found = (path for path in _subfolders(home / "runs") if path.name.isdecimal())
    return {int(path.name): path for path in found if now - _written_at(path) > kept_seconds}


def remove_ended_runs(
    home: Path,
    ended: Callable[[list[int]], Collection[int]],
    *,
    running: Collection[int] = (),
    now: float | None = None,
) -> list[int]:
    """Remove the folders of runs that have ended, as `ended` says of those that it is asked about. The runs."""
    folders = unused_run_folders(home, time.time() if now is None else now)
    asked = sorted(folders.keys() - set(running))
    parts = (asked[at : at + ASKED_MAX] for at in range(0, len(asked), ASKED_MAX))
    gone = [run_id for part in parts for run_id in ended(part) if run_id in folders]
    for run_id in gone:
        shutil.rmtree(folders[run_id], ignore_errors=True)
    return gone


def abandoned_run_folders(home: Path, now: float) -> Iterator[Path]:
    """The unused folders of runs in the homes of workers for servers, below a home, in which no worker runs."""
    for served in _subfolders(home / "servers"):
        locks = (served / "workers").glob("*.lock")
        if not any(lock.state_of(str(path)) == "held" for path in locks):
            yield from unused_run_folders(served, now).values()


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return []


def _written_at(folder: Path) -> float:
    """When something in the folder was last written."""
    newest = 0.0
    for path, _, names in os.walk(folder):
        for name in (".", *names):
            try:
                newest = max(newest, os.lstat(os.path.join(path, name)).st_mtime)
            except OSError:
                continue
    return newest
