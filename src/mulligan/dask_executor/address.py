"""Where a Dask scheduler is: `dask://HOST:PORT`, or an address as Dask writes it."""

from __future__ import annotations

import re

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.errors import InputInvalid

HINT = "write it like dask://HOST:8786; with TLS, tls://HOST:8786"
_ADDRESS = lazy_regex(
    r"(?P<scheme>dask|tcp|tls)://(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:/?#@\[\]]+):(?P<port>[0-9]{1,5})/?", re.ASCII
)
PORT_MAX = 65535


def read_cluster_address(text: str) -> str:
    """The address as Dask has it: `tcp://HOST:PORT` or `tls://HOST:PORT`. InputInvalid if it is none."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None:
        raise InputInvalid(f"'{text}' is not the address of a Dask scheduler", hint=HINT)
    if not 0 < int(found["port"]) <= PORT_MAX:
        raise InputInvalid(
            f"'{text}' is not the address of a Dask scheduler: there is no port {found['port']}", hint=HINT
        )
    scheme = "tcp" if found["scheme"] == "dask" else found["scheme"]
    return f"{scheme}://{found['host']}:{found['port']}"
