"""The program of a warm child: runs the python steps of one workflow, one after the other.

The interpreter may not be ours, so this needs nothing but the standard library, and speaks JSON. After each step it
restores what a step may change: folder, environment, arguments. What it cannot restore (threads, child processes,
memory) it reports, and the worker replaces it.
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
from typing import Any, NoReturn

from mulligan.step_context.log_records import LEVEL_VARIABLE, OF_ACTIONS, OF_STEPS, follow_level, watch_logging
from mulligan.values.annotations import (
    ArgumentRefused,
    ArtifactUnreadable,
    has_typed_parameters,
    is_surely_annotated,
)
from mulligan.values.exception_names import STEP_MODULE
from mulligan.worker.child.json_encoding import ENCODER, NotJson, check_size, encode_plain
from mulligan.worker.child.kernel_state import KernelState, OwnMemory
from mulligan.worker.child.step_errors import describe_error, exit_status

SIGTERM = _signal.SIGTERM
LENGTH_BYTES = 4
# Beside "redacted": see `warm_child`.
SECRET = "secret"
RECEIVE_BYTES = 1 << 16
# A child that uses more memory than this after a step is not kept.
KEPT_BYTES_MAX = 512 * 1024 * 1024
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# After one of these events a process may run that is not our child.
FORKING_EVENTS = frozenset({"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"})
# Libraries from elsewhere, and these modules, may start processes without an audit event.
OWN_LIBRARIES = os.path.dirname(getattr(resource, "__file__", None) or "/dev/null/none") + "/"
LIMITING_EVENTS = frozenset({"resource.setrlimit", "resource.prlimit"})
LOADING_EVENTS = frozenset({"ctypes.dlopen", "sqlite3.load_extension"})
SILENT_MODULES = frozenset({"_posixsubprocess", "_xxsubinterpreters", "_interpreters"})
INTERRUPTED_STATUS = 130
TERMINATED_STATUS = 128 + SIGTERM
# Variables whose names begin so are passed to the C library only before a process is started.
OWN_PREFIXES = ("MULLIGAN_", "TRACEPARENT")
OWN_PACKAGE = "mulligan."
OUTPUT_FOLDER = "MULLIGAN_OUTPUT_DIR"
# Loaded when an argument is an artifact: most steps have none.
CONTENTS = "mulligan.values.artifact_contents"
# Loaded for values that are not JSON: most steps have none.
DECODING = "mulligan.values.decoding"
ENCODING = "mulligan.values.encoding"
FILES = "mulligan.values.files"
RESULTS = "mulligan.values.results"
# Loaded for steps that get a client of Dask.
DASK_CLIENTS = "mulligan.worker.child.dask_clients"
# Loaded for steps that are debugged.
DEBUGGER = "mulligan.step_context.debugger"
# Loaded for functions of a script or a notebook.
PINNED = "mulligan.flows.pinned_modules"
RESULT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
# Loaded for steps that are generators or coroutines.
GENERATORS = "mulligan.step_context.step_generators"
LOOP = "mulligan.worker.child.step_loop"
# Most results; and those that are not results yet.
PLAIN_TYPES = frozenset({type(None), bool, int, float, str, list, dict})
UNFINISHED_TYPES = (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)
# What a step has called to report its progress, and to keep files, if it has.
CONTEXT = "mulligan.step_context"
KEPT_FILES = "mulligan.step_context.artifacts"
# A reference to a file that the step keeps.
NEW_FILE = '{"$artifact": {"name": "new/'
# The connections to databases that our own actions keep, if they do.
KEPT_CONNECTIONS = "mulligan.worker.databases.kept_connections"
# An object that stands for a function, as `@step` makes one, has the function under this name.
FUNCTION_ATTRIBUTE = "__mulligan_function__"
# The file name of a step's code, until a traceback names the step.
PROGRAM = "<step>"

# `json.loads` would first look for the encoding and for whitespace.
_decode = json.JSONDecoder().raw_decode
# `signal.getsignal` would first create an enum member.
_handler_of = _signal.getsignal
# A step may replace `os.getpid`.
_getpid = os.getpid
_ENCODING, _ENCODING_ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


class ChildServer:
    """Run the calls that come over the socket, one at a time, and answer each.

    A message contains only what differs from the call before it. A result of more than `inline_max` characters goes to
    the file `slot_result`, so that the worker's loop reads neither results nor arguments that are large.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        slot_out: str,
        slot_err: str,
        slot_result: str,
        inline_max: int,
        redacted: str,
        debugging: dict[str, Any] | None = None,
    ) -> None:
        self._sock = sock
        # Its results are searched for secrets, which is not possible in compressed files.
        self._is_redacted = bool(redacted)
        # Between two steps no other process may read what one that knew a secret has left in it.
        self._memory = OwnMemory() if redacted == SECRET else None
        self._slot_result, self._inline_max = slot_result, inline_max
        self._programs: dict[str, types.CodeType] = {}
        self._interpreter = InterpreterState()
        # One of these is empty.
        self._call = self._code = ""
        # For a call into a module whose source is pinned with the run.
        self._source = self._file = self._import_from = ""
        self._folder, self._home = "/", ""
        # The event loop, from the first step that is a coroutine on.
        self._loop: Any = None
        self._termination = Termination()
        self._kernel = KernelState(slot_out, slot_err)
        self._has_forked = False
        wanted = debugging or {}
        # Opens where a step stops or fails, if this process has a terminal or a port for that.
        self._debugger = (
            self._interpreter.import_installed(DEBUGGER).Debugger(
                wanted.get("terminal", ""), port=wanted.get("port", 0), stops=wanted.get("stops", False)
            )
            if wanted.get("terminal") or wanted.get("port")
            else None
        )
        self._has_locals = bool(wanted.get("locals"))
        self._may_hide = any(map(_may_hide_processes, sys.modules, map(_library, list(sys.modules.values()))))
        sys.addaudithook(self._on_audit_event)

    def serve(self) -> None:
        """Serve until the worker closes the socket."""
        meter, pid = Meter(), _getpid()
        while text := self._receive():
            message, _ = _decode(text)
            if "fresh_logs" in message:
                self._kernel.start_logs(message["fresh_logs"])
            self._has_forked = False
            if self._memory is not None:
                self._memory.unprotect()
            with self._termination:
                answer, output = self._run(message)
            if _getpid() != pid:
                _end_copy(answer)
            if self._debugger is not None and self._debugger.is_begun:
                self._debugger.end()
            if CONTEXT in sys.modules:
                sys.modules[CONTEXT].end_step()
            _flush()
            cpu, peak = meter.read(self._has_forked or self._may_hide)
            self._note_leftovers(answer, peak)
            out, err = self._kernel.log_sizes()
            measured = f'"number":{message["number"]},"cpu":{cpu:.6f},"peak":{peak},"out":{out},"err":{err}'
            if self._memory is not None:
                self._memory.protect()
            self._send(answer, output, measured)
            self._kernel.restore()
            meter.settle()

    def _receive(self) -> str:
        """Return the next message, which nearly always comes in one piece; "" when the worker is gone."""
        if KEPT_CONNECTIONS in sys.modules:
            self._close_idle_connections(sys.modules[KEPT_CONNECTIONS])
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

    def _close_idle_connections(self, kept: Any) -> None:
        """Wait for a message. If none comes for a moment, close the connections that were kept for the next task."""
        if kept.KEPT.is_empty:
            return
        self._sock.settimeout(kept.IDLE_SECONDS)
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            kept.KEPT.close_all()
        finally:
            self._sock.settimeout(None)

    def _on_audit_event(self, event: str, values: tuple[Any, ...]) -> None:
        if event in FORKING_EVENTS:
            self._has_forked = True
            self._interpreter.export()
        elif event in LIMITING_EVENTS:
            self._kernel.are_limits_set = True
        elif event in LOADING_EVENTS or (event == "import" and _may_hide_processes(values[0], values[1])):
            self._may_hide = True

    def _send(self, answer: dict[str, Any], output: str, measured: str) -> None:
        """Send the answer. The output is JSON already and may be large, so it is not encoded again."""
        if len(output) > self._inline_max and self._put_into_file(output):
            answer["in_file"], output = True, "null"
        said = f"{ENCODER.encode(answer)[1:-1]}," if answer else ""
        body = f'{{{said}{measured},"output":{output}}}'.encode()
        self._sock.sendall(len(body).to_bytes(LENGTH_BYTES, "little") + body)

    def _put_into_file(self, output: str) -> bool:
        """Return whether the result is in its file. If the disk is full it is sent instead."""
        try:
            if os.path.lexists(self._slot_result):
                os.unlink(self._slot_result)
            with open(os.open(self._slot_result, RESULT_FLAGS, 0o600), "wb") as file:
                file.write(output.encode())
        except OSError:
            return False
        return True

    def _note_leftovers(self, answer: dict[str, Any], peak: int) -> None:
        """Report what cannot be restored; the worker acts on it."""
        if self._has_forked:
            answer["forked"] = True
        is_large = peak > KEPT_BYTES_MAX and _resident_bytes() > KEPT_BYTES_MAX
        may_have_children = self._has_forked or self._may_hide
        is_worn = is_large or threading.active_count() > 1 or self._kernel.is_changed() or "sys" not in sys.modules
        if is_worn or (may_have_children and _has_children()):
            answer["dirty"] = True

    def _run(self, message: dict[str, Any]) -> tuple[Any, ...]:
        """Return the answer, and the result as JSON text."""
        try:
            self._set_up(message)
            try:
                os.chdir(self._folder)
            except (OSError, ValueError) as error:
                return {"folder": getattr(error, "strerror", None) or str(error)}, "null"
            if self._call or OUTPUT_FOLDER in self._code:
                self._interpreter.make_output_folder()
            if self._debugger is not None and not self._call.startswith(OWN_PACKAGE):
                return self._run_debugged(self._debugger, message)
            function = self._load_function(message["number"])
            arguments = self._decode_arguments(function, message)
            if "dask" in message:
                clients = self._interpreter.import_installed(DASK_CLIENTS)
                with clients.open_client(message["dask"]) as client:
                    result = self._complete(function(**arguments, client=client))
                    return {}, self._encode_result(result, function)
            result = self._complete(function(**arguments))
            return {}, self._encode_result(result, function)
        except ArtifactUnreadable as error:
            return {"unreadable": str(error)}, "null"
        except ArgumentRefused as error:
            return {"refused": str(error)}, "null"
        except NotJson as error:
            return {"invalid": str(error)}, "null"
        except SystemExit as error:
            return {"exit": exit_status(error.code)}, "null"
        except KeyboardInterrupt:
            return {"exit": INTERRUPTED_STATUS}, "null"
        except BaseException as error:  # anything that a step raises is a failure of the step
            self._show_lines()
            return describe_error(error, message["step"], PROGRAM, has_locals=self._has_locals), "null"

    def _run_debugged(self, debugger: Any, message: dict[str, Any]) -> tuple[Any, ...]:
        """Return the same for a step that has the terminal; where it fails, the person looks before this returns."""
        self._show_lines()
        try:
            debugger.begin()
        except ImportError:
            raise ArgumentRefused(f"{sys.executable} has no debugpy: {sys.executable} -m pip install debugpy") from None
        try:
            function = self._load_function(message["number"])
            arguments = self._decode_arguments(function, message)
            result = debugger.call(function, lambda: self._complete(function(**arguments)))
            if not debugger.quit_at:
                return {}, self._encode_result(result, function)
        except (ArtifactUnreadable, ArgumentRefused, NotJson, SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            if not debugger.quit_at:
                answer = describe_error(error, message["step"], PROGRAM, has_locals=self._has_locals)
                if "reported" not in answer:
                    debugger.post_mortem(error, message["step"])
                return answer, "null"
        # Whatever the step has made of that.
        return {"reported": debugger.quit_report()}, "null"

    def _set_up(self, message: dict[str, Any]) -> None:
        self._call = message.get("call", self._call)
        self._code = message.get("code", self._code)
        self._source = message.get("source", self._source)
        self._file = message.get("file", self._file)
        self._import_from = message.get("import_from", self._import_from)
        self._folder = message.get("cwd", self._folder)
        self._home = message.get("home", self._home)
        self._interpreter.set_up(message["env"], message.get("unset", ()), self._home)
        if "call" in message or LEVEL_VARIABLE in message["env"] or LEVEL_VARIABLE in message.get("unset", ()):
            follow_level(OF_ACTIONS if self._call.startswith(OWN_PACKAGE) else OF_STEPS)

    # -- the stages of a call

    def _load_function(self, number: int) -> Callable[..., Any]:
        """Find the function; report to the worker when an import begins that may take long, and when the call begins.

        The time limit of a step counts from its call. After the first call the worker knows that this process is up.
        """
        module = self._unloaded_module()
        if module is None and number > 1:
            return self._find_function()
        if module is not None:
            self._send({"phase": "importing", "module": module}, "null", self._unmeasured(number))
        function = self._find_function()
        self._send({"phase": "called"}, "null", self._unmeasured(number))
        return function

    def _unmeasured(self, number: int) -> str:
        return f'"number":{number},"cpu":0,"peak":0,"out":0,"err":0'

    def _unloaded_module(self) -> str | None:
        """Return the module of the user that has to be loaded, "" for the code of a step; None if there is nothing."""
        if not self._call:
            return None if self._code in self._programs else ""
        module = self._call.partition(":")[0]
        if self._source:
            is_loaded = PINNED in sys.modules and sys.modules[PINNED].is_loaded(module, self._source, self._file)
            return None if is_loaded else module
        return None if module in sys.modules or module.startswith(OWN_PACKAGE) else module

    def _find_function(self) -> Callable[..., Any]:
        """Return the function of the step, also if an object stands for it: see `__mulligan_function__`."""
        found = self._import_target() if self._call else self._execute_code()
        function: Callable[..., Any] = getattr(found, FUNCTION_ATTRIBUTE, found)
        return function

    def _import_target(self) -> Any:
        module, _, name = self._call.partition(":")
        if self._import_from and self._import_from not in sys.path:
            sys.path.insert(0, self._import_from)  # removed before the next step
        # A run that the module starts at its top level is refused: it would start itself again.
        __mulligan_loading__ = module  # noqa: F841
        target = (
            self._interpreter.import_installed(PINNED).load(module, self._source, self._file)
            if self._source
            else self._interpreter.import_installed(module)
            if module.startswith(OWN_PACKAGE)
            else importlib.import_module(module)
        )
        for part in name.split("."):
            target = getattr(target, part)
        return target

    def _execute_code(self) -> Any:
        # Each step has its own namespace. It is a module, because that is where annotations of classes are looked up.
        module = types.ModuleType(STEP_MODULE)
        sys.modules[STEP_MODULE] = module
        exec(self._program(self._code), module.__dict__)  # noqa: S102
        return module.__dict__["main"]

    def _decode_arguments(self, function: Callable[..., Any], message: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments: JSON with the content of artifacts, converted to what annotations say."""
        args: dict[str, Any] = message.get("args", {})
        is_ours, has_files = self._call.startswith(OWN_PACKAGE), "files" in message
        if has_files:
            # Our own functions pass the path of a file on, as text.
            make = _path_as_text if is_ours else self._make_file
            args = self._interpreter.import_installed(CONTENTS).with_contents(args, message["files"], make)
        if is_ours:
            return args
        if has_typed_parameters(function):
            args = self._interpreter.import_installed(DECODING).convert_arguments(function, args)
        elif has_files:
            args = self._interpreter.import_installed(FILES).load_arguments(args)
        return args

    def _make_file(self, path: str, reference: dict[str, Any]) -> object:
        """Return a file that an earlier step keeps; as what it is given to the function depends on its parameter."""
        make_path = self._interpreter.import_installed(KEPT_FILES).make_path
        found: object = self._interpreter.import_installed(FILES).StoredFile(path, reference, make_path)
        return found

    def _complete(self, result: object) -> object:
        """Run a coroutine or a generator to its end and return what it returned; return anything else unchanged."""
        if type(result) in PLAIN_TYPES or not isinstance(result, UNFINISHED_TYPES):
            return result
        if isinstance(result, types.GeneratorType):
            return self._interpreter.import_installed(GENERATORS).run_generator(result, NotJson)
        if self._loop is None:
            # Imported late: asyncio costs more than the rest of a child.
            self._loop = self._interpreter.import_installed(LOOP).StepLoop()
        return self._loop.run(result)

    def _encode_result(self, result: object, function: Callable[..., Any]) -> str:
        """Return the result as JSON text; raise NotJson if it cannot be stored, or is not what was promised."""
        if not (is_surely_annotated(function, result) or self._call.startswith(OWN_PACKAGE)):
            results = self._interpreter.import_installed(RESULTS)
            try:
                results.check_result(function, result)
            except results.ResultMisfit as misfit:
                raise NotJson(str(misfit)) from None
        text = encode_plain(result)
        if text is None:
            text = self._encode_typed(result)
        # A larger result is stored in a file, where no reference would be found.
        if len(text) > self._inline_max and KEPT_FILES in sys.modules and NEW_FILE in text:
            raise NotJson(
                f"the result has {len(text)} characters as JSON beside the files that it refers to; the limit is "
                f"{self._inline_max}, so keep some of it in a file, too"
            )
        return text

    def _encode_typed(self, result: object) -> str:
        encoding = self._interpreter.import_installed(ENCODING)
        try:
            text: str = encoding.encode(
                result, lambda: self._interpreter.import_installed(KEPT_FILES), is_compressed=not self._is_redacted
            )
            return check_size(text)
        except encoding.ValueRefused as refusal:
            raise NotJson(str(refusal)) from None

    def _program(self, code: str) -> types.CodeType:
        """Compile code once, however many steps share it."""
        if code not in self._programs:
            self._programs[code] = compile(code, PROGRAM, "exec", dont_inherit=True)
        return self._programs[code]

    def _show_lines(self) -> None:
        """Let a traceback show the source lines of the step, which are not in a file."""
        linecache.cache[PROGRAM] = (len(self._code), None, self._code.splitlines(keepends=True), PROGRAM)


def _end_copy(answer: dict[str, Any]) -> NoReturn:
    """End a process that the step forked and in which its function has ended: it does not answer for the step."""
    _flush()
    os._exit(answer.get("exit", 1 if answer else 0))


class Terminated(SystemExit):
    """The step has to end."""


class Termination:
    """SIGTERM during a step: the step may clean up in its grace period, then this process dies of the signal."""

    def __init__(self) -> None:
        self._is_in_step = self._is_due = False
        self._raised: Callable[..., Any] = lambda: None
        self._handler = self._on_signal
        signal.signal(SIGTERM, self._handler)
        signal.signal(signal.SIGCONT, self._on_wakeup)
        self._masks = threading.local()
        os.register_at_fork(
            before=self._block_sigterm, after_in_parent=self._restore_mask, after_in_child=self._reset_in_child
        )

    def __enter__(self) -> None:
        if _handler_of(SIGTERM) is not self._handler:
            signal.signal(SIGTERM, self._handler)  # the last step replaced it
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
        """Raise again in a step that was about to block, or lost the exception, when SIGTERM came.

        An exception that is raised in a destructor is discarded.
        """
        if self._is_due and self._is_in_step:
            self._raise()

    def _raise(self) -> None:
        if self._raised() is not None:
            return  # the step is cleaning up
        error = Terminated(TERMINATED_STATUS)
        self._raised = weakref.ref(error)
        try:
            raise error
        finally:
            del error  # otherwise its own traceback would keep it alive

    # A process that a step forks ends like any other, even if SIGTERM comes during the fork.

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
    """Environment, arguments, search path and streams: what a step may change and the next step must not see."""

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._variables: dict[str, str] = {}
        self._exported: set[str] = set()
        self._raw = _raw_environment()
        # Without "", which means the current folder.
        self._installed = [entry for entry in sys.path if entry]
        self._streams = sys.stdin, sys.stdout, sys.stderr

    def set_up(self, changed: dict[str, Any], removed: tuple[Any, ...] | list[Any], home: str) -> None:
        """Apply what differs from the last step (`changed`, `removed`); restore what that step changed itself."""
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
            self.export()  # it starts processes without an audit event
        path = [home, *self._installed] if home else self._installed
        if sys.path != path:
            sys.path[:] = path
        sys.argv[:] = [""]
        sys.stdin, sys.stdout, sys.stderr = self._streams

    def import_installed(self, module: str) -> Any:
        """Import an installed module, even if a file in the run's folder has its name or that of a dependency."""
        path, sys.path[:] = list(sys.path), self._installed
        try:
            return importlib.import_module(module)
        finally:
            sys.path[:] = path

    def export(self) -> None:
        """Pass our variables to the C library too, for a process that is about to be started.

        Most steps start none, and the library never frees a value that a variable had.
        """
        self.make_output_folder()
        for name, value in self._variables.items():
            if name not in self._exported and name.startswith(OWN_PREFIXES):
                os.putenv(name, value)
                self._exported.add(name)

    def make_output_folder(self) -> None:
        """Create it only if the step may use it: creating a folder costs more than a small step."""
        try:
            os.makedirs(self._variables[OUTPUT_FOLDER], exist_ok=True)
        except (KeyError, OSError):
            pass  # the step gets the error when it writes there

    def _set_variables(self, values: dict[str, Any]) -> None:
        raw, noted = os.environ._data, self._raw  # type: ignore[attr-defined]
        for name, value in values.items():
            key = name.encode(_ENCODING, _ENCODING_ERRORS)
            if name.startswith(OWN_PREFIXES):
                raw[key] = value.encode(_ENCODING, _ENCODING_ERRORS)
            else:
                os.environ[name] = value
            noted[key] = raw[key]

    def _forget(self, names: list[Any]) -> None:
        for name in names:
            if name in self._environment:
                os.environ[name] = self._environment[name]
            elif name in os.environ:
                del os.environ[name]
        self._raw = _raw_environment()

    def _restore_environment(self) -> None:
        """Set everything again after a step changed the environment."""
        os.environ.clear()
        os.environ.update(self._environment)
        self._raw = _raw_environment()
        self._set_variables(self._variables)


def _raw_environment() -> dict[bytes, bytes]:
    """Return the bytes under `os.environ`: comparing them takes a hundredth of the time."""
    return dict(os.environ._data)  # type: ignore[attr-defined]


class Meter:
    """Measure cpu seconds and peak memory of a step. The peak covers all steps if the kernel cannot reset it."""

    def __init__(self) -> None:
        try:
            self._fd = os.open("/proc/self/clear_refs", os.O_WRONLY)
        except OSError:
            self._fd = -1
        self._below = 0.0
        self._cpu, self._peak = self._now()
        self._floor = 0
        self.settle()

    def read(self, may_have_children: bool) -> tuple[Any, ...]:
        """Return what was used since the last call: the time between two steps is negligible."""
        before = self._cpu
        if may_have_children:
            below = resource.getrusage(resource.RUSAGE_CHILDREN)
            self._below = below.ru_utime + below.ru_stime
        self._cpu, self._peak = self._now()
        return self._cpu - before, self._peak

    def settle(self) -> None:
        """Reset the peak, unless it is no higher than the last one, which is the usual case."""
        if self._fd < 0 or self._peak <= self._floor:
            return
        try:
            os.write(self._fd, b"5")
        except OSError:
            self._fd = -1
        self._floor = self._now()[1]

    def _now(self) -> tuple[Any, ...]:
        own = resource.getrusage(resource.RUSAGE_SELF)
        return own.ru_utime + own.ru_stime + self._below, own.ru_maxrss * 1024


def _path_as_text(path: str, _reference: dict[str, Any]) -> str:
    return path


def _may_hide_processes(module: str, library: str | None) -> bool:
    """Whether this may start processes without an audit event: native code that is not part of Python."""
    return module in SILENT_MODULES or (library is not None and not library.startswith(OWN_LIBRARIES))


def _library(module: object) -> str | None:
    """Return the file of a native module; None for one that is written in Python."""
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
        except BaseException:  # noqa: S112
            continue  # a step may have closed or replaced them


def main(
    slot_out: str, slot_err: str, slot_result: str, inline_max: str, redacted: str = "", debugging: str = ""
) -> None:
    """Serve over standard input, which is the socket; a step gets /dev/null instead."""
    sock = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.argv[:] = [""]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    watch_logging()
    try:
        ChildServer(
            sock,
            slot_out=slot_out,
            slot_err=slot_err,
            slot_result=slot_result,
            inline_max=int(inline_max),
            redacted=redacted,
            debugging=json.loads(debugging) if debugging else None,
        ).serve()
    except Terminated:
        # The signal came between the last instruction of the step and the end of `Termination`.
        _flush()
        _die_of_sigterm()
    except BaseException as error:
        try:
            os.write(2, f"the step broke the process that ran it: {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(1)
