"""Where the home and its database are: apart from `home`, so that completion need not load it."""

from __future__ import annotations

import os
from collections.abc import Mapping

HOME = ".mulligan"
DATABASE = "mulligan.db"
# The configuration of the server, and of whatever else sends notices.
SERVER_CONFIG = "server.toml"
# A file that is there once the project of a home has had notice rules: without it nobody has to look for them.
HOOKS_MARK = "hooks"
# The variable that names another file for the configuration.
CONFIG_VARIABLE = "MULLIGAN_CONFIG"
# The variable that names a server.
SERVER = "MULLIGAN_SERVER"


def home_folder(folder: str | None, environ: Mapping[str, str]) -> str:
    """`folder`, or `$MULLIGAN_HOME`, or `.mulligan` in this folder."""
    return os.path.abspath((folder if not is_server(folder or "") else "") or environ.get("MULLIGAN_HOME") or HOME)


def store_address(folder: str | None, environ: Mapping[str, str]) -> str:
    """The server that is named, the one of `$MULLIGAN_STORE`, or the database in the home."""
    if server := server_url(folder, environ):
        return server
    return environ.get("MULLIGAN_STORE") or os.path.join(home_folder(folder, environ), DATABASE)


def is_server(address: str) -> bool:
    """Whether an address is that of a server of Mulligan."""
    return address.startswith(("http://", "https://"))


def server_url(folder: str | None, environ: Mapping[str, str]) -> str:
    """The server that `--home URL` names, or `$MULLIGAN_SERVER` unless a folder is named; "" if there is none."""
    if folder is not None:
        return folder.strip().rstrip("/") if is_server(folder.strip()) else ""
    return (environ.get(SERVER) or "").strip().rstrip("/")


def has_server_config(folder: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether there is a configuration, in the home or where `$MULLIGAN_CONFIG` says."""
    return bool(environ.get(CONFIG_VARIABLE)) or os.path.exists(os.path.join(folder, SERVER_CONFIG))
