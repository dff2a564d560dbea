"""How processes are started below the supervisor, and that they stay below it.

Loaded by the supervisor, which must stay small: nothing is imported that it does not need.
"""

from __future__ import annotations

import _ctypes
import _signal  # type: ignore[import-not-found]
import os
import time

from mulligan.worker import wall_clock
from mulligan.worker.task_cgroups import TaskCgroup

PR_SET_CHILD_SUBREAPER = 36
# What an attempt's descriptors are opened with. Appending: a program may open /dev/stdout once more. For reading as
# well: they may be pipes, and whoever opens one only to write waits for a reader, who may have been killed just now.
LOG_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND
# Python ignores these, and what is ignored stays so in a new program.
RESTORED_SIGNALS = (_signal.SIGPIPE, _signal.SIGXFSZ)


class ManagedProcess:
    """A process that was started, and what is known of its end."""

    __slots__ = (
        "cgroup",
        "deadline",
        "has_exited",
        "is_fractional",
        "is_sweeping",
        "key",
        "kill_at",
        "memory",
        "peak",
        "pid",
        "rough_peak",
        "started",
        "stop_reason",
        "terminated",
        "usage",
        "wake_at",
    )

    def __init__(self, key: int, pid: int, timeout: float | None, memory: int | None) -> None:
        self.key = key
        self.pid = pid
        self.started = wall_clock.now()
        self.deadline = None if timeout is None else time.monotonic() + timeout
        self.memory = memory
        # Its control group, where it has one: then the kernel keeps it to its memory, and watching is the second line.
        self.cgroup: TaskCgroup | None = None
        # The most that all its processes had together: counted in haste, and as it was when that was looked at closely.
        self.rough_peak = 0
        self.peak = 0
        # Why it was made to end: "timeout", "memory", "expired", or what the worker says. "" if it ends by itself.
        self.stop_reason = ""
        self.kill_at: float | None = None
        self.wake_at = 0.0
        # The processes that were sent SIGTERM: their ids and start times.
        self.terminated: set[tuple[int, int]] = set()
        # The main process is gone; what it left behind may not be.
        self.has_exited = False
        self.is_fractional = False
        # What comes from it is to die, and the main process is to live.
        self.is_sweeping = False
        self.usage: tuple = ()


def spawn(
    program: str, argv: list[str], environment: dict[str, str], stdin: str | None, stdin_fd: int, out: str, err: str
) -> int:
    """The id of a process in a session of its own. Its input is the file `stdin`, or else the descriptor."""
    feed = (os.POSIX_SPAWN_OPEN, 0, stdin, os.O_RDONLY, 0) if stdin else (os.POSIX_SPAWN_DUP2, stdin_fd, 0)
    return os.posix_spawn(
        program,
        argv,
        environment,
        file_actions=(
            feed,
            (os.POSIX_SPAWN_OPEN, 1, out, LOG_FLAGS, 0o600),
            (os.POSIX_SPAWN_OPEN, 2, err, LOG_FLAGS, 0o600),
        ),
        setsid=True,
        setsigdef=RESTORED_SIGNALS,
        setsigmask=(),
    )


def close_others(kept: list[int]) -> None:
    """Close what this process was handed by whoever started the worker: it is nothing to a task."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in kept:
            try:
                os.close(fd)
            except OSError:
                continue  # the one that has read the list


def become_subreaper() -> None:
    """Whoever loses its parent below this process becomes its child, not that of process 1."""
    prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
    _ctypes.call_function(prctl, (PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
