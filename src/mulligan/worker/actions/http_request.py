"""What an `http` action asks: its keys as a request. What no server could be asked is INPUT_INVALID."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import httpx2

from mulligan import StepError

SHOWN_CHARS_MAX = 200
PORT_MAX = 65535
# Requests that do their work once more when they come once more, unless the server knows them by a key.
NOT_IDEMPOTENT = ("POST", "PATCH")
_DEFAULTS = {"accept": "*/*", "accept-encoding": "gzip, deflate", "connection": "close", "user-agent": "mulligan"}


def ask(
    limits: httpx2.Timeout,
    *,
    url: Any,
    method: str = "GET",
    headers: dict[str, Any] | None = None,
    params: dict[str, Any] | None = None,
    auth: dict[str, Any] | None = None,
    **bodies: Any,
) -> httpx2.Request:
    """The request. `bodies` is at most one of `json`, `body` and `form`."""
    content, content_type = _content(**bodies)
    defaults = {**_DEFAULTS, **_identified(method), **content_type, **(_authorized(**auth) if auth else {})}
    pairs = [(name.encode(), value.encode()) for name, value in _headers(defaults, headers or {})]
    address = _address(_text(url), params or {})
    return httpx2.Request(method, address, headers=pairs, content=content, extensions={"timeout": limits.as_dict()})


def shown(url: httpx2.URL) -> str:
    """The address without what may be secret in it: its user, its query. Bounded: a server may redirect to any."""
    text = str(url.copy_with(userinfo=b"", query=None, fragment=None))
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def _address(url: str, params: dict[str, Any]) -> httpx2.URL:
    base = url.partition("#")[0]
    if query := urlencode(_pairs(params)):
        base += ("&" if "?" in base else "?") + query
    try:
        found = httpx2.URL(base)
    except httpx2.InvalidURL as error:
        reason = str(error).rstrip(".")
        raise _refused(f"'{_without_secrets(url)}' is no address: {reason[0].lower()}{reason[1:]}") from None
    if found.scheme not in ("http", "https"):
        raise _refused(f"'{_without_secrets(url)}' is no address of the web: it starts with http:// or https://")
    if not found.host or (found.port or 0) > PORT_MAX:
        raise _refused(f"'{_without_secrets(url)}' is no address: it has no host, or no port that there is")
    return found


def _without_secrets(url: str) -> str:
    """As `shown`, of what is no address."""
    base = url.partition("?")[0].partition("#")[0]
    scheme, slashes, rest = base.partition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}"[:SHOWN_CHARS_MAX]


def _headers(defaults: dict[str, str], said: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What is sent, by its names in lower case. One that is null is not sent, not even where we would send it."""
    own = {name.lower(): value for name, value in said.items()}
    for name, value in {**defaults, **own}.items():
        text = _text(value).strip()
        if any(character < " " and character != "\t" for character in text):
            raise _refused(f"the header '{name}' has a line break or another control character in it")
        if value is not None:
            yield name, text


def _identified(method: str) -> dict[str, str]:
    """The same for every attempt of a visit: a server that has seen it does not do its work twice."""
    key = os.environ.get("MULLIGAN_IDEMPOTENCY_KEY", "")
    return {"idempotency-key": key} if key and method in NOT_IDEMPOTENT else {}


def _authorized(user: Any, password: Any = None) -> dict[str, str]:
    basic = f"{_text(user)}:{_text(password)}".encode()
    return {"authorization": f"Basic {base64.b64encode(basic).decode()}"}


def _content(**bodies: Any) -> tuple[bytes | None, dict[str, str]]:
    """The body as bytes, and the header that tells its type, if that is known."""
    if len(bodies) > 1:
        raise _refused(f"a request has one body, and this one has {' and '.join(map(repr, bodies))}")
    if "json" in bodies:
        return _json(bodies["json"]).encode(), {"content-type": "application/json"}
    if "form" in bodies:
        return urlencode(_pairs(bodies["form"])).encode(), {"content-type": "application/x-www-form-urlencoded"}
    return (_text(bodies["body"]).encode() if "body" in bodies else None), {}


def _pairs(said: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and values; a list is its name several times, null is left out."""
    several = ((name, value if isinstance(value, list) else [value]) for name, value in said.items())
    return [(name, _text(value)) for name, values in several for value in values if value is not None]


def _text(value: Any) -> str:
    """As it goes into any text: null as nothing, what is no text as compact JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _refused(message: str) -> StepError:
    return StepError("INPUT_INVALID", message, retryable=False)
