"""From the words of a command line to its exit code."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module

from mulligan.cli import lean as lean
from mulligan.cli.commands import COMMANDS, load
from mulligan.cli.parameters import arguments
from mulligan.cli.terminal import exit_code_of

# The shell asks for completions in this variable, whatever the words are.
_COMPLETION = "_MULLIGAN_COMPLETE"


def exit_code(words: Sequence[str], around: Callable[[], AbstractContextManager[object]] = nullcontext[object]) -> int:
    """The exit code of a command line. The command runs inside `around()`, where an interrupt is handled."""
    return exit_code_of(partial(_answer, words, around))


def _answer(words: Sequence[str], around: Callable[[], AbstractContextManager[object]]) -> object:
    """What a command line gives: one in order is called at once, any other is Typer's."""
    with around():
        if _COMPLETION in os.environ:
            answered = import_module("mulligan.cli.completion").answer(os.environ, sys.stdout.write)
            if answered is not None:
                return answered
        call = in_order(words)
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        return call() if call is not None else import_module("mulligan.cli.parser").exit_code(words)


def in_order(words: Sequence[str]) -> Callable[[], object] | None:
    """The command to call, where all its words are in order."""
    if not words or words[0] not in COMMANDS or _COMPLETION in os.environ:
        return None
    command = load(words[0])
    given = arguments(command, words[1:])
    return None if given is None else partial(command, **given)
