"""What an expression reads and calls, found from its tokens before an engine sees it.

A *path* is a name with the literal fields that follow it: `steps.build.output`, `steps["build-image"]`. It ends at a
computed index, at a method call, or with the last field. An engine gets the values at the paths and nothing else.
"""

from __future__ import annotations

from itertools import chain

import msgspec

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.cel.cel import FUNCTIONS, MACROS, METHODS
from mulligan.language.cel.cel_tokens import KEYWORDS, RESERVED, TYPE_NAMES, BadToken, Token, closing, literal

Path = tuple[str, ...]
# One letter per token: l(iteral), n(ame), o(perator), brackets and dots as they are, x for anything else.
_OPERATORS = frozenset("&& || == != <= >= < > + - * / %".split())
_PLAIN_TOKEN = lazy_regex(r"""[0-9]{1,18}(?:\.[0-9]{1,18})?|"[ !#-\[\]-~]*"|'[ -&(-\[\]-~]*'""")
# Fewer fields and operators than the 31 levels that an engine accepts.
_OPERAND = r"(?:l|n(?:\.n|\[l\]){0,8})"
_SURELY = lazy_regex(rf"{_OPERAND}(?:o{_OPERAND}){{0,20}}")
_END = Token("end", "", -1)
# The same as one expression over the source: dotted paths and plain literals between signs. The parts cannot be
# divided otherwise: a literal, a name or a sign ends where no longer one is possible.
_DOTTED_PATH = r"[A-Za-z_][A-Za-z0-9_]*+(?:\.[A-Za-z_][A-Za-z0-9_]*+){0,8}"
_SIMPLE_OPERAND = rf"(?:{_DOTTED_PATH}|{_PLAIN_TOKEN.pattern})"
_SIMPLE_SOURCE = lazy_regex(
    rf"{_SIMPLE_OPERAND}(?:[ \t\n]*+(?:&&|\|\||[=!<>]=|[-+*/%<>])[ \t\n]*+{_SIMPLE_OPERAND}){{1,20}}+"
)
_PATH_OR_STRING = lazy_regex(r"""([A-Za-z_][A-Za-z0-9_.]*)|"[^"]*"|'[^']*'""")
_NOT_NAMES = RESERVED | TYPE_NAMES


class Analysis(msgspec.Struct, frozen=True):
    """`plain` is set if the whole expression is one path, with list indexes: then no engine is needed.

    `reads_around`: whether a macro reads more than the variable that it binds.
    """

    paths: tuple[Path, ...]
    plain: tuple[str | int, ...] | None
    reads_around: bool


class UnknownFunction(BadToken):
    """A call of a function that does not exist; `known` are the functions that do."""

    def __init__(self, name: str, offset: int, known: frozenset[str]) -> None:
        super().__init__(f"there is no function '{name}'", offset, len(name))
        self.name = name
        self.known = known


def analyse(found: list[Token]) -> Analysis:
    """The paths that the expression reads; BadToken for syntax that we refuse although an engine accepts it."""
    pairs = closing(found)
    # Padding, so that the tokens around any token can be read without a bounds check.
    found = [*found, _END, _END, _END]
    scopes = _scopes(found, pairs)
    paths: dict[Path, None] = {}
    reads_around = False
    for index, token in enumerate(found):
        if token.kind != "name":
            continue
        before, after = found[index - 1].text, found[index + 1].text
        if after == "(":
            known = METHODS if before == "." else FUNCTIONS
            if token.text not in known:
                raise UnknownFunction(token.text, token.offset, known)
        elif after == "{" or (before == "." and not _ends_a_value(found[index - 2])):
            raise BadToken(f"'{token.text}' is not expected here", token.offset, len(token.text))
        elif before != "." and token.text not in KEYWORDS and token.text not in TYPE_NAMES:
            reads_around = reads_around or _is_from_around(token.text, index, scopes)
            if not _is_bound(token.text, index, scopes):
                paths[_path(found, index)] = None
    return Analysis(tuple(paths), _plain_path(found), reads_around)


