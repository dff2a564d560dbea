"""Jobs, files and user data by name, or by a regular expression over their names.

Torc's files use Rust's dialect of regular expressions. Where Python reads a part differently, it is rewritten or
refused: to Python `[[:alpha:]]` is a class of letters and colons.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate
from typing import Generic, TypeVar

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.checks.prefix_index import PrefixIndex, literal_prefix
from mulligan.language.checks.regular_expressions import PATTERN
from mulligan.language.text.nodes import Node, Scalar, Source, shorten
from mulligan.language.text.suggestions import did_you_mean

# -- Rust's regular expressions --------------------------------------------------------------------------------------


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
# POSIX classes: ranges of ASCII characters.
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


class UnsupportedSyntax(Exception):
    """A part of a regular expression that Rust supports and we do not."""

    def __init__(self, part: str) -> None:
        super().__init__(part)
        self.part = part


def to_python_pattern(text: str) -> str:
    """Translate an expression to Python. Raise UnsupportedSyntax for a part that Python cannot express."""
    if "[" not in text and "\\" not in text and "(?" not in text:
        return text
    found: list[str] = []
    position = 0
    while part := _PART.match(text, position):
        position = part.end()
        if part["class"]:
            inside, position = _translate_class(text, position)
            found += (part.group(), inside)
        else:
            found.append(r"\Z" if part["end"] else "(?P<" if part["named"] else _translate_part(part))
    return "".join(found)


def _translate_class(text: str, position: int) -> tuple[str, int]:
    """The content of a class up to its closing bracket, and the position after it."""
    found: list[str] = []
    while part := _IN_CLASS.match(text, position):
        position = part.end()
        if part["nested"] or (part["word"] and part["word"] not in _CLASSES):
            raise UnsupportedSyntax(part.group())
        is_inverted = bool(part["inverted"])
        word = part["word"]
        found.append(_ranges(_CLASSES[word], is_inverted=is_inverted) if word else _translate_part(part))
        if part["close"]:
            break
    return "".join(found), position


def _translate_part(part: re.Match[str]) -> str:
    """A part that means the same in a class and outside of one."""
    if part["unknown"]:
        raise UnsupportedSyntax(part["unknown"])
    if not part["character"]:
        return part.group()
    number = int(part["character"], 16)
    if number > ord(_LAST):
        raise UnsupportedSyntax(part["character"])
    return re.escape(chr(number))


def _ranges(ranges: Iterable[str], *, is_inverted: bool) -> str:
    if is_inverted:
        ranges = _complement(ranges)
    return "".join(f"{re.escape(each[0])}-{re.escape(each[1])}" for each in ranges)


def _complement(ranges: Iterable[str]) -> list[str]:
    """All characters outside these ranges, which are sorted."""
    found = []
    first = "\0"
    for each in ranges:
        if first < each[0]:
            found.append(first + chr(ord(each[0]) - 1))
        first = chr(ord(each[1]) + 1)
    return [*found, first + _LAST]


# -- names -----------------------------------------------------------------------------------------------------------


Entry = TypeVar("Entry")

# Expressions that never match across lines: no groups, and no class with a line break.
_WITHIN_LINES = lazy_regex(r"(?:(?:[A-Za-z0-9_-]|\\[dw.-]|\.|\[[A-Za-z0-9_-]+\])[*+?]?)+\$?")


class _NameLines:
    """Names as the lines of one text, so that one search covers all of them."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._text = "\n".join(names)
        self._starts = list(accumulate((len(name) + 1 for name in names), initial=0))
        self.has_breaks = len(names) != self._text.count("\n") + 1

    def matching_names(self, expression: str) -> Iterator[str]:
        search = re.compile(expression, re.MULTILINE).search
        position = 0
        while found := search(self._text, position):
            line = bisect_right(self._starts, found.start()) - 1
            yield self._names[line]
            position = self._starts[line + 1]
            if position > len(self._text):
                return


class NameIndex(Generic[Entry]):
    """All jobs, files or user data of a file. An unknown name is noted once per node."""

    def __init__(self, what: str, items: dict[str, Entry], source: Source, *, is_complete: bool) -> None:
        self.what = what
        self._code = f"unknown_{what.replace(' ', '_')}"
        # If False, some entries have no readable name, and an unknown name may be meant for them.
        self._is_complete = is_complete
        self.by_name = items
        self._source = source
        self._matches: dict[str, tuple[Entry, ...]] = {}
        self._noted: set[int] = set()

    def find(self, name: str, node: Node) -> tuple[Entry, ...]:
        """The entry with this name as a tuple; empty if there is none, which is noted."""
        if name in self.by_name:
            return (self.by_name[name],)
        # Once per node: a name with parameters would otherwise be noted for each value.
        if self._is_complete and id(node) not in self._noted:
            self._noted.add(id(node))
            # A brace is an unfilled parameter.
            hint = did_you_mean(name, self.by_name) or "use a regular expression to match several" * ("{" in name)
            message = f"there is no {self.what} '{shorten(name)}'"
            self._source.note(self._source.refuse(self._code, message, node, hint=hint))
        return ()

    def find_matching(self, text: str, node: Scalar) -> tuple[Entry, ...]:
        """The entries whose names match, in order; the same tuple for the same expression."""
        if text not in self._matches:
            with self._source.noting:
                self._matches[text] = self._search(text, node)
        return self._matches.setdefault(text, ())

    def _search(self, text: str, node: Scalar) -> tuple[Entry, ...]:
        expression = self._python_pattern(text, node)
        found = tuple(self.by_name[name] for name in self._matching_names(expression))
        if not found and self._is_complete:
            message = f"no {self.what} matches '{shorten(text)}'"
            raise self._source.refuse(self._code, message, node)
        return found

    def _python_pattern(self, text: str, node: Scalar) -> str:
        """The expression in Python's syntax. Refuse it if it is invalid or unsupported."""
        try:
            written = to_python_pattern(text)
        except UnsupportedSyntax as error:
            message = f"the expression is '{shorten(text)}', but '{shorten(error.part)}' is not supported"
            hint = "use classes such as [a-z], [[:alpha:]], \\d and \\w; (?i) only at the very start"
            raise self._source.refuse("pattern", message, node, hint=hint) from None
        at = Scalar(written, text, node.style, node.line, node.column, node.end_column)
        found: str = PATTERN.read(at, "the expression", self._source)
        return found

    def _matching_names(self, expression: str) -> Iterator[str]:
        """The matching names. Thousands of jobs may each have an expression, so not every name is tested."""
        if _WITHIN_LINES.fullmatch(expression) and not self._lines.has_breaks:
            yield from self._lines.matching_names(expression)
        else:
            search = re.compile(expression).search
            beginning = literal_prefix(expression[1:]) if expression.startswith("^") else ""
            yield from filter(search, self._beginnings.names_with_prefix(beginning))

    @cached_property
    def _lines(self) -> _NameLines:
        return _NameLines(list(self.by_name))

    @cached_property
    def _beginnings(self) -> PrefixIndex:
        return PrefixIndex(self.by_name)
