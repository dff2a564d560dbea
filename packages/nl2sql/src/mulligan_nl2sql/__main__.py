"""`nl2sql`: the entry point, also as `python -m mulligan_nl2sql`.

It handles Ctrl-C before it imports anything else of ours: that takes half a second, and must not show a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

# The same as in `mulligan_nl2sql.asking.answers`, which is not loaded yet.
EXIT_INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command, and end the process with its exit code."""
    # The parent may want it ignored: `nohup`, or a shell that runs us in the background.
    is_handled = signal.getsignal(signal.SIGINT) != signal.SIG_IGN
    if is_handled:
        signal.signal(signal.SIGINT, _end)
    _check_streams()
    command_line = import_module("mulligan_nl2sql.command_line")
    try:
        if is_handled:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command_line.main()
    except KeyboardInterrupt:
        _end()
    # It has ended the process already.
    sys.exit(1)


def _check_streams() -> None:
    """An answer needs stdout. The others may be closed: then no file of ours may get their descriptors."""
    if sys.stdout is None:
        if sys.stderr is not None:
            print("error: stdout cannot be written: it is closed", file=sys.stderr)
        sys.exit(1)
    for fd, name in ((0, "stdin"), (2, "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), fd)
            setattr(sys, name, os.fdopen(fd, "w" if fd else "r", closefd=False))


def _end(*_: object) -> NoReturn:
    """End at once: nothing has begun yet."""
    try:
        os.write(2, b"interrupted before anything was started\n")
    except OSError:
        pass
    os._exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
