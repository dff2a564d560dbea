"""Bind the values of a command: each becomes an environment variable, which the command expands as one word.

A value is refused where the shell would evaluate it again or run what it names; `language.shell_scan` knows where.
"""

from __future__ import annotations

from mulligan.errors import InputInvalid
from mulligan.formats.noetl.runtime.credentials import invalid_input
from mulligan.formats.noetl.runtime.placeholders import MARK, Command, MarkedText, Placeholder
from mulligan.formats.noetl.runtime.templates import excerpt
from mulligan.language.shell import shell_safety as dangers
from mulligan.language.shell.shell import ShellRefused, environment_value, rewrite
from mulligan.language.shell.shell_lexer import PlaceholderSite, scan
from mulligan.language.shell.shell_placeholders import Names as Reserved

# The scanner sees a mark as a field of this name, like a field of `inputs` in a workflow of ours.
_ROOT = "template"
_RESERVED = Reserved(frozenset(), frozenset({_ROOT}))
_COMMAND = "write the command in the file"
# What to do instead, where that differs from workflows of ours.
_WAYS = {
    dangers.ARITHMETIC: "make a number of it, as in {{ … | int }}",
    dangers.SUBSCRIPT: "make a number of it, as in {{ … | int }}",
    dangers.SINGLE_QUOTES: "use double quotes",
    dangers.QUOTED_DOCUMENT: "write the delimiter without quotes",
}
_WORDS = "put it in double quotes if it is one word; for several write {% for … %}{{ … }} {% endfor %}"


def bind_command(marked_text: MarkedText) -> Command:
    """Put a variable in place of each mark. INPUT_INVALID where a value would be part of the program."""
    if not marked_text.placeholders:
        return Command(marked_text.text, {})
    try:
        text = _with_harmless(_with_fields(marked_text), marked_text)
        for spot in scan(text, _RESERVED).sites:
            _refuse(spot, _placeholder(spot, marked_text))
        found = rewrite(text, roots=_RESERVED.roots)
    except ShellRefused as reason:
        command = excerpt(MARK.sub("…", marked_text.text))
        raise invalid_input(f"the command '{command}' cannot be read: {reason.message}") from None
    return Command(found.text, {name: _value(_of(source, marked_text)) for name, source in found.bindings.items()})


def _with_fields(marked_text: MarkedText) -> str:
    """The command with a field for each mark. Single quotes are closed around it, since nothing is expanded in them."""
    for mark in MARK.finditer(marked_text.text):
        before = marked_text.text[max(0, mark.start() - 1) : mark.start()]
        if before in ("$", "\\"):
            raise marked_text.placeholders[int(mark[1])].refusal(f"follows a '{before}'", "write it in another place")
    if f"${{{_ROOT}." in marked_text.text:
        raise invalid_input(f"'${{{_ROOT}.…}}' cannot be expanded by a shell")
    text = MARK.sub(lambda mark: f"${{{_ROOT}.v{mark[1]}}}", marked_text.text)
    for spot in reversed(scan(text, _RESERVED).sites):
        if spot.quoting == "single":
            field = text[spot.placeholder.offset : spot.placeholder.end]
            text = f"{text[: spot.placeholder.offset]}'\"{field}\"'{text[spot.placeholder.end :]}"
    return text


def _with_harmless(text: str, marked_text: MarkedText) -> str:
    """Fill in empty values and numbers as text, except in a word outside of quotes."""
    while True:
        spots = [spot for spot in scan(text, _RESERVED).sites if _placeholder(spot, marked_text).is_harmless]
        spots = [spot for spot in spots if not _is_word(spot)]
        # An empty name of a command makes the next word the name, so the others are checked again.
        command = next((spot for spot in spots if spot.is_command), None)
        for spot in [command] if command else reversed(spots):
            text = (
                f"{text[: spot.placeholder.offset]}{_placeholder(spot, marked_text).text}{text[spot.placeholder.end :]}"
            )
        if command is None:
            return text


def _is_word(spot: PlaceholderSite) -> bool:
    return spot.quoting == "bare" and not (spot.danger or spot.is_command or spot.words[:1] == ["for"])


def _refuse(spot: PlaceholderSite, placeholder: Placeholder) -> None:
    if spot.is_command:
        raise placeholder.refusal("names a command", _COMMAND)
    if spot.danger is not None:
        raise placeholder.refusal(spot.danger.reason, _WAYS.get(spot.danger, spot.danger.hint))
    written = placeholder.written
    is_loop = spot.words[:1] == ["for"] and not written.is_repeated
    if spot.quoting == "bare" and (is_loop or written.separator is not None):
        raise placeholder.refusal("stands for several words of a command", _WORDS)
    if "'" in written.quotes:
        raise placeholder.refusal("writes quotes itself", "write '{{ … }}' in quotes of the command")


def _placeholder(spot: PlaceholderSite, marked_text: MarkedText) -> Placeholder:
    return _of(spot.placeholder.source, marked_text)


def _of(source: str, marked_text: MarkedText) -> Placeholder:
    return marked_text.placeholders[int(source.removeprefix(f"{_ROOT}.v"))]


def _value(placeholder: Placeholder) -> str:
    try:
        return environment_value(placeholder.written.source, placeholder.text)
    except InputInvalid as reason:
        way = "write it to a file, and pass the name of the file"
        raise invalid_input(f"{reason.message}: {way}") from None
