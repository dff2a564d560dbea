"""Which jobs were counted for the breakers of their profiles: a file of the user, by store. It may be lost."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mulligan.worker.folders import replace_private_file

FILE = "counted.json"


class CountedJobs:
    """Ids of jobs that Slurm still remembers. Read and written while no other process looks."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def read(self) -> set[str]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=set[str])
        except (OSError, msgspec.MsgspecError):
            return set()

    def write(self, counted: set[str]) -> None:
        """Without room on the disk a job is counted again: its breaker opens sooner."""
        try:
            replace_private_file(str(self._path), msgspec.json.encode(sorted(counted)).decode())
        except OSError:
            pass
