"""Things by their names, and by regular expressions over their names; each expression is asked once."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate
from typing import Generic, TypeVar

from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.formats.torc.rust_expressions import NotUnderstood, as_python
from mulligan.language.nodes import Node, Scalar, Source, shorten
from mulligan.language.prefix_index import PrefixIndex, literal_prefix
from mulligan.language.regular_expressions import PATTERN
from mulligan.language.suggestions import did_you_mean

Thing = TypeVar("Thing")

# What matches within one line whatever stands in the others: no group, and no class that has a line break in it.
_WITHIN_LINES = lazy_regex(r"(?:(?:[A-Za-z0-9_-]|\\[dw.-]|\.|\[[A-Za-z0-9_-]+\])[*+?]?)+\$?")


class _Lines:
    """Names as the lines of one text, which is searched as a whole."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._text = "\n".join(names)
        self._starts = list(accumulate((len(name) + 1 for name in names), initial=0))
        self.has_breaks = len(names) != self._text.count("\n") + 1

    def matched(self, expression: str) -> Iterator[str]:
        search = re.compile(expression, re.MULTILINE).search
        position = 0
        while found := search(self._text, position):
            line = bisect_right(self._starts, found.start()) - 1
            yield self._names[line]
            position = self._starts[line + 1]
            if position > len(self._text):
                return


class Known(Generic[Thing]):
    """All jobs, files or user data of a file. What is asked for and is not there is noted once per place."""

    def __init__(self, what: str, things: dict[str, Thing], source: Source, *, is_whole: bool) -> None:
        self.what = what
        # Else some have no name that could be read, and what is not there may be one of them.
        self._is_whole = is_whole
        self.things = things
        self._source = source
        self._matches: dict[str, tuple[Thing, ...]] = {}
        self._noted: set[int] = set()

    def named(self, name: str, node: Node) -> tuple[Thing, ...]:
        """The one of that name; none where that was noted."""
        if name in self.things:
            return (self.things[name],)
        hint = did_you_mean(name, self.things) or self._hint(name)
        self._note(f"unknown_{self.what.replace(' ', '_')}", f"there is no {self.what} '{shorten(name)}'", node, hint)
        return ()

    def _hint(self, name: str) -> str:
        """What to do about a name with a parameter in it, which nobody has filled in."""
        return "for several at once use a regular expression" if "{" in name else ""

    def matching(self, text: str, node: Scalar) -> tuple[Thing, ...]:
        """Those in whose names the expression is found, in their order; the same tuple for the same expression."""
        if text not in self._matches:
            with self._source.noting:
                self._matches[text] = self._searched(text, node)
        return self._matches.setdefault(text, ())

    def _searched(self, text: str, node: Scalar) -> tuple[Thing, ...]:
        expression = self._expression(text, node)
        found = tuple(self.things[name] for name in self._matched(expression))
        if not found and self._is_whole:
            message = f"no {self.what} matches '{shorten(text)}'"
            raise self._source.refuse(f"unknown_{self.what.replace(' ', '_')}", message, node)
        return found

    def _expression(self, text: str, node: Scalar) -> str:
        """The expression as Python writes it, if it is a valid one that we understand."""
        try:
            written = as_python(text)
        except NotUnderstood as error:
            message = f"the expression is '{shorten(text)}', and '{shorten(error.part)}' is not understood here"
            hint = "there are classes such as [a-z], [[:alpha:]], \\d and \\w, and (?i) at the very start"
            raise self._source.refuse("pattern", message, node, hint=hint) from None
        at = Scalar(written, text, node.style, node.line, node.column, node.end_column)
        found: str = PATTERN.read(at, "the expression", self._source)
        return found

    def _matched(self, expression: str) -> Iterator[str]:
        """The names in which it is found. Thousands of jobs may have one each: it is not asked of every name."""
        if _WITHIN_LINES.fullmatch(expression) and not self._lines.has_breaks:
            yield from self._lines.matched(expression)
        else:
            search = re.compile(expression).search
            beginning = literal_prefix(expression[1:]) if expression.startswith("^") else ""
            yield from filter(search, self._prefix_index.names_with_prefix(beginning))

    @cached_property
    def _lines(self) -> _Lines:
        return _Lines(list(self.things))

    @cached_property
    def _prefix_index(self) -> PrefixIndex:
        return PrefixIndex(self.things)

    def _note(self, code: str, message: str, node: Node, hint: str) -> None:
        """A name that is made of parameters would be noted for each of their values."""
        if self._is_whole and id(node) not in self._noted:
            self._noted.add(id(node))
            self._source.note(self._source.refuse(code, message, node, hint=hint))
