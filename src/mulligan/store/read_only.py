"""Whether the file of a store can be written, and the error of who would write one that cannot."""

from __future__ import annotations

import os
from pathlib import Path

from mulligan.errors import HomeReadOnly


def is_read_only(path: str) -> bool:
    """Whether the file is there, and it or its folder cannot be written: SQLite needs files beside it."""
    return os.path.exists(path) and not (os.access(path, os.W_OK) and os.access(os.path.dirname(path) or ".", os.W_OK))


def read_only(folder: Path) -> HomeReadOnly:
    return HomeReadOnly(f"the home '{folder}' is read-only", hint=_READ_ONLY)


def older_read_only(folder: Path) -> HomeReadOnly:
    what = "of an older Mulligan, and has to be migrated before it is read"
    return HomeReadOnly(f"the home '{folder}' is read-only and {what}", hint=_READ_ONLY)


_READ_ONLY = (
    "its runs can be listed, shown and explained; to change something, copy it to a folder that you can write to"
)
