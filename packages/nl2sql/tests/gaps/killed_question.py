"""`nl2sql ask` that kills itself: `python killed_question.py N ARGUMENT…` dies at its N-th commit, as by `kill -9`.

With N = 0 it lives, and writes to stderr how many there were. The first argument may also be the path of a file: then
it dies at the first commit after that file has appeared.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from mulligan.ports.fault_points import fault_listeners
from mulligan_nl2sql.command_line import main

_passes = 0


def _die_at_its_time(point: str) -> None:
    global _passes
    if point != "after_commit":
        return
    _passes += 1
    when = sys.argv[1]
    if (when.isdigit() and _passes == int(when)) or (not when.isdigit() and Path(when).exists()):
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    fault_listeners.append(_die_at_its_time)
    code = main(sys.argv[2:])
    print(f"commits: {_passes}", file=sys.stderr)
    sys.exit(code)
