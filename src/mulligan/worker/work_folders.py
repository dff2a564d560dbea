"""In which folder of this host a task works: that of its run, or one of the worker's own for runs of a server."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

from msgspec.structs import replace

from mulligan.core.state.workspace import BUNDLE_FOLDER, WORKER_FOLDER
from mulligan.ports import Lease
from mulligan.ports.bundles import ReadContent
from mulligan.worker.bundles import FETCH_SECONDS, Bundles, bundle_of
from mulligan.worker.folders import Folders
from mulligan.worker.secrets.secret_commands import NotReady
from mulligan.worker.task_reports import FolderMissing

# How many folders that are not here a worker remembers, and how often it looks for them.
FOLDERS_MAX = 200
LOOK_SECONDS = 1.0


class WorkFolders:
    """Finds the folder of each task. `due`: when to ask again for those whose files are on their way."""

    def __init__(
        self,
        folders: Folders,
        host: str,
        read_content: ReadContent | None = None,
        *,
        look_seconds: float = FETCH_SECONDS,
    ) -> None:
        self._folders = folders
        self._host = host
        self._missing = MissingFolders()
        self._bundles = Bundles(folders.home, read_content)
        self._look_seconds = look_seconds
        self.due = math.inf

    def place(self, lease: Lease) -> Lease:
        """Return the lease with the folders of this host, which exist.

        `FolderMissing` if this host does not have that of its run, `NotReady` while files of a published version are
        fetched, `InputInvalid` if they cannot be.
        """
        lease = in_own_folder(lease, self._folders.work)
        started_in = lease.task.started_in
        if started_in.startswith(BUNDLE_FOLDER):
            return self._in_bundle(lease, bundle_of(started_in))
        if started_in == self._folders.work:
            self._folders.make_work()
        if self._missing.lacks(lease.task.home):
            raise FolderMissing(self._host)
        return lease

    def _in_bundle(self, lease: Lease, digest: str) -> Lease:
        self.due = math.inf
        source = self._bundles.unpacked(lease.task.run_id, digest, seconds=self._look_seconds)
        if source is None:
            self.due = 0.0
            raise NotReady
        work, task = self._bundles.work_folder(digest), lease.task
        if bundle_of(task.home):
            return replace(lease, task=replace(task, home=work, source=source))
        return replace(lease, task=replace(task, called_from=work, source=source))

    @property
    def lacking(self) -> tuple[str, ...]:
        """The folders of runs that are not on this host."""
        return self._missing.found


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
