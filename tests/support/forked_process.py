"""`mulligan` as a process of its own, without the start of an interpreter: a server has it loaded, and forks.

What `start_mulligan` gives is a `Popen` like any other. The server makes the process a child of ours, not of its own:
its id, its signals, its exit code, its terminal and its process group are those of a process that we started.
Only what the kernel keeps of the start is another: `/proc/PID/cmdline` and `/proc/PID/environ` are those of the server.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from tests.support.forked_supervisor import CLONE, fork_for_parent, open_streams, python_path, start_variables

import mulligan
from mulligan.cli import main, module_archive
from mulligan.cli.words.commands import COMMANDS

ROOT = Path(__file__).parents[2]
SRC = str(Path(mulligan.__file__).parents[1])
# What a command of a run imports when it needs it.
LATER = ("mulligan.store.sqlite.sqlite", "mulligan.store.artifact_files", "mulligan.service.server.notices.observing")
CALL_BYTES_MAX = 1 << 17
# Options of a process that only a new one has.
NOT_FORKED = ("preexec_fn", "umask", "user", "group", "extra_groups", "pass_fds", "executable", "shell")


# A test may change the environment before the server starts.
OF_SERVER = {**os.environ, "PYTHONPATH": SRC}
FOLDERS_OF_SERVER = python_path(os.environ)


def start_mulligan(words: Sequence[object], environment: Mapping[str, str], **options: Any) -> subprocess.Popen[Any]:
    """Start a command line: forked where nothing shows that it is, otherwise in a new interpreter."""
    program = [sys.executable, "-m", "mulligan", *map(str, words)]
    is_forked = CLONE is not None and start_variables(environment) == start_variables(OF_SERVER)
    if not is_forked or any(name in options for name in NOT_FORKED):
        return subprocess.Popen(program, env=environment, **options)
    return ForkedProcess(program, env=environment, **options)


class ForkedProcess(subprocess.Popen[Any]):
    """A `Popen` whose process is forked by the server."""

    def _execute_child(
        self,
        args: Any,
        executable: Any,
        preexec_fn: Any,
        close_fds: Any,
        pass_fds: Any,
        cwd: Any,
        env: Any,
        startupinfo: Any,
        creationflags: Any,
        shell: Any,
        p2cread: int,
        p2cwrite: int,
        c2pread: int,
        c2pwrite: int,
        errread: int,
        errwrite: int,
        restore_signals: Any,
        gid: Any,
        gids: Any,
        uid: Any,
        umask: Any,
        start_new_session: bool,
        *_: Any,
    ) -> None:
        call = {
            "words": args[3:],
            "folder": os.path.abspath(cwd or "."),
            "environment": dict(env),
            "start_new_session": start_new_session,
        }
        streams = [stream if stream != -1 else number for number, stream in enumerate((p2cread, c2pwrite, errwrite))]
        try:
            self.pid = self.fork(call, streams)
            self._child_created = True
        finally:
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]

    def fork(self, call: dict[str, Any], streams: list[int]) -> int:
        return _server(os.getpid()).fork(call, streams)


class _Server:
    """The process that forks. It ends when this process does, whose socket is closed then."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forked_process"],
                cwd=ROOT,
                env=OF_SERVER,
                stdin=theirs,
            )

    def fork(self, call: dict[str, Any], streams: list[int]) -> int:
        """The id of a new child of this process."""
        with self._turn:
            socket.send_fds(self._socket, [json.dumps(call).encode()], streams)
            told = self._socket.recv(64)
        assert told, f"the server of forked processes has ended: {self._process.poll()}"
        return int(told)


@cache
def _server(owner: int) -> _Server:
    """The server of this process: children of the one that it was forked from would not be ours."""
    return _Server()


def serve() -> None:
    """Fork for whoever has the other end of stdin."""
    load()
    caller = socket.socket(fileno=os.dup(0))
    while True:
        text, streams, _, _ = socket.recv_fds(caller, CALL_BYTES_MAX, 3)
        if not text:
            return
        pid = fork_for_parent()
        if pid == 0:
            caller.close()
            become(json.loads(text), streams)
        for stream in streams:
            os.close(stream)
        caller.send(b"%d" % pid)


def load() -> None:
    """Import what command lines import."""
    for where, _ in COMMANDS.values():
        import_module(f"mulligan.cli.{where.partition(':')[0]}")
    for name in ("mulligan.cli.words.dispatch", *LATER):
        import_module(name)
    module_archive.ModuleArchive = _NoArchive  # type: ignore[misc, assignment]
    # Collecting garbage would write to the memory of every object, and all of it would be copied.
    gc.collect()
    gc.freeze()


class _NoArchive(module_archive.ModuleArchive):
    """Has no modules, and gets none: they are loaded, and reading the archive would take longer than all of a start."""

    def __init__(self, folder: str) -> None:
        pass

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        return None

    def update(self) -> None:
        pass


def become(call: dict[str, Any], streams: list[int]) -> NoReturn:
    """This process is the command line from now on."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if call.get("start_new_session"):
        os.setsid()
    open_streams()
    # Whoever runs the tests in the background of a shell has SIGINT ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(call["folder"])
    os.environ.clear()
    os.environ.update(call["environment"])
    time.tzset()
    # As `python -m mulligan` has it: the folder, what PYTHONPATH says, the libraries.
    sys.path[: 1 + len(FOLDERS_OF_SERVER)] = [call["folder"], *python_path(call["environment"])]
    sys.argv = ["mulligan", *call["words"]]
    main.main()


if __name__ == "__main__":
    serve()
