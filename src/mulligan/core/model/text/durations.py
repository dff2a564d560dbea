"""Parse durations and times: `1h30m`, `PT5M`, `2030-01-31T09:00:00Z`, in a file or as the value of a wait."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

_NUMBER = r"\d+(?:\.\d+)?"
# Strings, compiled at their first use, since most runs do not need them.
DURATION = "".join(rf"(?:{_NUMBER}{unit})?" for unit in ("d", "h", "m", "s", "ms"))
_PART = rf"({_NUMBER})(ms|s|m|h|d)"
_ISO = (
    rf"P(?:(?P<w>{_NUMBER})W)?(?:(?P<d>{_NUMBER})D)?"
    rf"(?:T(?:(?P<h>{_NUMBER})H)?(?:(?P<m>{_NUMBER})M)?(?:(?P<s>{_NUMBER})S)?)?"
)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_ISO_SECONDS = {**_SECONDS, "w": 604800.0}

# A century: no clock overflows.
DURATION_SECONDS_MAX = 100 * 366 * 86400.0


def parse_duration(value: Any) -> float:
    """Seconds of `500ms`, `1h30m`, `PT5M` or a number of seconds. Anything else is a ValueError."""
    seconds = float(value) if is_number(value) else _parse_text(str(value))
    if not 0 <= seconds <= DURATION_SECONDS_MAX:
        raise ValueError(value)
    return seconds


def parse_wait(value: Any) -> float:
    """The seconds of a computed wait: a duration or a number; negative numbers count as 0."""
    try:
        number = float(value) if isinstance(value, str) and value[:1] in "+-.0123456789" else value
    except ValueError:
        number = value
    try:
        return parse_duration(max(0.0, number) if is_number(number) else number)
    except (ValueError, OverflowError):
        raise ValueError(f"'{value}' is not a duration such as 30s") from None


def parse_time(value: Any) -> datetime:
    """The time from a text with a time zone. Anything else is a ValueError that says what is wrong."""
    try:
        found = datetime.fromisoformat(value)
        has_zone = found.tzinfo is not None
        in_utc = found.astimezone(UTC) if has_zone else found
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"'{value}' is not a time such as 2030-01-31T09:00:00Z") from None
    if not has_zone:
        raise ValueError(f"'{value}' has no time zone")
    return in_utc


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@lru_cache(maxsize=256)
def _parse_text(text: str) -> float:
    """Seconds of a text. A file says the same few durations again and again."""
    if text and re.fullmatch(DURATION, text):
        return _round(sum(float(number) * _SECONDS[unit] for number, unit in re.findall(_PART, text)))
    iso = re.fullmatch(_ISO, text)
    parts = {unit: number for unit, number in iso.groupdict().items() if number} if iso else {}
    if not parts or text.endswith("T"):
        raise ValueError(text)
    return _round(sum(float(number) * _ISO_SECONDS[unit] for unit, number in parts.items()))


def _round(seconds: float) -> float:
    """Round off binary fractions: 1.1s + 3ms is 1.103."""
    return round(seconds, 9)
