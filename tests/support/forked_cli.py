"""`mulligan` for tests that call it many times: a server process has it loaded, and forks one process for each call.

The command that calls it is a small program that passes its words, its folder, its environment and its three streams,
and ends as the process ended; if it is killed itself, the process gets SIGTERM. What a start of the interpreter does is
left to the tests of the command line.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from tests.support.forked_process import become, load

import mulligan

ROOT = Path(__file__).parents[2]
# Isolated and without `site`: it loads nothing but a socket.
CALLER = """#!/bin/sh
exec "{python}" -I -S "{caller}" "{address}" "$@"
"""
CALLER_PROGRAM = """
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
call = {"words": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}
socket.send_fds(server, [b"!"], [0, 1, 2])
server.sendall(json.dumps(call).encode())
server.shutdown(socket.SHUT_WR)
status = int(server.makefile().read())
if os.WIFSIGNALED(status):
    if os.WTERMSIG(status) != signal.SIGKILL:
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
    os.kill(os.getpid(), os.WTERMSIG(status))
sys.exit(os.waitstatus_to_exitcode(status))
"""


@contextmanager
def forked_cli(environment: Mapping[str, str], python: str = sys.executable) -> Iterator[str]:
    """The text of a program `mulligan`. The environment is that in which Mulligan is loaded; each call has its own.

    Another interpreter loads what is installed beside it.
    """
    path = {"PYTHONPATH": str(Path(mulligan.__file__).parents[1])} if python == sys.executable else {}
    with TemporaryDirectory(prefix="mulligan-cli-") as folder:
        address, caller = os.path.join(folder, "socket"), Path(folder) / "caller.py"
        caller.write_text(CALLER_PROGRAM, encoding="utf-8")
        with subprocess.Popen(
            [python, "-m", "tests.support.forked_cli", address],
            cwd=ROOT,
            env={**environment, **path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            try:
                yield CALLER.format(python=sys.executable, caller=caller, address=address)
            finally:
                server.kill()


def serve(address: str) -> None:
    load()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    # Nobody waits for the processes that answer.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    while True:
        caller, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            answer(caller)
        caller.close()


def answer(caller: socket.socket) -> NoReturn:
    """Run the command line in a process of its own, and say how it ended."""
    _, streams, _, _ = socket.recv_fds(caller, 1, 3)
    call = json.loads(b"".join(iter(lambda: caller.recv(65536), b"")))
    pid = os.fork()
    if pid == 0:
        caller.close()
        become(call, streams)
    for stream in streams:
        os.close(stream)
    # Who kills the command that was typed means the process that answers it: nobody else would ever end a server.
    ends, calls = os.pidfd_open(pid), select.poll()
    calls.register(ends, select.POLLIN)
    calls.register(caller, 0)
    if ends not in dict(calls.poll()):
        os.kill(pid, signal.SIGTERM)
    status = os.waitpid(pid, 0)[1]
    with suppress(BrokenPipeError):
        caller.sendall(b"%d" % status)
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
