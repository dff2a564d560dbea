"""How processes are started below the supervisor, and that they stay below it.

Loaded by the supervisor, which must stay small: nothing is imported that it does not need.
"""

from __future__ import annotations

import _ctypes
import _signal  # type: ignore[import-not-found]
import os

PR_SET_CHILD_SUBREAPER = 36
# What an attempt's descriptors are opened with. Appending: a program may open /dev/stdout once more.
LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND
# Python ignores these, and what is ignored stays so in a new program.
RESTORED_SIGNALS = (_signal.SIGPIPE, _signal.SIGXFSZ)


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
            (os.POSIX_SPAWN_OPEN, 1, out, LOG_FLAGS, 0o666),
            (os.POSIX_SPAWN_OPEN, 2, err, LOG_FLAGS, 0o666),
        ),
        setsid=True,
        setsigdef=RESTORED_SIGNALS,
        setsigmask=(),
    )


def become_subreaper() -> None:
    """Whoever loses its parent below this process becomes its child, not that of process 1."""
    prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
    _ctypes.call_function(prctl, (PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
