"""A server on the loopback that does what a test says, byte for byte: it can hang, break off and lie."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

PATIENCE_SECONDS = 30.0
# How one begins who wants to speak TLS.
TLS_HELLO = b"\x16"
# What a connection is answered with: bytes, or whatever this does with it.
Answer = bytes | Callable[[socket.socket], None]


def response(status: int = 200, body: bytes = b"", *headers: str) -> bytes:
    """An answer whose length is true."""
    lines = [f"HTTP/1.1 {status} Whatever", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def as_json(body: str, status: int = 200, *headers: str) -> bytes:
    return response(status, body.encode(), "Content-Type: application/json", *headers)


def reset(connection: socket.socket) -> None:
    """Close so that the other side is told of an error."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class Web:
    """Takes one connection after the other; each gets the next answer, and the last one for ever."""

    def __init__(self, *answers: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[bytes] = []
        self._answers = list(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        self._tls = tls
        self.is_over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def hang(self, connection: socket.socket) -> None:
        """Say nothing until the test is over."""
        self.is_over.wait(PATIENCE_SECONDS)

    def headers(self, number: int = -1) -> dict[str, str]:
        """Of a request, by their names in lower case."""
        lines = self.requests[number].partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    def body(self, number: int = -1) -> bytes:
        return self.requests[number].partition(b"\r\n\r\n")[2]

    def line(self, number: int = -1) -> str:
        return self.requests[number].partition(b"\r\n")[0].decode()

    def close(self) -> None:
        self.is_over.set()
        # A thread that waits in `accept` is not woken by a close alone.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE_SECONDS)

    def _serve(self) -> None:
        while not self.is_over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with suppress(OSError), self._secured(connection) as secured:
                self._answer(secured)

    def _secured(self, connection: socket.socket) -> socket.socket:
        connection.settimeout(PATIENCE_SECONDS)
        return self._tls.wrap_socket(connection, server_side=True) if self._tls else connection

    def _answer(self, connection: socket.socket) -> None:
        self.requests.append(_request(connection))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, bytes):
            connection.sendall(answer)
        else:
            answer(connection)


def _request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < _length(data):
        data += (more := connection.recv(65536))
        if not more or data.startswith(TLS_HELLO):
            break
    return data


def _length(data: bytes) -> int:
    head = data.partition(b"\r\n\r\n")[0].lower()
    found = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return int(found or 0)


@contextmanager
def serving(*answers: Answer, tls: ssl.SSLContext | None = None) -> Iterator[Web]:
    web = Web(*answers, tls=tls)
    try:
        yield web
    finally:
        web.close()
