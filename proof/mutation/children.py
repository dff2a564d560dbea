"""Forked processes: each is its own process group, is never left behind, and says how it ended."""

from __future__ import annotations

import ctypes
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Say = Callable[[str], None]
_PR_SET_PDEATHSIG = 1


class Child:
    """A process that was forked. What it says can be heard, line by line, until it ends."""

    def __init__(self, pid: int, fd: int) -> None:
        self.pid = pid
        self.hears = os.fdopen(fd, "r")
        self.status: int | None = None

    def wait(self) -> int:
        """How it ended: its exit code, or minus the signal that ended it."""
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status

    def end(self) -> None:
        """Nothing of it is left after this, and nothing of what it started."""
        if self.status is None:
            # Once it was waited for, another process may have its id.
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        self.hears.close()


@contextmanager
def fork(run: Callable[[Say], object]) -> Iterator[Child]:
    """A child that runs something, and can say lines about it."""
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _live(run, lambda line: _write(writing, line), parent)
    os.close(writing)
    # In the parent and in the child, so that the group exists before it may have to be killed.
    with suppress(PermissionError):
        os.setpgid(pid, pid)
    child = Child(pid, reading)
    try:
        yield child
    finally:
        child.end()


def _write(fd: int, line: str) -> None:
    os.write(fd, line.encode() + b"\n")


def _live(run: Callable[[Say], object], say: Say, parent: int) -> None:
    code = 70
    try:
        os.setpgid(0, 0)
        # Its parent has a group of its own: whoever kills that does not reach this one.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            return
        run(say)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
