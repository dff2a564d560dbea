"""A server that speaks as PostgreSQL does to whom it does not let in."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that treats each client so, and knows a password."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                answer(client)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        port = server.getsockname()[1]
        yield f"postgresql://u:geheim@127.0.0.1:{port}/x?sslmode=disable&gssencmode=disable&connect_timeout=2"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def says(code: str, message: str) -> Callable[[socket.socket], None]:
    """A server that refuses whoever comes."""

    def answer(client: socket.socket) -> None:
        client.recv(4096)
        fields = f"SFATAL\0VFATAL\0C{code}\0M{message}\0\0".encode()
        client.sendall(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)

    return answer
