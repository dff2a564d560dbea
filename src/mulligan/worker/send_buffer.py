"""Sending over a socket without waiting for whoever reads it."""

from __future__ import annotations

import os
import socket
from collections import deque

# What is sent in one go: the loop has other things to do as well.
SEND_BYTES_MAX = 1 << 20


class SendBuffer:
    """What is to be sent over a socket, in order. What the kernel does not take at once is kept until `flush`."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        # Each with the descriptor that goes with its first byte, or -1.
        self._chunks: deque[tuple[memoryview, int]] = deque()

    @property
    def has_pending(self) -> bool:
        """Whether something is left: then `flush` is to be called when the socket can be written to."""
        return bool(self._chunks)

    def send(self, data: bytes, fd: int = -1) -> None:
        """Send as much as the kernel takes now. OSError where nobody can ever read it.

        The descriptor is ours from now on, and closed once it is sent.
        """
        self._chunks.append((memoryview(data), fd))
        self.flush()

    def flush(self) -> None:
        """Send more of what is left. OSError where nobody can ever read it: then nothing is left."""
        room = SEND_BYTES_MAX
        try:
            while self._chunks and room > 0:
                room -= self._send_chunk(room)
        except BlockingIOError:
            return
        except OSError:
            self.clear()
            raise

    def clear(self) -> None:
        """Forget what is left."""
        for _, fd in self._chunks:
            if fd >= 0:
                os.close(fd)
        self._chunks.clear()

    def _send_chunk(self, bytes_max: int) -> int:
        view, fd = self._chunks[0]
        piece = view[:bytes_max]
        sent = self._sock.send(piece) if fd < 0 else socket.send_fds(self._sock, [piece], [fd])
        if fd >= 0:
            os.close(fd)
        if sent < len(view):
            self._chunks[0] = (view[sent:], -1)
        else:
            self._chunks.popleft()
        return sent
