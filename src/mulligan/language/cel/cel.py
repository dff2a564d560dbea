"""The interface to CEL: source is compiled into a program, which reads and returns JSON values.

There are two engines: Google's C++ one (`cel-expr-python`) and, where it has no wheel, the Rust one
(`common-expression-language`). `MULLIGAN_CEL=google` or `rust` forces one. One suite of tests runs over both.

What we make both do alike:

- types are checked when an expression is evaluated, not before (`1 == 1.0` holds, `true ? 1 : "a"` is 1);
- only the functions in `FUNCTIONS` and `METHODS` exist; a message type (`Name{…}`), a field in backticks or an
  expression of more than 8,192 characters is refused by the checker;
- a string's size is counted in characters;
- a value is accepted only if both would leave it unchanged: a whole number beyond 64 bits, a NUL or half a surrogate
  pair is refused (a plain path such as `inputs.x` needs no engine and accepts all of them);
- timestamps come out as RFC 3339 in UTC, durations as ISO 8601 (`PT90S`), types as their names, maps with their keys
  sorted (neither engine keeps the order); bytes, infinity, NaN and maps whose keys are not strings are refused.

Rare differences that remain: a map literal that names a key twice, `1e400`, negating the least integer, the
regular expressions of `matches` (RE2 or Rust's), how deep an expression may nest, and the words of a type error.
"""

from __future__ import annotations

import importlib
import math
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Protocol, cast

import msgspec

FUNCTIONS = frozenset("bool bytes double duration dyn has int size string timestamp type uint".split())
MACROS = frozenset("all exists exists_one filter map".split())
METHODS = MACROS | frozenset(
    "charAt contains endsWith getDate getDayOfMonth getDayOfWeek getDayOfYear getFullYear getHours getMilliseconds "
    "getMinutes getMonth getSeconds indexOf join lastIndexOf lowerAscii matches replace size split startsWith "
    "substring trim upperAscii".split()
)
_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_ENGINES = {"google": "mulligan.language.cel.cel_google", "rust": "mulligan.language.cel.cel_rust"}


class CelRefused(Exception):
    """A source that is not a CEL expression: the engine's `reason`, `line` and `column` from 1."""

    def __init__(self, reason: str, line: int = 1, column: int = 1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.column = column


class CelFailed(Exception):
    """An expression that cannot be evaluated; the text says why."""


class Program(Protocol):
    """A compiled expression."""

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """The value as the engine returns it; CelFailed if there is none."""


class Engine(Protocol):
    """A CEL implementation. `copies_deeply`: a macro copies the collected list with its contents at each item."""

    name: str
    copies_deeply: bool

    def compile(self, source: str) -> Program:
        """A program; CelRefused if `source` is not an expression."""


@cache
def engine(name: str = "") -> Engine:
    """The engine called `name`, by default the one in `MULLIGAN_CEL` or the first that is installed."""
    wanted = name or os.environ.get("MULLIGAN_CEL", "")
    if wanted:
        return _load(wanted)
    try:
        return _load("google")
    except ImportError:
        return _load("rust")


def _load(name: str) -> Engine:
    if name not in _ENGINES:
        raise ImportError(f"there is no CEL engine '{name}': it is 'google' or 'rust'")
    return cast("Engine", importlib.import_module(_ENGINES[name]).ENGINE)


def checked_json(value: Any) -> bytes:
    """The value as JSON; CelFailed if an engine would change it."""
    try:
        encoded = msgspec.json.encode(value)
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise CelFailed("a value it reads is not JSON") from error
    # The exact check is slow, and 19 digits in a row or an escaped NUL are rare.
    if len(encoded) >= 19 or b"\\u0000" in encoded:
        _refuse_altered(value, encoded)
    return encoded


def _refuse_altered(value: Any, encoded: bytes) -> None:
    if b"\\u0000" in encoded and _contains(value, _has_nul):
        raise CelFailed("a text it reads has a NUL character")
    if _LONG_NUMBER.search(encoded) and _contains(value, _is_beyond_64_bits):
        raise CelFailed("a number it reads does not fit in 64 bits")


def _has_nul(value: Any) -> bool:
    return isinstance(value, str) and "\0" in value


def _is_beyond_64_bits(value: Any) -> bool:
    return type(value) is int and not -(2**63) <= value < 2**64


def _contains(value: Any, is_bad: Any) -> bool:
    if isinstance(value, dict):
        return any(is_bad(key) or _contains(inner, is_bad) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return any(_contains(inner, is_bad) for inner in value)
    return bool(is_bad(value))


def plain(value: Any) -> Any:
    """A value from an engine as JSON; CelFailed if JSON has no such value."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise CelFailed(f"the result is {value}, which JSON does not have")
        return value
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value, key=_require_text_key)}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return f"PT{_seconds(value)}S"
    if isinstance(value, bytes | bytearray):
        raise CelFailed("the result is bytes: make it text with string(…)")
    raise CelFailed(f"the result is not a JSON value ({type(value).__name__})")


def _require_text_key(key: object) -> str:
    if not isinstance(key, str):
        raise CelFailed(f"the result is a map with the key {msgspec.json.encode(key).decode()}, which is not a string")
    return key


def _seconds(value: timedelta) -> str:
    micros = value // timedelta(microseconds=1)
    sign = "-" if micros < 0 else ""
    whole, part = divmod(abs(micros), 1_000_000)
    return f"{sign}{whole}.{part:06d}".rstrip("0").rstrip(".")
