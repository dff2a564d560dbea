"""With which token a server is asked, and which certificates are trusted: what the environment says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mulligan.core.model.formatting import error_reason
from mulligan.errors import LoginRefused

TOKEN, TOKEN_FILE, CA_FILE = "MULLIGAN_TOKEN", "MULLIGAN_TOKEN_FILE", "MULLIGAN_CA_FILE"
_HINT = f"set {TOKEN}, or {TOKEN_FILE} to a file with the token in it, or log in: mulligan login URL"


def find_token(url: str, environ: Mapping[str, str] = os.environ) -> str:
    """The token for the server at `url`. `LoginRefused` if there is none."""
    token = environ.get(TOKEN, "").strip()
    if not token and (file := environ.get(TOKEN_FILE, "")):
        token = read_token_file(file)
    if not token:
        raise LoginRefused("there is no token for the server", hint=_HINT)
    return checked_token(token)


def read_token_file(file: str) -> str:
    """The token in a file. `LoginRefused` if it cannot be read."""
    try:
        return Path(file).read_text("ascii").strip()
    except UnicodeDecodeError:
        raise LoginRefused(f"the file '{file}' has no token in it", hint=_HINT) from None
    except OSError as error:
        raise LoginRefused(
            f"the file '{file}' with the token cannot be read: {error_reason(error)}", hint=_HINT
        ) from error


def checked_token(token: str) -> str:
    """The token, which has to be a single word: a line break in it would end the header that it is sent in."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise LoginRefused("the token is not one word of letters, digits, '-' and '_'", hint=_HINT)
    return token


def find_ca_file(environ: Mapping[str, str] = os.environ) -> str:
    """A file with the certificates to trust; "" for those of the system."""
    return environ.get(CA_FILE, "")
