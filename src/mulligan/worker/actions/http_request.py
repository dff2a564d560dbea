"""Build the request of an `http` action from its keys. Raise INPUT_INVALID if it cannot be sent."""

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
# Methods that repeat their effect when sent again, unless the server knows them by a key.
NOT_IDEMPOTENT = ("POST", "PATCH")
_DEFAULTS = {"accept": "*/*", "accept-encoding": "gzip, deflate", "connection": "close", "user-agent": "mulligan"}


def build_request(
    limits: httpx2.Timeout,
    *,
    url: Any,
    method: str = "GET",
    headers: dict[str, Any] | None = None,
    params: dict[str, Any] | None = None,
    auth: dict[str, Any] | None = None,
    **bodies: Any,
) -> httpx2.Request:
    """Build the request. `bodies` is at most one of `json`, `body` and `form`."""
    content, content_type = _content(**bodies)
    defaults = {
        **_DEFAULTS,
        **_idempotency_header(method),
        **content_type,
        **(_authorization_header(**auth) if auth else {}),
    }
    pairs = [(name.encode(), value.encode()) for name, value in _headers(defaults, headers or {})]
    address = _address(_text(url), params or {})
    return httpx2.Request(method, address, headers=pairs, content=content, extensions={"timeout": limits.as_dict()})


def shown(url: httpx2.URL) -> str:
    """Return the URL without user and query, which may be secret. Shortened: a server may redirect anywhere."""
    text = str(url.copy_with(userinfo=b"", query=None, fragment=None))
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def _address(url: str, params: dict[str, Any]) -> httpx2.URL:
    base = url.partition("#")[0]
    if query := urlencode(_pairs(params)):
        base += ("&" if "?" in base else "?") + query
    try:
        parsed = httpx2.URL(base)
    except httpx2.InvalidURL as error:
        reason = str(error).rstrip(".")
        raise _invalid(f"'{_without_secrets(url)}' is not a URL: {reason[0].lower()}{reason[1:]}") from None
    if parsed.scheme not in ("http", "https"):
        raise _invalid(f"'{_without_secrets(url)}' is not an http(s) URL")
    if not parsed.host or (parsed.port or 0) > PORT_MAX:
        raise _invalid(f"'{_without_secrets(url)}' is not a URL: it has no host, or an invalid port")
    return parsed


def _without_secrets(url: str) -> str:
    """Do what `shown` does for text that is not a URL."""
    base = url.partition("?")[0].partition("#")[0]
    scheme, slashes, rest = base.partition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}"[:SHOWN_CHARS_MAX]


def _headers(defaults: dict[str, str], values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the headers to send, in lower case. A header that is null is not sent, not even a default one."""
    own = {name.lower(): value for name, value in values.items()}
    for name, value in {**defaults, **own}.items():
        text = _text(value).strip()
        if any(character < " " and character != "\t" for character in text):
            raise _invalid(f"the header '{name}' contains a line break or another control character")
        if value is not None:
            yield name, text


def _idempotency_header(method: str) -> dict[str, str]:
    """Return a key that is the same for every attempt of a visit, so that the server can recognize a repetition."""
    key = os.environ.get("MULLIGAN_IDEMPOTENCY_KEY", "")
    return {"idempotency-key": key} if key and method in NOT_IDEMPOTENT else {}


def _authorization_header(user: Any, password: Any = None) -> dict[str, str]:
    basic = f"{_text(user)}:{_text(password)}".encode()
    return {"authorization": f"Basic {base64.b64encode(basic).decode()}"}


def _content(**bodies: Any) -> tuple[bytes | None, dict[str, str]]:
    """Return the body as bytes, and the header with its type, if known."""
    if len(bodies) > 1:
        raise _invalid(f"a request can have only one body, and this one has {' and '.join(map(repr, bodies))}")
    if "json" in bodies:
        return _json(bodies["json"]).encode(), {"content-type": "application/json"}
    if "form" in bodies:
        return urlencode(_pairs(bodies["form"])).encode(), {"content-type": "application/x-www-form-urlencoded"}
    return (_text(bodies["body"]).encode() if "body" in bodies else None), {}


def _pairs(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Return names and values. A list repeats its name, null is left out."""
    several = ((name, value if isinstance(value, list) else [value]) for name, value in values.items())
    return [(name, _text(value)) for name, values in several for value in values if value is not None]


def _text(value: Any) -> str:
    """Return a value as text: null is empty, anything but text is compact JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _invalid(message: str) -> StepError:
    return StepError("INPUT_INVALID", message, retryable=False)
