"""Text for people: times, sizes, counts and lists of names, and text made safe for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from mulligan.core.model.text.lazy_regex import lazy_regex

# How many names a sentence lists before it says "and 4 more".
NAMES_MAX = 3

# Invisible characters and those that change the direction of writing, for use in a character class.
INVISIBLE_CHARACTERS = "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"

# Escape sequences (colours, titles), and control characters except tabs and line ends.
_CONTROLS = lazy_regex(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)

# Control characters except tabs and line ends, invisible characters, those not allowed in XML, lone surrogates.
_UNPRINTABLE = f"\x00-\x08\x0b-\x1f\x7f-\x9f{INVISIBLE_CHARACTERS}\ufffe\uffff\ud800-\udfff"


def strip_control_characters(text: str) -> str:
    """Text of a command without terminal control: colours, cursor moves, bells."""
    return _CONTROLS.sub("", text) if not text.isprintable() else text


def escape_unprintable(text: str, kept: str = r"[^\s\S]") -> str:
    r"""Text with control and invisible characters escaped (`\u001b`), except those that match `kept`."""
    if text.isprintable():
        return text
    return re.sub(rf"({kept})|[{_UNPRINTABLE}]", lambda found: found[1] or f"\\u{ord(found[0]):04x}", text)


def single_line(text: str) -> str:
    """Text as one line, so that it cannot imitate lines of ours."""
    lines = text.splitlines()
    return " ".join(map(str.strip, lines)) if len(lines) > 1 else lines[0] if lines else ""


def format_duration(seconds: float) -> str:
    """A length of time: `0.2s`, `9.5s`, `90s`, `5m30s`, `8h00m`."""
    if seconds < 100:
        return f"{seconds:.1f}s" if seconds < 10 and seconds != int(seconds) else f"{seconds:.0f}s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes}m{left:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


def format_time_until(due: datetime, at: datetime) -> str:
    """The time until `due`: `at once`, `in 50ms`, `in 2.0s`, `in 90s`, `in 5m30s`, `in 8h00m`."""
    left = (due - at).total_seconds()
    if left <= 0:
        return "at once"
    if left < 0.1:
        return f"in {left * 1000:.0f}ms"
    return f"in {left:.1f}s" if left < 10 else f"in {format_duration(left)}"


def format_time(at: datetime) -> str:
    """A time to the second, in UTC: `2026-11-15 03:12:00 UTC`."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_size(bytes_: float) -> str:
    """A number of bytes with its unit: `512MiB`, `1.5GiB`."""
    for unit in ("B", "KiB", "MiB"):
        if bytes_ < 1024:
            return f"{bytes_:.0f}{unit}"
        bytes_ /= 1024
    return f"{bytes_:.1f}GiB"


def error_reason(error: Exception) -> str:
    """The message of an error from the system, or from Python, in lower case: `no such file or directory`."""
    return (getattr(error, "strerror", None) or str(error)).lower()


def pluralize(number: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def quote_names(names: Sequence[str], names_max: int = NAMES_MAX) -> str:
    """`'a', 'b', 'c' and 4 more`."""
    shown = ", ".join(f"'{name}'" for name in names[:names_max])
    return f"{shown} and {len(names) - names_max} more" if len(names) > names_max else shown


def number_ranges(numbers: Iterable[int]) -> list[str]:
    """Numbers with three or more in a row as a range: `1`, `10-19`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return [text for row in found for text in ([f"{row[0]}-{row[-1]}"] if len(row) > 2 else map(str, row))]
