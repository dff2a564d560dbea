"""Prodigy's filters: what an item must be like, as a function of it.

    score >= 5 && (status == 'open' || contains(tags, 'urgent')) && !is_null(owner.name) && path matches '\\.rs$'

A field that is not there is null, and what cannot be compared does not hold. `item.` before a field may be left out.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

from mulligan.formats.prodigy.grammar import WORDS, GrammarRefused, Tokens

Value = Callable[[Any], Any]
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>-?\d+(?:\.\d+)?(?![\w.]))
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<operator>&&|\|\||==|!=|<=|>=|[<>!()\[\],=])
    | (?P<word>[@$]?\.?[A-Za-z_][\w-]*(?:\.[A-Za-z_0-9][\w-]*|\[-?\d+\])*|@)
    )""",
    re.X | re.A,
)
_STEP = re.compile(r"\.?([A-Za-z_0-9][\w-]*)|\[(-?\d+)\]", re.A)
_ORDERINGS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CONSTANTS = {"true": True, "false": False, "null": None}
_WORDS = {**WORDS, "=": "=="}


def condition(text: str) -> Callable[[Any], bool]:
    """What the text says of an item. GrammarRefused where it says nothing."""
    found = _Reader(text).whole()
    return lambda item: bool(found(item))


# -- fields ----------------------------------------------------------------------------------------------------------


def field(path: str) -> Value:
    """The field of an item that a path names: null where it is not there."""
    steps = [name if name else int(number) for name, number in _STEP.findall(path.lstrip("$@"))]

    def find(item: Any) -> Any:
        value = item
        for step in _within(steps, item):
            value = _member(value, step)
        return value

    return find


def _within(steps: list[str | int], item: Any) -> list[str | int]:
    """The path below the item: the word `item` is the item itself, unless that has a field of that name."""
    if not steps or steps[0] != "item" or (isinstance(item, dict) and "item" in item):
        return steps
    below = steps[1:]
    # A line that a command printed is `{"item": line}` to Prodigy, and the line to us.
    return [] if below == ["item"] and not isinstance(item, dict | list) else below


def _member(value: Any, step: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(str(step))
    if isinstance(value, list) and str(step).lstrip("-").isdigit():
        index = int(step)
        return value[index] if -len(value) <= index < len(value) else None
    return None


# -- functions -------------------------------------------------------------------------------------------------------


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(whole, str):
        return isinstance(part, str) and part in whole
    return isinstance(whole, list | dict) and part in whole


def _length(value: Any) -> int | None:
    return len(value) if isinstance(value, str | list | dict) else None


def _matches(value: Any, pattern: Any) -> bool:
    return isinstance(value, str) and isinstance(pattern, str) and re.search(pattern, value) is not None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "contains": (2, _contains),
    "starts_with": (2, lambda value, part: isinstance(value, str) and value.startswith(str(part))),
    "ends_with": (2, lambda value, part: isinstance(value, str) and value.endswith(str(part))),
    "is_null": (1, lambda value: value is None),
    "is_not_null": (1, lambda value: value is not None),
    "is_number": (1, _is_number),
    "is_string": (1, lambda value: isinstance(value, str)),
    "is_bool": (1, lambda value: isinstance(value, bool)),
    "is_array": (1, lambda value: isinstance(value, list)),
    "is_object": (1, lambda value: isinstance(value, dict)),
    "length": (1, _length),
    "matches": (2, _matches),
}


