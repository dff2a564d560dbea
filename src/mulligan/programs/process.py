"""The process of one program: it was forked, runs the program once, and ends without unwinding it.

While the program waits, the worker may end this process by closing the socket. It ends at once: no `except` and no
`finally` of the program runs, because the program goes on elsewhere.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import time
import types
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

import msgspec

from mulligan.flows import pinned_modules
from mulligan.programs import audit, definitions, failures
from mulligan.programs import messages as m
from mulligan.programs.call_values import ResultFile
from mulligan.programs.errors import Nondeterministic
from mulligan.programs.failures import failure_of
from mulligan.programs.machine import Machine
from mulligan.programs.running import run_function
from mulligan.values.annotations import ArgumentRefused, ArtifactUnreadable, has_typed_parameters
from mulligan.values.artifact_contents import with_contents
from mulligan.values.files import load_arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mulligan.step_context.debugger import Debugger

RECEIVE_BYTES = 1 << 16
STDOUT, STDERR = 1, 2
TIMEOUT, INPUT_INVALID = "TIMEOUT", "INPUT_INVALID"


class SocketLink:
    """The way to the worker: one message, one answer."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._received = bytearray()
        self._pid = os.getpid()
        self._keys: dict[str, Any] = {}
        self._timeout: float | None = None
        self._machine: Machine | None = None
        # The logs, while what is printed was printed before.
        self._logs: tuple[int, int] | None = None
        # The processor time that it has said.
        self._cpu = 0.0
        self._debugger: Debugger | None = None

    def begin(self) -> m.Begin:
        message = self.receive()
        assert isinstance(message, m.Begin)
        self._timeout = message.timeout
        if self._timeout is not None:
            signal.signal(signal.SIGPROF, self._on_timeout)
        return message

    def attach(self, machine: Machine, keys: dict[str, Any]) -> None:
        """The program that speaks here, and the keys of `@program` that its steps may refer to."""
        self._machine, self._keys = machine, keys

    def debug(self, terminal: str) -> None:
        """Give the program the terminal, to the end of the process."""
        from mulligan.step_context.debugger import Debugger

        self._debugger = Debugger(terminal)
        self._debugger.begin()

    # -- the link of the machine

    def exchange(self, message: m.Idle) -> m.Deliver:
        self.disarm()
        flush()
        self.send(message)
        reply = self.receive()
        assert isinstance(reply, m.Deliver)
        return reply

    def arm(self) -> None:
        if self._timeout is not None:
            signal.setitimer(signal.ITIMER_PROF, self._timeout)

    def disarm(self) -> None:
        if self._timeout is not None:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def differs(self, difference: Nondeterministic) -> None:
        assert self._machine is not None
        at = f"{difference.asked['file'].rpartition('/')[2]}:{difference.asked['line']}" if difference.asked else ""
        self.end(self._machine.ended("raised", failure=failure_of(difference), at=at))

    def wall_time(self) -> float:
        return time.time()

    def define(self, thing: Any) -> m.StepDefinition:
        return definitions.definition_of(thing, self._keys)

    def define_sleep(self) -> m.StepDefinition:
        return definitions.sleep_definition()

    def define_approval(self, given: Collection[str]) -> m.StepDefinition:
        return definitions.approve_definition(given)

    def define_event_wait(self, given: Collection[str], schema: Mapping[str, Any] | None) -> m.StepDefinition:
        return definitions.event_wait_definition(given, schema)

    # -- logs

    def hold_output(self) -> None:
        """Drop what is printed until `replayed`: it was printed when the program ran here first."""
        if self._debugger is not None:
            self._debugger.is_replaying = True
        flush()
        self._logs = os.dup(STDOUT), os.dup(STDERR)
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, STDOUT)
        os.dup2(nothing, STDERR)
        os.close(nothing)

    def replayed(self) -> None:
        if self._debugger is not None:
            self._debugger.is_replaying = False
        if self._logs is None:
            return
        flush()
        for log, number in zip(self._logs, (STDOUT, STDERR), strict=True):
            os.dup2(log, number)
            os.close(log)
        self._logs = None

    # -- the socket

    def send(self, message: m.FromProgram) -> None:
        if os.getpid() != self._pid:
            os.write(STDERR, b"a copy of the program's process (os.fork) cannot call steps: it ends here\n")
            os._exit(1)
        if not (isinstance(message, m.Idle) and message.goes_on):
            # What it has used is recorded when its turn ends.
            used = resource.getrusage(resource.RUSAGE_SELF)
            cpu = used.ru_utime + used.ru_stime
            message = msgspec.structs.replace(message, cpu=max(0.0, cpu - self._cpu), peak=used.ru_maxrss * 1024)
            self._cpu = cpu
        try:
            self._sock.sendall(m.frame(message))
        except OSError:
            os._exit(0)  # the worker is gone

    def receive(self) -> m.ToProgram:
        data = self._received
        while len(data) < m.LENGTH_BYTES or len(data) < (
            end := m.LENGTH_BYTES + int.from_bytes(data[: m.LENGTH_BYTES], "big")
        ):
            try:
                more = self._sock.recv(RECEIVE_BYTES)
            except OSError:
                more = b""
            if not more:
                os._exit(0)  # the program is parked, cancelled, or its worker is gone
            data += more
        message: m.ToProgram = m.decode_to_program(bytes(data[m.LENGTH_BYTES : end]))
        del data[:end]
        return message

    def end(self, message: m.Ended) -> NoReturn:
        """Say the last word and end, without unwinding anything."""
        self.disarm()
        self.replayed()
        if message.failure is not None and message.failure.trace:
            # Who debugs the program has seen it.
            print(message.failure.trace, end="", file=getattr(sys.stderr, "log", sys.stderr))
        flush()
        self.send(message)
        os._exit(0)

    def _on_timeout(self, _number: int, frame: types.FrameType | None) -> None:
        where = ""
        if frame is not None:
            where = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
        assert self._machine is not None and self._timeout is not None
        message = endless_message(self._timeout)
        self.end(self._machine.ended("raised", failure=m.CallFailure(code=TIMEOUT, message=message), at=where))


