"""A disk that fails: SQLite's n-th operation of a kind is refused, done by half, or is the last thing that happens.

The product knows nothing of it: this is the file system that SQLite takes in a process where it was put up.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, NoReturn

import apsw

# What comes of an operation: an error, the half of it and an error, the half of it and death, and a power failure, in
# which the disk keeps what it had at the last sync, and of what came later nothing, or some pages and the half of one.
OUTCOMES = {
    "open": ("error",),
    "delete": ("error", "die"),
    "read": ("error",),
    "write": ("error", "full", "half", "die", "power", "torn"),
    "truncate": ("error", "die"),
    "sync": ("error", "die", "power", "torn"),
    "lock": ("error",),
}
FAULTS = tuple(f"{operation}.{outcome}" for operation, outcomes in OUTCOMES.items() for outcome in outcomes)
# A disk that is full is full for more than one moment.
FULL_CALLS = 3
# What a disk writes whole, or not at all.
SECTOR = 512
# After how many pages the log goes into the file: a run as small as ours would never come so far.
CHECKPOINT_PAGES = 40

_BASE = "unix"


class FaultyDisk(apsw.VFS):
    """The file system of all databases of this process, from now on."""

    def __init__(self, what: str, nth: int, met: Callable[[], None]) -> None:
        super().__init__("faulty", _BASE, makedefault=True)
        self._operation, self._outcome = what.split(".")
        self._nth = nth
        self._met = met
        self._calls = 0
        self.files: dict[str, FaultyFile] = {}
        apsw.connection_hooks.append(_check_point_often)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        if self.strikes("open"):
            raise apsw.CantOpenError("unable to open database file")
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        return FaultyFile(self, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        match self.strikes("delete"):
            case "error":
                raise apsw.IOError("disk I/O error")
            case "die":
                super().xDelete(filename, syncdir)
                die()
        super().xDelete(filename, syncdir)

    def strikes(self, operation: str) -> str:
        """What comes of this operation; "" is what should."""
        if operation != self._operation:
            return ""
        self._calls += 1
        calls = FULL_CALLS if self._outcome == "full" else 1
        if not self._nth <= self._calls < self._nth + calls:
            return ""
        self._met()
        return self._outcome

    def lose_power(self, *, is_torn: bool) -> NoReturn:
        """The disk has what it had at the last sync of each file; if torn, also every other page of what came later."""
        for file in self.files.values():
            file.forget(is_torn=is_torn)
        die()


class FaultyFile(apsw.VFSFile):
    """One file on it, and what of it is surely on the disk."""

    def __init__(self, disk: FaultyDisk, path: str | None, name: Any, flags: list[int]) -> None:
        super().__init__(_BASE, name, flags)
        self._disk = disk
        self._path = path
        self._later: list[tuple[int, bytes]] = []
        if path:
            self._synced = self._content()
            disk.files[path] = self

    def xRead(self, amount: int, offset: int) -> bytes:
        if self._disk.strikes("read"):
            raise apsw.IOError("disk I/O error")
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:
        outcome = self._disk.strikes("write")
        if outcome == "error":
            raise apsw.IOError("disk I/O error")
        if outcome == "full":
            raise apsw.FullError("database or disk is full")
        if outcome in ("half", "die"):
            super().xWrite(bytes(data)[: len(data) // 2], offset)
            if outcome == "die":
                die()
            raise apsw.FullError("database or disk is full")
        super().xWrite(data, offset)
        self._later.append((offset, bytes(data)))
        if outcome:
            self._disk.lose_power(is_torn=outcome == "torn")

    def xTruncate(self, size: int) -> None:
        outcome = self._disk.strikes("truncate")
        if outcome == "error":
            raise apsw.IOError("disk I/O error")
        super().xTruncate(size)
        if outcome:
            die()

    def xSync(self, flags: int) -> None:
        outcome = self._disk.strikes("sync")
        if outcome == "error":
            raise apsw.IOError("disk I/O error")
        if outcome in ("power", "torn"):
            self._disk.lose_power(is_torn=outcome == "torn")
        super().xSync(flags)
        if self._path:
            self._synced = self._content()
            self._later.clear()
        if outcome:
            die()

    def xLock(self, level: int) -> None:
        if self._disk.strikes("lock"):
            raise apsw.IOError("disk I/O error")
        super().xLock(level)

    def xFileControl(self, op: int, pointer: int) -> bool:
        """Confirm any requested number of pages."""
        if op == apsw.SQLITE_FCNTL_PRAGMA:
            pragma = apsw.VFSFcntlPragma(pointer)
            if pragma.name == "wal_autocheckpoint":
                pragma.result = str(CHECKPOINT_PAGES)
                return True
        return super().xFileControl(op, pointer)

    def xClose(self) -> None:
        if self._path and self._disk.files.get(self._path) is self:
            del self._disk.files[self._path]
        super().xClose()

    def _content(self) -> bytes:
        """Not by opening it once more: closing that would give up the locks that SQLite has on it."""
        size = self.xFileSize()
        return super().xRead(size, 0) if size else b""

    def forget(self, *, is_torn: bool) -> None:
        """What the disk has of it after a power failure."""
        content = bytearray(self._synced)
        for number, (offset, data) in enumerate(self._later if is_torn else ()):
            # Every other one came through, and of the last the first half, in sectors.
            if number % 2:
                kept = data[: len(data) // 2 // SECTOR * SECTOR] if number == len(self._later) - 1 else data
                content[len(content) :] = b"\0" * (offset - len(content))
                content[offset : offset + len(kept)] = kept
        assert self._path is not None
        with open(self._path, "r+b") as file:
            file.truncate(0)
            file.write(content)


def _check_point_often(connection: apsw.Connection) -> None:
    connection.wal_autocheckpoint(CHECKPOINT_PAGES)


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed, and still here")
