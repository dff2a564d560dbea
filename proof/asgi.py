"""Ask an ASGI application for one answer, in this process and without a port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple


class AsgiAnswer(NamedTuple):
    """What an application sent: names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


async def ask_asgi(
    app: Callable[..., Any], scope: dict[str, Any], body: bytes, *, pieces_max: int | None = None
) -> AsgiAnswer:
    """Send a request. With `pieces_max` the client leaves after so many pieces of a stream."""
    has_sent, has_left = False, asyncio.Event()
    messages: list[Any] = []

    async def receive() -> dict[str, Any]:
        nonlocal has_sent
        if not has_sent:
            has_sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        await has_left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        messages.append(message)
        if pieces_max is not None and len(messages) > pieces_max:
            has_left.set()

    await app(scope, receive, send)
    start = messages[0]
    headers = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
    return AsgiAnswer(start["status"], headers, b"".join(one.get("body", b"") for one in messages[1:]))
