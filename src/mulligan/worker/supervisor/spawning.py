"""Start processes below the supervisor, and keep them below it.

Loaded by the supervisor, which must stay small: import only what it needs.
"""

from __future__ import annotations

import _ctypes
import _signal  # type: ignore[import-not-found]
import os
import time

from mulligan.worker.supervisor import wall_clock
from mulligan.worker.supervisor.task_cgroups import TaskCgroup

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PR_SET_CHILD_SUBREAPER = 36
# Flags for the logs of an attempt. Append, because a program may open /dev/stdout again. Read and write, because the
# logs may be pipes, and opening a pipe only for writing blocks until there is a reader, which may have been killed.
LOG_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND
# Python ignores these, and a new program would inherit that.
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
        # Its control group, if it has one: then the kernel enforces the limit, and polling is only a backup.
        self.cgroup: TaskCgroup | None = None
        # Peak memory of all its processes: the rough sum, and the precise figure when that was last measured.
        self.rough_peak = 0
        self.peak = 0
        # Why it was ended: "timeout", "memory", "expired", or the worker's reason. "" if it ended by itself.
        self.stop_reason = ""
        self.kill_at: float | None = None
        self.wake_at = 0.0
        # The processes that got SIGTERM: their ids and start times.
        self.terminated: set[tuple[int, int]] = set()
        # The main process is gone; background processes may be left.
        self.has_exited = False
        self.is_fractional = False
        # Its descendants must die, and the main process stays alive.
        self.is_sweeping = False
        self.usage: tuple[Any, ...] = ()


def spawn(
    program: str, argv: list[str], environment: dict[str, str], *, stdin: str | None, stdin_fd: int, out: str, err: str
) -> int:
    """Start a process in a new session and return its id. Its input is the file `stdin`, or the descriptor."""
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
    """Close the descriptors that were inherited from the process that started the worker."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in kept:
            try:
                os.close(fd)
            except OSError:
                continue  # the descriptor that listed the folder


def become_subreaper() -> None:
    """Make orphans below this process its children, not those of process 1."""
    prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
    _ctypes.call_function(prctl, (PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
