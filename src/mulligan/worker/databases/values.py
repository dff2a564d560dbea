"""Convert what a database returns to JSON, without rounding or loss, and within a limit."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from mulligan import StepError
from mulligan.worker.child.json_encoding import ENCODER, OUTPUT_BYTES_MAX, EncodedJson
from mulligan.worker.databases.failures import invalid

_INTEGER_MAX = (1 << 63) - 1
_COMMA_BYTES = 1
# A longer number is not written out.
_DIGITS_MAX = 400


class Rows:
    """The rows of one statement, as objects. OUTPUT_INVALID if they are too large, before they fill the memory."""

    def __init__(self, columns: Sequence[str]) -> None:
        _refuse_twins(columns)
        self._columns = columns
        # Encoded, because objects would take ten times the memory.
        self._texts: list[str] = []
        self._bytes = 0

    def add(self, values: Iterable[Any]) -> None:
        row = {name: as_json(value) for name, value in zip(self._columns, values, strict=True)}
        text = ENCODER.encode(row)
        self._texts.append(text)
        self._bytes += _COMMA_BYTES + (len(text) if text.isascii() else len(text.encode()))
        if self._bytes > OUTPUT_BYTES_MAX:
            problem = f"the rows have more than {OUTPUT_BYTES_MAX} bytes as JSON, the limit"
            raise StepError("OUTPUT_INVALID", f"{problem}: select fewer, or set 'rows: none'", retryable=False)

    def encoded(self) -> EncodedJson:
        return EncodedJson(f"[{','.join(self._texts)}]")


def _refuse_twins(columns: Sequence[str]) -> None:
    """An object cannot have a name twice."""
    twin = next((name for at, name in enumerate(columns) if name in columns[:at]), None)
    if twin is not None:
        raise invalid(f"two columns are named '{twin}': rename one with 'as'")


def as_json(value: Any) -> Any:
    """Convert a value to JSON. A number that JSON would change becomes text, with every digit."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return value if -_INTEGER_MAX - 1 <= value <= _INTEGER_MAX else str(value)
    if isinstance(value, float):
        return value if value - value == 0 else _named(value)
    return _converted(value)


def _converted(value: Any) -> Any:
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return _duration(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): as_json(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(inner) for inner in value]
    return str(value)


def _named(value: float) -> str:
    """Return the name that PostgreSQL uses in JSON."""
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _decimal(value: Decimal) -> int | float | str:
    if not value.is_finite():
        return _named(float(value))
    # A few digits and an exponent may be a number of a million digits.
    if abs(value.adjusted()) < _DIGITS_MAX and value == value.to_integral_value():
        result: int | float | str = as_json(int(value))
        return result
    near = float(value)
    return near if near - near == 0 and Decimal(repr(near)) == value else str(value)


def _duration(value: timedelta) -> str:
    """Return ISO 8601 with days and seconds, because months have no fixed length."""
    sign, span = ("-", -value) if value < timedelta() else ("", value)
    seconds = f"{span.seconds}.{span.microseconds:06}".rstrip("0").rstrip(".") if span.microseconds else span.seconds
    return f"{sign}P{span.days}DT{seconds}S"


def collect_rows(columns: Callable[[], Sequence[str]], rows: Iterable[Any], keep_rows: bool) -> EncodedJson:
    """Collect the rows if `keep_rows`. `columns` are known once the first row is there."""
    collected: Rows | None = None
    for row in rows:
        if keep_rows:
            collected = collected or Rows(columns())
            collected.add(row)
    return (collected or Rows(columns() if keep_rows else ())).encoded()
