"""Files of the user about one store: which jobs were counted for breakers, and which profiles were drained."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from mulligan.core.model.text.formatting import error_reason
from mulligan.errors import HomeUnusable
from mulligan.worker.folders import make_private, replace_private_file

COUNTED_FILE, DRAINED_FILE = "counted.json", "drained.json"
# Stands for all profiles.
EVERY = "*"

Found = TypeVar("Found")


class CountedJobs:
    """Ids of jobs that Slurm still remembers. Read and written while no other process looks; it may be lost."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / COUNTED_FILE

    def read(self) -> set[str]:
        return _read(self._path, set[str], set())

    def write(self, counted: set[str]) -> None:
        """Without room on the disk a job is counted again: its breaker opens sooner."""
        try:
            _write(self._path, sorted(counted))
        except OSError:
            pass


class DrainMarks:
    """When profiles were drained. An allocator that was started later does not mind."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / DRAINED_FILE

    def mark(self, profile: str = EVERY) -> None:
        """From now on, allocators that run submit nothing for the profile."""
        marks = {**self._read(), profile: datetime.now(UTC)}
        try:
            make_private(str(self._path.parent))
            _write(self._path, marks)
        except OSError as error:
            raise HomeUnusable(
                f"'{self._path}' cannot be written: {error_reason(error)}",
                hint="name another folder: XDG_STATE_HOME=DIR",
            ) from None

    def since(self, profile: str, start: datetime) -> bool:
        """Whether the profile was drained after that time."""
        marked = self._read().get(profile)
        return marked is not None and marked > start

    def all_since(self, start: datetime) -> bool:
        return self.since(EVERY, start)

    def _read(self) -> dict[str, datetime]:
        return _read(self._path, dict[str, datetime], {})


def _read(path: Path, kind: type[Found], nothing: Found) -> Found:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return nothing


def _write(path: Path, data: Any) -> None:
    replace_private_file(str(path), msgspec.json.encode(data).decode())
