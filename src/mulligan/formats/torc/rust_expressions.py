"""Regular expressions in Rust's dialect, which Torc's files are written in, as Python writes them.

What both read alike stays as it is. What Python would read as something else is written as Python reads it rightly, or
refused: `[[:alpha:]]` is a class of letters and colons to Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mulligan.core.model.lazy_regex import lazy_regex

_PART = lazy_regex(
    r"""
      (?P<end>\\z)
    | \\[xuU]\{(?P<character>[0-9A-Fa-f]{1,8})\}
    | (?P<unknown>\\[pP](?:\{[^}]*\}|.)? | \\b\{[^}]*\} | \\[<>] | (?!\A)\(\?[A-Za-z-]+\))
    | \\.
    | (?P<named>\(\?<(?=[A-Za-z_]))
    | (?P<class>\[\^?\]?)
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_IN_CLASS = lazy_regex(
    r"""
      \\[xuU]\{(?P<character>[0-9A-Fa-f]{1,8})\}
    | (?P<unknown>\\[pP](?:\{[^}]*\}|.)? | && | -- | ~~)
    | \\.
    | \[:(?P<inverted>\^?)(?P<word>\w+):\]
    | (?P<nested>\[)
    | (?P<close>\])
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_LAST = "\U0010ffff"
# What POSIX calls them: ranges of ASCII, whatever the language.
_CLASSES = {
    "alnum": ("09", "AZ", "az"),
    "alpha": ("AZ", "az"),
    "ascii": ("\0\x7f",),
    "blank": ("\t\t", "  "),
    "cntrl": ("\0\x1f", "\x7f\x7f"),
    "digit": ("09",),
    "graph": ("!~",),
    "lower": ("az",),
    "print": (" ~",),
    "punct": ("!/", ":@", "[`", "{~"),
    "space": ("\t\r", "  "),
    "upper": ("AZ",),
    "word": ("09", "AZ", "__", "az"),
    "xdigit": ("09", "AF", "af"),
}


class NotUnderstood(Exception):
    """A part of an expression that Rust understands, and we do not."""

    def __init__(self, part: str) -> None:
        super().__init__(part)
        self.part = part


def as_python(text: str) -> str:
    """The expression as Python writes it. Raises NotUnderstood for a part that Python has no equal of."""
    if "[" not in text and "\\" not in text and "(?" not in text:
        return text
    found: list[str] = []
    position = 0
    while part := _PART.match(text, position):
        position = part.end()
        if part["class"]:
            inside, position = _class(text, position)
            found += (part.group(), inside)
        else:
            found.append(_outside(part))
    return "".join(found)


def _outside(part: re.Match[str]) -> str:
    if part["unknown"]:
        raise NotUnderstood(part["unknown"])
    if part["end"]:
        return r"\Z"
    if part["named"]:
        return "(?P<"
    return _character(part["character"]) if part["character"] else part.group()


def _class(text: str, position: int) -> tuple[str, int]:
    """What stands in a class up to its closing bracket, and where that ends."""
    found: list[str] = []
    while part := _IN_CLASS.match(text, position):
        position = part.end()
        found.append(_inside(part))
        if part["close"]:
            break
    return "".join(found), position


def _inside(part: re.Match[str]) -> str:
    if part["unknown"]:
        raise NotUnderstood(part["unknown"])
    if part["nested"] or (part["word"] and part["word"] not in _CLASSES):
        raise NotUnderstood(part.group())
    if part["word"]:
        return _ranges(_CLASSES[part["word"]], is_inverted=bool(part["inverted"]))
    return _character(part["character"]) if part["character"] else part.group()


def _ranges(ranges: Iterable[str], *, is_inverted: bool) -> str:
    if is_inverted:
        ranges = _between(ranges)
    return "".join(f"{re.escape(each[0])}-{re.escape(each[1])}" for each in ranges)


def _between(ranges: Iterable[str]) -> list[str]:
    """What these leave out of all characters there are; they are in order."""
    found = []
    first = "\0"
    for each in ranges:
        if first < each[0]:
            found.append(first + chr(ord(each[0]) - 1))
        first = chr(ord(each[1]) + 1)
    return [*found, first + _LAST]


def _character(digits: str) -> str:
    number = int(digits, 16)
    if number > ord(_LAST):
        raise NotUnderstood(digits)
    return re.escape(chr(number))
