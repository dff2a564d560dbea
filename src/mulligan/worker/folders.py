"""Where the files of a run and of an attempt are, below the home folder. The one place that knows."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from mulligan.core.model.place_keys import file_name


class Logs(NamedTuple):
    """What an attempt wrote to its standard output and error, as it comes. No file where it wrote nothing."""

    out: str
    err: str


class ScratchFiles(NamedTuple):
    """Files of whatever task has this place at a worker now: the same names over and over, and empty or not there.

    Making a file, and looking for one under a new name, is a large part of what a short task costs, and most write
    nothing. So its logs get the name of the attempt only once something is in them, or it has run for a while.
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
    # $MULLIGAN_PROMPT_FILE and $MULLIGAN_CONTEXT_FILE: what an agent is asked, and what it is told beside that.
    prompt: str
    agent_context: str


class Folders:
    """The files of all runs below one home folder."""

    def __init__(self, home: Path) -> None:
        self.home = str(home.absolute())
        self._was_there = os.path.isdir(self.home)
        self._made: set[int] = set()

    def logs(self, run_id: int, place: str, attempt: int) -> Logs:
        stem = f"{self.home}/runs/{run_id}/logs/{file_name(place)}#{attempt}"
        return Logs(stem + ".out", stem + ".err")

    def outputs(self, run_id: int) -> str:
        """$MULLIGAN_OUTPUT_DIR: what the steps of a run want to keep."""
        return f"{self.home}/runs/{run_id}/output"

    def worker(self, worker: str) -> str:
        """Files of tasks and children that have no other name yet."""
        return f"{self.home}/workers/{file_name(worker)}"

    def scratch(self, worker: str, number: int) -> ScratchFiles:
        stem = f"{self.worker(worker)}/{number}"
        return ScratchFiles(*(f"{stem}.{name}" for name in ScratchFiles._fields))

    def make_run(self, run_id: int) -> None:
        """The folders of a run, once."""
        if run_id not in self._made:
            self._check_home()
            make_private(f"{self.home}/runs/{run_id}/logs")
            make_private(self.outputs(run_id))
            self._made.add(run_id)

    def make_worker(self, worker: str) -> bool:
        """Whether it had to be made."""
        folder = self.worker(worker)
        is_new = not os.path.isdir(folder)
        if is_new:
            self._check_home()
        make_private(folder)
        return is_new

    def _check_home(self) -> None:
        """A home that was moved or removed is not made again at its old place."""
        if self._was_there and not os.path.isdir(self.home):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.home)


def make_private(folder: str) -> None:
    """The folder, and those above it that are not there, for their owner alone: logs are nobody else's to read.

    Those above it too: who may write there may put another folder in its place.
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
            raise  # else another process was faster


def write_private_file(path: str, text: str) -> None:
    """Put into a side file what its task is to read. What a task before it may have left under that name goes."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)


def move_file(path: str, name: str) -> bool:
    """Give a file its name, if it is there. What has no place to go is not kept: a result counts without its log."""
    try:
        _rename_into(path, name)
    except FileNotFoundError:
        return False
    except OSError:
        os.unlink(path)
    return True


def link_log_names(scratch: ScratchFiles, logs: Logs) -> bool:
    """Give what a task writes, or will write, the names of its attempt beside its own. False: it keeps only those."""
    try:
        for path, name in ((scratch.out, logs.out), (scratch.err, logs.err)):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            os.link(path, name)
    except OSError:
        # A file system without links: it is found when it has ended.
        for name in logs:
            Path(name).unlink(missing_ok=True)
        return False
    return True


def _rename_into(path: str, name: str) -> None:
    """Into a folder that is made if it has to be: a run whose steps say nothing has none."""
    try:
        os.rename(path, name)
    except FileNotFoundError:
        if not os.path.exists(path):
            raise
        make_private(os.path.dirname(name))
        os.rename(path, name)


def file_size(path: str) -> int | None:
    """What is in a file, 0 also of one that was never made; None where somebody has put something else in its place."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def open_regular_file(path: str, mode: str = "rb", *, may_be_link: bool = False) -> IO[bytes]:
    """What a task has written. OSError where it has put something else there: a pipe or a device may never end,
    and a link leads to what is not its own.
    """
    flags = os.O_RDWR if "+" in mode else os.O_RDONLY
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | (0 if may_be_link else os.O_NOFOLLOW))
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no file", path)
    return open(fd, mode)


def remove_folder(path: str) -> None:
    """What is left of a worker that ends: empty files. A link in its place goes, and what it leads to stays."""
    try:
        if os.path.islink(path):
            os.unlink(path)
            return
        for name in os.listdir(path):
            os.unlink(f"{path}/{name}")
        os.rmdir(path)
    except OSError:
        pass  # it was never made, or somebody keeps things there
