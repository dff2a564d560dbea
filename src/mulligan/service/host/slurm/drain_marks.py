"""Drain marks: which allocators of a store end, and which profiles they leave alone. Files of the user, by store."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from mulligan.core.model.text.formatting import error_reason
from mulligan.errors import HomeUnusable
from mulligan.worker.folders import make_private, replace_private_file

FILE = "drained.json"
# Stands for all profiles.
EVERY = "*"


class DrainMarks:
    """When profiles were drained. An allocator that was started later does not mind."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def mark(self, profile: str = EVERY) -> None:
        """From now on, allocators that run submit nothing for the profile."""
        marks = {**self._read(), profile: datetime.now(UTC)}
        try:
            make_private(str(self._path.parent))
            replace_private_file(str(self._path), msgspec.json.encode(marks).decode())
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
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, datetime])
        except (OSError, msgspec.MsgspecError):
            return {}
