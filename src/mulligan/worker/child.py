"""A warm child: one process that runs the python steps of one workflow, one after the other.

It may be another interpreter than ours, so this file needs nothing but the standard library, and speaks JSON. After
each step it puts back what a step may change: folder, environment, arguments. What it cannot put back (threads,
child processes, memory) it tells, and the worker ends it.
"""

from __future__ import annotations

import importlib
import json
import linecache
import os
import resource
import socket
import sys
import threading
import traceback
import types

LENGTH_BYTES = 4
OUTPUT_BYTES_MAX = 64 * 1024 * 1024
TRACE_CHARS_MAX = 8000
TEXT_CHARS_MAX = 2000
DEPTH_MAX = 100
# A child that holds more than this when a step has ended is not kept.
KEPT_BYTES_MAX = 512 * 1024 * 1024
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Whoever does one of these may have left a process behind that is nobody's child here.
FORKING_EVENTS = frozenset({"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"})
INTERRUPTED_STATUS = 130
# Variables that only a program started by the step reads from the C library.
OWN_PREFIX = "MULLIGAN_"
OUTPUT_FOLDER = "MULLIGAN_OUTPUT_DIR"
# What the program of a step is called, until a traceback says of which.
PROGRAM = "<step>"


# `json.dumps` would make a new one at each call, and `json.loads` look for the encoding first.
_ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False)
_decode = json.JSONDecoder().decode


class NotEncodable(Exception):
    """What `main` returned is no JSON; the message says where."""