def _is_equal(left: Any, right: Any) -> bool:
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _is_ordered(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    if _is_number(left) and _is_number(right):
        return compare(left, right)
    return isinstance(left, str) and isinstance(right, str) and compare(left, right)


# -- reading ---------------------------------------------------------------------------------------------------------


class _Reader:
    """Reads a filter from left to right; `!` binds closest, then comparisons, then `&&`, then `||`."""

    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text, _TOKEN, "a filter", _WORDS)

    def whole(self) -> Value:
        """All of it."""
        found = self._alternatives()
        self._tokens.expect_end()
        return found

    def _alternatives(self) -> Value:
        parts = [self._conjunction()]
        while self._tokens.peek() == "||":
            self._tokens.take()
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else lambda item: any(part(item) for part in parts)

    def _conjunction(self) -> Value:
        parts = [self._negation()]
        while self._tokens.peek() == "&&":
            self._tokens.take()
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else lambda item: all(part(item) for part in parts)

    def _negation(self) -> Value:
        with self._tokens.deeper():
            if self._tokens.peek() != "!":
                return self._comparison()
            self._tokens.take()
            inner = self._negation()
            return lambda item: not inner(item)

    def _comparison(self) -> Value:
        left, sign = self._operand(), self._tokens.peek()
        if sign in ("==", "!="):
            self._tokens.take()
            right, is_wanted = self._operand(), sign == "=="
            return lambda item: _is_equal(left(item), right(item)) == is_wanted
        if sign in _ORDERINGS:
            self._tokens.take()
            compare, other = _ORDERINGS[sign], self._operand()
            return lambda item: _is_ordered(compare, left(item), other(item))
        if sign.lower() == "in":
            self._tokens.take()
            choices = self._list()
            return lambda item: any(_is_equal(left(item), choice(item)) for choice in choices)
        if sign.lower() == "matches":
            self._tokens.take()
            pattern = self._pattern()
            return lambda item: _matches(left(item), pattern)
        return left

    def _list(self) -> list[Value]:
        self._tokens.expect("[")
        found: list[Value] = []
        while self._tokens.peek() != "]":
            if found:
                self._tokens.expect(",")
            found.append(self._operand())
        self._tokens.take()
        return found

    def _pattern(self) -> str:
        token = self._tokens.take()
        if not token["text"]:
            raise self._tokens.unexpected(token)
        return self._checked(token)

    def _checked(self, token: re.Match[str]) -> str:
        """A regular expression as it is written: its backslashes are its own."""
        pattern = token["text"][1:-1]
        try:
            re.compile(pattern)
        except re.error as error:
            start = token.end() - len(token["text"])
            raise GrammarRefused(f"{token['text']} is no pattern: {error}", start, len(token["text"])) from None
        return pattern

    def _operand(self) -> Value:
        token = self._tokens.take()
        if token["number"]:
            return _constant(float(token["number"]) if "." in token["number"] else int(token["number"]))
        if token["text"]:
            return _constant(re.sub(r"\\(.)", r"\1", token["text"][1:-1]))
        if token["word"]:
            return self._word(token)
        if token["operator"] == "(":
            inner = self._alternatives()
            self._tokens.expect(")")
            return inner
        raise self._tokens.unexpected(token)

    def _word(self, token: re.Match[str]) -> Value:
        word = token["word"]
        if self._tokens.peek() == "(":
            return self._call(token)
        if word.lower() in _CONSTANTS:
            return _constant(_CONSTANTS[word.lower()])
        return field(word)

    def _call(self, token: re.Match[str]) -> Value:
        name = token["word"]
        start = token.end() - len(name)
        if name not in FUNCTIONS:
            raise GrammarRefused(f"there is no function '{name}' in filters", start, len(name))
        count, function = FUNCTIONS[name]
        arguments = self._arguments(is_pattern_second=name == "matches")
        if len(arguments) != count:
            wanted = f"{count} argument{'s' if count > 1 else ''}"
            raise GrammarRefused(f"'{name}' takes {wanted}, and here it has {len(arguments)}", start, len(name))
        return lambda item: function(*(argument(item) for argument in arguments))

    def _arguments(self, *, is_pattern_second: bool) -> list[Value]:
        self._tokens.expect("(")
        found: list[Value] = []
        while self._tokens.peek() != ")":
            if found:
                self._tokens.expect(",")
            if is_pattern_second and len(found) == 1:
                found.append(_constant(self._pattern()))
            else:
                found.append(self._alternatives())
        self._tokens.take()
        return found


def _constant(value: Any) -> Value:
    return lambda item: value
