"""Where the home and its database are: apart from `home`, so that completion need not load it."""

from __future__ import annotations

import os
from collections.abc import Mapping

HOME = ".mulligan"
DATABASE = "mulligan.db"
# The configuration of the server, and of whatever else sends notices.
SERVER_CONFIG = "server.toml"


def home_folder(folder: str | None, environ: Mapping[str, str]) -> str:
    """`folder`, or `$MULLIGAN_HOME`, or `.mulligan` in this folder."""
    return os.path.abspath(folder or environ.get("MULLIGAN_HOME") or HOME)


def store_address(folder: str | None, environ: Mapping[str, str]) -> str:
    """The server of `$MULLIGAN_STORE`, or the database in the home."""
    return environ.get("MULLIGAN_STORE") or os.path.join(home_folder(folder, environ), DATABASE)
