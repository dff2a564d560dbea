"""What the runs of a server have left on the host of a remote worker: logs, which the server has, and kept files.

The worker removes the folders of ended runs after a while, and `mulligan gc` those that no worker looks after.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from mulligan.worker import lock
from mulligan.worker.folders import Folders, open_regular_file

# The folder of an ended run is kept so long after something was written to it: another round may use its files.
KEPT_SECONDS = 7 * 24 * 3600.0
# How often a worker begins to look, when the next batch follows, and how many folders and runs that is at most: it
# looks between two heartbeats, and to remove a folder takes up to 20 ms on a busy disk.
LOOK_SECONDS, NEXT_SECONDS = 3600.0, 5.0
LOOKED_MAX, ASKED_MAX = 500, 50


class _Note(msgspec.Struct, frozen=True):
    """What `unshipped` says of a log that the server may not have."""

    run_id: int


def unused_run_folders(home: Path, now: float, kept_seconds: float = KEPT_SECONDS) -> dict[int, Path]:
    """The folders of runs to which nothing was written for so long, by run. Not those with a log to be sent."""
    folders = _folders_of_runs(home, _unsent_runs(home))
    return {run_id: path for run_id, path in folders.items() if now - _written_at(path) > kept_seconds}


class EndedRunFolders:
    """Removes the folders of runs that have ended, batch by batch, as the server says which these are."""

    def __init__(self, home: Path) -> None:
        self._home = home
        # The last run of the last batch.
        self._after = 0

    def remove(
        self, ended: Callable[[list[int]], Collection[int]], *, running: Collection[int] = (), now: float | None = None
    ) -> tuple[list[int], bool]:
        """Remove a batch. The runs, and whether there may be more; after the last batch it begins again."""
        now = time.time() if now is None else now
        folders = _folders_of_runs(self._home, {*running, *_unsent_runs(self._home)})
        asked: dict[int, Path] = {}
        coming = sorted(run_id for run_id in folders if run_id > self._after)
        for looked, run_id in enumerate(coming, 1):
            self._after = run_id
            if now - _written_at(folders[run_id]) > KEPT_SECONDS:
                asked[run_id] = folders[run_id]
            if looked == LOOKED_MAX or len(asked) == ASKED_MAX:
                break
        has_more = bool(coming) and self._after != coming[-1]
        if not has_more:
            self._after = 0
        gone = [run_id for run_id in (ended(list(asked)) if asked else ()) if run_id in asked]
        if gone:
            # Only workers of servers get here.
            import shutil
        for run_id in gone:
            shutil.rmtree(asked[run_id], ignore_errors=True)
        return gone, has_more


def abandoned_run_folders(home: Path, now: float) -> Iterator[Path]:
    """The unused folders of runs in the homes of workers for servers, below a home, in which no worker runs."""
    for served in _subfolders(home / "servers"):
        locks = (served / "workers").glob("*.lock")
        if not any(lock.state_of(str(path)) == "held" for path in locks):
            yield from unused_run_folders(served, now).values()


def _unsent_runs(home: Path) -> set[int]:
    """The runs with a log that has to be sent. Each task that runs for a while has a note of it meanwhile."""
    found = set()
    for name in os.listdir(unshipped) if os.path.isdir(unshipped := Folders(home).unshipped) else ():
        # It was sent just now, or is half written: then it has nothing to send yet, and its folder is young.
        with suppress(OSError, msgspec.MsgspecError), open_regular_file(f"{unshipped}/{name}") as file:
            found.add(msgspec.json.decode(file.read(), type=_Note).run_id)
    return found


def _folders_of_runs(home: Path, without: Collection[int]) -> dict[int, Path]:
    try:
        with os.scandir(home / "runs") as entries:
            folders = (one for one in entries if one.name.isdecimal() and one.is_dir(follow_symlinks=False))
            found = {int(one.name): Path(one.path) for one in folders}
    except OSError:
        return {}
    return {run_id: path for run_id, path in found.items() if run_id not in without}


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