class Child:
    """Runs what comes over the socket, one step at a time, and answers how it went."""

    def __init__(self, sock: socket.socket, slot_out: str, slot_err: str) -> None:
        self._sock = sock
        self._stream = sock.makefile("rb")
        self._slots = {1: slot_out, 2: slot_err}
        self._programs: dict[str, types.CodeType] = {}
        self._surroundings = Surroundings()
        self._has_forked = False
        sys.addaudithook(self._notice)

    def serve(self) -> None:
        """Until the worker closes the socket."""
        meter = Meter()
        while head := self._stream.read(LENGTH_BYTES):
            message = _decode(self._stream.read(int.from_bytes(head, "little")).decode())
            self._reopen_logs(message["fresh"])
            self._has_forked = False
            answer, output = self._run(message)
            _flush()
            cpu, peak = meter.read()
            self._note_what_is_left(answer, peak)
            self._send(answer, output, f'"cpu":{cpu:.6f},"peak":{peak},"out":{_size(1)},"err":{_size(2)}')
            meter.settle()

    def _notice(self, event: str, _: tuple) -> None:
        if event in FORKING_EVENTS:
            self._has_forked = True
            self._surroundings.export()

    def _send(self, answer: dict, output: str, measured: str) -> None:
        """The output is JSON already, and may be large: it is not written twice."""
        said = f"{_ENCODER.encode(answer)[1:-1]}," if answer else ""
        body = f'{{{said}{measured},"output":{output}}}'.encode()
        self._sock.sendall(len(body).to_bytes(LENGTH_BYTES, "little") + body)

    def _reopen_logs(self, fds: list) -> None:
        """The worker has given the logs of the last step their names: the next ones start new."""
        for fd in fds:
            new = os.open(self._slots[fd], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
            os.dup2(new, fd)
            os.close(new)

    def _note_what_is_left(self, answer: dict, peak: int) -> None:
        """What cannot be put back is told, and the worker sees to it."""
        if self._has_forked:
            answer["forked"] = True
        is_large = peak > KEPT_BYTES_MAX and _resident_bytes() > KEPT_BYTES_MAX
        if is_large or threading.active_count() > 1 or _has_children():
            answer["worn"] = True

    def _run(self, message: dict) -> tuple:
        """The answer, and the result as JSON text."""
        try:
            self._surroundings.set_up(message["env"], message["unset"], message["home"])
            try:
                os.chdir(message["cwd"])
            except (OSError, ValueError) as error:
                return {"folder": getattr(error, "strerror", None) or str(error)}, "null"
            if "call" in message or OUTPUT_FOLDER in message["code"]:
                self._surroundings.make_output_folder()
            result = _awaited(self._function(message)(**message["args"]))
            return {}, _encoded(result)
        except NotEncodable as error:
            return {"invalid": str(error)}, "null"
        except SystemExit as error:
            return {"exit": _exit_status(error.code)}, "null"
        except KeyboardInterrupt:
            return {"exit": INTERRUPTED_STATUS}, "null"
        except BaseException as error:  # whatever a step raises is its failure, not ours
            self._show_lines(message.get("code", ""))
            return _failure(error, message["step"]), "null"

    def _function(self, message: dict) -> types.FunctionType:
        if "call" in message:
            module, _, name = message["call"].partition(":")
            found = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
            return found  # type: ignore[return-value]
        # A namespace of its own: no step sees what another one left.
        names: dict = {"__name__": "__mulligan__"}
        exec(self._program(message["code"]), names)
        return names["main"]

    def _program(self, code: str) -> types.CodeType:
        """Compiled once, however many steps have the same text."""
        if code not in self._programs:
            self._programs[code] = compile(code, PROGRAM, "exec", dont_inherit=True)
        return self._programs[code]

    def _show_lines(self, code: str) -> None:
        """Let a traceback show the lines of the step: they are in no file."""
        linecache.cache[PROGRAM] = (len(code), None, code.splitlines(keepends=True), PROGRAM)


class Surroundings:
    """Environment, arguments, search path and streams: what a step may change and the next must not see."""

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._told: dict[str, str] = {}
        self._exported: set[str] = set()
        self._raw = _raw_environment()
        self._path = list(sys.path)
        self._streams = sys.stdin, sys.stdout, sys.stderr

    def set_up(self, changed: dict, removed: list, home: str) -> None:
        """`changed` and `removed` are what differs from the step before: most of it is the same."""
        if os.environ._data != self._raw:  # type: ignore[attr-defined]
            self._restore_environment()
        for name in removed:
            del self._told[name]
        self._forget([*removed, *self._exported])
        self._told.update(changed)
        self._tell(changed if not self._exported else self._told)
        self._exported.clear()
        self._raw = _raw_environment()
        if "multiprocessing.util" in sys.modules:
            self.export()  # it starts processes and tells nobody
        self._path[0] = home
        if sys.path != self._path:
            sys.path[:] = self._path
        sys.argv[:] = [""]
        sys.stdin, sys.stdout, sys.stderr = self._streams

    def export(self) -> None:
        """Hand our own variables to the C library too, for a process that is about to be started.

        Most steps start none, and the library keeps every value that a variable ever had, for ever.
        """
        self.make_output_folder()
        for name, value in self._told.items():
            if name not in self._exported and name.startswith(OWN_PREFIX):
                os.putenv(name, value)
                self._exported.add(name)

    def make_output_folder(self) -> None:
        """Only for who may look for it: most steps do not, and a folder costs more than a small step."""
        try:
            os.makedirs(self._told[OUTPUT_FOLDER], exist_ok=True)
        except (KeyError, OSError):
            pass  # whoever wants to write there sees for himself

    def _tell(self, told: dict) -> None:
        for name, value in told.items():
            if name.startswith(OWN_PREFIX):
                os.environ._data[_bytes(name)] = _bytes(value)  # type: ignore[attr-defined]
            else:
                os.environ[name] = value

    def _forget(self, names: list) -> None:
        for name in names:
            if name in self._environment:
                os.environ[name] = self._environment[name]
            elif name in os.environ:
                del os.environ[name]

    def _restore_environment(self) -> None:
        """A step has changed it: all of it is set anew."""
        os.environ.clear()
        os.environ.update(self._environment)
        self._tell(self._told)


def _bytes(text: str) -> bytes:
    """As `os.fsencode` gives it, which first asks what it was given."""
    return text.encode(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())


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
        self._cpu, self._peak = self._now()
        self._floor = 0
        self.settle()

    def read(self) -> tuple:
        """Since it was last read: what is between two steps is next to nothing."""
        before = self._cpu
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

    @staticmethod
    def _now() -> tuple:
        own = resource.getrusage(resource.RUSAGE_SELF)
        below = resource.getrusage(resource.RUSAGE_CHILDREN)
        return own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime, own.ru_maxrss * 1024


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * PAGE_BYTES


def _size(fd: int) -> int:
    try:
        return os.fstat(fd).st_size
    except OSError:
        return 0  # the step has closed it


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            continue  # a step may close or replace them


def _awaited(result: object) -> object:
    """What an `async def main` comes to; anything else is what it is."""
    if isinstance(result, types.CoroutineType):
        # Not at the top: asyncio costs more than all the rest of a child.
        return importlib.import_module("asyncio").run(result)
    return result


def _exit_status(code: object) -> int:
    """What a process that ends so would give: a message is printed, and is 1."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


# -- failures


def _failure(error: BaseException, step: str) -> dict:
    module = sys.modules.get("mulligan")
    step_error = getattr(module, "StepError", None)
    answer: dict = {"trace": _trace(error).replace(f'"{PROGRAM}"', f'"<step {step}>"')}
    if step_error is not None and isinstance(error, step_error):
        answer["reported"] = error.report()
        try:
            json.dumps(answer["reported"], allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError):
            answer["reported"]["details"] = {"details": _shown(answer["reported"].get("details"))}
    else:
        text = _shown(error)
        answer["exception"] = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return answer


def _shown(value: object) -> str:
    """A user's object as text; its own code may do anything but stop us."""
    try:
        return str(value).encode("utf-8", "replace").decode()[:TEXT_CHARS_MAX]
    except Exception:
        return "it cannot be shown"


def _trace(error: BaseException) -> str:
    """The frames of the user's code: ours come first and are left out."""
    try:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
            frames = frames.tb_next
        lines = traceback.format_exception(type(error), error, frames)
        return "".join(lines).encode("utf-8", "replace").decode()[-TRACE_CHARS_MAX:]
    except Exception:
        return ""


# -- results


def _encoded(output: object) -> str:
    """`output` as JSON text, or NotEncodable with the place of what is none."""
    if output is None:
        return "null"
    try:
        text = _ENCODER.encode(output)
        size = len(text) if text.isascii() else len(text.encode())
    except (TypeError, ValueError, RecursionError):
        raise NotEncodable(_why_not(output, "the result", 0) or "the result is not JSON") from None
    if size > OUTPUT_BYTES_MAX:
        raise NotEncodable(f"the result has {size} bytes as JSON, and {OUTPUT_BYTES_MAX} are the most")
    return text


def _why_not(value: object, path: str, depth: int) -> str:
    """Where the first thing is that JSON cannot hold, and what it is."""
    if depth > DEPTH_MAX:
        return f"{path} is nested too deep, or holds itself"
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, (str, int, float, bool, type(None))):
                return f"{path} has a key of type '{type(key).__name__}', which is not JSON"
            if found := _why_not(inner, f"{path}[{key!r}]", depth + 1):
                return found
        return ""
    if isinstance(value, (list, tuple)):
        reasons = (_why_not(inner, f"{path}[{at}]", depth + 1) for at, inner in enumerate(value))
        return next(filter(None, reasons), "")
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"{path} is {value}, which is not JSON"
    if isinstance(value, str):
        return "" if _is_unicode(value) else f"{path} has half of a character in it, which is not JSON"
    if value is None or isinstance(value, (bool, int, float)):
        return ""
    return f"{path} is of type '{type(value).__name__}', which is not JSON"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def main(slot_out: str, slot_err: str) -> None:
    """The socket comes as standard input; a step has none."""
    sock = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.argv[:] = [""]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    Child(sock, slot_out, slot_err).serve()
