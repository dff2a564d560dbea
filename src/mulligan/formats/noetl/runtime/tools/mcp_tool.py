"""`mcp`: send one request to a server of the Model Context Protocol over HTTP. Its answer is the result."""

from __future__ import annotations

import json
from typing import Any

from mulligan import StepError
from mulligan.formats.noetl.runtime.call import Call
from mulligan.formats.noetl.runtime.credentials import invalid_input
from mulligan.formats.noetl.runtime.templates import render_text, render_value
from mulligan.formats.noetl.runtime.tools.http_tool import authorized, limits, rendered_headers
from mulligan.worker.actions import http

_CALL = "tools/call"
_ADDRESSES = ("endpoint", "url", "server")


def run(tool: dict[str, Any], call: Call) -> Any:
    """Send the request. StepError where the server cannot be reached, refuses it, or its tool fails."""
    method = render_text(str(tool.get("method") or _CALL), call.names)
    headers = {"accept": "application/json, text/event-stream", **rendered_headers(tool, call)}
    options = authorized(tool, headers, call)
    answer = http.run(
        url=_address(tool, call),
        method="POST",
        headers=headers,
        json={"jsonrpc": "2.0", "id": 1, "method": method, "params": _params(tool, method, call)},
        **options,
        **limits({"timeout": render_value(tool.get("timeout_seconds"), call.names)}),
    )
    return _result(_message(answer["body"]), method)


def _address(tool: dict[str, Any], call: Call) -> str:
    address = next((render_text(str(tool[key]), call.names) for key in _ADDRESSES if tool.get(key)), "")
    if not address.startswith(("http://", "https://")):
        raise invalid_input("the tool 'mcp' needs the address of its server: write 'endpoint: https://…'")
    return address


def _params(tool: dict[str, Any], method: str, call: Call) -> Any:
    arguments = render_value(tool.get("arguments") or {}, call.names)
    if method != _CALL:
        return arguments
    if not (name := render_text(str(tool.get("tool") or ""), call.names)):
        raise invalid_input("the tool 'mcp' has no 'tool': write the name of the server's tool")
    return {"name": name, "arguments": arguments}


def _message(body: Any) -> dict[str, Any]:
    """The answer in a body: JSON, or the last event of a stream of them."""
    found = body
    if isinstance(body, str):
        data = [line.removeprefix("data:") for line in body.splitlines() if line.startswith("data:")]
        try:
            found = json.loads(data[-1] if data else body)
        except (ValueError, RecursionError):
            found = None
    if not isinstance(found, dict) or not ("result" in found or "error" in found):
        raise StepError("OUTPUT_INVALID", "the server answered with something that is not a message of JSON-RPC")
    return found


def _result(message: dict[str, Any], method: str) -> Any:
    error = message.get("error")
    if error is not None:
        fields = error if isinstance(error, dict) else {"message": str(error)}
        text = f"the server refused '{method}': {fields.get('message') or 'without a message'}"
        raise StepError("MCP_ERROR", text, details={"rpc_code": fields.get("code")})
    result = message["result"]
    if isinstance(result, dict) and result.get("isError"):
        texts = [str(one.get("text", "")) for one in result.get("content") or () if isinstance(one, dict)]
        raise StepError("MCP_ERROR", "\n".join(filter(None, texts)) or "the tool of the server failed")
    return result
