"""Texts of others are read in a process of its own, in bounded time and memory. Nothing else of a server waits for it.

A function with `@read_apart` runs there if it is called in a thread of a server, which says so with `TextReader.use`.
Everywhere else, and in that process itself, it is an ordinary function.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from mulligan.errors import RequestTooLarge, ServerBusy, TextTooCostly

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# What an answer begins with: a value, an error that the caller sees, an error of ours.
RETURNED, RAISED, BROKEN = b"v", b"r", b"b"
# What stands before it: whether the process takes another text.
STAYS, LAST = b".", b"!"
# Processes that wait for the next text. More are ended when they have answered.
IDLE_MAX = 2
_PROGRAM = "mulligan.service.server.catalogue.reading_process"
_LENGTH_BYTES = 8
_READ_BYTES = 1 << 20
_HINT = "make it smaller, or read it where you have the file: mulligan validate FILE"


class Limits(NamedTuple):
    """What reading one text may cost. On a busy machine a second of a processor takes several seconds."""

    cpu_seconds: float = 15.0
    wall_seconds: float = 60.0
    memory_bytes: int = 1 << 30
    answer_bytes: int = 256 << 20
    # Of a text, as a person counts them.
    words: int = 250_000


LIMITS = Limits()


def send(peer: socket.socket, message: bytes) -> None:
    peer.sendall(len(message).to_bytes(_LENGTH_BYTES, "big") + message)


def receive(peer: socket.socket, bytes_max: int | None = None) -> bytes | None:
    """The next message; None if the other side is gone. `TextTooCostly` for a longer one than `bytes_max`."""
    head = _receive_exactly(peer, _LENGTH_BYTES)
    if head is None:
        return None
    length = int.from_bytes(head, "big")
    if bytes_max is not None and length > bytes_max:
        raise TextTooCostly(f"the text makes a workflow of more than {bytes_max >> 20} MiB", hint=_HINT)
    return _receive_exactly(peer, length)


def _receive_exactly(peer: socket.socket, length: int) -> bytes | None:
    found = bytearray()
    while len(found) < length:
        try:
            piece = peer.recv(min(_READ_BYTES, length - len(found)))
        except ConnectionError:
            return None
        if not piece:
            return None
        found += piece
    return bytes(found)


class _Child:
    """A process that reads texts, one at a time."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.socket, other = socket.socketpair()
        with other:
            fd = other.fileno()
            arguments = [str(fd), f"{limits.cpu_seconds:g}", str(limits.memory_bytes)]
            try:
                # In a session of its own: Ctrl-C is for the server.
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-m", _PROGRAM, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=sys.stderr,
                    pass_fds=(fd,),
                    start_new_session=True,
                )
            except BaseException:
                self.socket.close()
                raise
        self.socket.settimeout(limits.wall_seconds)

    def call(self, request: bytes) -> bytes:
        """The answer. `TextTooCostly` if the limits are reached."""
        try:
            send(self.socket, request)
            answer = receive(self.socket, self.limits.answer_bytes)
        except (TimeoutError, ConnectionError):
            answer = None
        if answer is None:
            raise self._cost()
        return answer

    def end(self) -> None:
        """Kill it, whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    def close(self) -> None:
        self.end()
        self.process.wait()
        self.socket.close()

    def _cost(self) -> TextTooCostly:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0.5)
        code = self.process.returncode
        if code is None or code == -signal.SIGPROF:
            return TextTooCostly(f"reading the text takes more than {self.limits.cpu_seconds:g} s", hint=_HINT)
        mebibytes = self.limits.memory_bytes >> 20
        return TextTooCostly(f"reading the text takes more than {mebibytes} MiB of memory", hint=_HINT)


class _Idle:
    """The processes of this one that wait for a text: all servers in it share them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children: list[_Child] = []

    def take(self, limits: Limits) -> _Child:
        with self._lock:
            fitting = [one for one in self._children if one.limits == limits]
            for one in fitting:
                self._children.remove(one)
                if one.process.poll() is None:
                    return one
                one.close()
        return _Child(limits)

    def give_back(self, child: _Child) -> None:
        with self._lock:
            if child.process.poll() is None and len(self._children) < IDLE_MAX:
                self._children.append(child)
                return
        child.close()

    def end(self) -> None:
        with self._lock:
            children, self._children = self._children, []
        for child in children:
            child.close()

    def forget(self) -> None:
        """After a fork: they belong to the parent."""
        self._lock = threading.Lock()
        for child in self._children:
            child.socket.close()
            child.process.returncode = 0
        self._children = []


