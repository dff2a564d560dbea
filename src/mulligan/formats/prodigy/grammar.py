"""Texts with a grammar of Prodigy's (filters, paths, orders, conditions), read token by token.

Read when the file is, and again in workers: so nothing here knows the language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

# Enough of a token to recognise it.
_SHOWN_CHARS_MAX = 40


# Nobody nests deeper, and Python has an end.
DEPTH_MAX = 50
# Operators in words.
WORDS: Mapping[str, str] = MappingProxyType({"and": "&&", "or": "||", "not": "!"})


class GrammarRefused(Exception):
    """The text does not say what it should: why, and where in it."""

    def __init__(self, message: str, offset: int, length: int = 1) -> None:
        super().__init__(message)
        self.message, self.offset, self.length = message, offset, length


class Tokens:
    """The tokens of a text, taken from left to right. `what` is what the text should be: 'a filter'.

    `meant`: words in lower case that stand for others.
    """

    def __init__(self, text: str, form: re.Pattern[str], what: str, meant: Mapping[str, str]) -> None:
        self._text = text.rstrip()
        self._what = what
        self._meant = meant
        self._tokens = self._told_apart(form)
        self._at = 0
        self._depth = 0

    def _told_apart(self, form: re.Pattern[str]) -> list[re.Match[str]]:
        position, found = 0, []
        while position < len(self._text):
            token = form.match(self._text, position)
            if token is None:
                start = len(self._text) - len(self._text[position:].lstrip())
                raise GrammarRefused(f"'{self._text[start]}' is not expected in {self._what}", start)
            found.append(token)
            position = token.end()
        return found

    def peek(self) -> str:
        """What comes next, as it is meant; "" at the end."""
        if self._at >= len(self._tokens):
            return ""
        words = self._tokens[self._at].group().strip()
        return self._meant.get(words.lower(), words)

    def take(self) -> re.Match[str]:
        """The next one. GrammarRefused where there is none."""
        if self._at >= len(self._tokens):
            message = f"{self._what.replace('a ', 'the ', 1)} ends too early"
            raise GrammarRefused(message, self._place())
        self._at += 1
        return self._tokens[self._at - 1]

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """What is read now is part of something else. GrammarRefused where that is so too often."""
        if self._depth >= DEPTH_MAX:
            raise GrammarRefused(f"more than {DEPTH_MAX} conditions inside each other", self._place())
        self._depth += 1
        yield
        self._depth -= 1

    def _place(self) -> int:
        return self._tokens[self._at].end() - 1 if self._at < len(self._tokens) else max(0, len(self._text) - 1)

    def expect(self, words: str) -> None:
        """Take the next one, which must be this."""
        token = self.take()
        if token.group().strip() != words:
            raise self.unexpected(token)

    def expect_end(self) -> None:
        """GrammarRefused where there is more."""
        if self._at < len(self._tokens):
            raise self.unexpected(self._tokens[self._at])

    def unexpected(self, token: re.Match[str]) -> GrammarRefused:
        """What to raise about a token that has no place where it stands."""
        words = token.group().strip()
        shown = words if len(words) <= _SHOWN_CHARS_MAX else f"{words[: _SHOWN_CHARS_MAX - 1]}…"
        message = f"'{shown}' is not expected in {self._what} here"
        return GrammarRefused(message, token.end() - len(words), len(words))
