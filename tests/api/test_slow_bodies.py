"""A body that does not come holds no place in the server for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.api_client import token_record

from mulligan.api.app import Api
from mulligan.service.home import Home
from mulligan.service.server.server_config import ServerConfig


def test_a_body_that_does_not_come_is_answered_and_the_connection_is_closed(home: Home) -> None:
    token = token_record("run", ["run", "worker"])
    api = Api(home, ServerConfig(), find_token=lambda service, digest: token, body_seconds=0.0)
    sent: list[dict[str, Any]] = []

    async def ask(path: str, *pieces: bytes) -> int:
        left = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]

        async def receive() -> Any:
            return left.pop(0) if left else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": b"name=1/a/1/1/x&format=text" if path.endswith("artifacts") else b"",
            "headers": [(b"host", b"localhost"), (b"authorization", b"Bearer mul_run")],
            "client": ("127.0.0.1", 1),
        }
        sent.clear()
        await api(scope, receive, send)
        return int(sent[0]["status"])

    async def ask_all() -> list[int]:
        paths = ("/api/v1/store/run/put_control", "/api/v1/store/artifacts")
        return [await ask(path, *pieces) for path in paths for pieces in ((), (b"{",))]

    statuses = asyncio.run(ask_all())

    assert statuses == [408] * 4
    assert (b"connection", b"close") in sent[0]["headers"]
    api.close()
