"""Parse KDL 2 into nodes with lines and columns. Of KDL 1 also `true`, `false`, `null` and raw texts.

The KDL parsers on PyPI know KDL 1 alone, or return no positions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.formats.scanner import Scanner
from mulligan.language.text.nodes import Refusal, Scalar, Source, shorten

_NEWLINE = "\n\r\x85\x0b\x0c\u2028\u2029"
_SPACE = "\t \xa0\u1680\u2000-\u200a\u202f\u205f\u3000\ufeff"
_BREAK = rf"(?:\r\n|[{_NEWLINE}])"

# Spaces, and lines that go on in the next one.
_SPACES = lazy_regex(rf"(?>(?:[{_SPACE}]++|\\[{_SPACE}]*+(?://[^{_NEWLINE}]*+)?(?:{_BREAK}|\Z))+)")
_COMMENT = lazy_regex(rf"//[^{_NEWLINE}]*+")
_COMMENT_MARK = lazy_regex(r"/\*|\*/")
_WORD = lazy_regex(rf'[^\\/(){{}};\[\]"#={_SPACE}{_NEWLINE}]++')
_QUOTED = lazy_regex(rf'"((?>(?:[^"\\{_NEWLINE}]++|\\(?:[{_SPACE}{_NEWLINE}]++|\S))*))"')
_QUOTED_LINES = lazy_regex(rf'"""{_BREAK}((?>(?:[^"\\]++|\\[\s\S]|"(?!""))*))"""')
_RAW_START = lazy_regex(r'(r(?=#*")|(?=#))(#*)("""|")')
_ESCAPE = lazy_regex(rf"\\(?:u\{{([0-9a-fA-F]{{1,6}})\}}|([{_SPACE}{_NEWLINE}]++)|([\s\S]))")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "b": "\b", "f": "\f", "s": " ", "/": "/"}
_GLUE = lazy_regex(rf"(\\\\)|\\[{_SPACE}{_NEWLINE}]++")
_LINES = lazy_regex(_BREAK)

_WHOLE = lazy_regex(r"[+-]?(?:0x[0-9a-fA-F][0-9a-fA-F_]*|0o[0-7][0-7_]*|0b[01][01_]*|[0-9][0-9_]*)")
_REAL = lazy_regex(r"[+-]?[0-9][0-9_]*(?:\.[0-9][0-9_]*)?(?:[eE][+-]?[0-9][0-9_]*)?")
_NUMBERLIKE = lazy_regex(r"[+-]?\.?[0-9]")
_KEYWORD = lazy_regex(r"#(-?[a-z]+)")
_OLD_KEYWORDS = {"true": True, "false": False, "null": None}
_KEYWORDS = {**_OLD_KEYWORDS, **{word: float(word) for word in ("inf", "-inf", "nan")}}


@dataclass(slots=True, eq=False)
class KdlNode:
    """A node: its name, its arguments and properties, and the nodes in its braces."""

    name: Scalar
    arguments: list[Scalar] = field(default_factory=list)
    properties: list[tuple[Scalar, Scalar]] = field(default_factory=list)
    children: list[KdlNode] = field(default_factory=list)


def read(source: Source) -> list[KdlNode]:
    """Parse a document."""
    return _Reader(source).nodes(0, None)


