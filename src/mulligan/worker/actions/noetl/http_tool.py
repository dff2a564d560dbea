"""`http`: one request, by the action of that name. Its result is {status, data, headers}."""

from __future__ import annotations

from typing import Any

from mulligan.worker.actions import http
from mulligan.worker.actions.noetl.call import Call
from mulligan.worker.actions.noetl.credentials import authorization, basic, named, refused
from mulligan.worker.actions.noetl.policy import time_limit
from mulligan.worker.actions.noetl.templates import filled, filled_text

_FORM = "application/x-www-form-urlencoded"
_WITHOUT_BODY = ("GET", "HEAD")
# Their word, and ours.
_FLAGS = {"verify": "verify", "verify_ssl": "verify", "follow_redirects": "follow_redirects"}


def run(tool: dict[str, Any], call: Call) -> Any:
    """What the server answered. StepError as the action `http` raises it."""
    names = call.names
    method = filled_text(str(tool.get("method") or "GET"), names).upper()
    headers = {str(name).lower(): value for name, value in filled(tool.get("headers") or {}, names).items()}
    query, body = _sent(tool, method, call)
    said = {**_body(body, headers), **_authorized(tool, headers, call), **_limits(filled(_how(tool), names))}
    found = http.run(url=_url(tool, call), method=method, headers=headers, params=query, **said)
    return {
        "status": found["status"],
        "status_code": found["status"],
        "data": found["body"],
        "headers": found["headers"],
        **({"encoding": found["encoding"]} if "encoding" in found else {}),
    }


def _url(tool: dict[str, Any], call: Call) -> str:
    said = tool.get("url") or tool.get("endpoint")
    if not isinstance(said, str):
        raise refused("the tool 'http' has no 'url'")
    return filled_text(said, call.names)


def _sent(tool: dict[str, Any], method: str, call: Call) -> tuple[dict[str, Any], Any]:
    """What goes into the address, and what goes as the body. `data` is one of them, or has both."""
    query = dict(filled(tool.get("params") or {}, call.names))
    body = next((filled(tool[key], call.names) for key in ("body", "payload", "json") if key in tool), None)
    data = filled(tool.get("data"), call.names)
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


def _authorized(tool: dict[str, Any], headers: dict[str, Any], call: Call) -> dict[str, Any]:
    auth = filled(tool.get("auth"), call.names)
    if not auth:
        return {}
    found = named(auth, call.credentials)
    if user := basic(found):
        return {"auth": user}
    headers.update(authorization(found))
    return {}


def _how(tool: dict[str, Any]) -> dict[str, Any]:
    return {key: tool[key] for key in ("timeout", *_FLAGS) if key in tool}


def _limits(how: dict[str, Any]) -> dict[str, Any]:
    # A playbook has one key for both limits: a name of ours would lead nowhere.
    said: dict[str, Any] = {"names_limits": False}
    if how.get("timeout") is not None:
        seconds = time_limit(how["timeout"], "timeout")
        said |= {"read_timeout": seconds, "connect_timeout": min(seconds, http.CONNECT_SECONDS)}
    for key, ours in _FLAGS.items():
        if how.get(key) is not None:
            said[ours] = _flag(how[key], key)
    return said


def _flag(value: Any, key: str) -> bool:
    if not isinstance(value, bool):
        raise refused(f"'{key}' is {value!r}, and true or false is expected")
    return value
