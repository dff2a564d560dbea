"""Durations, sizes and factors: `1h30m`, `PT5M`, `512MiB`, `x1.5`, as numbers."""

from __future__ import annotations

import re
from typing import Any

from mulligan.language.patterns import pattern

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = pattern(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_DURATION = pattern(r"(?:\d+(?:\.\d+)?d)?(?:\d+(?:\.\d+)?h)?(?:\d+(?:\.\d+)?m)?(?:\d+(?:\.\d+)?s)?(?:\d+(?:\.\d+)?ms)?")
_ISO = pattern(
    r"P(?:(?P<w>\d+(?:\.\d+)?)W)?(?:(?P<d>\d+(?:\.\d+)?)D)?"
    r"(?:T(?:(?P<h>\d+(?:\.\d+)?)H)?(?:(?P<m>\d+(?:\.\d+)?)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?"
)
_ISO_SECONDS = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
# Other spellings of our units.
_WORDS = {
    **dict.fromkeys("ms msec msecs millis millisecond milliseconds".split(), "ms"),
    **dict.fromkeys("s sec secs second seconds".split(), "s"),
    **dict.fromkeys("m min mins minute minutes".split(), "m"),
    **dict.fromkeys("h hr hrs hour hours".split(), "h"),
    **dict.fromkeys("d day days".split(), "d"),
}
_WORDED_PART = pattern(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_WORDED = pattern(rf"(?:{_WORDED_PART.pattern}[\s,]*)+")
_CLOCK = pattern(r"0*(\d+):0?(\d+):0?(\d+)")
_SIZE = pattern(r"(\d+(?:\.\d+)?)\s*([KMGTP]i?B|[KMGTP]i?|B)", re.IGNORECASE)
_FACTOR = pattern(r"x\s*(\d+(?:\.\d+)?)")

# A century: enough for everybody, and no clock overflows.
DURATION_SECONDS_MAX = 100 * 366 * 86400.0
SIZE_BYTES_MAX = 2**60

# The same forms, for the JSON Schema.
DURATION_PATTERN = rf"^(?:(?=\d){_DURATION.pattern}|P(?=.)[0-9.WDTHMS]+)$"
SIZE_PATTERN = r"^\d+(?:\.\d+)?\s*(?:[KMGTPkmgtp]i?[Bb]?|[Bb])$"
FACTOR_PATTERN = r"^x\s*\d+(?:\.\d+)?$"


def duration(value: Any) -> float:
    """Seconds of `500ms`, `1h30m`, `PT5M` or a number of seconds. Anything else is a ValueError."""
    seconds = float(value) if _is_number(value) else _text_duration(str(value))
    if not 0 <= seconds <= DURATION_SECONDS_MAX:
        raise ValueError(value)
    return seconds


def _text_duration(text: str) -> float:
    if text and _DURATION.fullmatch(text):
        return _exact(sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text)))
    iso = _ISO.fullmatch(text)
    parts = {unit: number for unit, number in iso.groupdict().items() if number} if iso else {}
    if not parts or text.endswith("T"):
        raise ValueError(text)
    return _exact(sum(float(number) * _ISO_SECONDS[unit] for unit, number in parts.items()))


def meant_duration(text: str) -> str | None:
    """Our spelling of `5 minutes`, `10 s` or `1:30:00`; None where it is anybody's guess."""
    clock = _CLOCK.fullmatch(text)
    parts = zip(clock.groups(), "hms", strict=True) if clock else _WORDED_PART.findall(text)
    if not clock and not _WORDED.fullmatch(text):
        return None
    meant = "".join(f"{number}{_WORDS.get(word.lower(), '?')}" for number, word in parts if float(number))
    return meant if _DURATION.fullmatch(meant) and meant else None


def _exact(seconds: float) -> float:
    """Without the dust of binary fractions: 1.1s + 3ms is 1.103."""
    return round(seconds, 9)


def size(value: Any) -> int:
    """Bytes of `512MiB` or `4GB`. Anything else is a ValueError, also a bare number: some mean bytes by it, some MB."""
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(value)
    number, unit = found.groups()
    power = "BKMGTP".index(unit[0].upper())
    amount: int = round(float(number) * (1024 if "i" in unit.lower() else 1000) ** power)
    if not 0 < amount <= SIZE_BYTES_MAX:
        raise ValueError(value)
    return amount


def factor(value: Any) -> float:
    """`x1.5` or 1.5: how much more. Less than 1 is a ValueError."""
    found = _FACTOR.fullmatch(value) if isinstance(value, str) else None
    if not found and not _is_number(value):
        raise ValueError(value)
    number = float(found.group(1)) if found else float(value)
    if not 1 <= number <= 1000:
        raise ValueError(value)
    return number


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
