"""Prodigy's `when` as an expression: comparisons of variables, `&&`, `||`, `!` and `exists`.

A variable may hold text or a number, so the other operand decides how they are compared: `${n} > 5` as numbers,
`${ok} == true` and `${env} == 'prod'` as text. A variable alone is true if its text is "true"; a list of changed files
if it is not empty, and a count of changes if it is not 0.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mulligan.formats.expressions import quoted
from mulligan.formats.prodigy.context import Context
from mulligan.formats.prodigy.forms import parse_text
from mulligan.formats.prodigy.queries import WORDS, LogicParser
from mulligan.formats.prodigy.variables import (
    GIT_COUNTS,
    find_env_variable,
    find_variable,
    is_condition,
    refuse_unavailable,
    with_default,
)
from mulligan.language.text.nodes import Node, Scalar

_CONDITION_TOKEN = re.compile(
    r"""\s*(?:
      (?P<variable>\$\{[^}]*\}|\$[A-Za-z_]\w*)
    | (?P<number>-?\d+(?:\.\d+)?)
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<operator>&&|\|\||==|!=|<=|>=|[<>!()])
    | (?P<word>[A-Za-z_][\w.-]*(?:\[\d+\][\w.]*)*)
    )""",
    re.X | re.A,
)
_CONDITION_HINT = "write a comparison such as ${count} > 5 && ${branch} == 'main'"
_EXISTS = ".exists"
_COMPARISONS = frozenset("== != < <= > >=".split())


class _Operand(NamedTuple):
    """One side of a comparison.

    `kind` is "number", "text", "condition", "changes" for what Git has changed, "variable" if its type is not known,
    "unset" for a variable that nothing sets, or "default" for one that has only its default.
    """

    expression: str
    kind: str


def translate_condition(node: Node, context: Context) -> str:
    """Translate a `when` to an expression."""
    assert isinstance(node, Scalar)
    if isinstance(node.value, bool):
        return str(node.value).lower()
    refuse_unavailable(node, context)
    return parse_text(node, _ConditionParser(context).parse, context.source, hint=_CONDITION_HINT)


class _ConditionParser(LogicParser[str]):
    """A parser of conditions. What is in parentheses is a condition, not a value."""

    def __init__(self, context: Context) -> None:
        super().__init__(_CONDITION_TOKEN, "a condition", WORDS)
        self._place = context

    def joined(self, operator: str, parts: list[str]) -> str:
        return f" {operator} ".join(parts)

    def inverse(self, part: str) -> str:
        return f"!({part})"

    def comparison(self) -> str:
        if self.tokens.peek() == "(":
            self.tokens.take()
            inner = self.alternatives()
            self.tokens.expect(")")
            return f"({inner})"
        left = self._operand()
        if self.tokens.peek() not in _COMPARISONS:
            if left.kind == "changes":
                return _exists(left).expression
            return left.expression if left.kind == "condition" else f"{_text(left)} == 'true'"
        operator = self.tokens.take().group().strip()
        return _compare(left, operator, self._operand())

    def _operand(self) -> _Operand:
        token = self.tokens.take()
        words = token.group().strip()
        if token["variable"]:
            return self._variable(re.sub(r"^\$\{?|\}$", "", words))
        if token["number"]:
            return _Operand(words if "." in words else f"{words}.0", "number")
        if token["text"]:
            return _Operand(words, "text")
        if token["word"]:
            return self._word(words, token)
        raise self.tokens.unexpected(token)

    def _word(self, words: str, token: re.Match[str]) -> _Operand:
        if words in ("true", "false"):
            return _Operand(f"'{words}'", "text")
        if words == "exists" and self.tokens.peek() == "(":
            self.tokens.take()
            with self.tokens.deeper():
                inner = self._operand()
            self.tokens.expect(")")
            return _exists(inner)
        return self._variable(words)

    def _variable(self, path: str) -> _Operand:
        path, has_default, default = path.replace("|default:", ":-").partition(":-")
        if path.endswith(_EXISTS) and not has_default:
            return self._existence(path.removesuffix(_EXISTS))
        found = find_variable(path, self._place) or find_env_variable(path, self._place)
        if found is None:
            # Not set: Prodigy compares with an empty text.
            return _Operand(quoted(default), "default" if has_default else "unset")
        if is_condition(found.expression):
            return _Operand(found.expression, "condition")
        is_changes = found.expression in self._place.word_lists or path in GIT_COUNTS
        if is_changes and not has_default:
            return _Operand(found.expression, "changes")
        return _Operand(f"({with_default(found, default)})" if has_default else found.or_null, "variable")

    def _existence(self, path: str) -> _Operand:
        """`${NAME.exists}`: the field of that name if the value has one, otherwise whether there is a value."""
        owner, field = self._variable(path), find_variable(f"{path}{_EXISTS}", self._place)
        if owner.kind != "variable" or field is None or not field.exists_when:
            return _exists(owner)
        is_true = f"string({field.expression}) == 'true'"
        return _Operand(f"({field.exists_when} ? {is_true} : {owner.expression} != null)", "condition")


def _exists(operand: _Operand) -> _Operand:
    """Whether there is a value: not for a variable that nothing sets."""
    expressions = {
        "unset": "false",
        "variable": f"{operand.expression} != null",
        "changes": f"!(string({operand.expression}) in ['', '[]', '0'])",
    }
    return _Operand(expressions.get(operand.kind, "true"), "condition")


def _compare(left: _Operand, operator: str, right: _Operand) -> str:
    """Compare as text if one side is text, or if two variables are compared for equality; otherwise as numbers."""
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
    """The operand as text; null becomes an empty text."""
    if operand.kind in ("text", "unset", "default"):
        return operand.expression
    if operand.kind in ("number", "condition"):
        return f"string({operand.expression})"
    return f"({operand.expression} == null ? '' : string({operand.expression}))"
