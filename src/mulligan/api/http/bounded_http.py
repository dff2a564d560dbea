"""HTTP/1.1 whose heads have bounds: httptools takes headers without end, and waits for the rest of one for ever.

A stranger could fill the memory or all connections of the server with these, without a token.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# The request line and all headers, and how many headers.
HEAD_BYTES_MAX = 64 * 1024
HEADERS_MAX = 200
# How long a client may take for them, after it has connected or has begun the next request.
HEAD_SECONDS_MAX = 30.0


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection whose head is too large or too late."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._is_in_head = True
        self._head_bytes = 0
        self._too_late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_there()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        # What has come with the end of a head may be its body.
        if self._is_in_head and self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._is_in_head:
            self._is_in_head, self._head_bytes = True, 0
            self._wait_for_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= HEADERS_MAX:
            raise ValueError("too many headers")  # becomes a 400
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_is_there()
        super().on_headers_complete()

    def _wait_for_head(self) -> None:
        self._too_late = asyncio.get_running_loop().call_later(HEAD_SECONDS_MAX, self._close_late)

    def _head_is_there(self) -> None:
        self._is_in_head = False
        if self._too_late is not None:
            self._too_late.cancel()
            self._too_late = None

    def _close_late(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
