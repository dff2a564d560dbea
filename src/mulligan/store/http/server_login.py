"""With which token a server is asked, and which certificates are trusted: what the environment or a login says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from mulligan.core.model.text.formatting import error_reason
from mulligan.errors import LoginRefused

TOKEN, TOKEN_FILE, CA_FILE = "MULLIGAN_TOKEN", "MULLIGAN_TOKEN_FILE", "MULLIGAN_CA_FILE"
_HINT = f"set {TOKEN}, or {TOKEN_FILE} to a file with the token in it, or log in: mulligan login URL"


def find_token(url: str, environ: Mapping[str, str] = os.environ) -> str:
    """The token for the server at `url`. `LoginRefused` if there is none."""
    token = environ.get(TOKEN, "").strip()
    if not token and (file := environ.get(TOKEN_FILE, "")):
        token = read_token_file(file)
    if not token:
        token = saved_tokens(environ).get(url.rstrip("/"), "")
    if not token:
        known = ", ".join(sorted(saved_tokens(environ)))
        raise LoginRefused(
            f"there is no token for the server {url}",
            hint=f"log in: mulligan login {url}; or set {TOKEN}, or {TOKEN_FILE} to a file with the token in it"
            + (f"; you are logged in to {known}" if known else ""),
        )
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


# -- what `mulligan login` has stored --------------------------------------------------------------------------------


def login_file(environ: Mapping[str, str] = os.environ) -> Path:
    """The file with the tokens that `mulligan login` has stored, by the URL of the server."""
    folder = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(folder) / "mulligan" / "servers.json"


def saved_tokens(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """All of them. `LoginRefused` if the file cannot be read."""
    file = login_file(environ)
    try:
        found: dict[str, str] = msgspec.json.decode(file.read_bytes(), type=dict[str, str])
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise LoginRefused(
            f"the file '{file}' is damaged", hint="remove it, and log in again: mulligan login URL"
        ) from None
    except OSError as error:
        raise LoginRefused(f"the file '{file}' cannot be read: {error_reason(error)}", hint=_HINT) from error
    return found


def save_token(url: str, token: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Store the token of a server for this user alone; the file that it is in."""
    return _write({**saved_tokens(environ), url: token}, environ)


def forget_token(url: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Remove the token of a server. False if there is none."""
    tokens = saved_tokens(environ)
    if tokens.pop(url, None) is None:
        return False
    _write(tokens, environ)
    return True


def _write(tokens: Mapping[str, str], environ: Mapping[str, str]) -> Path:
    """Write the whole file, so that a crash leaves the old or the new one."""
    file = login_file(environ)
    beside = file.with_name(f"{file.name}.{os.getpid()}.new")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as written:
            written.write(msgspec.json.encode(dict(tokens)) + b"\n")
        os.replace(beside, file)
    except OSError as error:
        raise LoginRefused(
            f"the token cannot be stored in '{file}': {error_reason(error)}",
            hint="get permission to write it, or set MULLIGAN_TOKEN instead",
        ) from error
    return file
