"""The control group of this process: what it may have, and how often the kernel has killed in it for want of memory."""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


class OomKills:
    """Counts the kernel's kills since it was asked last. Where there is nothing to read, there never was one."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file or _events_file()
        self._seen = self._read()

    @property
    def can_tell(self) -> bool:
        """Whether there is anything to read."""
        return self._file is not None

    def take_new(self) -> bool:
        """Whether there was one more than was known; it is known then."""
        if self._read() <= self._seen:
            return False
        self._seen += 1
        return True

    def settle(self) -> None:
        """Those up to now are accounted for."""
        self._seen = max(self._seen, self._read())

    def _read(self) -> int:
        if self._file is None:
            return 0
        try:
            lines = self._file.read_text().splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def memory_limit() -> int | None:
    """What all processes in the group of this one may have together, or None: a container has less than its machine."""
    file = _own_file("memory.max", "memory.limit_in_bytes")
    said = "" if file is None else file.read_text().strip()
    return int(said) if said.isdigit() else None


def _events_file() -> Path | None:
    """`memory.events` of version 2, or `memory.oom_control` of version 1: both have a line `oom_kill N`."""
    return _own_file("memory.events", "memory.oom_control")


def _own_file(unified: str, separate: str) -> Path | None:
    """A file of the group of this process: as it is called in version 2, and in version 1."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            file = _ROOT / path.lstrip("/") / unified
        elif "memory" in controllers.split(","):
            file = _ROOT / "memory" / path.lstrip("/") / separate
        else:
            continue
        if os.access(file, os.R_OK):
            return file
    return None
