"""The commonest slip: a text with `${…}` and without quotes inside `{…}` or `[…]`.

There YAML ends a text at a brace, and what its parser says then is about brackets and quotes that are in order. So the
lines are read once more, only to find the text that was meant.
"""

from __future__ import annotations

from typing import NamedTuple

from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.language.cel_tokens import closing_brace

# Quotes and comments are passed over; brackets open and close collections; all else begins a text.
_PART = lazy_regex(
    r"""(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')|(?P<comment>(?<!\S)#.*)|(?P<open>[\[{])|(?P<close>[]}])"""
    r"""|(?P<between>,|:(?=\s)|-(?=\s)|\s+)|(?P<text>[^\s,\[\]{}]+)"""
)
_TEXT_END = lazy_regex(r"[,\[\]{}\n]|:\s|\s#|\$\{")


class Unquoted(NamedTuple):
    """A text as it stands in the lines, and where. It is not whole where a brace before the hole cut it already."""

    text: str
    offset: int
    is_whole: bool

    @property
    def hint(self) -> str:
        return f"write {self._quoted()}" if self.is_whole else "quote the whole text"

    def _quoted(self) -> str:
        if "\\" not in self.text and '"' not in self.text:
            return f'"{self.text}"'
        doubled = self.text.replace("'", "''")
        return f"'{doubled}'"


def unquoted_hole(lines: str, depth: int = 0) -> Unquoted | None:
    """The first text that holds a `${` and stands without quotes in a collection, or None.

    `depth` is how many collections are open where `lines` begin.
    """
    position = 0
    while match := _PART.match(lines, position):
        position = match.end()
        if match.lastgroup in ("open", "close"):
            depth += 1 if match.lastgroup == "open" else -1
        elif match.lastgroup == "text":
            position = _text_end(lines, match.start())
            text = lines[match.start() : position].rstrip()
            if text.startswith(('"', "'")):
                return None  # quotes that are not closed: what follows may be within them
            if depth > 0 and "${" in text:
                return Unquoted(text, match.start(), not lines[: match.start()].rstrip().endswith(("}", "]")))
    return None


def _text_end(lines: str, start: int) -> int:
    """Where the text that starts there was meant to end: at a sign of YAML's, but not within a hole."""
    position = start
    while match := _TEXT_END.search(lines, position):
        if match.group() != "${":
            return match.start()
        close = closing_brace(lines, match.end())
        position = match.end() if close < 0 else close + 1
    return len(lines)
