"""The paths of the files of runs and attempts, below the home folder. No other module builds these paths."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from mulligan.core.model.place_keys import file_name

# Of so many runs a worker remembers that their folders exist.
RUNS_REMEMBERED_MAX = 1000


class Logs(NamedTuple):
    """Standard output and error of an attempt. An attempt that writes nothing has no files."""

    out: str
    err: str


class ScratchFiles(NamedTuple):
    """Files that a worker's tasks use one after the other: always the same names, and empty or missing between tasks.

    Creating a file, and looking for one under a new name, is a large part of the cost of a short task, and most tasks
    write nothing. So logs get the name of the attempt only when they are not empty, or the task has run for a while.
    """

    out: str
    err: str
    # $MULLIGAN_OUTPUT: its result, as JSON.
    output: str
    # $MULLIGAN_ERROR: its errors, as JSON.
    error: str
    # $MULLIGAN_FAILURE_CONTEXT: the failure that led to it.
    context: str
    stdin: str
    # $MULLIGAN_PROMPT_FILE and $MULLIGAN_CONTEXT_FILE of an agent.
    prompt: str
    agent_context: str
    # $MULLIGAN_PROGRESS: how far it is.
    progress: str
    # $MULLIGAN_ARTIFACTS: the manifest of the files that it keeps, which are beside it and begin with this name.
    artifacts: str
    # $MULLIGAN_DATA: the data of the run. $MULLIGAN_DATA_SET: what the task sets of it.
    data: str
    data_set: str


class Folders:
    """The files of all runs below one home folder."""

    def __init__(self, home: Path) -> None:
        self.home = str(home.absolute())
        # The folder in which the steps of runs work that a server has started.
        self.work = f"{self.home}/work"
        self._was_there = os.path.isdir(self.home)
        self._made: set[int] = set()

    def logs(self, run_id: int, place: str, attempt: int) -> Logs:
        stem = f"{self.home}/runs/{run_id}/logs/{file_name(place)}#{attempt}"
        return Logs(stem + ".out", stem + ".err")

    def progress(self, run_id: int, place: str, attempt: int) -> str:
        """Return the file with the progress of an attempt; one that reports none has no file."""
        return f"{self.home}/runs/{run_id}/logs/{file_name(place)}#{attempt}.progress"

    def outputs(self, run_id: int) -> str:
        """Return $MULLIGAN_OUTPUT_DIR, where the steps of a run put files to keep."""
        return f"{self.home}/runs/{run_id}/output"

    def worker(self, worker: str) -> str:
        """Return the folder of scratch files of a worker and its children."""
        return f"{self.home}/workers/{file_name(worker)}"

    @property
    def unshipped(self) -> str:
        """Return the folder with notes about logs that may not be in the store: see `log_shipping`."""
        return f"{self.home}/unshipped"

    def scratch(self, worker: str, number: int) -> ScratchFiles:
        stem = f"{self.worker(worker)}/{number}"
        return ScratchFiles(*(f"{stem}.{name}" for name in ScratchFiles._fields))

    def make_run(self, run_id: int) -> None:
        """Create the folders of a run, once."""
        if run_id not in self._made:
            self._check_home()
            make_private(f"{self.home}/runs/{run_id}/logs")
            make_private(self.outputs(run_id))
            if len(self._made) >= RUNS_REMEMBERED_MAX:
                # A worker may serve runs for months. Those that are still open are looked at once more.
                self._made.clear()
            self._made.add(run_id)

    def make_work(self) -> str:
        """Create the folder for runs of a server, if it is missing, and return it."""
        if not os.path.isdir(self.work):
            self._check_home()
            make_private(self.work)
        return self.work

    def make_worker(self, worker: str) -> bool:
        """Create the folder; return whether it did not exist."""
        folder = self.worker(worker)
        is_new = not os.path.isdir(folder)
        if is_new:
            self._check_home()
        make_private(folder)
        return is_new

    def _check_home(self) -> None:
        """Refuse to create a home again that was moved or removed."""
        if self._was_there and not os.path.isdir(self.home):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.home)


def make_private(folder: str) -> None:
    """Create the folder, and missing parents, for their owner only: logs are private.

    The parents too, because write access to a parent allows replacing the folder.
    """
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    if not os.path.lexists(above):
        make_private(above)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise  # otherwise another process created it


def write_private_file(path: str, text: str) -> None:
    """Write a new file for its owner only. Removes what an earlier task may have left there."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)


def replace_private_file(path: str, text: str) -> None:
    """Write a file for its owner only, in place of the one that is there: nobody reads half of it."""
    write_private_file(f"{path}.new", text)
    os.replace(f"{path}.new", path)


def move_file(path: str, name: str) -> bool:
    """Rename a file if it exists. If that fails, remove it: a result counts without its log."""
    try:
        _rename_into(path, name)
    except FileNotFoundError:
        return False
    except OSError:
        os.unlink(path)
    return True


def link_log_names(scratch: ScratchFiles, logs: Logs) -> bool:
    """Link the logs of a task to the names of its attempt. Return False if that is not possible."""
    try:
        for path, name in ((scratch.out, logs.out), (scratch.err, logs.err)):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            os.link(path, name)
    except OSError:
        # Without hard links the logs get their names when the task has ended.
        for name in logs:
            Path(name).unlink(missing_ok=True)
        return False
    return True


def _rename_into(path: str, name: str) -> None:
    """Rename into a folder, which is created if needed: a run whose steps print nothing has none."""
    try:
        os.rename(path, name)
    except FileNotFoundError:
        if not os.path.exists(path):
            raise
        make_private(os.path.dirname(name))
        os.rename(path, name)


def file_size(path: str) -> int | None:
    """Return the size of a file, 0 if it does not exist; None if something other than a file is there."""
    try:
        info = os.lstat(path)
    except OSError:
        return 0
    return info.st_size if stat.S_ISREG(info.st_mode) else None


def open_regular_file(path: str, mode: str = "rb", *, may_be_link: bool = False) -> IO[bytes]:
    """Open what a task has written. Raise OSError for anything but a file.

    A pipe or a device may never end, and a link may lead to a file that the task does not own.
    """
    flags = os.O_RDWR if "+" in mode else os.O_RDONLY
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | (0 if may_be_link else os.O_NOFOLLOW))
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a file", path)
    return open(fd, mode)


def remove_folder(path: str) -> None:
    """Remove the folder of a worker that ends, and the empty files in it. A link is removed, its target is not."""
    try:
        if os.path.islink(path):
            os.unlink(path)
            return
        for name in os.listdir(path):
            os.unlink(f"{path}/{name}")
        os.rmdir(path)
    except OSError:
        pass  # it does not exist, or contains a folder
