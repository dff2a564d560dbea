"""In which folder of this host a task works: that of its run, or the worker's own for runs of a server."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from msgspec.structs import replace

from mulligan.core.state.workspace import WORKER_FOLDER
from mulligan.ports import Lease

# How many folders that are not here a worker remembers, and how often it looks for them.
FOLDERS_MAX = 200
LOOK_SECONDS = 1.0


def in_own_folder(lease: Lease, folder: str) -> Lease:
    """Return the lease with `folder` in place of "the folder of the worker"."""
    task = lease.task
    if WORKER_FOLDER not in (task.home, task.called_from):
        return lease
    home = folder if task.home == WORKER_FOLDER else task.home
    called_from = folder if task.called_from == WORKER_FOLDER else task.called_from
    return replace(lease, task=replace(task, home=home, called_from=called_from))


class MissingFolders:
    """The folders of runs that were looked for and are not on this host. The worker leases no more tasks of them."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._missing: dict[str, None] = {}
        self._looked_at = 0.0

    def lacks(self, folder: str) -> bool:
        """Return whether the folder of a run is missing here, and remember it."""
        if not folder or os.path.isdir(folder):
            return False
        self._missing.pop(folder, None)
        if len(self._missing) >= FOLDERS_MAX:
            # The oldest. A task of it would be given back once more.
            del self._missing[next(iter(self._missing))]
        self._missing[folder] = None
        self._looked_at = self._monotonic()
        return True

    @property
    def found(self) -> tuple[str, ...]:
        """Those that are still missing. They are looked for again now and then."""
        if self._missing and self._monotonic() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = self._monotonic()
            self._missing = {folder: None for folder in self._missing if not os.path.isdir(folder)}
        return tuple(self._missing)
