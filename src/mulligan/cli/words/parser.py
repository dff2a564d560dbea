"""Parse the words of a command line into the values of a command's parameters.

The syntax is that of GNU programs: `--name value`, `--name=value`, `-nvalue`, flags run together (`-df`), options
before, between and after arguments, `--` before arguments that start with a dash. The word after an option is its
value, even if it starts with a dash. An option that is given twice has its last value, unless it takes a list. Names
cannot be shortened.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mulligan.cli.output.terminal import UsageRefused
from mulligan.cli.words.commands import COMMANDS, GENERAL_OPTIONS, HELP, PROGRAM
from mulligan.cli.words.parameters import Argument, Parameter

# What commands of other systems are called here.
_FOREIGN_COMMANDS = {
    "show": "status describe get inspect info",
    "list": "ls ps runs",
    "run": "start submit exec execute trigger apply",
    "resume": "continue unpause restart",
    "retry": "rerun redo",
    "cancel": "stop kill abort terminate",
    "logs": "log tail output",
    "explain": "why history trace",
    "validate": "check lint verify",
    "graph": "dag draw plot",
    "gc": "clean prune delete rm remove purge",
    "worker": "agent serve",
    "doctor": "diagnose health",
    "pending": "todo waiting approvals",
    "workers": "nodes hosts",
    "wait": "await join",
    "--help": "help",
    "--version": "version",
}


def parse(command: str, parameters: Sequence[Parameter], words: Iterable[str]) -> dict[str, Any] | None:
    """The values of the parameters, by name; None if the words ask for help."""
    options = {flag: (parameter, is_on) for parameter in parameters for flag, is_on in parameter.flags()}
    given: dict[str, list[Any]] = {parameter.name: [] for parameter in parameters}
    arguments: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            arguments.extend(rest)
        elif not word.startswith("-") or word == "-":
            arguments.append(word)
        else:
            for flag, value in _split(word, options):
                if flag in HELP:
                    return None
                if flag not in options:
                    raise _unknown_option(command, flag, word, options)
                parameter, is_on = options[flag]
                if parameter.kind is bool:
                    if value is not None:
                        raise UsageRefused(f"{flag} does not take a value", hint=_see_help(command))
                    given[parameter.name].append(is_on)
                    continue
                value = next(rest, None) if value is None else value
                if value is None:
                    raise UsageRefused(f"{flag} needs a value", hint=_see_help(command))
                given[parameter.name].append(value)

    for parameter in parameters:
        if isinstance(parameter.declared, Argument):
            count = len(arguments) if parameter.is_list else 1
            given[parameter.name], arguments = arguments[:count], arguments[count:]
        if parameter.is_required and not given[parameter.name]:
            kind = "argument" if isinstance(parameter.declared, Argument) else "option"
            raise UsageRefused(f"missing {kind} '{parameter.label}'", hint=_see_help(command))
    if arguments:
        raise _unexpected_arguments(command, arguments, options)
    return {
        parameter.name: converted if parameter.is_list else converted[-1]
        for parameter in parameters
        if (converted := [_convert(command, parameter, value) for value in given[parameter.name]])
    }


def _split(word: str, options: Mapping[str, tuple[Parameter, bool]]) -> Iterator[tuple[str, str | None]]:
    """The option names in one word, each with the value that is joined to it, or None."""
    if word.startswith("--"):
        name, is_joined, value = word.partition("=")
        yield name, value if is_joined else None
        return
    for end, letter in enumerate(word[1:], start=2):
        name = f"-{letter}"
        if word[end:] and name in options and options[name][0].kind is not bool:
            yield name, word[end:]
            return
        yield name, None


def _convert(command: str, parameter: Parameter, value: Any) -> Any:
    try:
        return parameter.kind(value)
    except ValueError:
        message = f"{parameter.label} must be a whole number, not '{value}'"
        raise UsageRefused(message, hint=_see_help(command)) from None


# -- refusals


def unknown_command(word: str) -> UsageRefused:
    """The refusal of a command line whose first word is neither a command nor a general option."""
    if word.startswith("-"):
        meant = _closest(word, GENERAL_OPTIONS)
        hint = f"did you mean '{meant}'?" if meant else f"options follow the command; see: {PROGRAM} --help"
        return UsageRefused(f"no such option '{word}'", hint=hint)
    foreign = (ours for ours, theirs in _FOREIGN_COMMANDS.items() if word.lower() in theirs.split())
    meant = next(foreign, "") or _closest(word, COMMANDS)
    return UsageRefused(
        f"no such command '{word}'",
        hint=f"did you mean '{PROGRAM} {meant}'?" if meant else f"see: {PROGRAM} --help",
    )


def _unknown_option(command: str, flag: str, word: str, options: Mapping[str, object]) -> UsageRefused:
    # `-json` has been read as `-j -s -o -n`.
    if f"-{word}" in options:
        return UsageRefused(f"no such option '{word}'", hint=f"did you mean '-{word}'?")
    meant = _closest(flag, [*options, *HELP])
    hint = f"did you mean '{meant}'?" if meant else _see_help(command)
    return UsageRefused(f"no such option '{flag}'", hint=hint)


def _unexpected_arguments(command: str, words: Sequence[str], options: Mapping[str, object]) -> UsageRefused:
    noun = "argument" if len(words) == 1 else "arguments"
    hint = _see_help(command)
    if "--input" in options and all("=" in word for word in words):
        inputs = " ".join(f"-i {shlex.quote(word)}" for word in words)
        hint = f"inputs are given with -i: {PROGRAM} {command} … {inputs}"
    elif command in ("retry", "fork") and len(words) == 1:
        hint = f"a step is given with --from: {PROGRAM} {command} … --from {shlex.quote(words[0])}"
    return UsageRefused(f"unexpected {noun} " + " ".join(f"'{word}'" for word in words), hint=hint)


def _see_help(command: str) -> str:
    return f"see: {PROGRAM} {command} --help"


def _closest(word: str, known: Iterable[str]) -> str:
    # The dashes are no likeness.

    bare = {one.lstrip("-"): one for one in known}
    import difflib

    return next((bare[one] for one in difflib.get_close_matches(word.lstrip("-"), bare, n=1)), "")
