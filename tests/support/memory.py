"""The temporary folders of the tests are in memory by day, where a commit does not wait for a disk.

At night they are on the disk, and wherever memory is short, programs may not be executed in it, or another place is
named by `TMPDIR`, `PYTEST_DEBUG_TEMPROOT` or `--basetemp`. No process of a test outlives its folder.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from tests.support.nightly import IS_NIGHTLY

FOLDER = Path("/dev/shm")
FREE_BYTES_MIN = 4 << 30
_NAMED = ("PYTEST_DEBUG_TEMPROOT", "TMPDIR")


def use_memory(config: pytest.Config) -> None:
    """From now on, this process and those that it starts have their temporary folders in memory."""
    is_named = config.option.basetemp or any(os.environ.get(name) for name in _NAMED)
    if not IS_NIGHTLY and not is_named and has_room(FOLDER):
        os.environ["TMPDIR"] = tempfile.tempdir = str(FOLDER)


def processes_in(folder: Path, proc: Path = Path("/proc")) -> dict[int, str]:
    """The processes that work in a folder, be it removed by now, or were told of it, with their command lines."""
    found = {}
    for process in proc.glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            works_in = os.readlink(process / "cwd")
        except OSError:
            continue
        if f"{folder}/" in f"{words} {works_in}/":
            found[int(process.name)] = words
    return found


def has_room(folder: Path, proc: Path = Path("/proc"), bytes_min: int = FREE_BYTES_MIN) -> bool:
    """Whether it is a file system in memory, with room, from which programs can be executed."""
    try:
        mounts = [line.split() for line in (proc / "mounts").read_text().splitlines()]
        memory = dict(line.split(":") for line in (proc / "meminfo").read_text().splitlines())
        found = os.statvfs(folder)
    except OSError:
        return False
    free_bytes = min(found.f_bavail * found.f_frsize, int(memory["MemAvailable"].split()[0]) * 1024)
    types = [words[2] for words in mounts if words[1] == str(folder)]
    may_execute = not found.f_flag & os.ST_NOEXEC and os.access(folder, os.W_OK | os.X_OK)
    return types[-1:] == ["tmpfs"] and may_execute and free_bytes >= bytes_min
