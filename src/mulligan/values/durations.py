"""Durations as ISO 8601 text: `P1DT2H3M4.5S`, as msgspec and pydantic write and read them."""

from __future__ import annotations

import re

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta

_PATTERN = r"(-)?P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d{1,9}))?S)?)?"
_MICROSECOND_DIGITS = 6


def format_duration(duration: timedelta) -> str:
    """Return the duration as text, exact to the microsecond."""
    sign = "-" if duration.days < 0 else ""
    whole = abs(duration)
    minutes, seconds = divmod(whole.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{whole.microseconds:06d}".rstrip("0") if whole.microseconds else ""
    clock = "".join(
        (
            f"{hours}H" if hours else "",
            f"{minutes}M" if minutes else "",
            f"{seconds}{fraction}S" if seconds or fraction else "",
        )
    )
    days = f"{whole.days}D" if whole.days else ""
    return f"{sign}P{days}{'T' + clock if clock else ''}" if days or clock else "PT0S"


def parse_duration(text: str) -> dict[str, int]:
    """Return the keyword arguments of a `timedelta`; raise ValueError."""
    found = re.fullmatch(_PATTERN, text)
    if found is None or text.endswith(("P", "T")):
        raise ValueError(text)
    sign = -1 if found[1] else 1
    weeks, days, hours, minutes, seconds = (sign * int(number or 0) for number in found.groups()[1:6])
    microseconds = sign * int((found[7] or "").ljust(_MICROSECOND_DIGITS, "0")[:_MICROSECOND_DIGITS])
    return {
        "weeks": weeks,
        "days": days,
        "hours": hours,
        "minutes": minutes,
        "seconds": seconds,
        "microseconds": microseconds,
    }
