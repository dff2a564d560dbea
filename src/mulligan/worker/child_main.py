"""A warm child: one process that runs the python steps of one workflow, one after the other.

It may be another interpreter than ours, so it needs nothing but the standard library, and speaks JSON. After
each step it puts back what a step may change: folder, environment, arguments. What it cannot put back (threads,
child processes, memory) it tells, and the worker ends it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import importlib
import json
import linecache
import os
import resource
import signal
import socket
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

from mulligan.worker.json_encoding import ENCODER, ArtifactUnreadable, NotJson, encode_output
from mulligan.worker.kernel_state import KernelState
from mulligan.worker.step_errors import describe_error, exit_status

SIGTERM = _signal.SIGTERM
LENGTH_BYTES = 4
RECEIVE_BYTES = 1 << 16
# A child that holds more than this when a step has ended is not kept.
KEPT_BYTES_MAX = 512 * 1024 * 1024
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Whoever does one of these may have left a process behind that is nobody's child here.
FORKING_EVENTS = frozenset({"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"})
# Whatever is loaded from elsewhere, or by one of these, may start processes without a word.
OWN_LIBRARIES = os.path.dirname(getattr(resource, "__file__", None) or "/dev/null/none") + "/"
LIMITING_EVENTS = frozenset({"resource.setrlimit", "resource.prlimit"})
LOADING_EVENTS = frozenset({"ctypes.dlopen", "sqlite3.load_extension"})
SILENT_MODULES = frozenset({"_posixsubprocess", "_xxsubinterpreters", "_interpreters"})
INTERRUPTED_STATUS = 130
TERMINATED_STATUS = 128 + SIGTERM
# Variables that only a program started by the step reads from the C library.
OWN_PREFIX = "MULLIGAN_"
OWN_PACKAGE = "mulligan."
OUTPUT_FOLDER = "MULLIGAN_OUTPUT_DIR"
# Loaded when an argument is in a file: most steps have none.
CONTENTS = "mulligan.worker.artifact_contents"
RESULT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
# What the program of a step is called, until a traceback says of which.
PROGRAM = "<step>"

# `json.loads` would look for the encoding and for blanks first.
_decode = json.JSONDecoder().raw_decode
# As `signal.getsignal`, which first makes a member of an enumeration of it.
_handler_of = _signal.getsignal
_ENCODING, _ENCODING_ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


class ChildServer:
    """Runs what comes over the socket, one step at a time, and answers how it went.

    A message says what is not as it was for the step before: most is. A result of more than `inline_max` characters
    is put into the file `slot_result`: whoever drives the run reads neither that nor the arguments.
    """

    def __init__(self, sock: socket.socket, slot_out: str, slot_err: str, slot_result: str, inline_max: int) -> None:
        self._sock = sock
        self._slot_result, self._inline_max = slot_result, inline_max
        self._programs: dict[str, types.CodeType] = {}
        self._interpreter = InterpreterState()
        # One of these is empty.
        self._call = self._code = ""
        self._folder, self._home = "/", ""
        self._termination = Termination()
        self._kernel = KernelState(slot_out, slot_err)
        self._has_forked = False
        self._may_hide = any(map(_may_hide_processes, sys.modules, map(_library, list(sys.modules.values()))))
        sys.addaudithook(self._on_audit_event)

    def serve(self) -> None:
        """Until the worker closes the socket."""
        meter = Meter()
        while text := self._receive():
            message, _ = _decode(text)
            if "fresh_logs" in message:
                self._kernel.start_logs(message["fresh_logs"])
            self._has_forked = False
            with self._termination:
                answer, output = self._run(message)
            _flush()
            cpu, peak = meter.read(self._has_forked or self._may_hide)
            self._note_leftovers(answer, peak)
            out, err = self._kernel.log_sizes()
            measured = f'"number":{message["number"]},"cpu":{cpu:.6f},"peak":{peak},"out":{out},"err":{err}'
            self._send(answer, output, measured)
            self._kernel.restore()
            meter.settle()

    def _receive(self) -> str:
        """The next message, which nearly always comes in one piece; "" when the worker is gone."""
        data = self._sock.recv(RECEIVE_BYTES)
        while len(data) < LENGTH_BYTES:
            more = self._sock.recv(RECEIVE_BYTES)
            if not more:
                return ""
            data += more
        size = int.from_bytes(data[:LENGTH_BYTES], "little")
        if len(data) == LENGTH_BYTES + size:
            return data[LENGTH_BYTES:].decode()
        body = bytearray(size)
        at = len(data) - LENGTH_BYTES
        body[:at] = data[LENGTH_BYTES:]
        with memoryview(body) as view:
            while at < size:
                count = self._sock.recv_into(view[at:])
                if not count:
                    return ""
                at += count
        return body.decode()

    def _on_audit_event(self, event: str, told: tuple) -> None:
        if event in FORKING_EVENTS:
            self._has_forked = True
            self._interpreter.export()
        elif event in LIMITING_EVENTS:
            self._kernel.are_limits_changed = True
        elif event in LOADING_EVENTS or (event == "import" and _may_hide_processes(told[0], told[1])):
            self._may_hide = True

    def _send(self, answer: dict, output: str, measured: str) -> None:
        """The output is JSON already, and may be large: it is not written twice."""
        if len(output) > self._inline_max and self._put_into_file(output):
            answer["in_file"], output = True, "null"
        said = f"{ENCODER.encode(answer)[1:-1]}," if answer else ""
        body = f'{{{said}{measured},"output":{output}}}'.encode()
        self._sock.sendall(len(body).to_bytes(LENGTH_BYTES, "little") + body)

    def _put_into_file(self, output: str) -> bool:
        """Whether the result is in its file. Where there is no room for it, it is sent: the worker says what to do."""
        try:
            if os.path.lexists(self._slot_result):
                os.unlink(self._slot_result)
            with open(os.open(self._slot_result, RESULT_FLAGS, 0o600), "wb") as file:
                file.write(output.encode())
        except OSError:
            return False
        return True

    def _note_leftovers(self, answer: dict, peak: int) -> None:
        """What cannot be put back is told, and the worker sees to it."""
        if self._has_forked:
            answer["forked"] = True
        is_large = peak > KEPT_BYTES_MAX and _resident_bytes() > KEPT_BYTES_MAX
        may_have_children = self._has_forked or self._may_hide
        is_worn = is_large or threading.active_count() > 1 or self._kernel.is_changed() or "sys" not in sys.modules
        if is_worn or (may_have_children and _has_children()):
            answer["dirty"] = True

    def _run(self, message: dict) -> tuple:
        """The answer, and the result as JSON text."""
        try:
            self._set_up(message)
            try:
                os.chdir(self._folder)
            except (OSError, ValueError) as error:
                return {"folder": getattr(error, "strerror", None) or str(error)}, "null"
            if self._call or OUTPUT_FOLDER in self._code:
                self._interpreter.make_output_folder()
            result = self._await_result(self._function()(**self._arguments(message)))
            return {}, encode_output(result)
        except ArtifactUnreadable as error:
            return {"unreadable": str(error)}, "null"
        except NotJson as error:
            return {"invalid": str(error)}, "null"
        except SystemExit as error:
            return {"exit": exit_status(error.code)}, "null"
        except KeyboardInterrupt:
            return {"exit": INTERRUPTED_STATUS}, "null"
        except BaseException as error:  # whatever a step raises is its failure, not ours
            self._show_lines()
            return describe_error(error, message["step"], PROGRAM), "null"

    def _set_up(self, message: dict) -> None:
        self._call = message.get("call", self._call)
        self._code = message.get("code", self._code)
        self._folder = message.get("cwd", self._folder)
        self._home = message.get("home", self._home)
        self._interpreter.set_up(message["env"], message.get("unset", ()), self._home)

    def _arguments(self, message: dict) -> dict:
        args: dict = message.get("args", {})
        return (
            self._interpreter.import_installed(CONTENTS).with_contents(args, message["files"])
            if "files" in message
            else args
        )

    def _function(self) -> types.FunctionType:
        if self._call:
            module, _, name = self._call.partition(":")
            found = (
                self._interpreter.import_installed(module)
                if module.startswith(OWN_PACKAGE)
                else importlib.import_module(module)
            )
            for part in name.split("."):
                found = getattr(found, part)
            return found  # type: ignore[return-value]
        # A namespace of its own: no step sees what another one left.
        names: dict = {"__name__": "__mulligan__"}
        exec(self._program(self._code), names)
        return names["main"]

    def _await_result(self, result: object) -> object:
        """What an `async def main` comes to; anything else is what it is."""
        if isinstance(result, types.CoroutineType):
            # Not at the top: asyncio costs more than all the rest of a child.
            return self._interpreter.import_installed("asyncio").run(result)
        return result

    def _program(self, code: str) -> types.CodeType:
        """Compiled once, however many steps have the same text."""
        if code not in self._programs:
            self._programs[code] = compile(code, PROGRAM, "exec", dont_inherit=True)
        return self._programs[code]

    def _show_lines(self) -> None:
        """Let a traceback show the lines of the step: they are in no file."""
        linecache.cache[PROGRAM] = (len(self._code), None, self._code.splitlines(keepends=True), PROGRAM)


class Terminated(SystemExit):
    """The step is to end."""


class Termination:
    """SIGTERM, while a step runs: it may clean up before this process dies of it, for as long as its grace is."""

    def __init__(self) -> None:
        self._is_in_step = self._is_due = False
        self._raised: Callable = lambda: None
        self._handler = self._on_signal
        signal.signal(SIGTERM, self._handler)
        signal.signal(signal.SIGCONT, self._on_wakeup)
        self._masks = threading.local()
        os.register_at_fork(
            before=self._block_sigterm, after_in_parent=self._restore_mask, after_in_child=self._reset_in_child
        )

    def __enter__(self) -> None:
        if _handler_of(SIGTERM) is not self._handler:
            signal.signal(SIGTERM, self._handler)  # the step before has set its own
        self._is_in_step = True

    def __exit__(self, *_: object) -> None:
        self._is_in_step = False
        if self._is_due:
            _flush()
            _die_of_sigterm()

    def _on_signal(self, *_: object) -> None:
        if not self._is_in_step:
            _die_of_sigterm()
        self._is_due = True
        self._raise()

    def _on_wakeup(self, *_: object) -> None:
        """By itself it does nothing, but wakes a step that went to sleep just when SIGTERM came.

        What is raised while an object is destroyed, or a file closed so, goes nowhere: then it is raised once more.
        """
        if self._is_due and self._is_in_step:
            self._raise()

    def _raise(self) -> None:
        if self._raised() is not None:
            return  # the step is at its cleaning up
        error = Terminated(TERMINATED_STATUS)
        self._raised = weakref.ref(error)
        try:
            raise error
        finally:
            del error  # else it would be kept by its own traceback

    # What a step forks is not this process, and ends as any other: also if it is told to before it knows.

    def _block_sigterm(self) -> None:
        self._masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {SIGTERM})

    def _restore_mask(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.before)

    def _reset_in_child(self) -> None:
        if _handler_of(SIGTERM) is self._handler:
            signal.signal(SIGTERM, signal.SIG_DFL)
        self._restore_mask()


def _die_of_sigterm() -> None:
    signal.signal(SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), SIGTERM)


class InterpreterState:
    """Environment, arguments, search path and streams: what a step may change and the next must not see."""

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._variables: dict[str, str] = {}
        self._exported: set[str] = set()
        self._raw = _raw_environment()
        # Without "", which is whatever folder one is in.
        self._installed = [entry for entry in sys.path if entry]
        self._streams = sys.stdin, sys.stdout, sys.stderr

    def set_up(self, changed: dict, removed: tuple | list, home: str) -> None:
        """`changed` and `removed` are what differs from the step before: most of it is the same."""
        if os.environ._data != self._raw:  # type: ignore[attr-defined]
            self._restore_environment()
        for name in removed:
            del self._variables[name]
        if removed or self._exported:
            self._forget([*removed, *self._exported])
        self._variables.update(changed)
        self._set_variables(changed if not self._exported else self._variables)
        self._exported.clear()
        if "multiprocessing.util" in sys.modules:
            self.export()  # it starts processes and tells nobody
        path = [home, *self._installed] if home else self._installed
        if sys.path != path:
            sys.path[:] = path
        sys.argv[:] = [""]
        sys.stdin, sys.stdout, sys.stderr = self._streams

    def import_installed(self, module: str) -> Any:
        """A module that is installed, whatever lies under its name, or that of one it needs, where the run is."""
        path, sys.path[:] = list(sys.path), self._installed
        try:
            return importlib.import_module(module)
        finally:
            sys.path[:] = path

    def export(self) -> None:
        """Hand our own variables to the C library too, for a process that is about to be started.

        Most steps start none, and the library keeps every value that a variable ever had, for ever.
        """
        self.make_output_folder()
        for name, value in self._variables.items():
            if name not in self._exported and name.startswith(OWN_PREFIX):
                os.putenv(name, value)
                self._exported.add(name)

    def make_output_folder(self) -> None:
        """Only for who may look for it: most steps do not, and a folder costs more than a small step."""
        try:
            os.makedirs(self._variables[OUTPUT_FOLDER], exist_ok=True)
        except (KeyError, OSError):
            pass  # whoever wants to write there sees for himself

    def _set_variables(self, told: dict) -> None:
        raw, noted = os.environ._data, self._raw  # type: ignore[attr-defined]
        for name, value in told.items():
            key = name.encode(_ENCODING, _ENCODING_ERRORS)
            if name.startswith(OWN_PREFIX):
                raw[key] = value.encode(_ENCODING, _ENCODING_ERRORS)
            else:
                os.environ[name] = value
            noted[key] = raw[key]

    def _forget(self, names: list) -> None:
        for name in names:
            if name in self._environment:
                os.environ[name] = self._environment[name]
            elif name in os.environ:
                del os.environ[name]
        self._raw = _raw_environment()

    def _restore_environment(self) -> None:
        """A step has changed it: all of it is set anew."""
        os.environ.clear()
        os.environ.update(self._environment)
        self._raw = _raw_environment()
        self._set_variables(self._variables)


def _raw_environment() -> dict:
    """The bytes under `os.environ`: comparing those takes a hundredth of the time."""
    return dict(os.environ._data)  # type: ignore[attr-defined]


class Meter:
    """What a step has used: cpu seconds, and the largest size in bytes. Where the kernel cannot reset that: of all."""

    def __init__(self) -> None:
        try:
            self._fd = os.open("/proc/self/clear_refs", os.O_WRONLY)
        except OSError:
            self._fd = -1
        self._below = 0.0
        self._cpu, self._peak = self._now()
        self._floor = 0
        self.settle()

    def read(self, may_have_children: bool) -> tuple:
        """Since it was last read: what is between two steps is next to nothing."""
        before = self._cpu
        if may_have_children:
            below = resource.getrusage(resource.RUSAGE_CHILDREN)
            self._below = below.ru_utime + below.ru_stime
        self._cpu, self._peak = self._now()
        return self._cpu - before, self._peak

    def settle(self) -> None:
        """Forget the last step's peak, unless it was no higher than the one before: most are not."""
        if self._fd < 0 or self._peak <= self._floor:
            return
        try:
            os.write(self._fd, b"5")
        except OSError:
            self._fd = -1
        self._floor = self._now()[1]

    def _now(self) -> tuple:
        import_installed = resource.getrusage(resource.RUSAGE_SELF)
        return import_installed.ru_utime + import_installed.ru_stime + self._below, import_installed.ru_maxrss * 1024


def _may_hide_processes(module: str, library: str | None) -> bool:
    """Whether this may start processes of which nobody is told: code that is not Python's own, or is known for it."""
    return module in SILENT_MODULES or (library is not None and not library.startswith(OWN_LIBRARIES))


def _library(module: object) -> str | None:
    """The file that a module was loaded from, if that is no Python."""
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) and file.endswith((".so", ".pyd")) else None


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * PAGE_BYTES


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            continue  # a step may close or replace them


def main(slot_out: str, slot_err: str, slot_result: str, inline_max: str) -> None:
    """The socket comes as standard input; a step has none."""
    sock = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.argv[:] = [""]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        ChildServer(sock, slot_out, slot_err, slot_result, int(inline_max)).serve()
    except Terminated:
        # The signal came between the step's last instruction and the end of `Termination`.
        _flush()
        _die_of_sigterm()
    except BaseException as error:
        try:
            os.write(2, f"the step has broken the process that ran it: {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(1)
