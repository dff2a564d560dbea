"""Durations, sizes and factors: `1h30m`, `PT5M`, `512MiB`, `x1.5`, as numbers."""

from __future__ import annotations

import re
from typing import Any

from mulligan.core.model.durations import DURATION, duration, is_number
from mulligan.core.model.lazy_regex import lazy_regex

__all__ = ["DURATION_PATTERN", "FACTOR_PATTERN", "SIZE_PATTERN", "duration", "factor", "size", "suggest_duration"]

# Other spellings of our units.
_WORDS = {
    **dict.fromkeys("ms msec msecs millis millisecond milliseconds".split(), "ms"),
    **dict.fromkeys("s sec secs second seconds".split(), "s"),
    **dict.fromkeys("m min mins minute minutes".split(), "m"),
    **dict.fromkeys("h hr hrs hour hours".split(), "h"),
    **dict.fromkeys("d day days".split(), "d"),
}
_WORDED_PART = lazy_regex(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_WORDED = lazy_regex(rf"(?:{_WORDED_PART.pattern}[\s,]*)+")
_CLOCK = lazy_regex(r"0*(\d+):0?(\d+):0?(\d+)")
_SIZE = lazy_regex(r"(\d+(?:\.\d+)?)\s*([KMGTP]i?B|[KMGTP]i?|B)", re.IGNORECASE)
_FACTOR = lazy_regex(r"x\s*(\d+(?:\.\d+)?)")

SIZE_BYTES_MAX = 2**60
# Nobody means a duration by more.
_MEANT_CHARS_MAX = 100

# The same forms, for the JSON Schema.
DURATION_PATTERN = rf"^(?:(?=\d){DURATION}|P(?=.)[0-9.WDTHMS]+)$"
SIZE_PATTERN = r"^\d+(?:\.\d+)?\s*(?:[KMGTPkmgtp]i?[Bb]?|[Bb])$"
FACTOR_PATTERN = r"^x\s*\d+(?:\.\d+)?$"


def suggest_duration(text: str) -> str | None:
    """Our spelling of `5 minutes`, `10 s` or `1:30:00`; None where it is anybody's guess."""
    if len(text) > _MEANT_CHARS_MAX:
        return None
    clock = _CLOCK.fullmatch(text)
    parts = zip(clock.groups(), "hms", strict=True) if clock else _WORDED_PART.findall(text)
    if not clock and not _WORDED.fullmatch(text):
        return None
    meant = "".join(f"{number}{_WORDS.get(word.lower(), '?')}" for number, word in parts if float(number))
    return meant if re.fullmatch(DURATION, meant) and meant else None


def size(value: Any) -> int:
    """Bytes of `512MiB` or `4GB`. Anything else is a ValueError, also a bare number: some mean bytes by it, some MB."""
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(value)
    number, unit = found.groups()
    power = "BKMGTP".index(unit[0].upper())
    amount: float = float(number) * (1024 if "i" in unit.lower() else 1000) ** power
    if not 0.5 < amount <= SIZE_BYTES_MAX:
        raise ValueError(value)
    return round(amount)


def factor(value: Any) -> float:
    """`x1.5` or 1.5: how much more. Less than 1 is a ValueError."""
    found = _FACTOR.fullmatch(value) if isinstance(value, str) else None
    if not found and not is_number(value):
        raise ValueError(value)
    number = float(found.group(1)) if found else float(value)
    if not 1 <= number <= 1000:
        raise ValueError(value)
    return number
