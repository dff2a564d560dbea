"""CEL source as tokens.

Neither engine exposes its syntax tree, and an expression must be analysed before an engine sees it: which names it
reads, which functions it calls, where a placeholder ends.
"""

from __future__ import annotations

import msgspec

from mulligan.core.model.text.lazy_regex import lazy_regex

KEYWORDS = frozenset({"true", "false", "null", "in"})
# CEL words that name types. They are never variables, so no item may have such a name.
TYPE_NAMES = frozenset("bool bytes double duration dyn int list map null_type string timestamp type uint".split())
RESERVED = KEYWORDS | frozenset(
    "as break const continue else for function if import let loop package namespace return var void while".split()
)

STRING = (
    r'[bB]?[rR][bB]?(?:"""[\s\S]*?"""|' + r"'''[\s\S]*?'''" + r'|"[^"\n]*"|' + r"'[^'\n]*')"
    r'|[bB]?(?:"""(?:[^\\]|\\[\s\S])*?"""|' + r"'''(?:[^\\]|\\[\s\S])*?'''"
    r'|"(?:[^"\\\n]|\\.)*"|' + r"'(?:[^'\\\n]|\\.)*')"
)
_TOKEN = lazy_regex(
    rf"(?P<space>[ \t\r\n\f]+|//[^\n]*)|(?P<string>{STRING})"
    r"|(?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:[0-9]+\.[0-9]+|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?[uU]?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}])"
)
_BRACE_OR_QUOTE = lazy_regex(r"[{}\"']")
_STRING_AT = lazy_regex(STRING)
TOO_DEEP = "it is nested too deeply"
# Less than the limit of either engine, so that both refuse the same expressions.
_DEPTH_MAX = 24
# A shell nests more of its own in a `${…}`.
_OPEN_BRACES_MAX = 64
_OPENING = {"(": ")", "[": "]", "{": "}"}


class Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    offset: int


class BadToken(Exception):
    """Text that is not CEL: where, how long, and why."""

    def __init__(self, reason: str, offset: int, length: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset
        self.length = length


def tokens(source: str) -> list[Token]:
    """The tokens of `source` without blanks and comments; BadToken where it cannot be CEL."""
    found: list[Token] = []
    position = 0
    for match in _TOKEN.finditer(source):
        start = match.start()
        if start != position:
            break
        kind = match.lastgroup or ""
        if kind != "space":
            found.append(Token(kind, match.group(), start))
        position = match.end()
    if position != len(source):
        raise _bad(source, position)
    return found


def _bad(source: str, position: int) -> BadToken:
    char = source[position]
    if char in "\"'":
        return BadToken("the string is not closed", position, len(source) - position)
    return BadToken(f"'{char}' is not expected here", position, 1)


def closing(found: list[Token]) -> dict[int, int]:
    """Maps the index of each opening bracket to that of its closing one; BadToken if they do not match."""
    open_at: list[int] = []
    pairs: dict[int, int] = {}
    for index, token in enumerate(found):
        if token.kind != "sign":
            continue
        if token.text in _OPENING:
            open_at.append(index)
            if len(open_at) > _DEPTH_MAX:
                raise BadToken(TOO_DEEP, token.offset, 1)
        elif token.text in ")]}":
            if not open_at or _OPENING[found[open_at[-1]].text] != token.text:
                raise BadToken(f"'{token.text}' closes nothing", token.offset, 1)
            pairs[open_at.pop()] = index
    if open_at:
        left = found[open_at[-1]]
        raise BadToken(f"'{left.text}' is not closed", left.offset, 1)
    return pairs


def closing_brace(text: str, start: int, end: int | None = None) -> int:
    """The offset of the `}` that closes the placeholder whose expression begins at `start`, or -1.

    It is looked for before `end`, and not behind more open braces than any expression may have.
    """
    end = len(text) if end is None else end
    depth, position = 0, start
    while match := _BRACE_OR_QUOTE.search(text, position, end):
        char, position = match.group(), match.end()
        if char in "\"'":
            position = _string_end(text, start, match.start(), end)
        elif char == "}" and depth == 0:
            return match.start()
        else:
            depth += 1 if char == "{" else -1
            if depth > _OPEN_BRACES_MAX:
                return -1
    return -1


def _string_end(text: str, start: int, quote: int, end: int) -> int:
    """Where the string with the quote at `quote` ends; `end` if it is not closed."""
    begin = quote
    while begin > start and quote - begin < 2 and text[begin - 1] in "rRbB":
        begin -= 1
    match = _STRING_AT.match(text, begin, end) or _STRING_AT.match(text, quote, end)
    return match.end() if match else end


def literal(token: Token) -> str | None:
    """The text of a plain string token; None if it is bytes or has escapes (then it counts as computed)."""
    prefix = token.text[: len(token.text) - len(token.text.lstrip("rRbB"))].lower()
    body = token.text[len(prefix) :]
    if "b" in prefix or ("\\" in body and "r" not in prefix):
        return None
    width = 3 if body.startswith(('"""', "'''")) else 1
    return body[width:-width]
