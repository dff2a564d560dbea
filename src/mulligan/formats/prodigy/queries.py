"""Prodigy's query languages for items: filters, JSONPath and sort orders.

The reader parses them to refuse mistakes, and workers parse them again to apply them. So this module does not import
the language.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

# -- grammar ---------------------------------------------------------------------------------------------------------


# Longer tokens are shortened in messages.
_SHOWN_CHARS_MAX = 40
# Deeper nesting would exceed Python's recursion limit.
DEPTH_MAX = 50
# Operators written as words.
WORDS: Mapping[str, str] = MappingProxyType({"and": "&&", "or": "||", "not": "!"})


class GrammarError(Exception):
    """A syntax error: the reason, and its position in the text."""

    def __init__(self, message: str, offset: int, length: int = 1) -> None:
        super().__init__(message)
        self.message, self.offset, self.length = message, offset, length


class Tokens:
    """The tokens of a text, taken from left to right. `what` names the text in messages: 'a filter'.

    `aliases`: words in lower case that stand for other tokens.
    """

    def __init__(self, text: str, form: re.Pattern[str], what: str, aliases: Mapping[str, str]) -> None:
        self._text = text.rstrip()
        self._what = what
        self._aliases = aliases
        self._tokens = self._split(form)
        self._at = 0
        self._depth = 0

    def _split(self, form: re.Pattern[str]) -> list[re.Match[str]]:
        position, found = 0, []
        while position < len(self._text):
            token = form.match(self._text, position)
            if token is None:
                start = len(self._text) - len(self._text[position:].lstrip())
                raise GrammarError(f"'{self._text[start]}' is not expected in {self._what}", start)
            found.append(token)
            position = token.end()
        return found

    def peek(self) -> str:
        """The next token, with aliases resolved; "" at the end."""
        if self._at >= len(self._tokens):
            return ""
        words = self._tokens[self._at].group().strip()
        return self._aliases.get(words.lower(), words)

    def take(self) -> re.Match[str]:
        """Take the next token. GrammarError at the end."""
        if self._at >= len(self._tokens):
            message = f"{self._what.replace('a ', 'the ', 1)} ends too early"
            raise GrammarError(message, self._place())
        self._at += 1
        return self._tokens[self._at - 1]

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Parse a nested part. GrammarError if the nesting is too deep."""
        if self._depth >= DEPTH_MAX:
            raise GrammarError(f"conditions are nested more than {DEPTH_MAX} levels deep", self._place())
        self._depth += 1
        yield
        self._depth -= 1

    def _place(self) -> int:
        return self._tokens[self._at].end() - 1 if self._at < len(self._tokens) else max(0, len(self._text) - 1)

    def expect(self, words: str) -> None:
        """Take the next token, which must be this one."""
        token = self.take()
        if token.group().strip() != words:
            raise self.unexpected(token)

    def expect_end(self) -> None:
        """GrammarError if there are more tokens."""
        if self._at < len(self._tokens):
            raise self.unexpected(self._tokens[self._at])

    def unexpected(self, token: re.Match[str]) -> GrammarError:
        """The error for a token that is not allowed here."""
        words = token.group().strip()
        shown = words if len(words) <= _SHOWN_CHARS_MAX else f"{words[: _SHOWN_CHARS_MAX - 1]}…"
        message = f"'{shown}' is not expected in {self._what} here"
        return GrammarError(message, token.end() - len(words), len(words))


Part = TypeVar("Part")


class LogicParser(Generic[Part]):
    """A parser of comparisons with `!`, which binds tightest, then `&&`, then `||`."""

    def __init__(self, form: re.Pattern[str], what: str, aliases: Mapping[str, str]) -> None:
        self._how = (form, what, aliases)

    def joined(self, operator: str, parts: list[Part]) -> Part:
        raise NotImplementedError

    def inverse(self, part: Part) -> Part:
        raise NotImplementedError

    def comparison(self) -> Part:
        raise NotImplementedError

    def parse(self, text: str) -> Part:
        self.tokens = Tokens(text, *self._how)
        found = self.alternatives()
        self.tokens.expect_end()
        return found

    def alternatives(self) -> Part:
        return self._joined("||", lambda: self._joined("&&", self._negation))

    def _joined(self, operator: str, read: Callable[[], Part]) -> Part:
        parts = [read()]
        while self.tokens.peek() == operator:
            self.tokens.take()
            parts.append(read())
        return self.joined(operator, parts)

    def _negation(self) -> Part:
        with self.tokens.deeper():
            if self.tokens.peek() != "!":
                return self.comparison()
            self.tokens.take()
            return self.inverse(self._negation())


