"""Split a query into statements, and find its placeholders, outside of quotes and comments."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto

from mulligan.worker.databases.failures import excerpt


class Dialect(Enum):
    """The SQL dialects that differ in quoting and comments."""

    SQLITE = auto()
    POSTGRES = auto()
    DUCKDB = auto()


@dataclass(frozen=True)
class Placeholder:
    """Where a value is bound. `:name` has a name, `?` has none, and `?2` has a number."""

    start: int
    end: int
    name: str
    is_question_mark: bool = False


@dataclass(frozen=True)
class RenderedStatement:
    """A statement as it is sent to a driver, and where each of its pieces was in the query."""

    text: str
    query: str
    pieces: list[tuple[int, int]]

    def excerpt(self, *, char: int = 0, byte: int = 0) -> str:
        """Return the line of the query that contains this character, or byte, of the text, with a caret under it."""
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
    # The words outside of quotes, in upper case.
    words: list[str] = field(default_factory=list)

    def render(self, marks: list[str]) -> RenderedStatement:
        """Return the statement with a mark in place of each placeholder."""
        text, pieces, start = "", [], self.start
        for placeholder, mark in zip(self.placeholders, marks, strict=True):
            pieces += [(len(text), start), (len(text) + placeholder.start - start, placeholder.start)]
            text += self.query[start : placeholder.start] + mark
            start = placeholder.end
        return RenderedStatement(text + self.query[start : self.end], self.query, [*pieces, (len(text), start)])


# A quoted text ends at its closing quote or, if that is missing, at the end of the query.
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
    # A dollar quote ends with its own tag, which a pattern cannot match.
    Dialect.POSTGRES: (_ESCAPED, _STRING, _NAME, f"(?P<dollars>{_DOLLARS})"),
    Dialect.DUCKDB: (_ESCAPED, _STRING, _NAME, f"(?P<dollars>{_DOLLARS})"),
}
_COMMENTS = {
    Dialect.SQLITE: (_LINE, _COMMENT),
    # Comments may be nested, which a pattern cannot match.
    Dialect.POSTGRES: (_LINE, r"(?P<nested>/\*)"),
    Dialect.DUCKDB: (_LINE, _COMMENT),
}
# A placeholder cannot follow an operand: 'a[low:high]' is a slice, and "{'a':b}" has a key.
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
# Statements that contain others, between BEGIN and END.
_BODIED = {"TRIGGER", "FUNCTION", "PROCEDURE"}
_BODIED_WITHIN_WORDS = 4


def statements(query: str, dialect: Dialect) -> list[Statement]:
    """Return the statements of the query, without empty ones."""
    splitter, at = _Splitter(query), 0
    while token := TOKENS[dialect].search(query, at):
        splitter.skip(query[at : token.start()])
        splitter.take(token)
        at = token_end(query, token)
    splitter.skip(query[at:])
    splitter.end(len(query))
    return splitter.statements


def token_end(query: str, token: re.Match[str]) -> int:
    """Return where the token ends, also for a dollar quote or nested comment."""
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
    """Consume the tokens of a query one by one, and end each statement."""

    def __init__(self, query: str) -> None:
        self.statements: list[Statement] = []
        self._current = Statement(query, 0)
        self._is_blank = True
        self._parentheses = self._bodies = 0

    def skip(self, text: str) -> None:
        """Skip the text between tokens, which is for the database to parse."""
        self._is_blank = self._is_blank and not text.strip()

    def take(self, token: re.Match[str]) -> None:
        self._is_blank = self._is_blank and (token["comment"] is not None or token[0] == ";")
        if token["word"] is not None:
            self._current.words.append(token["word"].upper())
            self._note_body(self._current.words)
        elif token["name"] is not None:
            self._current.placeholders.append(Placeholder(token.start(), token.end(), token["name"]))
        elif token["asked"] is not None:
            self._current.placeholders.append(
                Placeholder(token.start(), token.end(), token["asked"][1:], is_question_mark=True)
            )
        elif token[0] in "()":
            self._parentheses += 1 if token[0] == "(" else -1
        elif token[0] == ";" and self._parentheses <= 0 and not self._bodies:
            self.end(token.start())

    def end(self, at: int) -> None:
        self._current.end = at
        if not self._is_blank:
            self.statements.append(self._current)
        self._current = Statement(self._current.query, at + 1)
        self._is_blank = True
        self._parentheses = self._bodies = 0

    def _note_body(self, words: list[str]) -> None:
        """Count the nesting of BEGIN and END in a trigger or function: there, `;` does not end the statement."""
        if words[0] != "CREATE" or not _BODIED.intersection(words[:_BODIED_WITHIN_WORDS]):
            return
        if words[-1] == "BEGIN" or (words[-1] == "CASE" and self._bodies):
            self._bodies += 1
        elif words[-1] == "END" and self._bodies:
            self._bodies -= 1
