"""The worker's end of its supervisor: starts it, tells it what to do, hears what became of it."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from .descriptors import hand_on
from .frames import RECEIVE_BYTES, Frames, frame

# The folder that holds the package: the supervisor starts without any search path of ours.
PACKAGE_PARENT = str(Path(__file__).parents[2])
_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); from mulligan.worker.supervisor import main; main(*sys.argv[1:])"
)


class SupervisorGone(Exception):
    """It was killed, and everything that it ran is nobody's now."""


class Supervision:
    """One supervisor process. Starting it does not wait for it: what is sent meanwhile is read when it is up."""

    def __init__(
        self, worker: str, environment: dict[str, str], lock_fd: int | None, lease_seconds: float | None, grace: float
    ) -> None:
        self.sock, theirs = socket.socketpair()
        self._frames = Frames()
        passed = [theirs.fileno(), *([] if lock_fd is None else [lock_fd])]
        for fd in passed:
            os.set_inheritable(fd, True)
        lock = "" if lock_fd is None else str(lock_fd)
        lease = "" if lease_seconds is None else str(lease_seconds)
        # The script's name is `-c`; what follows is popped from the front.
        arguments = [PACKAGE_PARENT, str(theirs.fileno()), lock, worker, lease, str(grace)]
        self.pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", _PROGRAM, *arguments],
            environment,
            # Whoever reads what the worker says must not wait for its supervisor to end as well.
            file_actions=[(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)],
            setsid=True,
            setsigmask=(),  # it waits for signals: what this process does not want to hear now it must
        )
        hand_on(self.pid)
        for fd in passed:
            os.set_inheritable(fd, False)
        theirs.close()
        self.send(("environment", environment))

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, *messages: tuple) -> None:
        """Tell it. One that is gone hears nothing: `receive` will say so."""
        try:
            self.sock.sendall(b"".join(map(frame, messages)))
        except OSError:
            pass

    def send_with(self, fd: int, message: tuple) -> None:
        """A message that has a descriptor with it."""
        data = frame(message)
        try:
            sent = socket.send_fds(self.sock, [data], [fd])
            self.sock.sendall(data[sent:])
        except OSError:
            pass

    def receive(self) -> list[tuple]:
        """What it says; `SupervisorGone` if it never will again."""
        try:
            data = self.sock.recv(RECEIVE_BYTES)
        except OSError:
            data = b""
        if not data:
            raise SupervisorGone
        return self._frames.feed(data)

    def close(self) -> None:
        """Let it kill everything, and wait until it has."""
        self.send(("farewell",))
        self.sock.close()
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass  # somebody else in this process waits for any child