# -- filters ---------------------------------------------------------------------------------------------------------


Value = Callable[[Any], Any]
_FILTER_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>-?\d+(?:\.\d+)?(?![\w.]))
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<operator>&&|\|\||==|!=|<=|>=|[<>!()\[\],=])
    | (?P<word>[@$]?\.?[A-Za-z_][\w-]*(?:\.[A-Za-z_0-9][\w-]*|\[-?\d+\])*|@)
    )""",
    re.X | re.A,
)
_PATH_PART = re.compile(r"\.?([A-Za-z_0-9][\w-]*)|\[(-?\d+)\]", re.A)
_ORDERINGS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CONSTANTS = {"true": True, "false": False, "null": None}
_WORDS = {**WORDS, "=": "=="}


def parse_filter(text: str) -> Callable[[Any], bool]:
    r"""Parse a filter to a predicate over items. GrammarError if it is invalid.

        score >= 5 && (status == 'open' || contains(tags, 'urgent')) && !is_null(owner.name) && path matches '\.rs$'

    A missing field is null, and a comparison of incompatible values is false. The prefix `item.` may be omitted.
    """
    found = _FilterParser().parse(text)
    return lambda item: bool(found(item))


# -- fields ----------------------------------------------------------------------------------------------------------


def field_getter(path: str) -> Value:
    """A function that gets a field of an item by its path; None if it is missing."""
    steps = [name if name else int(number) for name, number in _PATH_PART.findall(path.lstrip("$@"))]

    def find(item: Any) -> Any:
        value = item
        for step in _path_below_item(steps, item):
            value = _member(value, step)
        return value

    return find


def _path_below_item(steps: list[str | int], item: Any) -> list[str | int]:
    """The path without the prefix `item`, unless the item has a field of that name."""
    if not steps or steps[0] != "item" or (isinstance(item, dict) and "item" in item):
        return steps
    below = steps[1:]
    # In Prodigy a printed line is `{"item": line}`; here it is the text itself.
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
    are_alike = (_is_number(left) and _is_number(right)) or (isinstance(left, str) and isinstance(right, str))
    return are_alike and compare(left, right)


# -- reading ---------------------------------------------------------------------------------------------------------


class _FilterParser(LogicParser[Value]):
    """A parser of filters to functions of an item."""

    def __init__(self) -> None:
        super().__init__(_FILTER_TOKEN, "a filter", _WORDS)

    def joined(self, operator: str, parts: list[Value]) -> Value:
        holds = any if operator == "||" else all
        return parts[0] if len(parts) == 1 else lambda item: holds(part(item) for part in parts)

    def inverse(self, part: Value) -> Value:
        return lambda item: not part(item)

    def comparison(self) -> Value:
        left, sign = self._operand(), self.tokens.peek()
        if sign in ("==", "!="):
            self.tokens.take()
            right, is_wanted = self._operand(), sign == "=="
            return lambda item: _is_equal(left(item), right(item)) == is_wanted
        if sign in _ORDERINGS:
            self.tokens.take()
            compare, other = _ORDERINGS[sign], self._operand()
            return lambda item: _is_ordered(compare, left(item), other(item))
        if sign.lower() == "in":
            self.tokens.take()
            choices = self._list()
            return lambda item: any(_is_equal(left(item), choice(item)) for choice in choices)
        if sign.lower() == "matches":
            self.tokens.take()
            pattern = self._pattern()
            return lambda item: _matches(left(item), pattern)
        return left

    def _list(self) -> list[Value]:
        self.tokens.expect("[")
        return self._entries("]", lambda number: self._operand())

    def _entries(self, closing: str, read: Callable[[int], Value]) -> list[Value]:
        """What stands between commas up to the closing bracket; `read` gets how many stood before."""
        found: list[Value] = []
        while self.tokens.peek() != closing:
            if found:
                self.tokens.expect(",")
            found.append(read(len(found)))
        self.tokens.take()
        return found

    def _pattern(self) -> str:
        """A regular expression as written, with its backslashes."""
        token = self.tokens.take()
        if not token["text"]:
            raise self.tokens.unexpected(token)
        pattern = token["text"][1:-1]
        try:
            re.compile(pattern)
        except re.error as error:
            message = f"{token['text']} is not a regular expression: {error}"
            raise GrammarError(message, token.end() - len(token["text"]), len(token["text"])) from None
        return pattern

    def _operand(self) -> Value:
        token = self.tokens.take()
        if token["number"]:
            return _constant(float(token["number"]) if "." in token["number"] else int(token["number"]))
        if token["text"]:
            return _constant(re.sub(r"\\(.)", r"\1", token["text"][1:-1]))
        if token["word"]:
            return self._word(token)
        if token["operator"] == "(":
            inner = self.alternatives()
            self.tokens.expect(")")
            return inner
        raise self.tokens.unexpected(token)

    def _word(self, token: re.Match[str]) -> Value:
        word = token["word"]
        if self.tokens.peek() == "(":
            return self._call(token)
        if word.lower() in _CONSTANTS:
            return _constant(_CONSTANTS[word.lower()])
        return field_getter(word)

    def _call(self, token: re.Match[str]) -> Value:
        name = token["word"]
        start = token.end() - len(name)
        if name not in FUNCTIONS:
            raise GrammarError(f"there is no function '{name}' in filters", start, len(name))
        count, function = FUNCTIONS[name]
        self.tokens.expect("(")
        has_pattern = name == "matches"
        arguments = self._entries(
            ")", lambda number: _constant(self._pattern()) if has_pattern and number == 1 else self.alternatives()
        )
        if len(arguments) != count:
            wanted = f"{count} argument{'s' if count > 1 else ''}"
            raise GrammarError(f"'{name}' takes {wanted}, but has {len(arguments)}", start, len(name))
        return lambda item: function(*(argument(item) for argument in arguments))


def _constant(value: Any) -> Value:
    return lambda item: value


# -- JSONPath --------------------------------------------------------------------------------------------------------


# One step of a path: from a value to the values it leads to.
_PathStep = Callable[[Any], Iterator[Any]]
_PATH_NAME = r"[^\W\d][\w-]*"
_PATH_TOKEN = re.compile(
    rf"""
      \.\.(?P<deep>{_PATH_NAME}|\*)
    | \.(?P<every>\*) | \[(?P<all>\*)\]
    | \.(?P<name>{_PATH_NAME}) | \[\s*(?P<quoted>'[^']*'|"[^"]*")\s*\]
    | \[\s*(?P<index>-?\d+)\s*\]
    | \[\s*(?P<start>-?\d*)\s*:\s*(?P<stop>-?\d*)\s*\]
    | \[\?\s*\(?(?P<filter>.*?)\)?\s*\](?=$|[.\[])
    """,
    re.X,
)


def parse_path(text: str) -> Callable[[Any], list[Any]]:
    """Parse a JSONPath to a function that finds items: those of the list it leads to, or all values that it finds.

    Prodigy supports `$`, `.f`, `['f']`, `[n]`, `[a:b]`, `[*]`, `..f` and `[?(@.f > 1)]`.
    """
    steps, is_one_place = _parse_steps(text)

    def find(value: Any) -> list[Any]:
        found = [value]
        for step in steps:
            found = [inner for one in found for inner in step(one)]
        is_list = is_one_place and len(found) == 1 and isinstance(found[0], list)
        return list(found[0]) if is_list else found

    return find


def _parse_steps(text: str) -> tuple[list[_PathStep], bool]:
    """The steps of a path, and whether it can find at most one value."""
    path = text.strip()
    offset = text.find(path)
    position = 1 if path.startswith("$") else 0
    if not path.startswith(("$", ".", "[")):
        path, offset = f".{path}", offset - 1
    steps, is_one_place = [], True
    while position < len(path):
        token = _PATH_TOKEN.match(path, position)
        if token is None:
            raise GrammarError(
                f"'{path[position:]}' is not expected in a path", offset + position, len(path) - position
            )
        steps.append(_path_step(token, offset))
        is_one_place = is_one_place and (token["name"] or token["quoted"] or token["index"]) is not None
        position = token.end()
    return steps, is_one_place


def _path_step(token: re.Match[str], offset: int) -> _PathStep:
    if token["deep"]:
        return lambda value: _descendants(value, token["deep"])
    if token["every"] or token["all"]:
        return _children
    if token["name"] or token["quoted"]:
        name = token["name"] or token["quoted"][1:-1]
        return lambda value: iter([value[name]] if isinstance(value, dict) and name in value else [])
    if token["index"]:
        index = int(token["index"])
        return lambda value: (
            iter(value[index:][:1] if index != -1 else value[-1:]) if isinstance(value, list) else iter(())
        )
    if token["filter"] is not None:
        return _filter_step(token, offset)
    start, stop = (int(token[name]) if token[name] else None for name in ("start", "stop"))
    return lambda value: iter(value[start:stop] if isinstance(value, list) else [])


def _filter_step(token: re.Match[str], offset: int) -> _PathStep:
    try:
        holds = parse_filter(token["filter"])
    except GrammarError as refused:
        start = offset + token.start("filter") + refused.offset
        raise GrammarError(refused.message, start, refused.length) from None
    return lambda value: (inner for inner in _children(value) if holds(inner))


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _descendants(value: Any, name: str) -> Iterator[Any]:
    """All fields with this name at any depth, from the top down."""
    if isinstance(value, dict):
        yield from (inner for key, inner in value.items() if name in ("*", key))
    elif isinstance(value, list) and name == "*":
        yield from value
    for inner in _children(value):
        yield from _descendants(inner, name)


# -- sort orders -----------------------------------------------------------------------------------------------------


_ORDER_PART = re.compile(
    r"\s*(?P<path>[A-Za-z_][\w.\[\]-]*)(?:\s+(?P<way>ASC|DESC))?(?:\s+NULLS\s+(?P<nulls>FIRST|LAST))?\s*", re.I | re.A
)


class _SortKey(NamedTuple):
    value: Value
    is_descending: bool
    are_nulls_first: bool


def parse_order(text: str) -> Callable[[list[Any]], list[Any]]:
    """Parse `priority DESC NULLS LAST, name` to a stable sort function. Nulls come last by default."""
    keys, position = [], 0
    for part in text.split(","):
        match = _ORDER_PART.fullmatch(part)
        if match is None:
            message = f"'{part.strip()}' is not a sort order such as 'priority DESC NULLS LAST'"
            raise GrammarError(message, position + len(part) - len(part.lstrip()), max(1, len(part.strip())))
        nulls = (match["nulls"] or "last").lower()
        keys.append(_SortKey(field_getter(match["path"]), (match["way"] or "asc").lower() == "desc", nulls == "first"))
        position += len(part) + 1
    return lambda items: _sort(items, keys)


def _sort(items: list[Any], keys: list[_SortKey]) -> list[Any]:
    for key in reversed(keys):
        nulls = [item for item in items if key.value(item) is None]
        others = [item for item in items if key.value(item) is not None]
        others.sort(key=lambda item: _comparable(key.value(item)), reverse=key.is_descending)
        items = [*nulls, *others] if key.are_nulls_first else [*others, *nulls]
    return items


def _comparable(value: Any) -> tuple[int, Any]:
    """A sort key. Values of different types sort by type, so that a mixed list is not an error."""
    if isinstance(value, bool | int | float):
        return (0, value)
    return (1, value) if isinstance(value, str) else (2, json.dumps(value, sort_keys=True))
