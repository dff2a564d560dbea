"""Where the home and its database are: apart from `home`, so that completion need not load it."""

from __future__ import annotations

import os
from collections.abc import Mapping

HOME = ".mulligan"
DATABASE = "mulligan.db"
# The configuration of the server, and of whatever else sends notices.
SERVER_CONFIG = "server.toml"
# The variable that names another file for it.
CONFIG = "MULLIGAN_CONFIG"
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


def config_file(home: str | os.PathLike[str], environ: Mapping[str, str] = os.environ) -> str:
    """The configuration of a server: `$MULLIGAN_CONFIG`, or `server.toml` in the home."""
    return environ.get(CONFIG) or os.path.join(home, SERVER_CONFIG)


def is_server(address: str) -> bool:
    """Whether an address is that of a server of Mulligan."""
    return address.startswith(("http://", "https://"))


def server_url(folder: str | None, environ: Mapping[str, str]) -> str:
    """The server that `--home URL` names, or `$MULLIGAN_SERVER` unless a folder is named; "" if there is none."""
    if folder is not None:
        return folder.strip().rstrip("/") if is_server(folder.strip()) else ""
    return (environ.get(SERVER) or "").strip().rstrip("/")
