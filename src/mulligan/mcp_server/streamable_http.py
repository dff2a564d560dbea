"""One request of streamable HTTP, answered by the library `mcp`. Importing it takes a second.

Without sessions each request stands for itself, so the library gets a server for this request alone: it knows one
caller, and no request can be answered in the name of another one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from mulligan.api.http.routing import JSON, Answer
from mulligan.mcp_server.server import build_server
from mulligan.mcp_server.tool import Access

# It says at each request that it has started.
logging.getLogger("mcp").setLevel(logging.WARNING)
_KEPT_HEADERS = ("allow", "cache-control", "mcp-protocol-version", "mcp-session-id", "retry-after")


async def answer(access: Access, headers: Mapping[str, str], body: bytes) -> Answer:
    """The answer to one POST, as a whole."""
    server = build_server(lambda _: access)
    manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
    exchange = _Exchange(body)
    async with manager.run():
        await manager.handle_request(_scope(headers), exchange.receive, exchange.send)
    return exchange.answer()


def _scope(headers: Mapping[str, str]) -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/mcp/",
        "raw_path": b"/mcp/",
        "query_string": b"",
        "root_path": "",
        # Who asks is known already: the library does not see the secret.
        "headers": [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in headers.items()
            if name not in ("authorization", "cookie")
        ],
    }


class _Exchange:
    """The two ends of a request in memory."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._status = 500
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []

    async def receive(self) -> dict[str, Any]:
        if self._body is None:
            return {"type": "http.disconnect"}
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]
            }
        else:
            self._pieces.append(message.get("body", b""))

    def answer(self) -> Answer:
        kept = {name: value for name, value in self._headers.items() if name in _KEPT_HEADERS}
        media = self._headers.get("content-type", JSON)
        return Answer(b"".join(self._pieces), self._status, {"cache-control": "no-store", **kept}, media)
