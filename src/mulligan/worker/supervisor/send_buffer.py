"""Send over a socket without blocking."""

from __future__ import annotations

import os
import socket
from collections import deque

# How much is sent at once, so that the loop can do other things.
SEND_BYTES_MAX = 1 << 20


class SendBuffer:
    """Data to send over a socket, in order. What the kernel does not accept now is kept until `flush`."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        # What is left, each with the descriptor that is sent with its first byte, or -1.
        self.chunks: deque[tuple[memoryview, int]] = deque()

    @property
    def has_pending(self) -> bool:
        """Whether data is left: then call `flush` when the socket is writable."""
        return bool(self.chunks)

    def send(self, data: bytes, fd: int = -1) -> None:
        """Send as much as the kernel accepts now. Raise OSError if the connection is broken.

        Takes ownership of the descriptor and closes it once it is sent.
        """
        if fd < 0 and not self.chunks and len(data) <= SEND_BYTES_MAX:
            # The usual case: all of it at once.
            try:
                sent = self._sock.send(data)
            except BlockingIOError:
                sent = 0
            if sent < len(data):
                self.chunks.append((memoryview(data)[sent:], fd))
            return
        self.chunks.append((memoryview(data), fd))
        self.flush()

    def flush(self) -> None:
        """Send more of what is left. Raise OSError, and drop the rest, if the connection is broken."""
        room = SEND_BYTES_MAX
        try:
            while self.chunks and room > 0:
                room -= self._send_chunk(room)
        except BlockingIOError:
            return
        except OSError:
            self.clear()
            raise

    def clear(self) -> None:
        """Drop what is left."""
        for _, fd in self.chunks:
            if fd >= 0:
                os.close(fd)
        self.chunks.clear()

    def _send_chunk(self, bytes_max: int) -> int:
        view, fd = self.chunks[0]
        piece = view[:bytes_max]
        sent = self._sock.send(piece) if fd < 0 else socket.send_fds(self._sock, [piece], [fd])
        if fd >= 0:
            os.close(fd)
        if sent < len(view):
            self.chunks[0] = (view[sent:], -1)
        else:
            self.chunks.popleft()
        return sent
