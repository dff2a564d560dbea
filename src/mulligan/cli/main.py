"""`mulligan`: from the words of a command line to its exit code."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import NoReturn

from mulligan.cli import lean as lean
from mulligan.cli.commands import COMMANDS, load
from mulligan.cli.parameters import arguments
from mulligan.cli.terminal import exit_code_of


def main() -> NoReturn:
    """Run the command line and end the process with its exit code."""
    # Thousands of objects are made until a command is there, and none of them is garbage.
    gc.disable()
    _open_what_is_closed()
    _let_the_owner_in()
    leave(exit_code(sys.argv[1:]))


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


def exit_code(words: Sequence[str]) -> int:
    """The exit code of a command line."""
    return exit_code_of(partial(_answer, words))


def _answer(words: Sequence[str]) -> object:
    """What a command line gives: one in order is called at once, any other is Typer's."""
    call = in_order(words)
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
    return call() if call is not None else import_module("mulligan.cli.parser").exit_code(words)


def in_order(words: Sequence[str]) -> Callable[[], object] | None:
    """The command to call, where all its words are in order."""
    # The shell asks for completions in this variable, whatever the words are.
    if not words or words[0] not in COMMANDS or "_MULLIGAN_COMPLETE" in os.environ:
        return None
    command = load(words[0])
    given = arguments(command, words[1:])
    return None if given is None else partial(command, **given)


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
