"""Completion: answer a shell that asks what may follow the words of a line.

The completion script of a shell (`completion_scripts.py`) calls us with `_MULLIGAN_COMPLETE=complete_SHELL` each time
that Tab is pressed, so no command is loaded here: the parameters of all commands are in `completion.tsv`, which
`python -m mulligan.cli.words.completion_table` writes. Nothing is created on disk, and no error is shown.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mulligan.cli.words.commands import COMMANDS, COMPLETION_VARIABLE, GENERAL_OPTIONS

TABLE = os.path.join(os.path.dirname(__file__), "completion.tsv")
# The kinds of steps that a command takes; all others take any step.
_STEP_KINDS = {"approve": frozenset({"approve"}), "items": frozenset({"map"})}
# The run that a command takes by default.
_LATEST = "latest"

# A word, and its description for shells that show one.
Suggestion = tuple[str, str]
# The words of a line, the word that is being typed, and the part of that word which the answer must leave out.
Line = tuple[list[str], str, str]


class Parameter(NamedTuple):
    """A parameter of a command: an argument (no names), a flag (no kind), or an option with a value."""

    names: tuple[str, ...]
    kind: str
    is_many: bool
    about: str


class Typed(NamedTuple):
    """The line so far. `awaiting` is the option whose value is being typed."""

    values: dict[str, str]
    options: set[str]
    arguments_count: int
    awaiting: Parameter | None


def answer(environ: Mapping[str, str], write: Callable[[str], object]) -> int:
    """Write the answer for a shell, and return the exit code."""
    verb, _, shell = environ[COMPLETION_VARIABLE].partition("_")
    if verb == "source":
        from mulligan.cli.words.completion_scripts import show_script

        show_script(shell)
        return 0
    if verb != "complete" or shell not in _SHELLS:
        return 1
    read_line, format_answer = _SHELLS[shell]
    try:
        words, start, prefix = read_line(environ)
        suggestions = [one for one in suggest(words, start, environ) if one[0].startswith(start)]
        suggestions = [(word[len(prefix) :], about) for word, about in suggestions]
    except Exception:
        # A problem with the store or the line must not disturb the prompt.
        suggestions = []
    if environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        # Exit code 1 lets fish offer files.
        return 0 if suggestions else 1
    write(format_answer(suggestions))
    return 0


# -- suggestions


def suggest(words: Sequence[str], start: str, environ: Mapping[str, str]) -> Sequence[Suggestion]:
    """Suggestions for the word after `words`, of which `start` is typed. Some may not begin with `start`."""
    if not words:
        commands = [(name, summary) for name, (_, summary) in COMMANDS.items()]
        return list(GENERAL_OPTIONS.items()) if start.startswith("-") else commands
    command, *rest = words
    parameters = parameters_of(command)
    typed = read(parameters, rest)
    if typed.awaiting:
        return _values(typed.awaiting.kind, command, typed, start, environ)
    if start.startswith("--") and "=" in start:
        name, _, begun = start.partition("=")
        option = next((one for one in parameters if name in one.names), None)
        suggestions = _values(option.kind, command, typed, begun, environ) if option else []
        return [(f"{name}={one[0]}", one[1]) for one in suggestions]
    if start.startswith("-"):
        return [*_options(parameters, typed), ("--help", GENERAL_OPTIONS["--help"])]
    arguments = [one for one in parameters if not one.names]
    # The last argument may be repeated if it takes a list.
    repeated = arguments[-1:] if arguments and arguments[-1].is_many else []
    here = (arguments[typed.arguments_count :] or repeated)[:1]
    return _values(here[0].kind, command, typed, start, environ) if here else []


def parameters_of(command: str) -> list[Parameter]:
    """The parameters of a command from the table; none for an unknown command."""
    with open(TABLE, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file if line.startswith(f"{command}\t")]
    return [Parameter(tuple(names.split()), kind, many == "many", about) for _, names, kind, many, about in rows]


def read(parameters: Sequence[Parameter], words: Sequence[str]) -> Typed:
    """Read the words after the command."""
    by_name = {name: one for one in parameters for name in one.names}
    arguments = [one for one in parameters if not one.names]
    values: dict[str, str] = {}
    options: set[str] = set()
    count, awaiting = 0, None
    for word in words:
        if awaiting:
            values.setdefault(awaiting.kind, word)
            awaiting = None
        elif word.startswith("-") and len(word) > 1:
            name, is_joined, value = word.partition("=")
            options.update(by_name[name].names if name in by_name else ())
            if is_joined:
                values.setdefault(by_name[name].kind if name in by_name else "", value)
            elif name in by_name and by_name[name].kind:
                awaiting = by_name[name]
        else:
            values.setdefault(arguments[min(count, len(arguments) - 1)].kind if arguments else "", word)
            count += 1
    return Typed(values, options, count, awaiting)


def _options(parameters: Sequence[Parameter], typed: Typed) -> Iterator[Suggestion]:
    """The options that may still be given, by their long names if they have any."""
    for one in parameters:
        if one.names and (one.is_many or not typed.options.intersection(one.names)):
            long = [name for name in one.names if name.startswith("--")]
            yield from ((name, one.about) for name in long or one.names)


def _values(kind: str, command: str, typed: Typed, start: str, environ: Mapping[str, str]) -> Sequence[Suggestion]:

    if "|" in kind:
        return [(word, "") for word in kind.split("|")]
    if kind not in _KINDS:
        return []
    from mulligan.service.authoring import suggestions

    store = suggestions.store_address(typed.values.get("HOME"), environ)
    result: Sequence[Suggestion] = _KINDS[kind](suggestions, store, _Context(command, typed, start))
    return result


class _Context(NamedTuple):
    command: str
    typed: Typed
    start: str


def _steps(known: Any, store: str, line: _Context) -> Any:
    """The steps of the file on the line, or of the run on the line, or of the newest run."""
    values = line.typed.values
    if file := values.get("WORKFLOW_FILE"):
        return known.steps_of_file(file)
    run = values.get("RUN") or values.get("RUN_OR_STEP") or _LATEST
    return known.steps_of_run(store, run, _STEP_KINDS.get(line.command, frozenset()))


def _names(what: str) -> Callable[[Any, str, _Context], Any]:
    return lambda known, store, line: known.names(store, what)


_KINDS: dict[str, Callable[[Any, str, _Context], Any]] = {
    "RUN": lambda known, store, line: known.runs(store),
    "STEP": _steps,
    # A run, or a step of the newest run.
    "RUN_OR_STEP": lambda known, store, line: [*known.runs(store), *known.steps_of_run(store, _LATEST)],
    "WORKFLOW_FILE": lambda known, store, line: known.workflow_files(line.start),
    "BREAKER": _names("breakers"),
    "WORKER": _names("workers"),
    "WORKFLOW": _names("workflows"),
}


# -- the shells


def _split(line: str) -> list[str]:
    """Split a line into words. The last word may have an open quote."""
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:
        words.append(lexer.token)
    return words


# Bash also breaks words at these.
_BREAKS = ("=", ":")


def _read_bash_words(environ: Mapping[str, str]) -> Line:
    """Bash splits '--status=failed' and 'a.py:b' into three words, and expects only what follows the sign."""
    tokens, place = _split(environ["COMP_WORDS"]), int(environ["COMP_CWORD"])
    words: list[str] = []
    is_open = False
    for token in tokens[1 : place + 1]:
        if words and (token in _BREAKS or is_open):
            words[-1] += token
            is_open = token in _BREAKS
        else:
            words.append(token)
    start = words.pop() if place < len(tokens) else words.pop() if is_open else ""
    return words, start, start[: max(start.find("="), start.rfind(":")) + 1]


def _read_line(environ: Mapping[str, str]) -> Line:
    # Scripts that earlier versions installed were Typer's, and use this name too.
    line = environ.get("_TYPER_COMPLETE_ARGS", "")
    words = _split(line)[1:]
    return (words[:-1], words[-1], "") if words and not line.endswith(" ") else (words, "", "")


def _format_bash(suggestions: Sequence[Suggestion]) -> str:
    return "".join(f"{word}\n" for word, _ in suggestions)


def _format_zsh(suggestions: Sequence[Suggestion]) -> str:
    """Zsh evaluates the answer, so it holds only characters that are harmless in single quotes."""
    if not suggestions:
        return "_files\n"
    items = " ".join(f"'{_quoted(word, about)}'" for word, about in suggestions)
    return f"local -a completions; completions=({items}); _describe -V completions completions\n"


def _quoted(word: str, about: str) -> str:
    word = re.sub(r"[^\w.@%+,:/=-]+", "", word).replace(":", "\\:")
    about = re.sub(r"[^\w.,()/=-]+", " ", about).strip()
    return f"{word}:{about}" if about else word


def _format_fish(suggestions: Sequence[Suggestion]) -> str:
    return "".join(f"{word}\t{_one_line(about)}\n" if about else f"{word}\n" for word, about in suggestions)


def _format_powershell(suggestions: Sequence[Suggestion]) -> str:
    return "".join(f"{word}:::{_one_line(about) or ' '}\n" for word, about in suggestions)


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


_SHELLS = {
    "bash": (_read_bash_words, _format_bash),
    "zsh": (_read_line, _format_zsh),
    "fish": (_read_line, _format_fish),
    "powershell": (_read_line, _format_powershell),
    "pwsh": (_read_line, _format_powershell),
}
