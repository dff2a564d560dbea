"""The folder that holds the environments of python steps: its paths, its locks, and what in it is no longer used.

    CACHE/python/requests/KEY/       what was asked for, and what that resolved to: lock, resolved.json, failed.json
    CACHE/python/environments/KEY/   an environment: lock, venv/, build.log, and ready.json, which is written last
    CACHE/python/pip/KEY/            a pip for an interpreter that has none: lock, venv/, ready.json

All homes of a user share it. Who builds or removes in a folder holds its lock alone; who uses it holds it with others.
The kernel releases a lock when its process dies, so what was left half-built is found without `ready.json` and removed.
Standard library only: the process that builds imports little.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REQUESTS, ENVIRONMENTS, PIP = "requests", "environments", "pip"
READY = "ready.json"
RESOLVED = "resolved.json"
_LOCK = "lock"
_VENV = "venv"
# A use is noted in the time of `ready.json`, at most this often.
USE_NOTED_SECONDS = 3600.0


def folder_of(cache: str, kind: str, key: str = "") -> str:
    return f"{cache}/python/{kind}/{key}".rstrip("/")


def venv_in(folder: str) -> str:
    return f"{folder}/{_VENV}"


def python_in(folder: str) -> str:
    """Return the interpreter of the environment in a folder of this cache."""
    return f"{folder}/{_VENV}/bin/python"


def is_ready(folder: str) -> bool:
    """Whether the environment was built to its end, and the interpreter that it was built from is still there."""
    return os.path.exists(f"{folder}/{READY}") and os.access(python_in(folder), os.X_OK)


def note_use(folder: str) -> None:
    """Note that the environment is in use, for `seconds_unused`."""
    path = f"{folder}/{READY}"
    # Another process may have removed it, or it belongs to another user: then it is not ours to keep.
    with suppress(OSError):
        if time.time() - os.stat(path).st_mtime > USE_NOTED_SECONDS:
            os.utime(path)


# -- files


def make_folder(folder: str) -> None:
    """Create the folder, and missing parents, for their owner only: programs in it run with the owner's rights."""
    if os.path.isdir(folder):
        return
    make_folder(os.path.dirname(folder))
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)


def read_json(path: str) -> dict[str, Any] | None:
    """Return the object in a file, or None if there is no file or it is damaged."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_json(path: str, value: Any) -> None:
    """Write a private file under a temporary name, then rename it: it is there as a whole or not at all."""
    temporary = f"{path}.{os.getpid()}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
    os.replace(temporary, path)


# -- locks


class Busy(Exception):
    """Another process holds the lock."""


def lock_folder(folder: str, *, is_shared: bool = False, is_waiting: bool = True) -> int:
    """Create the folder if needed, and lock it. Return the descriptor that holds the lock; Busy if it may not wait."""
    operation = (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | (0 if is_waiting else fcntl.LOCK_NB)
    while True:
        make_folder(folder)
        try:
            fd = os.open(f"{folder}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # the folder was removed a moment ago
        try:
            fcntl.flock(fd, operation)
            if os.path.samestat(os.fstat(fd), os.stat(f"{folder}/{_LOCK}")):
                return fd
        except FileNotFoundError:
            pass
        except BlockingIOError:
            os.close(fd)
            raise Busy(folder) from None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # the folder was removed while we waited: lock the new one


@contextmanager
def locked(folder: str, on_wait: Callable[[], None]) -> Iterator[int]:
    """Hold the lock of a folder alone. `on_wait` is called before waiting for another process."""
    try:
        fd = lock_folder(folder, is_waiting=False)
    except Busy:
        on_wait()
        fd = lock_folder(folder)
    try:
        yield fd
    finally:
        os.close(fd)


def clear_folder(folder: str) -> None:
    """Remove everything in a folder except its lock. `ready.json` goes first: a crash must not leave it behind."""
    for name in sorted(os.listdir(folder), key=lambda name: name != READY):
        path = f"{folder}/{name}"
        if name == _LOCK:
            continue
        if os.path.isdir(path) and not os.path.islink(path):
            # Imported late: every worker loads this module, and few remove an environment.
            import shutil

            shutil.rmtree(path)
        else:
            os.unlink(path)


# -- garbage


def find_unused(cache: str, unused_seconds: float) -> list[str]:
    """Return the folders that were not used for so long. Remove them in this order: resolutions, then environments."""
    return [
        path
        for kind in (REQUESTS, ENVIRONMENTS, PIP)
        for path in _folders(folder_of(cache, kind))
        if _seconds_unused(path, kind) >= unused_seconds
    ]


def remove_unused(folder: str, unused_seconds: float, *, is_dry: bool = False) -> bool:
    """Remove one of them unless a process uses or builds it; return whether it is gone, or would be."""
    if not os.path.isdir(folder):
        return True
    try:
        fd = lock_folder(folder, is_waiting=False)
    except Busy:
        return False
    try:
        if _seconds_unused(folder, os.path.basename(os.path.dirname(folder))) < unused_seconds:
            return False  # it was used since it was found
        if is_dry:
            return True
        clear_folder(folder)
        os.unlink(f"{folder}/{_LOCK}")
        with suppress(OSError):
            os.rmdir(folder)  # fails if another process has just created its lock there
        return True
    finally:
        os.close(fd)


def _folders(parent: str) -> list[str]:
    try:
        return sorted(entry.path for entry in os.scandir(parent) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _seconds_unused(folder: str, kind: str) -> float:
    """Return how long it was not used. A resolution is used as long as its environment is there."""
    if kind == REQUESTS:
        key = (read_json(f"{folder}/{RESOLVED}") or {}).get("environment")
        environment = f"{os.path.dirname(os.path.dirname(folder))}/{ENVIRONMENTS}/{key}"
        if key and os.path.isdir(environment):
            return _seconds_unused(environment, ENVIRONMENTS)
    for name in (READY, RESOLVED, _LOCK, ""):
        with suppress(OSError):
            return max(0.0, time.time() - os.stat(f"{folder}/{name}").st_mtime)
    return 0.0
