"""What a home is called: apart from the home itself, for those who only look for it and have to be quick."""

from __future__ import annotations

import os
from collections.abc import Mapping

HOME = ".mulligan"
DATABASE = "mulligan.db"


def home_folder(folder: str | None, environ: Mapping[str, str]) -> str:
    """Named by the caller, else by `$MULLIGAN_HOME`, else `.mulligan` here."""
    return os.path.abspath(folder or environ.get("MULLIGAN_HOME") or HOME)


def store_address(folder: str | None, environ: Mapping[str, str]) -> str:
    """The server that `$MULLIGAN_STORE` names, else the database of the home."""
    return environ.get("MULLIGAN_STORE") or os.path.join(home_folder(folder, environ), DATABASE)
