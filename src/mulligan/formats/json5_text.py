"""Parse JSON5 into nodes with lines and columns; and JSON that is not valid YAML.

The JSON5 parsers on PyPI return values without positions, or take seconds for a large workflow.
"""

from __future__ import annotations

from typing import Any, NoReturn

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.formats.scanner import Scanner, put
from mulligan.language.text import document as yaml
from mulligan.language.text.nodes import Mapping, Node, Refusal, Scalar, Sequence, Source, shorten

_HALF = lazy_regex(r"\\u[dD][89abAB]")
_BLANK = lazy_regex(r"(?>(?:[\s\ufeff]++|//[^\n\r\u2028\u2029]*+|/\*(?>(?:[^*]++|\*(?!/))*)\*/)*)")
# First characters of a blank or a comment: most tokens follow each other without one.
_SPACES = frozenset("/\ufeff") | {char for char in map(chr, range(0x3001)) if char.isspace()}
_STRINGS = {
    '"': lazy_regex(r'"([^"\\\n\r]*+(?>(?:\\(?:\r\n|[\s\S])[^"\\\n\r]*+)*))"'),
    "'": lazy_regex(r"'([^'\\\n\r]*+(?>(?:\\(?:\r\n|[\s\S])[^'\\\n\r]*+)*))'"),
}
_ESCAPE = lazy_regex(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r\n|[\s\S]))")
_ESCAPES = {
    **{"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"},
    **dict.fromkeys(("\n", "\r", "\r\n", "\u2028", "\u2029"), ""),  # the text goes on in the next line
}
_WORD = lazy_regex(r"""[^\s\ufeff,:\[\]{}"'/]++""")
_NAME = lazy_regex(r"(?>(?:[$\w]|\\u[0-9a-fA-F]{4})+)")
_WHOLE = lazy_regex(r"[+-]?(?:0|[1-9][0-9]*|0[xX][0-9a-fA-F]+)")
_REAL = lazy_regex(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WORDS = {
    **{"true": True, "false": False, "null": None},
    **{f"{sign}Infinity": float(f"{sign}inf") for sign in ("", "+", "-")},
    **{f"{sign}NaN": float("nan") for sign in ("", "+", "-")},
}


def parse(source: Source) -> Node:
    """Parse a JSON5 file."""
    return _Reader(source).document()


def parse_json(source: Source) -> Node:
    """Parse a JSON file: as YAML, which is faster, unless it has surrogate pairs, which YAML does not join.

    A file that is not valid YAML is parsed as JSON5: it may have comments, and if not, the message is more exact.
    """
    if _HALF.search(source.text):
        return parse(source)
    try:
        return yaml.parse(source)
    except Refusal:
        if not source.text.lstrip().startswith(("{", "[", "/")):
            raise
        return parse(source)


class _Reader(Scanner):
    def document(self) -> Node:
        if not self._next():
            raise self.refuse("empty", "the file is empty", 0, hint="a workflow has at least 'steps:'")
        root = self._value(0)
        if self._next():
            raise self.refuse("json", "nothing is expected after the end of the document", self.at)
        return root

    def _next(self) -> str:
        """The next character that is neither space nor comment; "" at the end of the file."""
        found = self.text[self.at : self.at + 1]
        if found not in _SPACES:
            return found
        blank = _BLANK.match(self.text, self.at)
        self.at = blank.end() if blank else self.at
        if self.peek(2) == "/*":
            raise self.refuse("json", "the comment that starts here is not closed", self.at, hint="add '*/'")
        return self.peek()

    def _value(self, depth: int) -> Node:
        """The value that starts here."""
        first = self.text[self.at]
        if first in _STRINGS:
            return self._string()
        if first == "{":
            return self._mapping(depth)
        return self._sequence(depth) if first == "[" else self._plain()

    def _mapping(self, depth: int) -> Mapping:
        self.refuse_too_deep(depth)
        start = self.at
        node = Mapping(*self.place(start))
        self.at += 1
        while (found := self._next()) != "}":
            key = self._key() if found else self._refuse_open(start, "mapping")
            if self._next() != ":":
                raise self.refuse("json", "a ':' is missing after the key", self.at, hint='write it as "key": value')
            self.at += 1
            value = self._value(depth + 1) if self._next() else self._refuse_open(start, "mapping")
            put(node, key, value, self.source)
            self._comma("}", start, "mapping")
        self.at += 1
        return node

    def _sequence(self, depth: int) -> Sequence:
        self.refuse_too_deep(depth)
        start = self.at
        node = Sequence(*self.place(start))
        self.at += 1
        while (found := self._next()) != "]":
            node.items.append(self._value(depth + 1) if found else self._refuse_open(start, "list"))
            self._comma("]", start, "list")
        self.at += 1
        return node

    def _comma(self, closing: str, start: int, what: str) -> None:
        """Read what follows an entry: a comma, or the end."""
        found = self._next()
        if found == ",":
            self.at += 1
        elif not found:
            self._refuse_open(start, what)
        elif found != closing:
            raise self.refuse("json", f"a ',' or '{closing}' is expected here", self.at)

    def _refuse_open(self, start: int, what: str) -> NoReturn:
        """Refuse a file that ends before the value that begins at `start` does."""
        hint = "add '}' or ','" if what == "mapping" else "add ']' or ','"
        raise self.refuse("json", f"the {what} that starts here is not closed", start, hint=hint)

    def _key(self) -> Scalar:
        if self.text[self.at] in _STRINGS:
            return self._string()
        word = _WORD.match(self.text, self.at)
        if word is None:
            raise self.refuse("json", "a key is expected here", self.at)
        begin, text = self.at, word.group()
        if text[0].isdigit() or not _NAME.fullmatch(text):
            hint = f'write it as "{shorten(text)}"'
            raise self.refuse("json", f"the key '{shorten(text)}' needs quotes", begin, word.end(), hint=hint)
        self.at = word.end()
        name = self._unescaped(text, begin, begin)
        return self.scalar(name, name, "", begin)

    def _string(self) -> Scalar:
        start = self.at
        quote = self.text[start]
        found = _STRINGS[quote].match(self.text, start)
        if found is None:
            raise self.refuse("json", "the quotes that start here are not closed", start)
        self.at = found.end()
        text = self._unescaped(found.group(1), start + 1, start)
        return self.scalar(text, text, quote, start)

    def _unescaped(self, raw: str, offset: int, start: int) -> str:
        return self.unescaped(raw, _ESCAPE, lambda found: self._escape(found, offset + found.start()), start)

    def _escape(self, found: Any, offset: int) -> str:
        digits, char = found.group(1) or found.group(2), found.group(3)
        if digits:
            return chr(int(digits, 16))
        if char in "ux123456789":
            message = f"the escape '\\{char}' is not complete" if char in "ux" else f"the escape '\\{char}' is unknown"
            raise self.refuse("json", message, offset, offset + 2, hint="write '\\\\' for a backslash")
        if char.isalpha() and char not in _ESCAPES:
            self._doubt(char, offset)
        return str(_ESCAPES.get(char, char))

    def _doubt(self, char: str, offset: int) -> None:
        """Warn of an escape that JSON does not have and that JSON5 reads as the letter alone; refuse it in JSON."""
        hint = f"write '\\\\{char}' for a backslash and '{char}'"
        if not self.source.file.lower().endswith(".json5"):
            raise self.refuse("json", f"the escape '\\{char}' is unknown", offset, offset + 2, hint=hint)
        line, column = self.place(offset)
        escape = Scalar(char, char, "", line, column, column + 2)
        self.source.warn("escape", f"'\\{char}' in JSON5 means '{char}'", escape, hint=hint)

    def _plain(self) -> Scalar:
        start = self.at
        word = _WORD.match(self.text, start)
        if word is None:
            raise self.refuse("json", "a value is expected here", start)
        text = word.group()
        self.at = word.end()
        return self.scalar(self._meant(text, start), text, "", start)

    def _meant(self, text: str, start: int) -> Any:
        if text in _WORDS:
            return _WORDS[text]
        if _WHOLE.fullmatch(text):
            return self.whole(text, start)
        if _REAL.fullmatch(text):
            return self.real(text, start)
        hint = f'write it as "{shorten(text)}"'
        raise self.refuse("json", f"'{shorten(text)}' is not a JSON value", start, self.at, hint=hint)