class _Reader(Scanner):
    def nodes(self, depth: int, opened: int | None) -> list[KdlNode]:
        """The nodes up to the brace that closes them, or to the end of the file."""
        self.refuse_too_deep(depth)
        found: list[KdlNode] = []
        while (sign := self._skip_lines()) != "}":
            if not sign:
                if opened is not None:
                    raise self.refuse("kdl", "the brace that starts here is not closed", opened, hint="add '}'")
                return found
            if self._skip_dash():
                self._node(depth)
            else:
                found.append(self._node(depth))
        if opened is None:
            raise self.refuse("kdl", "this brace closes nothing", self.at, hint="remove it")
        self.at += 1
        return found

    def _node(self, depth: int) -> KdlNode:
        self._skip_type()
        node = KdlNode(self._text("a name"))
        has_children = False
        while True:
            is_apart = self._skip_spaces()
            sign = self.peek()
            if not sign or sign in f";{_NEWLINE}" or self.peek(2) == "//":
                self.at += sign == ";"
                return node
            if sign == "}":
                return node
            is_dropped = self._skip_dash()
            if self.peek() == "{":
                has_children = self._children(node, depth, is_dropped=is_dropped) or has_children
            elif has_children or not (is_apart or is_dropped):
                what = "a ';' or a new line" if has_children else "a space"
                raise self.refuse("kdl", f"{what} is missing before this", self.at)
            else:
                self._entry(KdlNode(node.name) if is_dropped else node)

    def _children(self, node: KdlNode, depth: int, *, is_dropped: bool) -> bool:
        """Read the nodes in braces; returns whether they are kept."""
        start = self.at
        self.at += 1
        children = self.nodes(depth + 1, start)
        if not is_dropped:
            node.children += children
        return not is_dropped

    def _entry(self, node: KdlNode) -> None:
        """An argument, or `name=value`."""
        self._skip_type()
        start = self.at
        first = self._value()
        end = self.at
        self._skip_spaces()
        if self.peek() != "=":
            self.at = end
            node.arguments.append(first)
            return
        if not first.is_text:
            raise self.refuse("kdl", "the name of a property is a text", start, end, hint="quote it")
        self.at += 1
        self._skip_spaces()
        self._skip_type()
        node.properties.append((first, self._value()))

    # -- what is skipped

    def _skip_lines(self) -> str:
        """Skip spaces, lines and comments; returns the next character, "" at the end of the file."""
        while True:
            self._skip_spaces()
            sign = self.peek()
            if sign and sign in f";{_NEWLINE}":
                self.at += 1
            elif comment := _COMMENT.match(self.text, self.at):
                self.at = comment.end()
            else:
                return sign

    def _skip_spaces(self) -> bool:
        """Skip spaces, comments and line continuations; returns whether there were any."""
        start = self.at
        while True:
            if found := _SPACES.match(self.text, self.at):
                self.at = found.end()
            elif self.peek(2) == "/*":
                self._skip_comment()
            else:
                return self.at > start

    def _skip_comment(self) -> None:
        """Skip a comment between /* and */, which may be nested."""
        start, depth = self.at, 0
        for mark in _COMMENT_MARK.finditer(self.text, start):
            depth += 1 if mark.group() == "/*" else -1
            if depth == 0:
                self.at = mark.end()
                return
        raise self.refuse("kdl", "the comment that starts here is not closed", start, hint="add '*/'")

    def _skip_dash(self) -> bool:
        """Skip `/-`, which comments out what comes next; returns whether it is there."""
        if self.peek(2) != "/-":
            return False
        self.at += 2
        self._skip_lines()
        return True

    def _skip_type(self) -> None:
        """Skip `(type)` before a name or a value, which has no meaning in a workflow."""
        if self.peek() != "(":
            return
        start = self.at
        self.at += 1
        self._skip_spaces()
        name = self._text("a type")
        self._skip_spaces()
        if self.peek() != ")":
            raise self.refuse("kdl", "the '(' that starts here is not closed", start, hint="add ')'")
        self.at += 1
        written = self.scalar(name.value, name.text, "", start)
        self.source.warn("kdl_type", f"the type '({shorten(name.text)})' means nothing here", written, hint="remove it")
        self._skip_spaces()

    # -- values

    def _value(self) -> Scalar:
        start = self.at
        if keyword := _KEYWORD.match(self.text, start):
            self.at = keyword.end()
            return self.scalar(self._keyword(keyword.group(1), start), keyword.group(), "", start)
        word = None if _RAW_START.match(self.text, start) else _WORD.match(self.text, start)
        if word is None:
            return self._text("a value")
        text = word.group()
        self.at = word.end()
        return self.scalar(self._meant(text, start), text, "", start)

    def _keyword(self, word: str, start: int) -> Any:
        if word not in _KEYWORDS:
            hint = "there are #true, #false, #null, #inf, #-inf and #nan"
            raise self.refuse("kdl", f"'#{shorten(word)}' is unknown", start, self.at, hint=hint)
        return _KEYWORDS[word]

    def _meant(self, text: str, start: int) -> Any:
        if text in _OLD_KEYWORDS:
            return _OLD_KEYWORDS[text]
        if _WHOLE.fullmatch(text):
            return self.whole(text.replace("_", ""), start)
        if _REAL.fullmatch(text):
            return self.real(text.replace("_", ""), start)
        if _NUMBERLIKE.match(text):
            raise self.refuse("kdl", f"'{shorten(text)}' is not a number", start, self.at, hint="quote it")
        return text

    def _text(self, what: str) -> Scalar:
        """Read a text in any form: a bare word, in quotes, over several lines, raw."""
        start = self.at
        if raw := _RAW_START.match(self.text, start):
            return self._raw(raw.group(2), raw.group(3), raw.end())
        if self.peek(3) == '"""':
            return self._quoted_lines()
        if self.peek() == '"':
            return self._quoted()
        word = _WORD.match(self.text, start)
        if word is None or _NUMBERLIKE.match(word.group()):
            raise self.refuse("kdl", f"{what} is expected here", start)
        self.at = word.end()
        return self.scalar(word.group(), word.group(), "", start)

    def _quoted(self) -> Scalar:
        start = self.at
        found = _QUOTED.match(self.text, start)
        if found is None:
            hint = 'write """ for a text of several lines'
            raise self.refuse("kdl", "the quotes that start here are not closed in this line", start, hint=hint)
        self.at = found.end()
        text = self._unescaped(found.group(1), start + 1, start)
        return self.scalar(text, text, '"', start)

    def _quoted_lines(self) -> Scalar:
        start = self.at
        found = _QUOTED_LINES.match(self.text, start)
        if found is None:
            raise self._refuse_lines(start, '"""')
        self.at = found.end()
        raw = found.group(1)
        text = self._dedented(_GLUE.sub(lambda glue: glue.group(1) or "", raw), start)
        if "\\" not in raw:
            return self._block(text, start)
        unescaped = self._unescaped(text, None, start)
        return self.scalar(unescaped, unescaped, '"', start)

    def _raw(self, signs: str, quotes: str, begin: int) -> Scalar:
        start = self.at
        end = self.text.find(quotes + signs, begin)
        is_lines = quotes == '"""'
        if end < 0 or (not is_lines and _LINES.search(self.text, begin, end)):
            message = f"the raw text that starts here is not closed by {quotes + signs} in this line"
            raise self._refuse_lines(start, signs + '"""') if is_lines else self.refuse("kdl", message, start)
        self.at = end + len(quotes + signs)
        if not is_lines:
            text = self.text[begin:end]
            return self.scalar(text, text, "", start)
        first = _LINES.match(self.text, begin)
        if first is None:
            raise self._refuse_lines(start, signs + '"""')
        return self._block(self._dedented(self.text[first.end() : end], start), start)

    def _refuse_lines(self, start: int, opening: str) -> Refusal:
        message = f"the text that starts here needs its lines between {opening} and {opening[::-1]}"
        return self.refuse("kdl", message, start)

    def _block(self, text: str, start: int) -> Scalar:
        """A text whose lines are unchanged in the file, like a literal block of YAML."""
        return self.scalar(text, text, "|", start)

    def _dedented(self, raw: str, start: int) -> str:
        """The lines without the indentation of the last one, which has the closing quotes."""
        *lines, indent = _LINES.split(raw)
        if indent.strip():
            message = "the closing quotes of a text of several lines must stand on a separate line"
            raise self.refuse("kdl", message, start)
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.startswith(indent):
                message = f"line {number} of the text that starts here is indented less than its closing quotes"
                raise self.refuse("kdl", message, start)
        return "\n".join(line[len(indent) :] if line.strip() else "" for line in lines)

    def _unescaped(self, raw: str, offset: int | None, start: int) -> str:
        """Replace the escapes. `offset` is the place of `raw` in the file, if it is unchanged there."""
        return self.unescaped(raw, _ESCAPE, lambda found: self._escape(found, offset, start), start)

    def _escape(self, found: Any, offset: int | None, start: int) -> str:
        digits, spaces, char = found.groups()
        if spaces:
            return ""
        if digits and int(digits, 16) <= 0x10FFFF:
            return chr(int(digits, 16))
        if char in _ESCAPES:
            return _ESCAPES[char]
        place = (start, None) if offset is None else (offset + found.start(), offset + found.end())
        message = f"the escape '{found.group()}' is unknown"
        raise self.refuse("kdl", message, *place, hint="write '\\\\' for a backslash, '\\u{e9}' for a character")
