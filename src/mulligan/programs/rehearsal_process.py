"""The process in which a program is rehearsed: it can be copied where it waits, so that many plays share a beginning.

It speaks as the process of a program does, and three more messages: `Start` comes before everything; `Copy` brings a
socket, and a copy of the process goes on there; `AskInline` is its question how an inline step ends, which does not run
here. Nothing is written, and what the program prints is dropped.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import msgspec

from mulligan.programs import audit
from mulligan.programs import messages as m
from mulligan.programs.call_values import as_stored
from mulligan.programs.failures import failure_of
from mulligan.programs.machine import Machine
from mulligan.programs.process import SocketLink, decode_arguments, load_function
from mulligan.programs.running import run_function
from mulligan.values.annotations import ArgumentRefused

# How long a process of which nobody knows any more may go on.
ALONE_SECONDS = 120
_CHANCE: dict[str, Callable[[random.Random], Any]] = {
    "random": random.Random.random,
    "uuid4": lambda chance: str(uuid.UUID(int=chance.getrandbits(128), version=4)),
}


class Start(msgspec.Struct, frozen=True, omit_defaults=True, tag="start"):
    """Begin to run a program, in this folder; with a history, to run it over what is recorded."""

    begin: m.Begin
    folder: str
    history: m.History | None = None


class Copy(msgspec.Struct, frozen=True, tag="copy"):
    """Fork a copy of this process. Its socket comes with the frame (SCM_RIGHTS); it says `Copied` there, and waits."""


class InlineEnd(msgspec.Struct, frozen=True, omit_defaults=True, tag="inline_end"):
    """How an inline step ends: the answer to `AskInline`."""

    output: Any = None
    failure: m.CallFailure | None = None


class Copied(msgspec.Struct, frozen=True, tag="copied"):
    """The process of the copy."""

    pid: int


class AskInline(msgspec.Struct, frozen=True, omit_defaults=True, tag="ask_inline"):
    """The program calls an inline step: how does it end?"""

    label: str
    name: str
    digest: str
    # The digest of its definition; that itself if it was not sent yet, as canonical JSON.
    definition: str
    step: bytes
    file: str = ""
    line: int = 0


class Said(msgspec.Struct, frozen=True, omit_defaults=True, tag="said"):
    """What a program says, with what it did not say before."""

    message: m.Idle | m.Ended | AskInline
    # The digests of the steps whose annotation says that they return nothing.
    returns_nothing: tuple[str, ...] = ()
    # What a replay would do again: see `audit`.
    warnings: tuple[str, ...] = ()


ToRehearsal = Start | Copy | InlineEnd | m.Deliver
FromRehearsal = Said | Copied
_decode = msgspec.msgpack.Decoder(ToRehearsal).decode
decode_from_rehearsal = msgspec.msgpack.Decoder(FromRehearsal).decode


def frame(message: ToRehearsal | FromRehearsal) -> bytes:
    """A message as it is sent."""
    data = m.encode(message)
    return len(data).to_bytes(m.LENGTH_BYTES, "big") + data


class RehearsalLink(SocketLink):
    """The way to whoever plays the run."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._returning_nothing: list[str] = []
        self._warnings: list[str] = []
        self._copies: list[int] = []
        self._sockets: list[int] = []

    def start(self) -> Start:
        """Wait for what to begin, in a copy of the first process: that one is copied again."""
        found = self.receive()
        assert isinstance(found, Start)
        self._timeout = found.begin.timeout
        signal.signal(signal.SIGPROF, self._on_timeout)
        return found

    def wall_time(self) -> float:
        """The time of the play."""
        assert self._machine is not None
        return self._machine.now

    def define(self, thing: Any) -> m.StepDefinition:
        found = super().define(thing)
        annotations = getattr(thing.fn, "__annotations__", {})
        if "return" in annotations and annotations["return"] in (None, "None"):
            self._returning_nothing.append(found.digest)
        return found

    def warn(self, text: str) -> None:
        self._warnings.append(text)

    def arm(self) -> None:
        super().arm()
        # Whoever plays it kills it sooner; if they are gone, it ends by itself.
        signal.alarm(ALONE_SECONDS)

    # -- messages

    def send(self, message: Any) -> None:
        if os.getpid() != self._pid:
            os._exit(1)
        said = Said(message, tuple(self._returning_nothing), tuple(self._warnings))
        self._returning_nothing, self._warnings = [], []
        self._send(said)

    def _send(self, message: FromRehearsal) -> None:
        try:
            self._sock.sendall(frame(message))
        except OSError:
            os._exit(0)

    def receive(self) -> Any:
        """The next message for the program; this process may be a copy by then."""
        while isinstance(found := self._receive(), Copy):
            self._copy()
        return found

    def _receive(self) -> ToRehearsal:
        signal.alarm(0)
        message: ToRehearsal = _decode(self._exactly(int.from_bytes(self._exactly(m.LENGTH_BYTES), "big")))
        return message

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                more, sockets, _, _ = socket.recv_fds(self._sock, min(size - len(data), 1 << 16), 1)
            except OSError:
                more, sockets = b"", []
            if not more:
                os._exit(0)  # nobody plays it any more
            self._sockets += sockets
            data += more
        return bytes(data)

    def _copy(self) -> None:
        for pid in list(self._copies):
            with suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            self._copies.remove(pid)
        own = self._sockets.pop()
        pid = os.fork()
        if pid:
            os.close(own)
            self._copies.append(pid)
            return
        self._sock.close()
        self._sock, self._pid, self._copies = socket.socket(fileno=own), os.getpid(), []
        if self._machine is not None and self._machine.loop is not None:
            # asyncio takes a loop for that of the process in which it was set.
            asyncio.events._set_running_loop(self._machine.loop)
        self._send(Copied(self._pid))

    def ask(self, question: AskInline) -> InlineEnd:
        self.disarm()
        self.send(question)
        answer = self.receive()
        assert isinstance(answer, InlineEnd)
        return answer


