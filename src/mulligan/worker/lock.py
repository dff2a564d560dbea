"""A lock file that says whether a worker is alive: the kernel frees it when the last of its holders is gone."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec

from .folders import make_private


class Lock(msgspec.Struct, frozen=True):
    """A lock that is held by whoever has `fd` open: the worker, and its supervisor until all its tasks are dead."""

    path: str
    fd: int

    def release(self, *, is_known: bool = True) -> None:
        """Let go, and remove the file: its name is never used again. Where the store does not know yet, it stays."""
        if is_known:
            Path(self.path).unlink(missing_ok=True)
        os.close(self.fd)


def hold(folder: Path, name: str) -> Lock:
    """A new lock file, held."""
    make_private(str(folder))
    path = folder / f"{name}.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return Lock(str(path), fd)


def is_free(path: str) -> bool:
    """Whether nobody holds it: its worker is dead, and nothing of its tasks runs. No file: it ended in order."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        # Not ours to open: another user's. It may be alive.
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(fd)
