"""A lock file that says whether a worker is alive: the kernel frees it when the last of its holders is gone."""

from __future__ import annotations

import fcntl
import os
from functools import cache
from pathlib import Path

import msgspec

from mulligan.ports import LockState
from mulligan.worker.folders import make_private

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
# What a lock file says: the boot of the kernel it was made under, its device and its inode.
_CONTENT_BYTES_MAX = 200


class Lock(msgspec.Struct, frozen=True):
    """A lock that is held by whoever has `fd` open: the worker, and its supervisor until all its tasks are dead."""

    path: str
    fd: int

    @property
    def is_in_place(self) -> bool:
        """Whether the file that we hold is still the one at our path: not where its folder was moved or removed."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self.fd))
        except OSError:
            return False

    @property
    def moved_to(self) -> Path | None:
        """Where the file is now, if it was moved and the system tells."""
        try:
            path = Path(os.readlink(f"/proc/self/fd/{self.fd}"))
            return path if os.path.samestat(os.stat(path), os.fstat(self.fd)) else None
        except OSError:
            return None  # it was removed, or this is not Linux

    def release(self, *, is_recorded: bool = True) -> None:
        """Let go, and remove the file: its name is never used again. Where the store does not know yet, it stays."""
        if is_recorded:
            (self.moved_to or Path(self.path)).unlink(missing_ok=True)
        os.close(self.fd)


def acquire(folder: Path, name: str) -> Lock:
    """A new lock file, held."""
    make_private(str(folder))
    path = folder / f"{name}.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(fd, _content(fd))
    return Lock(str(path), fd)


def state_of(path: str) -> LockState:
    """What the lock file at `path` proves.

    `held`: its worker, or something that it runs, is alive. `free`: all of it is dead. A file that is not there, or is
    a copy of the one that the worker holds, proves nothing: its home may have been moved while the worker lives.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return "unknown"
    except OSError:
        # Another user's. It may be alive.
        return "held"
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return "held"
    else:
        return "unknown" if _is_copy(fd) else "free"
    finally:
        os.close(fd)


def is_of_this_machine(path: str) -> bool:
    """Whether the lock file was made under the kernel that runs now, whatever host name its worker had."""
    try:
        with open(path, "rb") as file:
            boot = file.read(_CONTENT_BYTES_MAX).split()[:1]
    except OSError:
        return False
    return bool(boot) and boot[0] == boot_id()


@cache
def boot_id() -> bytes:
    """Names the running kernel from one boot to the next; the same in all of its containers. b"-" if unknown."""
    try:
        return Path(_BOOT_ID).read_bytes().strip() or b"-"
    except OSError:
        return b"-"


def _content(fd: int) -> bytes:
    stat = os.fstat(fd)
    return b"%s %d %d\n" % (boot_id(), stat.st_dev, stat.st_ino)


def _is_copy(fd: int) -> bool:
    """Whether the file was copied since this machine was started. Older files say nothing, and count as no copies."""
    content = os.pread(fd, _CONTENT_BYTES_MAX, 0)
    return content.split()[:1] == [boot_id()] and content != _content(fd)
