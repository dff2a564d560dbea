"""`mulligan login` and `mulligan logout`: the token with which commands ask a server."""

from __future__ import annotations

import os
import sys
from getpass import getpass
from typing import Annotated

from mulligan.cli.output.terminal import UsageRefused, complain, show_json
from mulligan.cli.words.options import AsJson
from mulligan.cli.words.parameters import Argument
from mulligan.service.server.server_client import is_login_link, log_in, log_out


def login(
    url: Annotated[
        str,
        Argument(
            "URL", "The server, such as https://HOST:8642 (default: $MULLIGAN_SERVER); or the link that it printed."
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Check a token for a server, and store it for you alone.

    The token is read from stdin, or asked for on a terminal; a link that works once needs none. Commands ask the server
    that $MULLIGAN_SERVER names, or --home URL.
    """
    url = url or os.environ.get("MULLIGAN_SERVER", "")
    if not url:
        raise UsageRefused("no server is named", hint="write: mulligan login URL, or set MULLIGAN_SERVER")
    token = "" if is_login_link(url) else _read_token(url)
    found = log_in(url, token)
    if as_json:
        show_json({"url": found.url, "file": found.file})
        return
    complain(f"you are logged in to {found.url}; the token is in '{found.file}'")
    complain(f"  export MULLIGAN_SERVER={found.url}  # commands now work with the runs of this server")


def logout(
    url: Annotated[str, Argument("URL", "The server (default: $MULLIGAN_SERVER, or the only one).")] = "",
    as_json: AsJson = False,
) -> None:
    """Forget the token of a server on this machine.

    The token itself still counts: an administrator revokes it.
    """
    left = log_out(url)
    if as_json:
        show_json({"url": left})
        return
    complain(f"you are logged out of {left}; this machine has forgotten the token, and the server still accepts it")


def _read_token(url: str) -> str:
    if sys.stdin.isatty():
        return getpass(f"token for {url}: ", stream=sys.stderr)
    return sys.stdin.readline()