def analyse_simple(source: str) -> Analysis | None:
    """The analysis of a source that is valid for sure, without its tokens; None if they are needed."""
    if not _SIMPLE_SOURCE.fullmatch(source):
        return None
    paths = {tuple(path.split(".")): None for path in _PATH_OR_STRING.findall(source) if path}
    if not _NOT_NAMES.isdisjoint(chain.from_iterable(paths)):
        return None
    return Analysis(tuple(paths), None, reads_around=False)


def is_surely_valid(found: list[Token]) -> bool:
    """Whether the expression is valid for sure: only paths and plain literals between operators.

    Most conditions are of this kind, and compiling is most of the cost of a check.
    """
    return _SURELY.fullmatch("".join(map(_letter, found))) is not None


def _letter(token: Token) -> str:
    if token.kind == "name":
        if token.text in KEYWORDS:
            return "o" if token.text == "in" else "l"
        return "x" if token.text in RESERVED else "n"
    if token.kind == "sign":
        return "o" if token.text in _OPERATORS else token.text
    return "l" if _PLAIN_TOKEN.fullmatch(token.text) else "x"


def reads(paths: tuple[Path, ...]) -> tuple[str, ...]:
    """The names for `Expression.reads`: the member of `steps` and `secrets`, the root of everything else."""
    return (_read(paths[0]),) if len(paths) == 1 else tuple(dict.fromkeys(map(_read, paths)))


def _read(path: Path) -> str:
    root = path[0]
    if root == "steps" or root == "secrets":
        return f"{root}.{path[1] if len(path) > 1 else '*'}"
    return root


def _ends_a_value(token: Token) -> bool:
    return token.kind in ("name", "string", "number") or token.text in (")", "]", "}")


def _scopes(found: list[Token], pairs: dict[int, int]) -> list[tuple[str, int, int]]:
    """The variables that macros bind, each with the first and last token of its scope."""
    scopes = []
    for index, token in enumerate(found):
        is_macro = token.text in MACROS and found[index - 1].text == "." and found[index + 1].text == "("
        if is_macro and found[index + 2].kind == "name":
            scopes.append((found[index + 2].text, index + 2, pairs[index + 1]))
    return scopes


def _is_bound(name: str, index: int, scopes: list[tuple[str, int, int]]) -> bool:
    return any(bound == name and first <= index <= last for bound, first, last in scopes)


def _is_from_around(name: str, index: int, scopes: list[tuple[str, int, int]]) -> bool:
    """Whether the name is inside a macro that does not bind it."""
    inside = [(first, bound) for bound, first, last in scopes if first <= index <= last]
    return bool(inside) and max(inside)[1] != name


def _path(found: list[Token], index: int) -> Path:
    path = [found[index].text]
    index += 1
    while True:
        field, width = _field(found, index)
        if not isinstance(field, str):
            return tuple(path)
        path.append(field)
        index += width


def _field(found: list[Token], index: int) -> tuple[str | int | None, int]:
    """The literal field or list index at `index`, and how many tokens it takes; None if there is none."""
    sign = found[index].text
    if sign not in (".", "["):
        return None, 0
    inner, end = found[index + 1], found[index + 2].text
    if sign == "." and inner.kind == "name" and end != "(":
        return inner.text, 2
    if sign == "[" and end == "]":
        if inner.kind == "string":
            return literal(inner), 3
        # No list has an index of more digits; Python refuses to read thousands of them.
        if inner.kind == "number" and inner.text.isdigit() and len(inner.text) < 19:
            return int(inner.text), 3
    return None, 0


def _plain_path(found: list[Token]) -> tuple[str | int, ...] | None:
    first = found[0]
    if first.kind != "name" or first.text in RESERVED or first.text in TYPE_NAMES:
        return None
    path: list[str | int] = [first.text]
    index = 1
    while found[index] is not _END:
        field, width = _field(found, index)
        if field is None:
            return None
        path.append(field)
        index += width
    return tuple(path)
