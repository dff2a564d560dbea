"""The state of a warm child in the kernel that a step may change: logs, limits, signal handlers.

Runs in any interpreter, like `child_main`: standard library only.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import resource

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PR_SET_DUMPABLE = 4
LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Signals that the next step would miss, or die of. `Termination` handles SIGTERM.
SIGNALS = tuple(
    getattr(_signal, name) for name in ("SIGINT", "SIGHUP", "SIGPIPE", "SIGALRM", "SIGCHLD", "SIGCONT", "SIGXFSZ")
)
LIMITS = tuple(sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}))
# The functions of `signal` would first create enum members.
_handler_of, _set_mask, _timer, _set_timer = (
    _signal.getsignal,
    _signal.pthread_sigmask,
    _signal.getitimer,
    _signal.setitimer,
)


class KernelState:
    """The state when a step starts. What a step changes is restored, or reported if it cannot be."""

    def __init__(self, slot_out: str, slot_err: str) -> None:
        self._slots = {1: slot_out, 2: slot_err}
        # Our own descriptors of the logs, whatever a step does to 1 and 2.
        self._logs = {fd: os.dup(fd) for fd in self._slots}
        self._umask = os.umask(0o77)
        os.umask(self._umask)
        self._handlers = list(map(_handler_of, SIGNALS))
        self._limits = list(map(resource.getrlimit, LIMITS))
        # Reading the limits is expensive, so it is noticed by audit events that a step set one.
        self.are_limits_set = self._has_no_logs = False

    def start_logs(self, fresh_logs: list[Any] | tuple[Any, ...]) -> None:
        """Open new logs in the place of those that the worker has renamed."""
        for fd in fresh_logs:
            new = self._open_log(self._slots[fd])
            os.dup2(new, self._logs[fd], inheritable=False)
            os.dup2(new, fd)
            os.close(new)

    def restore(self) -> None:
        """Restore what the last step may have changed, while the worker handles its result."""
        os.umask(self._umask)
        for fd, log in self._logs.items():
            os.dup2(log, fd)
        _set_mask(_signal.SIG_SETMASK, ())
        if _timer(_signal.ITIMER_REAL)[0]:
            _set_timer(_signal.ITIMER_REAL, 0)

    def is_changed(self) -> bool:
        """Whether a step changed something that cannot be restored."""
        return self._has_no_logs or self._are_limits_changed() or list(map(_handler_of, SIGNALS)) != self._handlers

    def _are_limits_changed(self) -> bool:
        """Whether the limits differ. A step may set one for a while, as our own do around templates."""
        if self.are_limits_set:
            self.are_limits_set = list(map(resource.getrlimit, LIMITS)) != self._limits
        return self.are_limits_set

    def log_sizes(self) -> list[Any]:
        """Return the sizes of the logs. Seeking is harmless, since they are only appended to."""
        return [_size_of(log) for log in self._logs.values()]

    def _open_log(self, slot: str) -> int:
        """Open a new log. If its folder was removed, output is lost and the step still runs."""
        try:
            return os.open(slot, LOG_FLAGS, 0o600)
        except OSError:
            self._has_no_logs = True
            return os.open(os.devnull, LOG_FLAGS)


class OwnMemory:
    """Whether other processes of this user may read the memory of this one. The kernel asks `dumpable` for that."""

    def __init__(self) -> None:
        self._prctl: Any = None
        try:
            import ctypes  # few children know secrets

            self._prctl = ctypes.CDLL(None).prctl
        except (ImportError, OSError, AttributeError):
            return

    def protect(self) -> None:
        self._set(0)

    def unprotect(self) -> None:
        self._set(1)

    def _set(self, is_dumpable: int) -> None:
        if self._prctl is not None:
            self._prctl(PR_SET_DUMPABLE, is_dumpable, 0, 0, 0)


def _size_of(log: int) -> int:
    try:
        return os.lseek(log, 0, os.SEEK_END)
    except OSError:
        return 1  # a pipe: something may have been written
