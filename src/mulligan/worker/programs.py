"""Programs: where they are found."""

from __future__ import annotations

import os


def find(name: str, path: str) -> str | None:
    """The file that `name` means to a shell with this PATH, or None."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        candidate = f"{folder or '.'}/{name}"
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    return None
