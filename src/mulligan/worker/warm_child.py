"""Warm children: processes that run one python step after the other, kept apart by workflow and interpreter."""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from mulligan.ports import Lease
from mulligan.worker.folders import Logs, move_file
from mulligan.worker.json_encoding import OUTPUT_BYTES_MAX
from mulligan.worker.loop_limits import LOOP_BYTES_MAX, LOOP_BYTES_MAX_REDACTED
from mulligan.worker.redacted_logs import RedactedLogs
from mulligan.worker.send_buffer import SendBuffer
from mulligan.worker.supervisor_client import PACKAGE_PARENT, SupervisorClient

_LENGTH_BYTES = 4
_RECEIVE_BYTES = 1 << 16
# The largest result, and room for what is said beside it.
_ANSWER_BYTES_MAX = OUTPUT_BYTES_MAX + (4 << 20)
# The package is found, loaded and forgotten: an interpreter of the user's must not see what lies beside it.
_PROGRAM = (
    "import sys; parent = sys.argv.pop(1); sys.path.append(parent); "
    "from mulligan.worker.child_main import main; sys.path.remove(parent); main(*sys.argv[1:])"
)


class ChildDisconnected(Exception):
    """The process has closed its socket: it has ended, as its supervisor knows, or its step has closed what is ours."""


class ChildProtocolError(Exception):
    """What comes is no answer to what it was given: its step has written to what is ours."""


class ChildTask(msgspec.Struct):
    """A task that a child works at."""

    lease: Lease
    # On the wall's clock; and when its time is up, on one that never jumps.
    started: float
    due: float | None = None
    has_named_logs: bool = False
    # When the child is ended although it says no more: it had time enough to end by itself.
    cut_off_at: float | None = None


class BackgroundJob(msgspec.Struct):
    """Work of the worker's own that would take its loop too long: a function of ours, called in a child.

    `then` is told what it gave, or None where the child came to an end before it had answered.
    """

    order: CallRequest
    then: Callable[[CallResult | None], None]
    # How often it was begun.
    attempts: int = 0


class CallRequest(msgspec.Struct, frozen=True):
    """What a step is: code with a `main`, or a function to call, and where and with what."""

    step: str = ""
    args: dict[str, Any] = {}
    env: dict[str, str] = {}
    cwd: str = ""
    # Where it may import from, beside what is installed.
    home: str = ""
    code: str = ""
    call: str = ""
    # Where to find the artifacts that its arguments refer to, by name.
    files: dict[str, str] = {}


class CallMessage(msgspec.Struct, omit_defaults=True):
    """An order as it is told: what is None, or not said, is as it was in the order before."""

    number: int
    step: str
    # Those that differ, and those that are no more.
    env: dict[str, str]
    unset: list[str] = []
    args: dict[str, Any] = {}
    cwd: str | None = None
    home: str | None = None
    code: str | None = None
    call: str | None = None
    # Which of its logs have got a name, and are to be started anew.
    fresh_logs: list[int] = []
    files: dict[str, str] = {}


class CallResult(msgspec.Struct, frozen=True):
    """How a step went, as the child says."""

    # Of the order that it answers.
    number: int
    cpu: float
    peak: int
    # The bytes in its logs.
    out: int
    err: int
    output: Any = None
    # The output is in the file of the child's results.
    in_file: bool = False
    # Why its folder cannot be entered; why an argument cannot be read.
    folder: str = ""
    unreadable: str = ""
    exit: int = 0
    # Why its result cannot be taken.
    invalid: str = ""
    reported: dict[str, Any] | None = None
    exception: str = ""
    trace: str = ""
    # It has started processes; it has left something behind that cannot be put back.
    forked: bool = False
    dirty: bool = False


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(CallResult).decode


