"""How pilots have come up: whether the worker of one joined the store, and what a pilot that failed has said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import msgspec

from mulligan.service.host.slurm.pilots import FOLDER, Pilot

# What a worker writes once it is registered: see `cli/operating/worker.py`.
_IS_UP = re.compile(rb"^worker \S+ is up: |\"message\": ?\"worker \S+ is up: ", re.MULTILINE)
# The output of a job may be long. Its worker says that it is up at the beginning.
_HEAD_BYTES, _TAIL_BYTES, _SAID_CHARS_MAX = 1 << 20, 4096, 200
# States of jobs whose own program has ended them. A node that dies, a preemption or a cancellation says nothing about
# the profile.
_OWN_ENDS = frozenset({"FAILED", "TIMEOUT", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL"})

Joining = Literal["joined", "failed", "unknown"]


class FailedPilot(msgspec.Struct, frozen=True):
    """A pilot that ended before its worker joined."""

    job_id: str
    profile: str
    state: str
    # The last line of its output; "" if there is none, or this host cannot read it.
    said: str
    output: str

    def __str__(self) -> str:
        said = f": {self.said}" if self.said else ""
        return f"pilot {self.job_id} of profile '{self.profile}' ended before its worker joined ({self.state}){said}"


def output_of(one: Pilot, home: Path) -> Path:
    """The file with the output of a pilot."""
    return home / FOLDER / f"{one.name}.{one.job.array_id}_{one.number}.out"


def joining_of(one: Pilot, home: Path, *, has_worker: bool) -> Joining:
    """Whether the worker of a pilot has joined, or never will."""
    if has_worker or one.job.state == "COMPLETED":
        return "joined"
    if one.job.state not in _OWN_ENDS:
        return "unknown"
    return "joined" if _IS_UP.search(_read(output_of(one, home), _HEAD_BYTES)) else "failed"


def failed_pilot(one: Pilot, home: Path) -> FailedPilot:
    """What a pilot that failed has said last."""
    path = output_of(one, home)
    lines = _read(path, -_TAIL_BYTES).decode(errors="replace").splitlines()
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    shown = "".join(char if char.isprintable() else "?" for char in said)[:_SAID_CHARS_MAX]
    return FailedPilot(one.job.shown_id, one.name.profile, one.job.state, shown, str(path))


def _read(path: Path, size: int) -> bytes:
    """So many bytes from the beginning or, if it is negative, from the end. Nothing if they cannot be read."""
    try:
        with path.open("rb") as file:
            if size < 0:
                file.seek(max(0, path.stat().st_size + size))
            return file.read(abs(size))
    except OSError:
        return b""
