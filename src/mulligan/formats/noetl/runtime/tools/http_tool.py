"""`http`: send one request with our action `http`. The result is {status, data, headers}."""

from __future__ import annotations

from typing import Any

from mulligan.formats.noetl.runtime.call import Call
from mulligan.formats.noetl.runtime.credentials import authorization, basic_auth, find_credential, invalid_input
from mulligan.formats.noetl.runtime.policy import time_limit
from mulligan.formats.noetl.runtime.templates import render_text, render_value
from mulligan.worker.actions import http

_FORM = "application/x-www-form-urlencoded"
_WITHOUT_BODY = ("GET", "HEAD")
# NoETL's key, and ours.
_FLAGS = {"verify": "verify", "verify_ssl": "verify", "follow_redirects": "follow_redirects"}


def run(tool: dict[str, Any], call: Call) -> Any:
    """Send the request. StepError as the action `http` raises it."""
    names = call.names
    method = render_text(str(tool.get("method") or "GET"), names).upper()
    headers = rendered_headers(tool, call)
    query, body = _sent(tool, method, call)
    how = render_value({key: tool[key] for key in ("timeout", *_FLAGS) if key in tool}, names)
    options = {**_body(body, headers), **authorized(tool, headers, call), **limits(how)}
    url = tool.get("url") or tool.get("endpoint")
    if not isinstance(url, str):
        raise invalid_input("the tool 'http' has no 'url'")
    found = http.run(url=render_text(url, names), method=method, headers=headers, params=query, **options)
    return {
        "status": found["status"],
        "status_code": found["status"],
        "data": found["body"],
        "headers": found["headers"],
        **({"encoding": found["encoding"]} if "encoding" in found else {}),
    }


def rendered_headers(tool: dict[str, Any], call: Call) -> dict[str, Any]:
    """The headers of a request, by their names in lower case."""
    return {str(name).lower(): value for name, value in render_value(tool.get("headers") or {}, call.names).items()}


def _sent(tool: dict[str, Any], method: str, call: Call) -> tuple[dict[str, Any], Any]:
    """The query and the body. `data` is one of them, or holds both."""
    query = dict(render_value(tool.get("params") or {}, call.names))
    body = next((render_value(tool[key], call.names) for key in ("body", "payload", "json") if key in tool), None)
    data = render_value(tool.get("data"), call.names)
    if isinstance(data, dict) and data and data.keys() <= {"query", "body"}:
        query |= data.get("query") or {}
        return query, data.get("body") if body is None else body
    if method in _WITHOUT_BODY and isinstance(data, dict):
        return {**query, **data}, body
    return query, data if body is None else body


def _body(body: Any, headers: dict[str, Any]) -> dict[str, Any]:
    if body is None:
        return {}
    if isinstance(body, dict) and str(headers.get("content-type", "")).startswith(_FORM):
        return {"form": body}
    return {"body": body} if isinstance(body, str) else {"json": body}


def authorized(tool: dict[str, Any], headers: dict[str, Any], call: Call) -> dict[str, Any]:
    auth = render_value(tool.get("auth"), call.names)
    if not auth:
        return {}
    found = find_credential(auth, call.credentials)
    if user := basic_auth(found):
        return {"auth": user}
    headers.update(authorization(found))
    return {}


def limits(how: dict[str, Any]) -> dict[str, Any]:
    # A playbook has one key for both limits, so messages do not name ours.
    options: dict[str, Any] = {"names_limits": False}
    if how.get("timeout") is not None:
        seconds = time_limit(how["timeout"], "timeout")
        options |= {"read_timeout": seconds, "connect_timeout": min(seconds, http.CONNECT_SECONDS)}
    for key, ours in _FLAGS.items():
        if how.get(key) is not None:
            if not isinstance(how[key], bool):
                raise invalid_input(f"'{key}' is {how[key]!r}, true or false is expected")
            options[ours] = how[key]
    return options
