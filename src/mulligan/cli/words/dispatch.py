"""Run a command line and return its exit code."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from mulligan import __version__
from mulligan import msgspec_import as msgspec_import
from mulligan.cli.output.terminal import complain, exit_code_of, show
from mulligan.cli.words.commands import COMMANDS, COMPLETION_VARIABLE, HELP, PROGRAM, load
from mulligan.cli.words.parameters import parameters_of
from mulligan.cli.words.parser import parse, unknown_command
from mulligan.errors import InputInvalid

if TYPE_CHECKING:
    from typing import Any

_SHORT = frozenset({"cancel", "events", "explain", "items", "show"})


def exit_code(words: Sequence[str], around: Callable[[], AbstractContextManager[object]] = nullcontext[object]) -> int:
    """Run a command line inside `around()`, which handles interrupts, and return its exit code."""
    return exit_code_of(partial(_answer, words, around))


def _answer(words: Sequence[str], around: Callable[[], AbstractContextManager[object]]) -> object:
    with around():
        if os.environ.get(COMPLETION_VARIABLE):
            from mulligan.cli.words.completion import answer

            return answer(os.environ, sys.stdout.write)
        call = call_for(words)
        if not gc.isenabled():
            gc.freeze()
            # What reads a run, or takes one turn of it, and ends creates much and hardly any garbage.
            if _SHORT.isdisjoint(words[:1]):
                gc.enable()
        values = call.keywords if isinstance(call, partial) else {}
        try:
            if values.keys().isdisjoint(("file", "files")):
                return call()
            from mulligan.service.authoring.workflow_files import finding_published

            with finding_published(partial(_find_published, values.get("home"))):
                return call()
        except InputInvalid as error:
            if (file := values.get("inputs_file")) is not None:
                from mulligan.cli.words.given_inputs import name_file

                name_file(error, values.get("inputs"), file)
            raise


def _find_published(home: str | None, name: str, version: int) -> Any:
    """A workflow of the catalogue that a file calls: `workflow: region@2`."""
    from mulligan.cli.words.options import service_at

    with service_at(home) as service:
        return service.catalogue.load(name, version)


def call_for(words: Sequence[str]) -> Callable[[], object]:
    """The function to call for a command line. It returns the exit code, or None for 0."""
    words = words[1:] if words[:1] == ["--"] else words
    if not words:
        return _show_help_as_error
    name, *rest = words
    if name in COMMANDS:
        command = load(name)
        values = parse(name, parameters_of(command), rest)
        return partial(_show_help, name) if values is None else partial(command, **values)
    if name in HELP:
        return _show_help
    if name == "--version":
        return partial(show, f"{PROGRAM} {__version__}")
    if name in ("--install-completion", "--show-completion"):
        from mulligan.cli.words import completion_scripts

        scripts = completion_scripts
        return partial(scripts.install if name.startswith("--install") else scripts.show_script, *rest[:1])
    raise unknown_command(name)


def _show_help(command: str = "") -> None:
    from mulligan.cli.words import help

    texts = help
    show(texts.command_help(command, load(command)) if command else texts.program_help())


def _show_help_as_error() -> int:
    # Nothing was done, for example by `mulligan $COMMAND` with an empty variable.
    from mulligan.cli.words.help import program_help

    complain(program_help())
    return 2
