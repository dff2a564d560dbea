"""How often the kernel has killed for want of memory, in the control group of this process."""

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


def _events_file() -> Path | None:
    """`memory.events` of version 2, or `memory.oom_control` of version 1: both have a line `oom_kill N`."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            file = _ROOT / path.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            file = _ROOT / "memory" / path.lstrip("/") / "memory.oom_control"
        else:
            continue
        if os.access(file, os.R_OK):
            return file
    return None
