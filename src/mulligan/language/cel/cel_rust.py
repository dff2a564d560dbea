"""CEL in Rust (`common-expression-language`): the engine for platforms where Google's has no wheel.

Some of its functions are missing or differ (its `size` counts bytes of a string), so we provide our own. `size` and
`string` are renamed in the source before it is compiled, since built-in functions cannot be replaced.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from cel import cel, stdlib

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.cel.cel import CelFailed, CelRefused, plain
from mulligan.language.cel.cel_tokens import tokens

_WHERE = lazy_regex(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)")
_UNKNOWN = lazy_regex(r"Undefined variable or function: '(.*?)'")
_OPERANDS = lazy_regex(r"Unsupported operation: (\w+) (\S+) (\w+)")
_CONVERSION = lazy_regex(r"Function '(int|uint|double|timestamp|duration)' error")


def _size(value: Any) -> int:
    if not isinstance(value, str | list | dict | bytes):
        raise TypeError("size() does not accept these values")
    return len(value)


def _string(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return _float_text(value)
        case str() | int():
            return str(value)
        case bytes():
            return value.decode()
        case datetime():
            return str(plain(value))
        case timedelta():
            return str(plain(value)).removeprefix("PT").lower()
    raise TypeError("string() does not accept these values")


def _float_text(value: float) -> str:
    """The shortest digits that read back as `value`, with an exponent from a million on."""
    digits = Decimal(repr(value)).normalize()
    if value and not -5 < digits.adjusted() < 6:
        mantissa, _, exponent = f"{digits:e}".partition("e")
        return f"{mantissa}e{exponent[0]}{exponent[1:]:0>2}"
    return f"{digits:f}"


def _int(value: Any) -> int:
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, bool):
        return int(value)
    raise TypeError("int() does not accept these values")


def _timestamp(value: Any) -> datetime:
    if type(value) is int:
        return datetime.fromtimestamp(value, UTC)
    raise TypeError("timestamp() does not accept these values")


def _join(value: Any, separator: str = "") -> str:
    if not isinstance(value, list):
        raise TypeError("join() does not accept these values")
    return separator.join(value)


_RENAMED = {"size": "mulligan_size", "string": "mulligan_string"}
_TEXT_FUNCTIONS = "charAt indexOf lastIndexOf lowerAscii replace split substring trim upperAscii".split()
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: stdlib.STDLIB_FUNCTIONS[name] for name in ["bool", *_TEXT_FUNCTIONS]},
    "mulligan_size": _size,
    "mulligan_string": _string,
    "join": _join,
    "int": _int,
    "timestamp": _timestamp,
}


def _reason(error: BaseException) -> str:
    """The engine's error in plain words; common errors read the same as with Google's engine."""
    text = str(error)
    if isinstance(error, KeyError):
        return f"no such key '{error.args[0]}'"
    if isinstance(error, IndexError):
        return f"index {text.rpartition(' ')[2]} is out of range"
    if isinstance(error, ZeroDivisionError):
        return "division by zero"
    if isinstance(error, OverflowError):
        return "the result is out of range"
    if match := _UNKNOWN.search(text):
        called = match[1] in _FUNCTIONS or match[1] in ("uint", "double", "bytes", "duration")
        return f"'{match[1]}' does not accept these values" if called else f"'{match[1]}' is not known here"
    if match := _OPERANDS.search(text):
        return f"'{match[2]}' does not work on {match[1]} and {match[3]}"
    if match := _CONVERSION.search(text):
        return f"the text does not have the format that {match[1]}() reads"
    return "the types of its parts do not fit" if "No such overload" in text else text.partition(". ")[0]


class _Program:
    def __init__(self, compiled: cel.Program, functions: dict[str, Callable[..., Any]]) -> None:
        self._compiled = compiled
        self._functions = functions

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        context = cel.Context(dict(names), self._functions) if self._functions else dict(names)
        try:
            return self._compiled.execute(context)
        except (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError) as error:
            raise CelFailed(_reason(error)) from error


class Rust:
    """Compiles with our own functions in place of those that differ."""

    name = "rust"
    copies_deeply = True

    def compile(self, source: str) -> _Program:
        _compile(source)  # first, so that an error points into the original source
        pairs = itertools.pairwise(tokens(source))
        called = {name.text for name, after in pairs if after.text == "(" and name.kind == "name"}
        functions = {_RENAMED.get(name, name) for name in called} & _FUNCTIONS.keys()
        return _Program(_compile(_rename_calls(source)), {name: _FUNCTIONS[name] for name in functions})


def _compile(source: str) -> cel.Program:
    try:
        return cel.compile(source)
    except ValueError as error:
        match = _WHERE.search(str(error))
        if match is None or "recursion" in str(error):
            raise CelRefused("recursion") from error
        raise CelRefused(match[3], int(match[1]), int(match[2])) from error


def _rename_calls(source: str) -> str:
    """`source` with the calls of `size` and `string` turned into calls of ours."""
    found = tokens(source)
    pieces, position = [], 0
    for token, after in itertools.pairwise(found):
        if token.kind == "name" and token.text in _RENAMED and after.text == "(":
            pieces += [source[position : token.offset], _RENAMED[token.text]]
            position = token.offset + len(token.text)
    return "".join([*pieces, source[position:]])


ENGINE = Rust()
