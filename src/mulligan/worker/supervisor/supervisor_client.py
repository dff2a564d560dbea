"""The worker's connection to its supervisor: starts it, sends requests, receives messages."""

from __future__ import annotations

import os
import selectors
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from mulligan.worker.supervisor.fd_events import watch_reads, watch_writes
from mulligan.worker.supervisor.fd_limit import restore_fd_limit
from mulligan.worker.supervisor.frames import RECEIVE_BYTES, FrameDecoder, encode_frame
from mulligan.worker.supervisor.send_buffer import SendBuffer

# The folder that contains the package: the supervisor starts without our search path.
PACKAGE_PARENT = str(Path(__file__).parents[3])
_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from mulligan.worker.supervisor.supervisor import main; main(*sys.argv[1:])"
)


class SupervisorExited(Exception):
    """The supervisor is dead, and nothing supervises what it ran."""


class SupervisorClient:
    """One supervisor process. Starting it does not block: what is sent meanwhile is read when it is up.

    `on_messages` is called when there is something to `receive`. Sending never blocks.
    """

    def __init__(
        self,
        worker: str,
        environment: dict[str, str],
        selector: selectors.BaseSelector,
        on_messages: Callable[[], None],
        *,
        lock_fd: int | None,
        lease_seconds: float | None,
        grace_seconds: float,
    ) -> None:
        self.sock, theirs = socket.socketpair()
        self._decoder = FrameDecoder()
        self._send_buffer = SendBuffer(self.sock)
        self._selector = selector
        self._on_messages = on_messages
        lease = "" if lease_seconds is None else str(lease_seconds)
        passed = [theirs.fileno(), *([] if lock_fd is None else [lock_fd])]
        self.pid = start_supervisor([worker, lease, str(grace_seconds)], environment, passed)
        restore_fd_limit(self.pid)
        theirs.close()
        watch_reads(selector, self, self._on_ready)
        self.send(("environment", environment))

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, *messages: tuple[Any, ...]) -> None:
        """Send messages. If the supervisor is gone they are dropped, and `receive` raises."""
        self._send(b"".join(map(encode_frame, messages)))

    def send_fd(self, fd: int, message: tuple[Any, ...]) -> None:
        """Send a message with a descriptor, which is closed here once it is sent."""
        self._send(encode_frame(message), fd)

    def _send(self, data: bytes, fd: int = -1) -> None:
        with suppress(OSError):
            self._send_buffer.send(data, fd)
        watch_writes(self._selector, self, is_sending=self._send_buffer.has_pending)

    def _on_ready(self) -> None:
        """Handle messages, an exit, or free space in the socket's buffer."""
        with suppress(OSError):
            self._send_buffer.flush()
        watch_writes(self._selector, self, is_sending=self._send_buffer.has_pending)
        self._on_messages()

    def receive(self) -> list[tuple[Any, ...]]:
        """Return the messages that have arrived; raise SupervisorExited when there will be no more."""
        try:
            data = self.sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            raise SupervisorExited
        return self._decoder.feed(data)

    def close(self) -> None:
        """Let it kill everything, and wait until it has. A supervisor that has not read everything just sees EOF."""
        self._selector.unregister(self)
        self.send(("shutdown",))
        self._send_buffer.clear()
        self.sock.close()
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass  # other code in this process waits for any child


def start_supervisor(arguments: list[str], environment: dict[str, str], passed: list[int]) -> int:
    """Start the program and return its id. It gets its socket and, if there is one, the lock of the worker."""
    for fd in passed:
        os.set_inheritable(fd, True)
    sock, lock = [*map(str, passed), ""][:2]
    try:
        return os.posix_spawn(
            sys.executable,
            # The program pops the folder of the package.
            [sys.executable, "-I", "-S", "-c", _PROGRAM, PACKAGE_PARENT, sock, lock, *arguments],
            environment,
            # A process that reads the worker's output must not have to wait for the supervisor to end too.
            file_actions=[(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)],
            setsid=True,
            setsigmask=(),  # it needs all signals, even those that this process blocks now
        )
    finally:
        for fd in passed:
            os.set_inheritable(fd, False)
