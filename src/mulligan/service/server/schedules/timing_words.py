"""When a schedule starts, in words: `every day at 02:30`."""

from __future__ import annotations

import re

from mulligan.core.model.text.formatting import format_duration

_ZEROS = re.compile(r"(?<=[hm])00[ms]$")
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_DAY_NUMBERS = {name[:3].upper(): number for number, name in enumerate(_DAYS)}
_MACROS = {
    "@hourly": "every hour",
    "@daily": "every day at 00:00",
    "@midnight": "every day at 00:00",
    "@weekly": "every Sunday at 00:00",
    "@monthly": "on day 1 of each month at 00:00",
    "@yearly": "on 1 January at 00:00",
    "@annually": "on 1 January at 00:00",
}


def describe_timing(cron: str | None, every: float | None) -> str:
    """The instants of a schedule in words; the expression itself where words would not be clearer."""
    if every is not None:
        # `6h`, not `6h00m`.
        return f"every {_ZEROS.sub('', format_duration(every))}"
    text = (cron or "").strip()
    return _MACROS.get(text.lower()) or _fields(text.split()) or text


def _fields(fields: list[str]) -> str:
    if len(fields) != 5 or fields[3] != "*":
        return ""
    minute, hour, day, _, weekday = fields
    days = _days(day, weekday)
    if minute.isdecimal() and hour.isdecimal():
        return f"{days} at {int(hour):02}:{int(minute):02}" if days else ""
    if days != "every day":
        return ""
    if hour == "*" and minute.isdecimal():
        return "every hour" if int(minute) == 0 else f"every hour at minute {int(minute)}"
    if hour == "*" and (minute == "*" or minute.startswith("*/")):
        number = minute[2:] or "1"
        return "every minute" if number == "1" else f"every {number} minutes" if number.isdecimal() else ""
    if minute.isdecimal() and hour.startswith("*/") and hour[2:].isdecimal():
        at = f" at minute {int(minute)}" if int(minute) else ""
        return f"every {hour[2:]} hours{at}"
    return ""


def _days(day: str, weekday: str) -> str:
    if weekday == "*":
        if day == "*":
            return "every day"
        if day == "L":
            return "on the last day of each month"
        return f"on day {int(day)} of each month" if day.isdecimal() else ""
    if day != "*":
        return ""
    first, dash, last = weekday.upper().partition("-")
    names = [_day(one) for one in ([first, last] if dash else weekday.upper().split(","))]
    if not all(names):
        return ""
    return (
        f"{names[0]} to {names[1]}"
        if dash
        else f"every {' and '.join(filter(None, [', '.join(names[:-1]), names[-1]]))}"
    )


def _day(text: str) -> str:
    number = _DAY_NUMBERS.get(text, int(text) if text.isdecimal() and int(text) <= 7 else None)
    return "" if number is None else _DAYS[number % 7]
