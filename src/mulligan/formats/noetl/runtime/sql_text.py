"""Bind the values of a query, so that none of them becomes text of the query.

A value within a string literal stays within it: its quotes are doubled. A value by itself, where the query has a value,
becomes a bound parameter. Anywhere else (as a name, as a whole statement) it is refused.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from mulligan.formats.noetl.runtime.answers import to_json
from mulligan.formats.noetl.runtime.credentials import invalid_input
from mulligan.formats.noetl.runtime.placeholders import MARK, MarkedText, Placeholder
from mulligan.formats.noetl.runtime.templates import excerpt
from mulligan.worker.databases.statements import TOKENS, Dialect, token_end

_PARAMETER = "mulligan_template_"
_QUOTES = "write '{{ … }}' in quotes if it is a value, or its text in the file if it is part of the query"
_OWN_QUOTES = "write '{{ … }}' in quotes of the query, with the value alone"
_NAMES = "write the name in the file, in the query or as a default of the workload that no run overrides"
_LIST = "write IN ({% for x in … %}'{{ x }}'{{ ', ' if not loop.last }}{% endfor %}) for a list"
# The signs and words that may stand before a value.
_SIGNS = frozenset("=<>~|@#?&+-/%^[{:")
_WORDS = frozenset("LIMIT OFFSET LIKE ILIKE BETWEEN ESCAPE WHEN THEN ELSE".split())
# Words that are followed by a name.
_NAMING = frozenset("FROM JOIN INTO UPDATE TABLE VIEW INDEX SCHEMA DATABASE COLUMN ONLY BY AS USE EXISTS".split())
# Parentheses after these words hold values; those with, or shortly after, the following words hold names.
_LISTS = frozenset("VALUES IN ANY ALL SOME".split())
_NAMED_WITHIN = frozenset("SELECT FROM BY DISTINCT RETURNING".split())
_NAMED_AFTER = frozenset("CONFLICT USING BY OVER KEY REFERENCES UNIQUE".split())
_NAMED_SHORTLY_AFTER = frozenset("INTO TABLE VIEW".split())
_SHORTLY = 3
# Statements in which a text between dollars is a literal. In others (do, create function) it may be a program.
_WITH_LITERALS = ("SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "WITH", "VALUES")
_BETWEEN_WORDS = 4
# Characters that would make one token of a value and its neighbour.
_BOUND_BEFORE = re.compile(r"(?:[\w$.'\"\]\U000f0001]|::)\Z")
_BOUND_AFTER = re.compile(r"[\w$.'\"(\U000f0000]")
_UNICODE = re.compile(r"(?<![\w$])[uU]&\Z")


class Query(NamedTuple):
    """A query, and the values that its parameters are bound to."""

    text: str
    values: dict[str, Any]


def bind_query(marked_text: MarkedText, dialect: Dialect) -> Query:
    """Put a parameter, or part of a literal, in place of each mark. INPUT_INVALID where no value may stand."""
    if not marked_text.placeholders:
        return Query(marked_text.text, {})
    for placeholder in marked_text.placeholders.values():
        _refuse_unwritable(placeholder)
    return _Binder(marked_text, dialect).query()


class _Binder:
    """Reads the tokens of a query, and puts values in where they may stand."""

    def __init__(self, marked_text: MarkedText, dialect: Dialect) -> None:
        self._text = marked_text.text
        self._placeholders = marked_text.placeholders
        self._dialect = dialect
        self._written: list[str] = []
        self._values: dict[str, Any] = {}
        # Outside of quotes: the last sign or word, the words of the statement so far, and for each open parenthesis
        # whether values stand in it.
        self._last = ""
        self._words: list[str] = []
        self._open: list[bool] = []

    def query(self) -> Query:
        at = 0
        mark = MARK.search(self._text)
        while at < len(self._text):
            token = TOKENS[self._dialect].search(self._text, at)
            if mark is not None and mark.start() < at:
                mark = MARK.search(self._text, at)
            # A mark holds a number, which is not a token of the query.
            is_mark = mark is not None and (token is None or mark.start() < token.start())
            found = mark if is_mark else token
            if found is None:
                break
            self._skip(self._text[at : found.start()])
            at = found.end() if is_mark else token_end(self._text, found)
            self._written.append(self._value(found) if is_mark else self._token(found, self._text[found.start() : at]))
        self._written.append(self._text[at:])
        return Query("".join(self._written), self._values)

    # -- outside of quotes

    def _skip(self, text: str) -> None:
        """Read the signs between tokens."""
        self._written.append(text)
        for sign in text:
            if sign in "[{":
                self._open.append(True)
            elif sign in "]}":
                self._close()
        self._last = text.strip()[-1:] or self._last

    def _token(self, token: re.Match[str], text: str) -> str:
        if token["comment"] is not None:
            return MARK.sub("", text)
        if token["quoted"] is not None:
            self._last = "'"
            return self._quoted(token.start(), text) if MARK.search(text) else text
        self._note(token, text)
        return text

    def _note(self, token: re.Match[str], text: str) -> None:
        if token["word"] is not None:
            self._words.append(text.upper())
            if self._open and text.upper() in _NAMED_WITHIN:
                self._open[-1] = False
        elif text == "(":
            self._open.append(self._are_values())
        elif text == ")":
            self._close()
        elif text == ";" and not self._open:
            self._words.clear()
            text = ""
        self._last = text.upper()

    def _close(self) -> None:
        if self._open:
            self._open.pop()

    def _are_values(self) -> bool:
        """Whether the parentheses that open here hold values."""
        if self._words and self._words[-1] in _LISTS:
            return True  # also those after the first: values (1), (2)
        return self._last not in _NAMED_AFTER and _NAMED_SHORTLY_AFTER.isdisjoint(self._words[-_SHORTLY:])

    def _value(self, mark: re.Match[str]) -> str:
        """A parameter in place of a mark outside of quotes."""
        placeholder = self._placeholders[int(mark[1])]
        if placeholder.is_harmless:
            is_null = placeholder.value is None and self._is_for_value()
            self._last = "0"
            return " NULL " if is_null else f" {placeholder.text}"
        before = self._text[max(0, mark.start() - 2) : mark.start()]
        after = self._text[mark.end() : mark.end() + 1]
        if not self._last:
            raise placeholder.refusal("is a statement, or the beginning of one", "write the query in the file")
        if self._last in _NAMING:
            raise placeholder.refusal("stands for a name", _NAMES)
        if _BOUND_BEFORE.search(before) or _BOUND_AFTER.match(after):
            raise placeholder.refusal("is a part of a name or a word of the query", _NAMES)
        if not self._is_for_value():
            raise placeholder.refusal("stands where the query has no value", _QUOTES)
        if placeholder.written.separator is not None:
            raise placeholder.refusal("is a list joined to one text", _LIST)
        if placeholder.written.quotes:
            raise placeholder.refusal("writes quotes itself", _OWN_QUOTES)
        self._last = "'"
        name = f"{_PARAMETER}{mark[1]}"
        self._values[name] = to_json(placeholder.value)
        return f" :{name} "

    def _is_for_value(self) -> bool:
        if self._last in ("(", ","):
            return bool(self._open) and self._open[-1]
        is_end = self._last == "AND" and "BETWEEN" in self._words[-_BETWEEN_WORDS:]
        return is_end or self._last in _WORDS or self._last in _SIGNS

    # -- in quotes

    def _quoted(self, start: int, text: str) -> str:
        """A quoted token with the values in it."""
        all_found = [self._placeholders[int(number)] for number in MARK.findall(text)]
        found = [placeholder for placeholder in all_found if not placeholder.is_harmless]
        if not found:
            return MARK.sub(lambda mark: self._placeholders[int(mark[1])].text, text)
        if text[0] == "$":
            text = self._undollared(text, found[0])
        is_escaped = text[0] in "eE"
        if not is_escaped and text[0] != "'":
            raise found[0].refusal("is part of a name", _NAMES)
        if _UNICODE.search(self._text[max(0, start - 3) : start]):
            raise found[0].refusal("is part of a literal with Unicode escapes", "write it without U&")
        for placeholder in found:
            if "'" in (placeholder.written.separator or ""):
                raise placeholder.refusal("is a list joined to one text", _LIST)
            if "''" in placeholder.written.quotes:
                raise placeholder.refusal("doubles quotes, which is done automatically", "leave out the 'replace'")
        return self._literal(text, is_escaped)

    def _undollared(self, text: str, placeholder: Placeholder) -> str:
        """A dollar-quoted text as a literal with quotes, which no value can end."""
        tag = text[: text.index("$", 1) + 1]
        is_whole = len(text) >= 2 * len(tag) and text.endswith(tag)
        if not is_whole or self._words[:1] not in ([word] for word in _WITH_LITERALS):
            raise placeholder.refusal(
                "is part of a program between dollars", "use single quotes, or write it in the file"
            )
        return "'" + text[len(tag) : -len(tag)].replace("'", "''") + "'"

    def _literal(self, text: str, is_escaped: bool) -> str:
        """The literal with its values: quotes are doubled, and backslashes too where they are escapes.

        In PostgreSQL that depends on a setting of the server. An E-literal does not depend on it.
        """
        pieces = MARK.split(text)
        own, values = pieces[::2], [self._placeholders[int(number)] for number in pieces[1::2]]
        escaped = [value.text.replace("'", "''") for value in values]
        if is_escaped:
            _refuse_escaped(own, values)
            escaped = [*map(_with_backslashes, escaped)]
        elif self._dialect is Dialect.POSTGRES and any("\\" in piece for piece in (*own, *escaped)):
            own, escaped = [*map(_with_backslashes, own)], [*map(_with_backslashes, escaped)]
            own[0] = f" E{own[0]}"
        return own[0] + "".join(value + after for value, after in zip(escaped, own[1:], strict=True))


def _with_backslashes(text: str) -> str:
    """A text for an E-literal."""
    return text.replace("\\", "\\\\")


def _refuse_escaped(own: list[str], values: list[Placeholder]) -> None:
    """Refuse a value whose first character the text before it would escape."""
    for before, placeholder in zip(own, values, strict=False):
        if (len(before) - len(before.rstrip("\\"))) % 2:
            raise placeholder.refusal("follows a '\\', which changes what it means", "leave that out")


def _refuse_unwritable(placeholder: Placeholder) -> None:
    source = excerpt(placeholder.written.source)
    if "\0" in placeholder.text:
        raise invalid_input(f"the value of '{source}' contains a NUL, which a query cannot hold")
    try:
        placeholder.text.encode()
    except UnicodeEncodeError:
        raise invalid_input(f"the value of '{source}' is not valid text: it contains half of a character") from None
