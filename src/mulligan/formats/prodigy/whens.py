"""Prodigy's `when`: comparisons of variables, `&&`, `||`, `!` and `exists`, as a condition of ours.

A variable holds text as often as it holds a number. So what it is compared with says how it is meant: `${n} > 5` as
numbers, `${ok} == true` and `${env} == 'prod'` as text. A variable that stands alone holds if it says true.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mulligan.formats.expressions import quoted
from mulligan.formats.prodigy.places import Place
from mulligan.formats.prodigy.variables import environment, is_condition, known, with_default
from mulligan.formats.translation import Translation
from mulligan.language.nodes import Node, Refusal, Scalar, shorten

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<variable>\$\{[^}]*\}|\$[A-Za-z_]\w*)
    | (?P<number>-?\d+(?:\.\d+)?)
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<operator>&&|\|\||==|!=|<=|>=|[<>!()])
    | (?P<word>[A-Za-z_][\w.-]*(?:\[\d+\][\w.]*)*)
    )""",
    re.X | re.A,
)
_COMPARISONS = frozenset("== != < <= > >=".split())


class _Operand(NamedTuple):
    """One side of a comparison. `kind` is what it says it is: a variable says nothing."""

    expression: str
    kind: str


def condition(node: Node, place: Place, translation: Translation) -> str:
    """The expression of a `when`."""
    assert isinstance(node, Scalar)
    if isinstance(node.value, bool):
        return str(node.value).lower()
    reader = _Reader(node, place, translation)
    found = reader.alternatives()
    reader.expect_end()
    return found


class _Reader:
    """Reads a condition from left to right; `!` binds closest, then `&&`, then `||`."""

    def __init__(self, node: Scalar, place: Place, translation: Translation) -> None:
        self._node = node
        self._place = place
        self._source = translation.source
        self._tokens = self._tokenised()
        self._at = 0

    def _tokenised(self) -> list[re.Match[str]]:
        text, position, found = self._node.text.rstrip(), 0, []
        while position < len(text):
            token = _TOKEN.match(text, position)
            if token is None:
                position += len(text[position:]) - len(text[position:].lstrip())
                raise self._refuse(f"'{text[position]}' is not expected in a condition", position, 1)
            found.append(token)
            position = token.end()
        return found

    def _refuse(self, message: str, offset: int, length: int) -> Refusal:
        hint = "a condition compares, as in ${count} > 5 && ${branch} == 'main'"
        return self._source.refuse_in("prodigy", message, self._node, offset, length, hint=hint)

    def _peek(self) -> str:
        return self._tokens[self._at].group().strip() if self._at < len(self._tokens) else ""

    def _take(self) -> re.Match[str]:
        if self._at >= len(self._tokens):
            raise self._refuse("the condition ends too early", max(0, len(self._node.text) - 1), 1)
        self._at += 1
        return self._tokens[self._at - 1]

    def expect_end(self) -> None:
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            raise self._unexpected(token)

    def _unexpected(self, token: re.Match[str]) -> Refusal:
        words = token.group().strip()
        message = f"'{shorten(words)}' is not expected in a condition here"
        return self._refuse(message, token.end() - len(words), len(words))

    def alternatives(self) -> str:
        parts = [self._conjunction()]
        while self._peek() in ("||", "or", "OR"):
            self._take()
            parts.append(self._conjunction())
        return " || ".join(parts)

    def _conjunction(self) -> str:
        parts = [self._negation()]
        while self._peek() in ("&&", "and", "AND"):
            self._take()
            parts.append(self._negation())
        return " && ".join(parts)

    def _negation(self) -> str:
        if self._peek() in ("!", "not", "NOT"):
            self._take()
            return f"!({self._negation()})"
        if self._peek() == "(":
            self._take()
            inner = self.alternatives()
            token = self._take()
            if token.group().strip() != ")":
                raise self._unexpected(token)
            return f"({inner})"
        return self._comparison()

    def _comparison(self) -> str:
        left = self._operand()
        if self._peek() not in _COMPARISONS:
            return left.expression if left.kind == "condition" else _is_true(left)
        operator = self._take().group().strip()
        return _compared(left, operator, self._operand())

    def _operand(self) -> _Operand:
        token = self._take()
        words = token.group().strip()
        if token["variable"]:
            return self._variable(re.sub(r"^\$\{?|\}$", "", words))
        if token["number"]:
            return _Operand(words if "." in words else f"{words}.0", "number")
        if token["text"]:
            return _Operand(words, "text")
        if token["word"]:
            return self._word(words, token)
        raise self._unexpected(token)

    def _word(self, words: str, token: re.Match[str]) -> _Operand:
        if words in ("true", "false"):
            return _Operand(f"'{words}'", "text")
        if words == "exists" and self._peek() == "(":
            self._take()
            inner = self._operand()
            closer = self._take()
            if closer.group().strip() != ")":
                raise self._unexpected(closer)
            return _Operand(f"{inner.expression} != null", "condition")
        return self._variable(words)

    def _variable(self, path: str) -> _Operand:
        path, has_default, default = path.replace("|default:", ":-").partition(":-")
        found = known(path, self._place) or environment(path, self._place)
        if found is None:
            # Nobody has set it: Prodigy compares with nothing.
            return _Operand(quoted(default), "variable")
        if is_condition(found.expression):
            return _Operand(found.expression, "condition")
        return _Operand(f"({with_default(found, default)})" if has_default else found.or_null, "variable")


def _is_true(operand: _Operand) -> str:
    return f"{_text(operand)} == 'true'"


def _compared(left: _Operand, operator: str, right: _Operand) -> str:
    """As text where a side is one, or where two variables are the same or not; else as numbers."""
    if left.kind == "condition" and right.expression in ("'true'", "'false'") and operator in ("==", "!="):
        holds = (right.expression == "'true'") == (operator == "==")
        return left.expression if holds else f"!{left.expression}"
    kinds = {left.kind, right.kind}
    if "text" in kinds or ("number" not in kinds and operator in ("==", "!=")):
        return f"{_text(left)} {operator} {_text(right)}"
    return f"{_number(left)} {operator} {_number(right)}"


def _number(operand: _Operand) -> str:
    return operand.expression if operand.kind == "number" else f"double({operand.expression})"


def _text(operand: _Operand) -> str:
    """As text, of which nothing is an empty one."""
    if operand.kind == "text" or (operand.kind == "variable" and operand.expression.startswith("'")):
        return operand.expression
    if operand.kind in ("number", "condition"):
        return f"string({operand.expression})"
    return f"({operand.expression} == null ? '' : string({operand.expression}))"
