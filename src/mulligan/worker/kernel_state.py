"""What the kernel keeps of a warm child, and a step may change: its logs, its limits, what it does on a signal.

For any interpreter, as `child` is.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os

LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Those that the next step would miss, or die of. Of SIGTERM somebody else takes care.
SIGNALS = tuple(
    getattr(_signal, name) for name in ("SIGINT", "SIGHUP", "SIGPIPE", "SIGALRM", "SIGCHLD", "SIGCONT", "SIGXFSZ")
)
# As those of `signal`, which first make members of enumerations.
_handler_of, _set_mask, _timer, _set_timer = (
    _signal.getsignal,
    _signal.pthread_sigmask,
    _signal.getitimer,
    _signal.setitimer,
)


class KernelState:
    """How the process stands when a step begins. What a step changed is put back, or told where that cannot be done."""

    def __init__(self, slot_out: str, slot_err: str) -> None:
        self._slots = {1: slot_out, 2: slot_err}
        # Ours alone: whatever a step does to its own descriptors, these lead to its logs.
        self._logs = {fd: os.dup(fd) for fd in self._slots}
        self._umask = os.umask(0o77)
        os.umask(self._umask)
        self._handlers = list(map(_handler_of, SIGNALS))
        # No call says what they are at little cost; that they were changed is heard.
        self.are_limits_changed = self._has_no_logs = False

    def start_logs(self, fresh_logs: list | tuple) -> None:
        """The worker has given the logs in `fresh` their names: new ones are begun."""
        for fd in fresh_logs:
            new = self._open_log(self._slots[fd])
            os.dup2(new, self._logs[fd], inheritable=False)
            os.dup2(new, fd)
            os.close(new)

    def restore(self) -> None:
        """What the last step may have changed is as it was. Done while the worker writes down how that step went."""
        os.umask(self._umask)
        for fd, log in self._logs.items():
            os.dup2(log, fd)
        _set_mask(_signal.SIG_SETMASK, ())
        if _timer(_signal.ITIMER_REAL)[0]:
            _set_timer(_signal.ITIMER_REAL, 0)

    def is_changed(self) -> bool:
        """Whether a step has changed what cannot be put back."""
        return self._has_no_logs or self.are_limits_changed or list(map(_handler_of, SIGNALS)) != self._handlers

    def log_sizes(self) -> list:
        """Nobody minds where the end of a log is sought: it is only ever appended to."""
        return [_size_of(log) for log in self._logs.values()]

    def _open_log(self, slot: str) -> int:
        """A new log. If somebody has removed its folder, what is written is lost, and the step runs all the same."""
        try:
            return os.open(slot, LOG_FLAGS, 0o600)
        except OSError:
            self._has_no_logs = True
            return os.open(os.devnull, LOG_FLAGS)


def _size_of(log: int) -> int:
    try:
        return os.lseek(log, 0, os.SEEK_END)
    except OSError:
        return 1  # a pipe: something may have been written
