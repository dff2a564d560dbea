"""The most common YAML mistake: a text with `${…}` and without quotes inside `{…}` or `[…]`.

YAML ends such a text at the brace, and its parser then complains about brackets and quotes that are correct. So the
lines are scanned again to find the text that was meant.
"""

from __future__ import annotations

from typing import NamedTuple

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.cel.cel_tokens import closing_brace

# Quotes and comments are skipped; brackets open and close collections; anything else begins a text.
_PART = lazy_regex(
    r"""(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')|(?P<comment>(?<!\S)#.*)|(?P<open>[\[{])|(?P<close>[]}])"""
    r"""|(?P<between>,|:(?=\s)|-(?=\s)|\s+)|(?P<text>[^\s,\[\]{}]+)"""
)
_TEXT_END = lazy_regex(r"[,\[\]{}\n]|:\s|\s#|\$\{")


class UnquotedText(NamedTuple):
    """An unquoted text and its offset. `is_whole` is False if an earlier brace already cut it."""

    text: str
    offset: int
    is_whole: bool

    @property
    def hint(self) -> str:
        if not self.is_whole:
            return "quote the whole text"
        if "\\" not in self.text and '"' not in self.text:
            return f'write "{self.text}"'
        doubled = self.text.replace("'", "''")
        return f"write '{doubled}'"


def find_unquoted_text(lines: str, depth: int = 0) -> UnquotedText | None:
    """The first unquoted text with `${` in a collection, or None.

    `depth` is how many collections are open at the start of `lines`.
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
                return None  # unclosed quotes: the rest may be inside them
            if depth > 0 and "${" in text:
                return UnquotedText(text, match.start(), not lines[: match.start()].rstrip().endswith(("}", "]")))
    return None


def _text_end(lines: str, start: int) -> int:
    """Where the text was meant to end: at a YAML indicator outside placeholders."""
    position = start
    while match := _TEXT_END.search(lines, position):
        if match.group() != "${":
            return match.start()
        close = closing_brace(lines, match.end())
        position = match.end() if close < 0 else close + 1
    return len(lines)
