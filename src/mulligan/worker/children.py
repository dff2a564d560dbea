"""Warm children: processes that run one python step after the other, kept apart by workflow and interpreter."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import msgspec

from ..ports import Lease
from .folders import Logs, move
from .supervision import PACKAGE_PARENT, Supervision

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_LENGTH_BYTES = 4
_RECEIVE_BYTES = 1 << 16
# The package is found, loaded and forgotten: an interpreter of the user's must not see what lies beside it.
_PROGRAM = (
    "import sys; parent = sys.argv.pop(1); sys.path.append(parent); "
    "from mulligan.worker.child import main; sys.path.remove(parent); main(*sys.argv[1:])"
)


class ChildBroke(Exception):
    """The process has closed its socket, or talks nonsense. Its supervisor knows how it ended."""


class Step(msgspec.Struct):
    """A task that a child works at."""

    lease: Lease
    logs: Logs
    # On the wall's clock, and on one that never jumps.
    started: float
    started_at: float
    due: float | None = None
    has_named_logs: bool = False


class Child:
    """One process. It has a step, or is idle."""

    def __init__(self, number: int, version: str, interpreter: str, folder: str) -> None:
        self.key = -number
        self.version = version
        self.interpreter = interpreter
        self.step: Step | None = None
        # It gets no further step.
        self.is_leaving = False
        self.idle_since = 0.0
        self._slots = {1: f"{folder}/child-{number}.out", 2: f"{folder}/child-{number}.err"}
        self._fresh: list[int] = []
        self._told: dict[str, str] = {}
        self._buffer = bytearray()
        self.sock, self._theirs = socket.socketpair()

    def fileno(self) -> int:
        return self.sock.fileno()

    def launch(self, supervisor: Supervision) -> None:
        """Have it started. What is sent meanwhile is read when it is up."""
        out, err = self._slots.values()
        argv = [self.interpreter, "-c", _PROGRAM, PACKAGE_PARENT, out, err]
        environment = {"MULLIGAN_CHILD": str(-self.key)}
        # Nothing is named as its input: it is the descriptor that comes with the message.
        order = ("run", self.key, self.interpreter, argv, environment, "/", None, out, err, None, None)
        supervisor.send_with(self._theirs.fileno(), order)
        self._theirs.close()

    def give(self, step: Step, message: dict[str, Any]) -> None:
        """Hand it a step; `ChildBroke` if it is not there any more."""
        told = message["env"]
        changed = {name: value for name, value in told.items() if self._told.get(name) != value}
        removed = [name for name in self._told if name not in told]
        body = _encode({**message, "env": changed, "unset": removed, "fresh": self._fresh})
        try:
            self.sock.sendall(len(body).to_bytes(_LENGTH_BYTES, "little") + body)
        except OSError:
            raise ChildBroke from None
        self._told = told
        self._fresh = []
        self.step = step

    def receive(self) -> dict[str, Any] | None:
        """Its answer once it is complete."""
        try:
            data = self.sock.recv(_RECEIVE_BYTES)
        except OSError:
            data = b""
        if not data:
            raise ChildBroke
        self._buffer += data
        end = _LENGTH_BYTES + int.from_bytes(self._buffer[:_LENGTH_BYTES], "little")
        if len(self._buffer) < max(end, _LENGTH_BYTES):
            return None
        return self._answer(end)

    def _answer(self, end: int) -> dict[str, Any]:
        try:
            answer = _decode(self._buffer[_LENGTH_BYTES:end])
        except (ValueError, RecursionError):
            raise ChildBroke from None
        del self._buffer[:end]
        return answer

    def name_logs(self, written: dict[int, int] | None = None) -> None:
        """Give what the step wrote the names of its attempt; of what is empty only while it still runs.

        A step that writes nothing has no files, and pays for none.
        """
        step = self.step
        assert step is not None
        if step.has_named_logs:
            return
        names = {1: step.logs.out, 2: step.logs.err}
        for fd, slot in self._slots.items():
            if written is None or written.get(fd):
                move(slot, names[fd])
                self._fresh.append(fd)
        step.has_named_logs = True

    def end_step(self) -> Step:
        step, self.step = self.step, None
        assert step is not None
        self.idle_since = time.monotonic()
        return step

    def close(self) -> None:
        """It ends when it reads that nobody is there."""
        self.is_leaving = True
        self.sock.close()

    def remove_slots(self) -> None:
        for slot in self._slots.values():
            try:
                os.unlink(slot)
            except OSError:
                continue  # it has the name of an attempt now