class _RehearsingMachine(Machine):
    """Asks how inline steps end, and has numbers that are the same in each rehearsal."""

    def __init__(self, link: RehearsalLink, **given: Any) -> None:
        super().__init__(link, **given)
        self._rehearsal = link
        self._values = 0

    def value(self, name: str, make: Callable[[], Any]) -> Any:
        self._values += 1
        if name in _CHANCE:
            chance = random.Random(self._values)
            make = lambda: _CHANCE[name](chance)  # noqa: E731
        return super().value(name, make)

    def _attempt_inline(self, call: Any) -> tuple[Any, m.CallFailure | None, float]:
        label = self._labels.next(m.CallId(*call.id), call.name, key=call.key, kind="inline", digest=call.digest)
        definition = call.definition()
        answer = self._rehearsal.ask(
            AskInline(
                label,
                call.name,
                call.digest,
                definition.digest,
                definition.step,
                file=call.site.file,
                line=call.site.line,
            )
        )
        self._link.arm()
        if answer.failure is not None:
            return None, answer.failure, 0.0
        output, _ = as_stored(answer.output, call.read, f"'{call.name}'", self._files)
        return output, None, 0.0


def rehearse(link: RehearsalLink, start: Start) -> NoReturn:
    """Run the program of `start`."""
    begin = start.begin
    machine = _RehearsingMachine(
        link, turn=begin.turn, history=start.history, calls_max=begin.calls_max, at=begin.at, step=begin.step
    )
    link.attach(machine, {})
    link.arm()
    try:
        os.chdir(start.folder)
        program, function = load_function(begin, start.folder)
        link.attach(machine, dict(getattr(program, "keys", {})))
        arguments = decode_arguments(function, begin.inputs, {})
    except ArgumentRefused as refusal:
        link.end(machine.ended("raised", failure=m.CallFailure("INPUT_INVALID", str(refusal), retryable=False)))
    except BaseException as error:
        link.end(machine.ended("raised", failure=failure_of(error)))
    module = sys.modules.get(begin.call.partition(":")[0])
    audit.watch(machine, getattr(module, "__file__", None) or "", link.warn)
    link.arm()
    ended = run_function(machine, function, arguments)
    try:
        link.end(ended)
    except Exception as error:
        failure = m.CallFailure("OUTPUT_INVALID", f"what it has returned cannot be sent: {error}", retryable=False)
        link.end(m.Ended(ended.turn, "raised", failure=failure))


def main(descriptor: str) -> None:
    """Serve over that descriptor."""
    # Most programs need it, and all copies share it.
    import mulligan.language.python.builder
    import mulligan.programs.event_loop  # noqa: F401

    sys.argv[:] = [""]
    link = RehearsalLink(socket.socket(fileno=int(descriptor)))
    # This process itself starts nothing: each program begins in a copy of it.
    rehearse(link, link.start())


if __name__ == "__main__":
    main(sys.argv[1])
