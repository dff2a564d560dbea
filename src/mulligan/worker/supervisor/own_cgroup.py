"""The control group of this process: its memory limit, and how often the kernel killed in it because memory ran out."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

from mulligan.core.model.text.lazy_regex import lazy_regex

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
# The group of a job of Slurm.
_JOB = lazy_regex(r"job_\d+")
# The period of quotas of version 1, unless somebody has changed it.
_PERIOD_MICROS = 100_000


class OomKills:
    """Count the kernel's out-of-memory kills. Without a file to read from, the count stays 0."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file or kills_file()
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


def memory_limit(root: Path = _ROOT, own: Path = _OWN) -> int | None:
    """Return the memory limit of this process, or None: a container or a job has less than its machine.

    The limits of all groups above count as well. A job of a scheduler is limited in a group above that of its process.
    """
    found = _limits("memory", "memory.max", "memory.limit_in_bytes", root, own)
    return min((int(content) for content in found if content.isdigit()), default=None)


def cpu_limit(root: Path = _ROOT, own: Path = _OWN) -> int | None:
    """Return how many processors the groups of this process allow it, rounded up, or None."""
    shares = []
    for content in _limits("cpu", "cpu.max", "cpu.cfs_quota_us", root, own):
        quota, _, period = content.partition(" ")
        # "max 100000", or -1 in version 1: no limit. In version 1 the period is in a file of its own.
        if quota.isdigit():
            shares.append(int(quota) / int(period or _PERIOD_MICROS))
    return max(1, math.ceil(min(shares) - 1e-9)) if shares else None


def _limits(controller: str, unified: str, separate: str, root: Path, own: Path) -> Iterator[str]:
    """Yield what the file says in the group of this process and in each group above it."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = root, unified
        elif controller in controllers.split(","):
            top, name = root / controller, separate
        else:
            continue
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            if not folder.is_relative_to(top):
                break
            try:
                yield (folder / name).read_text().strip()
            except OSError:
                continue


def kills_file(root: Path = _ROOT, own: Path = _OWN) -> Path | None:
    """Return the file that counts the kernel's kills, in a line `oom_kill N`: of this process's group, or of its job.

    Version 2 counts what happens in subgroups too. There a job of Slurm is read as a whole: what a step starts with
    `srun` is in a group of its own beside ours. Version 1 counts each group alone.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            group = root / path.lstrip("/")
            job = next((one for one in (group, *group.parents) if _JOB.fullmatch(one.name)), group)
            files = [job / "memory.events", group / "memory.events"]
        elif "memory" in controllers.split(","):
            files = [root / "memory" / path.lstrip("/") / "memory.oom_control"]
        else:
            continue
        if found := next((file for file in files if os.access(file, os.R_OK)), None):
            return found
    return None
