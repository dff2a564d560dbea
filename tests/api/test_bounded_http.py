"""Heads of requests that are too large, too many or too slow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from mulligan.api.http import bounded_http
from mulligan.api.http.bounded_http import HEAD_BYTES_MAX, HEADERS_MAX, BoundedHttp

START = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


class Pipe(asyncio.Transport):
    """What the server writes, and whether it has hung up."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = asyncio.Event()

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed.set()

    def is_closing(self) -> bool:
        return self.closed.is_set()

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def answer_hi(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


async def connect() -> tuple[BoundedHttp, Pipe]:
    config = uvicorn.Config(answer_hi, http=BoundedHttp, lifespan="off", log_config=None, access_log=False)
    config.load()
    protocol, pipe = BoundedHttp(config, ServerState(), {}, asyncio.get_running_loop()), Pipe()
    protocol.connection_made(pipe)
    return protocol, pipe


def sent(*pieces: bytes) -> bytes:
    """What comes back for these pieces."""

    async def exchange() -> bytes:
        protocol, pipe = await connect()
        for piece in pieces:
            if not pipe.is_closing():
                protocol.data_received(piece)
            await asyncio.sleep(0)
        await asyncio.gather(*protocol.tasks)
        protocol.connection_lost(None)
        return pipe.written

    return asyncio.run(exchange())


def test_a_request_is_answered_whatever_the_size_of_its_body() -> None:
    length = 3 * HEAD_BYTES_MAX
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % length

    assert sent(START + b"\r\n", START, b"\r\n").count(b"200 OK") == 2
    assert sent(head + b"x" * length).startswith(b"HTTP/1.1 200 OK")
    assert sent(head, b"x" * length, START + b"\r\n").count(b"200 OK") == 2


@pytest.mark.parametrize(
    "pieces",
    [
        [START, b"X: ", *[b"a" * 1000] * (HEAD_BYTES_MAX // 1000 + 1)],
        [b"GET /", *[b"a" * 1000] * (HEAD_BYTES_MAX // 1000 + 1)],
        [START + b"X: 1\r\n" * HEADERS_MAX + b"\r\n"],
        # Also the second request of a connection.
        [START + b"\r\n", START, b"X: ", *[b"a" * 1000] * (HEAD_BYTES_MAX // 1000 + 1)],
    ],
    ids=["a header", "the path", "many headers", "later"],
)
def test_a_head_without_end_is_refused(pieces: list[bytes]) -> None:
    assert b"HTTP/1.1 400 Bad Request" in sent(*pieces)


@pytest.mark.parametrize("piece", [b"", START], ids=["nothing", "a part"])
def test_who_does_not_send_a_whole_head_is_not_waited_for(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "HEAD_SECONDS_MAX", 0.01)

    async def wait() -> None:
        protocol, pipe = await connect()
        if piece:
            protocol.data_received(piece)
        await asyncio.wait_for(pipe.closed.wait(), 10)

    asyncio.run(wait())
