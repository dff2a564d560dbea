"""A query as its statements, and where in them a value is to be bound. Knows what is quoted and what is a comment."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto

from mulligan.worker.databases.failures import excerpt


class Dialect(Enum):
    """What differs between databases in how a query is written."""

    SQLITE = auto()
    POSTGRES = auto()
    DUCKDB = auto()


@dataclass(frozen=True)
class Placeholder:
    """Where a value is bound. A `:name` has a name, a `?` has none, and `?2` has a number."""

    start: int
    end: int
    name: str
    is_question_mark: bool = False


@dataclass(frozen=True)
class RenderedStatement:
    """A statement as a driver wants it, and where each of its pieces was in the query."""

    text: str
    query: str
    pieces: list[tuple[int, int]]

    def excerpt(self, *, char: int = 0, byte: int = 0) -> str:
        """The line of the query in which this character, or byte, of the text is, with a caret under it."""
        at = char or len(self.text.encode()[:byte].decode(errors="ignore"))
        rendered, source = max(piece for piece in self.pieces if piece[0] <= at)
        return excerpt(self.query, source + at - rendered)


@dataclass
class Statement:
    """One statement of a query. Offsets count from the start of the query."""

    query: str
    start: int
    end: int = 0
    placeholders: list[Placeholder] = field(default_factory=list)
    # Outside of quotes, in capitals.
    words: list[str] = field(default_factory=list)

    def render(self, marks: list[str]) -> RenderedStatement:
        """The statement with a mark in the place of each spot."""
        text, pieces, start = "", [], self.start
        for placeholder, mark in zip(self.placeholders, marks, strict=True):
            pieces += [(len(text), start), (len(text) + placeholder.start - start, placeholder.start)]
            text += self.query[start : placeholder.start] + mark
            start = placeholder.end
        return RenderedStatement(text + self.query[start : self.end], self.query, [*pieces, (len(text), start)])


# What is quoted, to its end or, where that is missing, to the end of the query.
_STRING = r"'[^']*(?:''[^']*)*(?:'|\Z)"
_ESCAPED = r"[eE]'[^'\\]*(?:(?:\\.|'')[^'\\]*)*(?:'|\Z)"
_NAME = r'"[^"]*(?:""[^"]*)*(?:"|\Z)'
_LINE = r"--[^\n]*"
_COMMENT = r"/\*.*?(?:\*/|\Z)"
_DOLLARS = r"\$(?:[^\W\d]\w*)?\$"
_TICKS = r"`[^`]*(?:``[^`]*)*(?:`|\Z)"
_BRACKETS = r"\[[^\]]*(?:\]|\Z)"

_QUOTED = {
    Dialect.SQLITE: (_STRING, _NAME, _TICKS, _BRACKETS),
    # The end of a dollar quote is its beginning: no pattern finds it.
    Dialect.POSTGRES: (_ESCAPED, _STRING, _NAME, f"(?P<dollars>{_DOLLARS})"),
    Dialect.DUCKDB: (_ESCAPED, _STRING, _NAME, f"(?P<dollars>{_DOLLARS})"),
}
_COMMENTS = {
    Dialect.SQLITE: (_LINE, _COMMENT),
    # Nor the end of a comment that has others in it.
    Dialect.POSTGRES: (_LINE, r"(?P<nested>/\*)"),
    Dialect.DUCKDB: (_LINE, _COMMENT),
}
# A value never follows what could be its own operand: 'a[low:high]' is a slice, and "{'a':b}" has a key.
_SPOT = r"(?<![\w'\"\])}:]):(?P<name>[^\W\d]\w*)|(?P<asked>\?\d*)"
TOKENS = {
    dialect: re.compile(
        rf"(?P<comment>{'|'.join(_COMMENTS[dialect])})|(?P<quoted>{'|'.join(_QUOTED[dialect])})"
        rf"|::|{_SPOT}|(?P<word>[^\W\d][\w$]*)|\d\w*|[;()]",
        re.DOTALL,
    )
    for dialect in Dialect
}
_NESTED = re.compile(r"/\*|\*/")
# Statements that have others within them, up to the END of their BEGIN.
_BODIED = {"TRIGGER", "FUNCTION", "PROCEDURE"}
_BODIED_WITHIN_WORDS = 4


def statements(query: str, dialect: Dialect) -> list[Statement]:
    """The statements of the query, without those that say nothing."""
    splitter, at = _Splitter(query), 0
    while token := TOKENS[dialect].search(query, at):
        splitter.pass_over(query[at : token.start()])
        splitter.take(token)
        at = token_end(query, token)
    splitter.pass_over(query[at:])
    splitter.end(len(query))
    return splitter.found


def token_end(query: str, token: re.Match[str]) -> int:
    """Where it ends: a quote that no pattern finds the end of, further on."""
    groups = token.groupdict()
    if groups.get("nested"):
        return _comment_end(query, token.end())
    if not groups.get("dollars"):
        return token.end()
    end = query.find(token["dollars"], token.end())
    return len(query) if end < 0 else end + len(token["dollars"])


def _comment_end(query: str, at: int) -> int:
    depth = 1
    for mark in _NESTED.finditer(query, at):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    return len(query)


class _Splitter:
    """Takes the tokens of a query one by one, and ends a statement where it ends."""

    def __init__(self, query: str) -> None:
        self.found: list[Statement] = []
        self._now = Statement(query, 0)
        self._is_blank = True
        self._parentheses = self._bodies = 0

    def pass_over(self, text: str) -> None:
        """What stands between tokens: for the database to understand."""
        self._is_blank = self._is_blank and not text.strip()

    def take(self, token: re.Match[str]) -> None:
        self._is_blank = self._is_blank and (token["comment"] is not None or token[0] == ";")
        if token["word"] is not None:
            self._now.words.append(token["word"].upper())
            self._note_body(self._now.words)
        elif token["name"] is not None:
            self._now.placeholders.append(Placeholder(token.start(), token.end(), token["name"]))
        elif token["asked"] is not None:
            self._now.placeholders.append(
                Placeholder(token.start(), token.end(), token["asked"][1:], is_question_mark=True)
            )
        elif token[0] in "()":
            self._parentheses += 1 if token[0] == "(" else -1
        elif token[0] == ";" and self._parentheses <= 0 and not self._bodies:
            self.end(token.start())

    def end(self, at: int) -> None:
        self._now.end = at
        if not self._is_blank:
            self.found.append(self._now)
        self._now = Statement(self._now.query, at + 1)
        self._is_blank = True
        self._parentheses = self._bodies = 0

    def _note_body(self, words: list[str]) -> None:
        """`;` ends no statement between the BEGIN and the END of a trigger or a function."""
        if words[0] != "CREATE" or not _BODIED.intersection(words[:_BODIED_WITHIN_WORDS]):
            return
        if words[-1] == "BEGIN" or (words[-1] == "CASE" and self._bodies):
            self._bodies += 1
        elif words[-1] == "END" and self._bodies:
            self._bodies -= 1
