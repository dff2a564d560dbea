"""A lock file that shows whether a worker is alive: the kernel unlocks it when the last process that holds it exits."""

from __future__ import annotations

import errno
import fcntl
import os
from functools import cache
from pathlib import Path

import msgspec

from mulligan.ports import LockState
from mulligan.worker.folders import make_private

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
# Content: boot id of the kernel, device and inode of the file.
_CONTENT_BYTES_MAX = 200


class Lock(msgspec.Struct, frozen=True):
    """A lock that is held while `fd` is open: by the worker, and by its supervisor until all tasks are dead."""

    path: str
    fd: int
    # Its device and its number there: as long as it is open, no other file has them.
    identity: tuple[int, int]

    @property
    def is_in_place(self) -> bool:
        """Whether the file that we hold is still the one at our path. False after its folder was moved or removed."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self.identity

    @property
    def moved_to(self) -> Path | None:
        """The file's current path, if it was moved and the system knows it."""
        try:
            path = Path(os.readlink(f"/proc/self/fd/{self.fd}"))
            return path if os.path.samestat(os.stat(path), os.fstat(self.fd)) else None
        except OSError:
            return None  # it was removed, or this is not Linux

    def release(self, *, is_recorded: bool = True) -> None:
        """Unlock and remove the file, whose name is never reused. Keep it until the store has recorded the exit."""
        if is_recorded:
            (self.moved_to or Path(self.path)).unlink(missing_ok=True)
        os.close(self.fd)


def acquire(folder: Path, name: str) -> Lock:
    """Create a lock file and lock it."""
    make_private(str(folder))
    path = folder / f"{name}.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(fd, _content(fd))
    opened = os.fstat(fd)
    return Lock(str(path), fd, (opened.st_dev, opened.st_ino))


def state_of(path: str) -> LockState:
    """Return what the lock file at `path` proves.

    `held`: the worker, or something that it runs, is alive. `free`: all of it is dead. A file that is missing, or is a
    copy of the one that the worker holds, proves nothing: its home may have been moved while the worker is alive.
    """
    try:
        fd = _open(path)
    except (FileNotFoundError, NotADirectoryError):
        return "unknown"
    except OSError:
        # It belongs to another user and may be alive.
        return "held"
    try:
        # Shared: two that look at the same moment must not take each other for the worker.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return "held"
    else:
        return "unknown" if _is_copy(fd) else "free"
    finally:
        os.close(fd)


def _open(path: str) -> int:
    """Open a lock file: in a home that is read-only, to read. There it can be locked, and so be asked, as well."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES):
            raise
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def free_locks(folder: Path) -> list[str]:
    """Return the names of the dead workers whose lock files are in the folder."""
    return [path.stem for path in sorted(folder.glob("*.lock")) if _is_written(path) and state_of(str(path)) == "free"]


def _is_written(path: Path) -> bool:
    """Whether a worker has had the lock: one that is about to take it must not find it taken by us."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def is_of_this_machine(path: str) -> bool:
    """Whether the lock file was created under the kernel that runs now, whatever the host name was."""
    try:
        with open(path, "rb") as file:
            boot = file.read(_CONTENT_BYTES_MAX).split()[:1]
    except OSError:
        return False
    return bool(boot) and boot[0] == boot_id()


@cache
def boot_id() -> bytes:
    """Return the id of the kernel's current boot, the same in all containers; b"-" if unknown."""
    try:
        return Path(_BOOT_ID).read_bytes().strip() or b"-"
    except OSError:
        return b"-"


def _content(fd: int) -> bytes:
    stat = os.fstat(fd)
    return b"%s %d %d\n" % (boot_id(), stat.st_dev, stat.st_ino)


def _is_copy(fd: int) -> bool:
    """Whether the file was copied since the machine booted. Older files do not say, and count as originals."""
    content = os.pread(fd, _CONTENT_BYTES_MAX, 0)
    return content.split()[:1] == [boot_id()] and content != _content(fd)
