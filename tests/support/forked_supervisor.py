"""The supervisors and warm children of workers in the tests' own process, without the start of an interpreter.

A server has the programs of both loaded, and forks. A supervisor becomes a child of ours, not of the server, and forks
its warm children itself; every other program it starts as usual. A child has the modules, the search path, the streams
and the signal handlers that a new one would have. What our own actions import is loaded, but a child sees it only when
it imports it. Only what the kernel keeps of the start is another: `/proc/PID/cmdline`, and the memory that is shared
with the server.

This module is loaded by the server: it imports what a supervisor or a child needs, and little more.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import io
import json
import os
import platform
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

# The number of the system call `clone`.
CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine()) if sys.platform == "linux" else None
CLONE_PARENT = 0x8000
CALL_BYTES_MAX = 1 << 18
FDS_MAX = 1 << 16
# Room for other variables where the kernel has those of the server.
ROOM = {"ROOM": " " * (1 << 14)}
# The functions that a child imports to run our own actions, and to pass values that are not JSON.
OF_ACTIONS = (
    "mulligan.formats.noetl.runtime",
    "mulligan.formats.prodigy.runtime",
    "mulligan.step_context.artifacts",
    "mulligan.values.decoding",
    "mulligan.values.encoding",
    "mulligan.values.files",
    "mulligan.worker.actions.agent",
    "mulligan.worker.actions.http",
    "mulligan.worker.actions.plugin",
    "mulligan.worker.actions.shell",
    "mulligan.worker.actions.sql",
    "mulligan.values.artifact_contents",
    "mulligan.worker.outputs.file_hashes",
    "mulligan.worker.outputs.kept_files",
    "mulligan.worker.outputs.large_outputs",
    "mulligan.worker.models.asking",
    "mulligan.flows.pinned_modules",
    "mulligan.step_context.step_generators",
    "mulligan.worker.child.step_loop",
    "mulligan.worker.git.workspaces",
)
# Where a part in C keeps the classes of the first import, a second one would not be of these classes.
IMPORTED_ONCE = frozenset({"yaml", "_yaml"})
CHILD_MAIN = "mulligan.worker.child.child_main"
# As `warm_child` starts one: what is loaded then is what every child has.
SERVER_PROGRAM = """
import sys
root, parent = sys.argv.pop(1), sys.argv.pop(1)
sys.path.append(parent)
import mulligan.worker.child.child_main
sys.path.remove(parent)
names, path = set(sys.modules), list(sys.path)
sys.path.insert(0, root)
from tests.support.forked_supervisor import serve
serve(names, path)
"""
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGE_PARENT = os.path.join(ROOT, "src")


def start_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that an interpreter reads when it starts."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(("PYTHON", "LC_", "LANG", "LD_")) and name != "PYTHONPATH"
    }


def python_path(environment: Mapping[str, str]) -> list[str]:
    return [folder for folder in environment.get("PYTHONPATH", "").split(os.pathsep) if folder]


# -- in the process of the tests ---------------------------------------------------------------------------------------


class Server:
    """The process that forks. It ends when this process does, whose socket is closed then."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        atexit.register(self._socket.close)
        with theirs:
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-c", SERVER_PROGRAM, ROOT, PACKAGE_PARENT],
                {**os.environ, **ROOM},
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)],
                setsigmask=(),
            )

    def start(self, arguments: list[str], environment: Mapping[str, str], fds: list[int]) -> int:
        """The id of a new supervisor, which is a child of this process; it gets these descriptors."""
        mask = os.umask(0o77)
        os.umask(mask)
        call = {"arguments": arguments, "environment": dict(environment), "folder": os.getcwd(), "umask": mask}
        with self._turn:
            socket.send_fds(self._socket, [json.dumps(call).encode()], fds)
            told = self._socket.recv(64)
        assert told, "the server of forked supervisors has ended"
        return int(told)


