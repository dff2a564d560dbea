"""Hash declared files, and check whether they are still as a step wrote them."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from mulligan.core.model.file_records import FileRecord, Problem
from mulligan.worker.slots.loop_limits import LOOP_BYTES_MAX

RECORD_FILES = "mulligan.worker.outputs.file_hashes:record_files"
# More than a tick of the clock that file systems use.
SETTLED_NANOSECONDS = 20_000_000
_CACHED_MAX = 10_000


def record_file(path: str) -> FileRecord | None:
    """Record what is at an absolute path; None if nothing is. Without a hash if it cannot be read, or never ends."""
    try:
        info = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        return FileRecord(path, path)
    try:
        if stat.S_ISDIR(info.st_mode):
            digest, size = _hash_folder(path)
            return FileRecord(path, path, digest, size)
        if stat.S_ISREG(info.st_mode):
            digest = _hash_file(path)
            mtime_ns = info.st_mtime_ns if _is_settled(path, info) else 0
            return FileRecord(path, path, digest, info.st_size, mtime_ns=mtime_ns)
    except OSError:
        pass
    return FileRecord(path, path)


def _is_settled(path: str, before: os.stat_result) -> bool:
    """Whether any later write changes the file's time: the clocks of file systems tick slowly."""
    after = os.stat(path)
    is_same = (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    return is_same and time.time_ns() - before.st_mtime_ns > SETTLED_NANOSECONDS


def _hash_file(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash_folder(path: str) -> tuple[str, int]:
    """Return a hash of all names and contents below a folder, and their size. Links are not followed."""
    whole, total = hashlib.sha256(), 0
    for above, folders, names in os.walk(path, onerror=_raise_error):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(above, name))]
        whole.update(f"folder {os.path.relpath(above, path)}\0".encode(errors="surrogateescape"))
        for name in sorted((*names, *links)):
            inner = os.path.join(above, name)
            info = os.lstat(inner)
            kind, content = _entry(inner, info)
            total += info.st_size if kind == "file" else 0
            whole.update(f"{kind} {name}\0{content}\0".encode(errors="surrogateescape"))
    return whole.hexdigest(), total


def _raise_error(error: OSError) -> None:
    raise error


def _entry(path: str, info: os.stat_result) -> tuple[str, str]:
    if stat.S_ISLNK(info.st_mode):
        return "link", os.readlink(path)
    return ("file", _hash_file(path)) if stat.S_ISREG(info.st_mode) else ("other", "")


def record_files(paths: list[str]) -> list[dict[str, Any] | None]:
    """Record what is at each path. Called in a child."""
    return [None if (info := record_file(path)) is None else msgspec.to_builtins(info) for path in paths]


def problem_of(record: FileRecord, home: str) -> Problem | None:
    """Return what happened to a file that a step wrote: it is gone, it has changed, or None."""
    path = os.path.join(home or "/", record.path)
    if is_untouched(record, path):
        return None
    info = record_file(path)
    if info is None:
        return "gone"
    return "changed" if record.sha256 and info.sha256 != record.sha256 else None


def is_untouched(record: FileRecord, path: str) -> bool:
    """Whether size and time of change show that it was not written to: then it need not be read."""
    if not record.mtime_ns:
        return False
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(info.st_mode) and (info.st_size, info.st_mtime_ns) == (record.size, record.mtime_ns)


class FileHashCache:
    """Records of files that were read lately, valid until device, inode, size or times change."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[tuple[int, ...], FileRecord]] = {}

    def find(self, path: str) -> FileRecord | None:
        known = self._entries.get(path)
        return known[1] if known is not None and known[0] == _stamp(path) else None

    def keep(self, record: FileRecord) -> None:
        """Keep the record of a file that was not written to since it was read."""
        # The stamp comes first: if the file is written to after it, nobody finds the record by it any more.
        stamp = _stamp(record.path)
        if stamp and record.sha256 and is_untouched(record, record.path):
            if len(self._entries) >= _CACHED_MAX:
                self._entries.clear()
            self._entries[record.path] = (stamp, record)


def _stamp(path: str) -> tuple[int, ...]:
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return ()
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def are_small_enough(paths: Iterable[str]) -> bool:
    """Whether the worker's loop may read them itself: not too many bytes together, and no folder."""
    total = 0
    for path in paths:
        try:
            info = os.stat(path)
        except (OSError, ValueError):
            continue
        if stat.S_ISDIR(info.st_mode):
            return False
        total += info.st_size
    return total <= LOOP_BYTES_MAX
