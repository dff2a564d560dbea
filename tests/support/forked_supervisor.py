"""The supervisors of workers in the process of the tests, without the start of an interpreter: a server forks them.

The server imports little beside what a supervisor imports: a task counts the memory of its supervisor as its own until
it executes another program.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import socket
from typing import Any, NoReturn

from mulligan.worker.supervisor import main

# The number of the system call `clone`.
CLONE = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine) if os.uname().sysname == "Linux" else None
CLONE_PARENT = 0x8000
CALL_BYTES_MAX = 1 << 17


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


def serve() -> None:
    """Fork for whoever has the other end of stdin."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Collecting garbage would write to the memory of every object, and all of it would be copied.
    gc.collect()
    gc.freeze()
    caller = socket.socket(fileno=os.dup(0))
    while True:
        text, fds, _, _ = socket.recv_fds(caller, CALL_BYTES_MAX, 2)
        if not text:
            return
        pid = fork_for_parent()
        if pid == 0:
            become(json.loads(text), fds)
        for fd in fds:
            os.close(fd)
        caller.send(b"%d" % pid)


def become(call: dict[str, Any], fds: list[int]) -> NoReturn:
    """This process is the supervisor from now on."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        os.setsid()
        os.chdir(call["folder"])
        os.environ.clear()
        os.environ.update(call["environment"])
        # It closes all descriptors but these.
        sock_fd, lock_fd = [*map(str, fds), ""][:2]
        main(sock_fd, lock_fd, *call["words"])
    finally:
        os._exit(1)


if __name__ == "__main__":
    serve()
