"""`mulligan`: the entry point.

It handles signals before it loads anything: that takes 0.1 s or more, and Ctrl-C during that time must not show a
traceback. So this file imports nothing but what an interpreter has when it starts.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import atexit
import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import NoReturn

    from mulligan.cli.module_archive import ModuleArchive

# The same as in `mulligan.cli.output.terminal`, which is not loaded yet.
INTERRUPTED = 130
SIGNALS = (_signal.SIGINT, _signal.SIGTERM)


def main() -> NoReturn:
    """Run the command line, and end the process with its exit code."""
    _on_signals(_end)
    # Loading a command creates thousands of objects, and none of them is garbage.
    gc.disable()
    _open_closed_streams()
    _keep_owner_permissions()
    archive = _load("mulligan.cli.module_archive").ModuleArchive(os.path.dirname(os.path.dirname(__file__)))
    sys.meta_path.insert(0, archive)
    leave(_load("mulligan.cli.words.dispatch").exit_code(sys.argv[1:], RaisedInterrupts), archive)


def _load(name: str) -> ModuleType:
    __import__(name)
    return sys.modules[name]


class RaisedInterrupts:
    """Inside it, Ctrl-C and SIGTERM raise KeyboardInterrupt; before and after, they end the process at once."""

    def __enter__(self) -> None:
        interrupts = _load("mulligan.cli.output.interrupts")
        sys.unraisablehook = interrupts.raise_again
        _on_signals(interrupts.raise_interrupt)

    def __exit__(self, *_: object) -> None:
        _on_signals(_end)


def _on_signals(handler: object) -> None:
    for number in SIGNALS:
        # The parent may want them ignored: `nohup`, or a shell that runs us in the background.
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, handler)


def _end(*_: object) -> NoReturn:
    """End at once: nothing has begun yet, or everything is done, so there is nothing to clean up."""
    try:
        os.write(2, b"interrupted\n")
    except OSError:
        pass
    os._exit(INTERRUPTED)


def _open_closed_streams() -> None:
    """Open closed standard streams on /dev/null, so that no file of ours gets their descriptors."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            while os.open(os.devnull, os.O_RDWR) < fd:
                pass
            setattr(sys, name, os.fdopen(fd, "w" if fd else "r", closefd=False))


def _keep_owner_permissions() -> None:
    """Remove the owner's bits from the umask: with them, we and our steps could not read the files that we write."""
    os.umask(os.umask(0o077) & 0o077)


def leave(code: int, archive: ModuleArchive) -> NoReturn:
    """End the process without unloading its modules, which takes longer than most commands."""
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        archive.update()
    except (OSError, ValueError):
        # The failure has been reported, or stderr is closed as well.
        pass
    os._exit(code)


if __name__ == "__main__":
    main()