def endless_message(seconds: float) -> str:
    """What is said of a program that computes for too long."""
    return f"the program has used {seconds:g}s of processor time without calling anything"


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: S112
            continue  # the program may have closed or replaced it


def run_program(sock: socket.socket, folder: str) -> NoReturn:
    """Serve one program over the socket, to the end of the process."""
    link = SocketLink(sock)
    begin = link.begin()
    history = None
    if begin.history:
        with open(begin.history, "rb") as file:
            history = m.decode_history(file.read())
    machine = Machine(
        link,
        turn=begin.turn,
        history=history,
        calls_max=begin.calls_max,
        at=begin.at,
        files=dict(begin.files),
        step=begin.step,
        seen=begin.seen,
    )
    link.attach(machine, {})
    failures.HAS_LOCALS = begin.has_locals
    if begin.terminal:
        link.debug(begin.terminal)
    try:
        program, function = load_function(begin, folder)
        link.attach(machine, dict(getattr(program, "keys", {})))
        arguments = decode_arguments(function, begin.inputs, begin.files)
    except (ArgumentRefused, ArtifactUnreadable) as refusal:
        link.end(machine.ended("raised", failure=m.CallFailure(INPUT_INVALID, str(refusal), retryable=False)))
    except BaseException as error:
        link.end(machine.ended("raised", failure=failure_of(error)))
    if history is not None and history.deliveries:
        link.hold_output()
    module = sys.modules.get(begin.call.partition(":")[0])
    audit.watch(
        machine, getattr(module, "__file__", None) or "", lambda text: print(f"warning: {text}", file=sys.stderr)
    )
    link.arm()
    ended = run_function(machine, function, arguments)
    try:
        link.end(ended)
    except Exception as error:
        failure = m.CallFailure("OUTPUT_INVALID", f"what it has returned cannot be sent: {error}", retryable=False)
        link.end(m.Ended(ended.turn, "raised", failure=failure))


def load_function(begin: m.Begin, folder: str) -> tuple[Any, Any]:
    """The program, and its function."""
    module, _, name = begin.call.partition(":")
    installed = [entry for entry in sys.path if entry]
    # What was published is imported from where nobody writes; the program works in a copy.
    root = os.environ.get("MULLIGAN_SOURCE") or folder
    sys.path[:] = [*filter(None, (begin.import_from, root)), *installed]
    # A run that the module starts at its top level is refused: it would start itself again.
    __mulligan_loading__ = module  # noqa: F841
    if begin.source:
        found: Any = pinned_modules.load(module, begin.source, begin.file)
        definitions.pin(module, begin.source, begin.file)
    else:
        import importlib

        found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found, getattr(found, "__mulligan_function__", found)


def decode_arguments(function: Any, inputs: dict[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    """The arguments, with the content of artifacts, as the annotations of the function say."""
    arguments = inputs
    if files:
        arguments = with_contents(arguments, dict(files), ResultFile)  # type: ignore[assignment]
    if has_typed_parameters(function):
        from mulligan.values.decoding import convert_arguments

        return convert_arguments(function, arguments)
    return load_arguments(arguments) if files else arguments