@cache
def _server(owner: int) -> Server:
    """The server of this process: children of the one that it was forked from would not be ours."""
    return Server()


def start_supervisor(arguments: list[str], environment: Mapping[str, str], fds: list[int]) -> int:
    """As the function of this name in `mulligan.worker.supervisor.supervisor_client`."""
    return _server(os.getpid()).start(arguments, environment, fds)


# -- the server --------------------------------------------------------------------------------------------------------


def serve(names: set[str], path: list[str]) -> None:
    """Fork supervisors for whoever has the other end of stdin. The names and the search path are those of a child."""
    caller = socket.socket(fileno=os.dup(0))
    loaded = LoadedModules(names, path)
    # Collecting garbage would write to the memory of every object, and all of it would be copied.
    gc.collect()
    gc.freeze()
    while True:
        text, fds, _, _ = socket.recv_fds(caller, CALL_BYTES_MAX, 2)
        if not text:
            return
        pid = fork_for_parent()
        if pid == 0:
            caller.close()
            _become_supervisor(json.loads(text), fds, loaded)
        for fd in fds:
            os.close(fd)
        caller.send(b"%d" % pid)


class _FoundAgain(MetaPathFinder, Loader):
    """Gives a child that imports one of these modules the one that the server has."""

    def __init__(self, modules: dict[str, ModuleType]) -> None:
        self._modules = modules

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in self._modules:
            return None
        return ModuleSpec(name, self, is_package=hasattr(self._modules[name], "__path__"))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """It was executed in the server."""


class LoadedModules:
    """The modules of the server: those that a child has when it starts, and those that it may import."""

    def __init__(self, names: set[str], path: list[str]) -> None:
        self._of_start = names
        self._once: dict[str, ModuleType] = {}
        sys.meta_path.insert(0, _FoundAgain(self._once))
        # The search path without what PYTHONPATH says.
        self._path = [path[0], *path[1 + len(python_path(os.environ)) :]]
        self._variables = start_variables(os.environ)
        by_entry = {entry: self._names_loaded_by(entry) for entry in OF_ACTIONS}
        for entry in OF_ACTIONS:
            importlib.import_module(entry)
        self._by_entry = {entry: {name: sys.modules[name] for name in found} for entry, found in by_entry.items()}
        self._import_module = importlib.import_module
        self._main = sys.modules["__main__"]

    def _names_loaded_by(self, entry: str) -> set[str]:
        """What a child imports with a module: a copy of this process tells."""
        reader, writer = os.pipe()
        if os.fork() == 0:
            self._remove_others()
            importlib.import_module(entry)
            with open(writer, "w", encoding="utf-8") as told:
                told.write("\n".join(sys.modules.keys() - self._of_start))
            os._exit(0)
        os.close(writer)
        with open(reader, encoding="utf-8") as told:
            names = set(told.read().split())
        os.wait()
        return names

    def _remove_others(self) -> None:
        for name in sys.modules.keys() - self._of_start:
            module = sys.modules.pop(name)
            if name.partition(".")[0] in IMPORTED_ONCE:
                self._once[name] = module
            package, _, last = name.rpartition(".")
            if package in self._of_start and vars(sys.modules[package]).get(last) is module:
                delattr(sys.modules[package], last)

    def is_for(self, environment: Mapping[str, str]) -> bool:
        """Whether an interpreter would start with these variables as this one has."""
        return start_variables(environment) == self._variables

    def restore(self, environment: Mapping[str, str]) -> None:
        """Leave a child the modules and the search path with which it starts; other modules are found again."""
        self._remove_others()
        self._main.__dict__.clear()
        self._main.__dict__.update(ModuleType("__main__").__dict__)
        sys.path[:] = [self._path[0], *python_path(environment), *self._path[1:]]
        importlib.import_module = self._find_or_import

    def _find_or_import(self, name: str, package: str | None = None) -> ModuleType:
        modules = self._by_entry.get(name, {})
        # A step may have imported one of them itself: then there would be two of it.
        if all(sys.modules.get(one, module) is module for one, module in modules.items()):
            for one, module in modules.items():
                if one not in sys.modules:
                    sys.modules[one] = module
                    package, _, last = one.rpartition(".")
                    if package in self._of_start:
                        setattr(sys.modules[package], last, module)
                    sys.audit("import", one, _library(module), None, None, None)
        return self._import_module(name, package)


