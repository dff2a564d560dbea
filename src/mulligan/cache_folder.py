"""Where a user's caches are: environments of Python steps, checked workflows. Anything in it may be removed."""

from __future__ import annotations

import os
from collections.abc import Mapping

VARIABLE = "MULLIGAN_CACHE"


def cache_folder(environ: Mapping[str, str], home: str) -> str:
    """Return the folder of the user; without one, `cache` in the home."""
    return users_folder(environ) or f"{home}/cache"


def users_folder(environ: Mapping[str, str]) -> str:
    """Return `$MULLIGAN_CACHE`, or `mulligan` in the user's cache; "" where the user has no folder."""
    if named := environ.get(VARIABLE):
        return os.path.abspath(named)
    user = environ.get("XDG_CACHE_HOME") or (f"{environ['HOME']}/.cache" if environ.get("HOME") else "")
    return f"{user}/mulligan" if user.startswith("/") else ""