class WarmChild:
    """One process. It has a step, or a job of ours, or is idle. Nothing here waits for it to read or to write."""

    def __init__(self, number: int, group: str, interpreter: str, folder: str) -> None:
        self.key = -number
        self.group = group
        self.interpreter = interpreter
        self.task: ChildTask | None = None
        self.job: BackgroundJob | None = None
        # It gets no further step.
        self.is_leaving = False
        self.idle_since = 0.0
        self._slots = {1: f"{folder}/child-{number}.out", 2: f"{folder}/child-{number}.err"}
        self._slot_result = f"{folder}/child-{number}.result"
        # What it writes goes through there, where its steps may know secrets.
        self.pipes: RedactedLogs | None = None
        self._fresh_logs: list[int] = []
        self._last = CallRequest()
        self._number = 0
        self._buffer = bytearray()
        self.sock, self._theirs = socket.socketpair()
        self._send_buffer = SendBuffer(self.sock)

    def fileno(self) -> int:
        return self.sock.fileno()

    def launch(self, supervisor: SupervisorClient) -> None:
        """Have it started. What is sent meanwhile is read when it is up."""
        out, err = self._slots.values()
        # A larger result comes in a file.
        inline_max = LOOP_BYTES_MAX if self.pipes is None else LOOP_BYTES_MAX_REDACTED
        argv = [self.interpreter, "-c", _PROGRAM, PACKAGE_PARENT, out, err, self._slot_result, str(inline_max)]
        environment = {"MULLIGAN_CHILD": str(-self.key)}
        # Nothing is named as its input: it is the descriptor that comes with the message.
        order = ("run", self.key, self.interpreter, argv, environment, "/", None, out, err, None, None)
        supervisor.send_fd(self._theirs.detach(), order)

    def open_pipes(self, selector: selectors.BaseSelector) -> None:
        """In the place of its logs, before it opens them."""
        self.pipes = RedactedLogs(selector, *self._slots.values())

    def start_task(self, task: ChildTask, order: CallRequest) -> None:
        """Hand it a step; `ChildDisconnected` if it is not there any more.

        One that was only just launched has it all the same: what became of that its supervisor will say.
        """
        task.has_named_logs = self.pipes is not None
        self._send(order)
        self.task = task

    def start_job(self, job: BackgroundJob) -> None:
        """Hand it a job of ours; `ChildDisconnected` as for a step."""
        self._send(job.order)
        self.job = job

    def _send(self, order: CallRequest) -> None:
        self._number += 1
        body = _encode(_make_message(self._number, self._last, order, self._fresh_logs))
        try:
            self._send_buffer.send(len(body).to_bytes(_LENGTH_BYTES, "little") + body)
        except OSError:
            if self._number > 1:
                raise ChildDisconnected from None
        # What may be large is not kept: it differs from step to step.
        self._last = msgspec.structs.replace(order, args={}, files={})
        self._fresh_logs = []

    @property
    def is_sending(self) -> bool:
        """Whether it has yet to read a part of what it was given."""
        return self._send_buffer.has_pending

    @property
    def is_idle(self) -> bool:
        return self.task is None and self.job is None and not self.is_leaving

    def send_more(self) -> None:
        """It may have read something. That it is gone `receive` will say."""
        with suppress(OSError):
            self._send_buffer.flush()

    def receive(self) -> CallResult | None:
        """Its answer once it is complete."""
        try:
            data = self.sock.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            raise ChildDisconnected
        if not self._buffer and len(data) >= _frame_size(data):
            return self._answer(memoryview(data)[_LENGTH_BYTES:])  # nearly always it comes in one piece
        self._buffer += data
        if _frame_size(self._buffer) > _ANSWER_BYTES_MAX:
            raise ChildProtocolError
        if len(self._buffer) < _frame_size(self._buffer):
            return None
        whole, self._buffer = self._buffer, bytearray()
        return self._answer(memoryview(whole)[_LENGTH_BYTES:])

    def _answer(self, body: memoryview) -> CallResult:
        try:
            answer = _decode(body)
        except (ValueError, RecursionError):
            raise ChildProtocolError from None
        if answer.number != self._number:
            raise ChildProtocolError
        return answer

    @property
    def has_open_logs(self) -> bool:
        """Whether it has opened them: one that is slow to come up has none yet."""
        return all(map(os.path.exists, self._slots.values()))

    def name_logs(self, logs: Logs, is_out: bool = True, is_err: bool = True) -> None:
        """Give what the step wrote the names of its attempt; of what is empty only while it still runs.

        A step that writes nothing has no files, and pays for none.
        """
        task = self.task
        assert task is not None
        if task.has_named_logs:
            return
        for fd, is_named, name in ((1, is_out, logs.out), (2, is_err, logs.err)):
            if is_named:
                move_file(self._slots[fd], name)
                self._fresh_logs.append(fd)
        task.has_named_logs = True

    def move_result(self, path: str) -> None:
        """Move the file of its last result there: it may be given another step before anybody has looked at it."""
        with suppress(FileNotFoundError):
            os.rename(self._slot_result, path)

    def end_job(self) -> BackgroundJob:
        job, self.job = self.job, None
        assert job is not None
        self.idle_since = time.monotonic()
        return job

    def end_task(self) -> ChildTask:
        task, self.task = self.task, None
        assert task is not None
        self.idle_since = time.monotonic()
        return task

    def close(self) -> None:
        """It ends when it reads that nobody is there."""
        self.is_leaving = True
        self._send_buffer.clear()
        self.sock.close()

    def remove_slots(self) -> None:
        if self.pipes is not None:
            self.pipes.close()
        for slot in (*self._slots.values(), self._slot_result):
            try:
                os.unlink(slot)
            except OSError:
                continue  # it has the name of an attempt now, or was never there


def _make_message(number: int, last: CallRequest, order: CallRequest, fresh_logs: list[int]) -> CallMessage:
    """What to say of `order` to who knows the `last` one. Most of one step is as it was for another."""
    told, env = last.env, order.env
    return CallMessage(
        number,
        order.step,
        {name: value for name, value in env.items() if told.get(name) != value},
        [] if told.keys() <= env.keys() else [name for name in told if name not in env],
        order.args,
        None if order.cwd == last.cwd else order.cwd,
        None if order.home == last.home else order.home,
        None if order.code == last.code else order.code,
        None if order.call == last.call else order.call,
        fresh_logs,
        order.files,
    )


def _frame_size(data: bytes | bytearray) -> int:
    """How long what begins so is in all."""
    return _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