def _library(module: ModuleType) -> str | None:
    file = getattr(module, "__file__", None)
    return file if file and file.endswith(".so") else None


def fork_for_parent() -> int:
    """As `os.fork`, but the new process is a child of our parent."""
    python, system = ctypes.pythonapi, ctypes.PyDLL(None, use_errno=True)
    python.PyOS_BeforeFork()
    pid = system.syscall(CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone")
    return int(pid)


# -- a supervisor ------------------------------------------------------------------------------------------------------


def _become_supervisor(call: dict[str, Any], fds: list[int], loaded: LoadedModules) -> NoReturn:
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        os.chdir(call["folder"])
        os.umask(call["umask"])
        _set_environment(call["environment"])
        supervisor: Any = importlib.import_module("mulligan.worker.supervisor.supervisor")
        supervisor.spawn = partial(_spawn, supervisor.spawn, loaded)
        sock, lock = (*map(str, fds), "")[:2]
        supervisor.main(sock, lock, *call["arguments"])
    finally:
        os._exit(1)


def _set_environment(environment: Mapping[str, str]) -> None:
    """Set it, also where others look: `/proc/PID/environ` shows memory of the process. Our own variables come first."""
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    with open("/proc/self/stat", encoding="utf-8") as stat:
        start, end = map(int, stat.read().rpartition(")")[2].split()[47:49])
    variables = sorted(environment.items(), key=lambda one: not one[0].startswith("MULLIGAN_"))
    text = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in variables)
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def _spawn(
    spawn: Callable[..., int],
    loaded: LoadedModules,
    program: str,
    argv: list[str],
    environment: dict[str, str],
    *,
    stdin: str | None,
    stdin_fd: int,
    out: str,
    err: str,
) -> int:
    """As `spawning.spawn`: a warm child in our own interpreter is forked, everything else is started."""
    is_forked = program == sys.executable and CHILD_MAIN in argv[2] and loaded.is_for(environment)
    if not is_forked:
        return spawn(program, argv, environment, stdin=stdin, stdin_fd=stdin_fd, out=out, err=err)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    streams = [stdin_fd]
    # A signal that comes now is for the child, which has our handlers until it has its own.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        streams += [os.open(path, flags, 0o600) for path in (out, err)]
        pid = os.fork()
        if pid == 0:
            _become_child(argv, environment, streams, loaded)
    finally:
        for fd in streams[1:]:
            os.close(fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return pid


# -- a child -----------------------------------------------------------------------------------------------------------


def _become_child(argv: list[str], environment: dict[str, str], streams: list[int], loaded: LoadedModules) -> NoReturn:
    try:
        os.setsid()
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        os.closerange(3, FDS_MAX)
        _reset_signals()
        open_streams()
        _set_environment(environment)
        main = sys.modules[CHILD_MAIN].main
        loaded.restore(environment)
        # As the program of a child, which appends the folder of the package for as long as it loads it.
        sys.path.append(argv[3])
        sys.path.remove(argv[3])
        sys.argv[:] = ["-c", *argv[4:]]
        main(*argv[4:])
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    finally:
        os._exit(0)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def open_streams() -> None:
    """As an interpreter opens them when it starts: what is a terminal is flushed after every line."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        binary = os.fdopen(number, "wb" if number else "rb", closefd=False)
        stream = io.TextIOWrapper(
            binary,
            encoding=old.encoding,
            errors=old.errors,
            newline="\n" if number else None,
            line_buffering=name == "stderr" or os.isatty(number),
            write_through=old.write_through,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
