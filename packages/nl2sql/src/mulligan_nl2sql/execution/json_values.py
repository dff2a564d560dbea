"""Values of a database as JSON, without rounding: a number that JSON would change is written as a text."""

from __future__ import annotations

import base64
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

_INTEGER_MAX = (1 << 63) - 1


def as_json(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return value if -_INTEGER_MAX - 1 <= value <= _INTEGER_MAX else str(value)
    if isinstance(value, float):
        # NaN and the infinities have no number in JSON.
        return value if value - value == 0 else str(value)
    return _converted(value)


def _converted(value: Any) -> Any:
    if isinstance(value, Decimal):
        near = float(value) if value.is_finite() else 0.0
        return near if value.is_finite() and near - near == 0 and Decimal(repr(near)) == value else str(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): as_json(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(inner) for inner in value]
    return str(value)
