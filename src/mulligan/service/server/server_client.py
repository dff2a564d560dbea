"""What a face asks a server for beside its store: to log in, and to start what is published there."""

from __future__ import annotations

import http.client
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from mulligan.core.model.workflow import NoticeRule
from mulligan.errors import LoginRefused, StoreForbidden, StoreUnavailable
from mulligan.service.home import Home, check_server, find_home
from mulligan.store.http.http_connection import Address, HttpTransport
from mulligan.store.http.server_login import (
    checked_token,
    find_ca_file,
    find_token,
    forget_token,
    save_token,
    saved_tokens,
)

# The cookie with which a browser is logged in.
_SESSION = re.compile(r"[^=;\s]+=(mul_[A-Za-z0-9_-]+)")


class Login(msgspec.Struct, frozen=True):
    """A server that was logged in to, and the file that the token is in."""

    url: str
    file: str


def is_login_link(url: str) -> bool:
    """Whether it is a link that logs in once, as `mulligan server` prints it."""
    parts = urlsplit(url)
    return parts.path.rstrip("/") == "/login" and "code" in parse_qs(parts.query)


def log_in(url: str, token: str = "", environ: Mapping[str, str] = os.environ) -> Login:
    """Check the token, or the link that works once, and store it for this user. `LoginRefused` if it does not count."""
    if is_login_link(url):
        parts = urlsplit(url)
        url = f"{parts.scheme}://{parts.netloc}"
        token = _exchange(url, parse_qs(parts.query)["code"][0])
    url = url.strip().rstrip("/")
    check_server(url)
    home = find_home(url, environ)
    token = checked_token(token.strip())
    if not token:
        raise LoginRefused("there is no token", hint="give it on stdin, or when you are asked for it")
    _check(home, token)
    return Login(home.store_url, str(save_token(home.store_url, token, environ)))


def log_out(url: str = "", environ: Mapping[str, str] = os.environ) -> str:
    """Forget the token of a server, by default of the one that is set or the only one. Its URL."""
    known = saved_tokens(environ)
    url = url.strip().rstrip("/") or environ.get("MULLIGAN_SERVER", "").rstrip("/")
    if not url and len(known) == 1:
        (url,) = known
    if not forget_token(url, environ):
        servers = ", ".join(sorted(known)) or "none"
        raise LoginRefused(f"you are not logged in to {url or 'a server'}", hint=f"servers with a token: {servers}")
    return url


def _check(home: Home, token: str) -> None:
    """Ask the server something that every token but one for workers may ask."""
    try:
        with open_transport(home, token) as transport:
            transport.call("now", b"{}")
    except StoreForbidden as error:
        raise LoginRefused(
            "this token is for workers alone", hint="start a worker with it: mulligan worker --server URL"
        ) from error


def _exchange(url: str, code: str) -> str:
    """The token that a link gives for its code, once."""
    address = Address(url, find_ca_file())
    connection = address.connect()
    try:
        connection.request("GET", f"/login?code={code}")
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise StoreUnavailable(
            f"the server at {address.shown} does not answer", hint="is it running? mulligan server starts one"
        ) from error
    finally:
        connection.close()
    found = _SESSION.search(answer.headers.get("Set-Cookie", "")) if answer.status < 400 else None
    if found is None:
        raise LoginRefused(
            "the server refused the link: a link works once, and for ten minutes",
            hint=f"make a token on the host of the server: mulligan token create USER --scope SCOPE; then: "
            f"mulligan login {url}",
        )
    return found[1]


def open_transport(home: Home, token: str = "") -> closing[HttpTransport]:
    """A connection to the server of a home, with a token of its own or the one of whoever has logged in."""
    found = token or home.token or find_token(home.store_url)
    return closing(HttpTransport(home.store_url, token=found, ca_file=find_ca_file()))


class StartAnswer(msgspec.Struct, frozen=True):
    """The answer to a request to start a run. The server sends more about it."""

    run_id: int
    # False: an earlier request with the same key has started it.
    is_new: bool = True


def start_published(
    home: Home,
    name: str,
    version: int | None,
    inputs: Mapping[str, Any],
    labels: Mapping[str, str],
    *,
    key: str = "",
    notify: Sequence[NoticeRule] = (),
) -> StartAnswer:
    """Start a workflow that is published on the server. The same key gives the same run."""
    asked: dict[str, Any] = {"workflow": name, "inputs": dict(inputs), "labels": dict(labels)}
    if version is not None:
        asked["version"] = version
    if notify:
        asked["notify"] = [{"on": rule.on, "to": rule.to} for rule in notify]
    body = msgspec.json.encode(asked)
    # With a key of its own, so that asking again after a lost answer starts nothing twice.
    headers = {"Idempotency-Key": key or f"cli {os.urandom(16).hex()}"}
    with open_transport(home) as transport:
        try:
            answer = transport.request("POST", "runs", body, headers)
        except StoreUnavailable:
            answer = transport.request("POST", "runs", body, headers)
    return msgspec.json.decode(answer, type=StartAnswer)
