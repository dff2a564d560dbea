"""Parses durations, sizes and factors: `1h30m`, `PT5M`, `512MiB`, `x1.5`."""

from __future__ import annotations

import re
from typing import Any

from mulligan.core.model.text.durations import DURATION, is_number, parse_duration
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.text.sizes import parse_size as size

__all__ = ["DURATION_PATTERN", "FACTOR_PATTERN", "SIZE_PATTERN", "factor", "parse_duration", "size", "suggest_duration"]

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
_FACTOR = lazy_regex(r"x\s*(\d+(?:\.\d+)?)")

# Longer texts are not durations.
_MEANT_CHARS_MAX = 100

# The same forms, for the JSON Schema.
DURATION_PATTERN = rf"^(?:(?=\d){DURATION}|P(?=.)[0-9.WDTHMS]+)$"
SIZE_PATTERN = r"^\d+(?:\.\d+)?\s*(?:[KMGTPkmgtp]i?[Bb]?|[Bb])$"
FACTOR_PATTERN = r"^x\s*\d+(?:\.\d+)?$"


def suggest_duration(text: str) -> str | None:
    """Our spelling of `5 minutes`, `10 s` or `1:30:00`; None if the meaning is unclear."""
    if len(text) > _MEANT_CHARS_MAX:
        return None
    clock = _CLOCK.fullmatch(text)
    parts = zip(clock.groups(), "hms", strict=True) if clock else _WORDED_PART.findall(text)
    if not clock and not _WORDED.fullmatch(text):
        return None
    meant = "".join(f"{number}{_WORDS.get(word.lower(), '?')}" for number, word in parts if float(number))
    return meant if re.fullmatch(DURATION, meant) and meant else None


def factor(value: Any) -> float:
    """The factor in `x1.5` or 1.5. ValueError if it is less than 1."""
    found = _FACTOR.fullmatch(value) if isinstance(value, str) else None
    if not found and not is_number(value):
        raise ValueError(value)
    number = float(found.group(1)) if found else float(value)
    if not 1 <= number <= 1000:
        raise ValueError(value)
    return number
