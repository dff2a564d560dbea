"""Scan a text for the parsers of JSON5 and KDL: no library reads these with the place of every value."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.text.document import DEPTH_MAX, UNUSABLE_CHARACTER, refuse_unprintable
from mulligan.language.text.nodes import Mapping, Node, Refusal, Scalar, Source, shorten
from mulligan.language.text.scalars import INTEGER_MAX, INTEGER_MIN

# The same line breaks as in `Source`.
_LINE_BREAK = lazy_regex("\r\n|[\n\r\x85\u2028\u2029]")
_SURROGATES = lazy_regex("[\ud800-\udbff][\udc00-\udfff]")


class Scanner:
    """A text, and the offset `at` up to which it was read."""

    def __init__(self, source: Source) -> None:
        refuse_unprintable(source)
        self.source = source
        self.text = source.text
        self.at = 0
        self._line_starts = [0, *(found.end() for found in _LINE_BREAK.finditer(source.text))]

    def peek(self, length: int = 1) -> str:
        return self.text[self.at : self.at + length]

    def place(self, offset: int) -> tuple[int, int]:
        """The line and column of a character."""
        line = bisect_right(self._line_starts, offset) - 1
        return line, offset - self._line_starts[line]

    def scalar(self, value: Any, text: str, style: str, start: int) -> Scalar:
        """The value whose text goes from `start` to `at`."""
        line, column = self.place(start)
        is_one_line = line + 1 == len(self._line_starts) or self.at < self._line_starts[line + 1]
        return Scalar(value, text, style, line, column, column + self.at - start if is_one_line else column)

    def refuse(self, code: str, message: str, start: int, end: int | None = None, *, hint: str = "") -> Refusal:
        length = 1 if end is None else end - start
        return self.source.refuse_at(code, message, *self.place(start), length, hint=hint)

    def refuse_too_deep(self, depth: int) -> None:
        if depth >= DEPTH_MAX:
            message = f"more than {DEPTH_MAX} lists and mappings inside each other"
            raise self.refuse("too_deep", message, self.at)

    def whole(self, text: str, start: int) -> int:
        """An integer, with a prefix for another base than ten."""
        try:
            value = int(text, 0 if text.lstrip("+-")[1:2] in tuple("xXob") else 10)
        except ValueError:  # more digits than Python reads
            value = INTEGER_MAX + 1
        if not INTEGER_MIN <= value <= INTEGER_MAX:
            raise self._refuse_number(text, start)
        return value

    def real(self, text: str, start: int) -> float:
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise self._refuse_number(text, start)
        return value

    def _refuse_number(self, text: str, start: int) -> Refusal:
        message = f"the number {shorten(text)} does not fit into 64 bits"
        return self.refuse("number", message, start, start + len(text), hint="quote it to keep it as text")

    def unescaped(self, raw: str, escape: re.Pattern[str], replace: Callable[[re.Match[str]], str], start: int) -> str:
        """The text that begins at `start` with its escapes replaced."""
        return self._fit(escape.sub(replace, raw), start) if "\\" in raw else raw

    def _fit(self, text: str, start: int) -> str:
        """A text after its escapes were replaced: surrogate pairs are joined, and invalid characters refused."""
        text = _SURROGATES.sub(lambda found: found.group().encode("utf-16", "surrogatepass").decode("utf-16"), text)
        if unusable := UNUSABLE_CHARACTER.search(text):
            message = f"the text contains the character U+{ord(unusable.group()):04X}, which is not allowed"
            raise self.refuse("character", message, start, self.at, hint="remove it")
        return text


def put(mapping: Mapping, key: Scalar, value: Node, source: Source) -> None:
    """Set a key of a mapping. Refused where it is set already."""
    if key.text in mapping.entries:
        first = mapping.key(key.text)
        message = f"'{shorten(key.text)}' appears twice: first in line {first.line + 1}"
        raise source.refuse("duplicate_key", message, key, hint="remove one of them")
    mapping.entries[key.text] = (key, value)
