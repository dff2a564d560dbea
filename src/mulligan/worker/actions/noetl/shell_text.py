"""Commands in which no value becomes text: each one is an environment variable, which the command expands as one word.

Where the shell would evaluate a value again, or run what it names, it is refused; `language.shell_lexer` knows where.
"""

from __future__ import annotations

from mulligan.errors import InputInvalid
from mulligan.language import shell_safety as dangers
from mulligan.language.shell import ShellRefused, environment_value, rewrite
from mulligan.language.shell_lexer import PlaceholderSite, scan
from mulligan.language.shell_placeholders import Names as Reserved
from mulligan.worker.actions.noetl.credentials import refused
from mulligan.worker.actions.noetl.placeholders import MARK, Command, Marked, Placeholder
from mulligan.worker.actions.noetl.templates import shown

# To the scanner a mark is a field of this name, as a value of a workflow of ours is one of `inputs`.
_ROOT = "template"
_RESERVED = Reserved(frozenset(), frozenset({_ROOT}))
_COMMAND = "write the command in the file"
# Where the way of a workflow of ours is not that of a template.
_WAYS = {
    dangers.ARITHMETIC: "make a number of it, as in {{ … | int }}",
    dangers.SUBSCRIPT: "make a number of it, as in {{ … | int }}",
    dangers.SINGLE_QUOTES: "use double quotes",
    dangers.QUOTED_DOCUMENT: "write the delimiter without quotes",
}
_WORDS = "put it in double quotes if it is one word; for several write {% for … %}{{ … }} {% endfor %}"


def bound(marked: Marked) -> Command:
    """The command with a variable for each mark. INPUT_INVALID where a value would be part of the program."""
    if not marked.placeholders:
        return Command(marked.text, {})
    try:
        text = _with_harmless(_with_fields(marked), marked)
        for spot in scan(text, _RESERVED).sites:
            _refuse(spot, _placeholder(spot, marked))
        found = rewrite(text, roots=_RESERVED.roots)
    except ShellRefused as reason:
        raise refused(f"the command '{shown(MARK.sub('…', marked.text))}' cannot be read: {reason.message}") from None
    return Command(found.text, {name: _value(_of(source, marked)) for name, source in found.bindings.items()})


def _with_fields(marked: Marked) -> str:
    """The command with a field for each mark. In single quotes nothing is expanded: there they are closed around it."""
    for mark in MARK.finditer(marked.text):
        before = marked.text[max(0, mark.start() - 1) : mark.start()]
        if before in ("$", "\\"):
            raise marked.placeholders[int(mark[1])].refused(f"follows a '{before}'", "write it in another place")
    if f"${{{_ROOT}." in marked.text:
        raise refused(f"'${{{_ROOT}.…}}' is nothing that a shell could expand")
    text = MARK.sub(lambda mark: f"${{{_ROOT}.v{mark[1]}}}", marked.text)
    for spot in reversed(scan(text, _RESERVED).sites):
        if spot.quoting == "single":
            field = text[spot.placeholder.offset : spot.placeholder.end]
            text = f"{text[: spot.placeholder.offset]}'\"{field}\"'{text[spot.placeholder.end :]}"
    return text


def _with_harmless(text: str, marked: Marked) -> str:
    """The command with what is empty or a number as text, except where it is a word or part of one outside quotes."""
    while True:
        spots = [spot for spot in scan(text, _RESERVED).sites if _placeholder(spot, marked).is_harmless]
        spots = [spot for spot in spots if not _is_word(spot)]
        # Where it was the name of the command, the next word is that: the others are judged anew.
        command = next((spot for spot in spots if spot.is_command), None)
        for spot in [command] if command else reversed(spots):
            text = f"{text[: spot.placeholder.offset]}{_placeholder(spot, marked).text}{text[spot.placeholder.end :]}"
        if command is None:
            return text


def _is_word(spot: PlaceholderSite) -> bool:
    return spot.quoting == "bare" and not (spot.danger or spot.is_command or spot.words[:1] == ["for"])


def _refuse(spot: PlaceholderSite, placeholder: Placeholder) -> None:
    if spot.is_command:
        raise placeholder.refused("names a command", _COMMAND)
    if spot.danger is not None:
        raise placeholder.refused(spot.danger.reason, _WAYS.get(spot.danger, spot.danger.hint))
    written = placeholder.written
    is_loop = spot.words[:1] == ["for"] and not written.is_repeated
    if spot.quoting == "bare" and (is_loop or written.separator is not None):
        raise placeholder.refused("stands for several words of a command", _WORDS)
    if "'" in written.quotes:
        raise placeholder.refused("writes quotes itself", "write '{{ … }}' in quotes of the command")


def _placeholder(spot: PlaceholderSite, marked: Marked) -> Placeholder:
    return _of(spot.placeholder.source, marked)


def _of(source: str, marked: Marked) -> Placeholder:
    return marked.placeholders[int(source.removeprefix(f"{_ROOT}.v"))]


def _value(placeholder: Placeholder) -> str:
    try:
        return environment_value(placeholder.written.source, placeholder.text)
    except InputInvalid as reason:
        way = "write it to a file, and hand over the name of that"
        raise refused(f"{reason.message}: {way}") from None