_IDLE = _Idle()
os.register_at_fork(after_in_child=_IDLE.forget)
_READER: ContextVar[TextReader | None] = ContextVar("reader of texts", default=None)


class TextReader:
    """Reads the texts that come to one server."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._busy: set[_Child] = set()
        self._is_closed = False

    def use(self) -> None:
        """From now on, functions with `@read_apart` run in another process if this thread calls them."""
        _READER.set(self)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.call_within(self._limits, function, *args, **kwargs)

    def call_within(self, limits: Limits, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The same within other limits."""
        request = pickle.dumps((function, args, kwargs), pickle.HIGHEST_PROTOCOL)
        child = self._take(limits)
        stays = False
        try:
            answer = child.call(request)
            stays = answer[:1] == STAYS
        except TextTooCostly:
            if self._is_closed:
                raise _ending() from None
            raise
        finally:
            with self._lock:
                self._busy.discard(child)
            if stays:
                _IDLE.give_back(child)
            else:
                child.close()
        kind, content = answer[1:2], memoryview(answer)[2:]
        found = pickle.loads(content)  # noqa: S301 - of our own process
        if kind == BROKEN:
            trace, cause = found
            raise RuntimeError(f"reading a text failed:\n{trace}") from cause
        if kind == RAISED:
            raise found
        return found

    def close(self) -> None:
        """End what is being read: whoever waits for it gets `ServerBusy`."""
        with self._lock:
            self._is_closed = True
            for child in self._busy:
                child.end()

    def end_idle(self) -> None:
        """End the processes that wait for a text: this one ends, and leaves none behind."""
        _IDLE.end()

    def refuse_long(self, text: str) -> None:
        """`RequestTooLarge` for a text with more words than are read."""
        count = len(text.split(None, self._limits.words + 1))
        if count > self._limits.words:
            message = f"the text has more than {self._limits.words:,} words"
            raise RequestTooLarge(message, hint=_HINT, words_max=self._limits.words)

    def _take(self, limits: Limits) -> _Child:
        try:
            child = _IDLE.take(limits)
        except OSError as error:
            hint = "ask again in a few seconds"
            raise ServerBusy(f"no process can be started to read the text: {error.strerror}", hint=hint) from None
        with self._lock:
            if not self._is_closed:
                self._busy.add(child)
                return child
        child.close()
        raise _ending()


def _ending() -> ServerBusy:
    return ServerBusy("the server is ending, and reads no more texts", hint="ask again in a few seconds")


def read_apart(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run the function in another process if it is called in a thread of a server."""
    return _apart(function, None)


def read_apart_within(
    limits: Limits,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """The same for what has limits of its own."""
    return lambda function: _apart(function, limits)


def _apart(function: Callable[Parameters, Result], limits: Limits | None) -> Callable[Parameters, Result]:
    @wraps(function)
    def called(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        reader = _READER.get()
        if reader is None:
            return function(*args, **kwargs)
        for one in args:
            if (text := getattr(one, "text", None)) is not None:
                reader.refuse_long(text)
        if limits is not None:
            return cast(Result, reader.call_within(limits, called, *args, **kwargs))
        return cast(Result, reader.call(called, *args, **kwargs))

    return called
