"""Short writes, and a disk that is full afterwards, which `strace` cannot do; `short_writes.c` can, once built."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

from proof.crashes.disk import FULL_CALLS

# Of the process that drives a run: what it writes to files and pipes, what SQLite does, what it tells its processes.
FAULTS = ("write.half", "write.full", "pwrite64.half", "pwrite64.full", "send.half")
_SOURCE = Path(__file__).with_name("short_writes.c")


def is_there() -> bool:
    return shutil.which("cc") is not None


def built(folder: Path) -> Path:
    """What a process has to be started with, as its LD_PRELOAD."""
    library = folder / "short_writes.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, _SOURCE], check=True)
    return library


def expect(what: str, nth: int, met: Path) -> None:
    """From now on the writes of this process are counted, and the n-th is shortened; a file says that it came."""
    call, outcome = what.split(".")
    told = ctypes.create_string_buffer(bytes(met))
    _KEPT.append(told)
    ctypes.CDLL(None).shorten(
        ctypes.c_char(call[0].encode()), ctypes.c_long(nth), ctypes.c_long(FULL_CALLS * (outcome == "full")), told
    )


# It is read for as long as the process lives.
_KEPT: list[object] = []
