"""`mulligan`: the entry point.

It imports nothing of ours before it handles signals: loading a command takes 0.1 s and more, and Ctrl-C in that time
must not show a traceback.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import atexit
import gc
import os
import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Only for the type checker: `typing` takes as long to load as all of this file.
    from typing import NoReturn

# As `mulligan.cli.terminal` has it, which is not loaded yet.
INTERRUPTED = 130
SIGNALS = (_signal.SIGINT, _signal.SIGTERM)


def main() -> NoReturn:
    """Run the command line and end the process with its exit code."""
    _on_signals(_end)
    # Thousands of objects are made until a command is there, and none of them is garbage.
    gc.disable()
    _open_what_is_closed()
    _let_the_owner_in()
    leave(import_module("mulligan.cli.dispatch").exit_code(sys.argv[1:], RaisedInterrupts))


class RaisedInterrupts:
    """While it lasts, Ctrl-C and SIGTERM raise KeyboardInterrupt; before and after, they end the process at once."""

    def __enter__(self) -> None:
        _on_signals(_signal.default_int_handler)

    def __exit__(self, *_: object) -> None:
        _on_signals(_end)


def _on_signals(handler: object) -> None:
    for number in SIGNALS:
        # Whoever started us may want them ignored: `nohup`, a shell that runs us in the background.
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, handler)


def _end(*_: object) -> NoReturn:
    """Nothing has begun yet, or everything is done: nothing is left to tidy up."""
    try:
        os.write(2, b"interrupted\n")
    except OSError:
        pass
    os._exit(INTERRUPTED)


def _open_what_is_closed() -> None:
    """Who calls us with a stream closed wants to hear nothing; and a file of ours must not get its number."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            while os.open(os.devnull, os.O_RDWR) < fd:
                pass
            setattr(sys, name, os.fdopen(fd, "w" if fd else "r", closefd=False))


def _let_the_owner_in() -> None:
    """A mask that takes the owner's own rights away would keep us, and our steps, from what we have just written."""
    os.umask(os.umask(0o077) & 0o077)


def leave(code: int) -> NoReturn:
    """End the process. All is written and closed, and taking the modules apart takes longer than most commands."""
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        # What could not be said has been told, or nobody is there to hear it.
        pass
    os._exit(code)


if __name__ == "__main__":
    main()
