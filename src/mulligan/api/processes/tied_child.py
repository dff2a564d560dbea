"""`python -m mulligan.api.processes.tied_child PARENT WORDS…`: a mulligan command that is stopped when its parent dies.

The kernel sends SIGTERM, so a worker gives its tasks their grace period, also if the server was killed with -9.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, words: list[str]) -> None:
    """Become the command. The setting outlives the exec."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    # The parent may have died before the call.
    if os.getppid() == parent:
        os.execv(sys.executable, [sys.executable, "-P", *words])  # noqa: S606 - our own program


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
