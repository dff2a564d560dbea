"""Values as people give them: durations, sizes, times, budgets."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from mulligan.core.model.workflow import Budget
from mulligan.errors import InputInvalid
from mulligan.language.text import quantities as q


def parse_duration(text: str) -> float:
    """Seconds, as workflow files write them: `30s`, `1h30m`, or a number of seconds."""
    try:
        return q.parse_duration(float(text) if text.replace(".", "", 1).isdigit() else text)
    except ValueError:
        raise InputInvalid(f"'{text}' is not a duration", hint="write it like 30s, 5m or 1h30m") from None


def parse_size(text: str) -> int:
    """Bytes, as workflow files write them: `512MiB`, `4GB`."""
    try:
        return q.size(text)
    except ValueError:
        raise InputInvalid(f"'{text}' is not a size", hint="write it like 512MiB or 4GB") from None


def parse_time(text: str, now: datetime) -> datetime:
    """A past time: how long ago (`2h`), or a date with or without a time of day, local unless it has a zone."""
    try:
        return now - timedelta(seconds=q.parse_duration(text))
    except (ValueError, OverflowError):
        pass
    try:
        return datetime.fromisoformat(text).astimezone(now.tzinfo)
    except (ValueError, OverflowError):
        hint = "write it like 2h, 7d, 2026-11-01 or 2026-11-01T08:00"
        raise InputInvalid(f"'{text}' is not a time", hint=hint) from None


def parse_end(text: str, now: datetime) -> datetime:
    """A coming time: in how long (`2h`), or a date with a time of day, local unless it has a zone."""
    try:
        found = now + timedelta(seconds=q.parse_duration(text))
    except (ValueError, OverflowError):
        found = None
    try:
        found = found or datetime.fromisoformat(text).astimezone(now.tzinfo)
    except (ValueError, OverflowError):
        raise InputInvalid(f"'{text}' is not a time", hint="write it like 2h or 2026-11-01T08:00") from None
    if found <= now:
        raise InputInvalid(f"'{text}' is over", hint="give a time that is to come, or a duration like 2h")
    return found


def read_budgets(words: Iterable[str]) -> dict[str, Budget]:
    """`cost=5` and `review.tokens=50k` as budgets by step, "" for the run."""
    # Few commands have budgets.
    from mulligan.language.readers.budgets import parse_budgets

    try:
        return parse_budgets(words)
    except ValueError as error:
        raise InputInvalid(
            f"'{error}' is not a budget",
            hint="write it like cost=5, tokens=200k or calls=20; for one step: STEP.cost=5",
        ) from None
