"""The control group of this process: its memory limit, and how often the kernel killed in it because memory ran out."""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


class OomKills:
    """Count the kernel's out-of-memory kills. Without a file to read from, the count stays 0."""

    def __init__(self, file: Path | None = None) -> None:
        # Both files have a line `oom_kill N`.
        self._file = file or _own_file("memory.events", "memory.oom_control")
        self._seen = self._read()

    @property
    def is_available(self) -> bool:
        """Whether there is a file to read from."""
        return self._file is not None

    def take_new(self) -> bool:
        """Return whether there is a kill that was not taken yet, and take it."""
        if self._read() <= self._seen:
            return False
        self._seen += 1
        return True

    def settle(self) -> None:
        """Take all kills up to now."""
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
    """Return the memory limit of this process's group, or None: a container has less than its machine."""
    file = _own_file("memory.max", "memory.limit_in_bytes")
    content = "" if file is None else file.read_text().strip()
    return int(content) if content.isdigit() else None


def _own_file(unified: str, separate: str) -> Path | None:
    """Return a file of this process's group, by its name in version 2 and in version 1."""
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
