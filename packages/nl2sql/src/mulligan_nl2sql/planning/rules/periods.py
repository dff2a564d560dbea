"""Words for times: `in 2024`, `since March`, `last month`. A period is a range of days, half open."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Sequence
from datetime import MAXYEAR, date, timedelta

import msgspec

from mulligan_nl2sql.planning.rules.tokens import Token, number_word

_MONTHS = "january february march april may june july august september october november december".split()
_MONTH_NUMBERS = {name: at for at, name in enumerate(_MONTHS, start=1)}
_MONTH_NUMBERS |= {name[:3]: at for name, at in _MONTH_NUMBERS.items() if name != "may"} | {"sept": 9}
_QUARTERS = {"q1": 1, "q2": 4, "q3": 7, "q4": 10}
YEARS = range(1900, 2200)
_UNITS = {"day": "day", "days": "day", "week": "week", "weeks": "week"}
_UNITS |= {"month": "month", "months": "month", "year": "year", "years": "year"}
_COUNT_MAX = 400
_DAY = timedelta(days=1)


class Period(msgspec.Struct, frozen=True):
    """From `start`, included, to `end`, not included. None: no bound."""

    start: date | None = None
    end: date | None = None

    def __str__(self) -> str:
        last = None if self.end is None else self.end - _DAY
        if self.start is not None and self.start == last:
            return f"on {self.start}"
        parts = [f"from {self.start}"] if self.start else []
        return " ".join([*parts, f"to {last}"] if last else parts)


# A time that was read, and the position after it.
Read = tuple[Period, int]


def read_condition(tokens: Sequence[Token], at: int, today: date) -> list[Read]:
    """Every way to read a condition on a time that begins here."""
    word = tokens[at].lower if at < len(tokens) else ""
    found: list[Read] = []
    if word in ("in", "during", "on", "from", "of", "for", "within"):
        found += _spans(tokens, at + 1, today)
    if word in ("before", "prior"):
        first = at + 2 if word == "prior" and _lower(tokens, at + 1) == "to" else at + 1
        found += [(Period(None, span.start), end) for span, end in _spans(tokens, first, today)]
    if word in ("after", "later", "earlier"):
        first = at + 2 if _lower(tokens, at + 1) == "than" else at + 1
        for span, end in _spans(tokens, first, today):
            found.append((Period(None, span.start) if word == "earlier" else Period(span.end, None), end))
    if word == "since":
        found += [(Period(span.start, None), end) for span, end in _spans(tokens, at + 1, today, takes_month=True)]
    if word in ("between", "from"):
        joint = "and" if word == "between" else "to"
        found += _ranges(tokens, at + 1, joint, today)
    found += _relative(tokens, at, today)
    return found


def names_time(tokens: Sequence[Token], at: int, end: int, today: date) -> bool:
    """Whether exactly these tokens are a time: `May`, `2024`, `last year`."""
    return any(after == end for _, after in _spans(tokens, at, today, takes_month=True))


def _ranges(tokens: Sequence[Token], at: int, joint: str, today: date) -> list[Read]:
    found = []
    for first, middle in _spans(tokens, at, today):
        if _lower(tokens, middle) == joint:
            for last, end in _spans(tokens, middle + 1, today):
                if first.start is not None and last.end is not None and first.start < last.end:
                    found.append((Period(first.start, last.end), end))
    return found


def _spans(tokens: Sequence[Token], at: int, today: date, *, takes_month: bool = False) -> list[Read]:
    """A day, a month, a quarter or a year, by its name or its number."""
    found = _relative(tokens, at, today, is_named=True)
    if _lower(tokens, at) == "the":
        return [*_relative(tokens, at + 1, today, is_named=False), *_spans(tokens, at + 1, today)]
    if at < len(tokens) and tokens[at].kind == "date":
        try:
            day = date.fromisoformat(tokens[at].lower)
            found.append((Period(day, day + _DAY), at + 1))
        except (ValueError, OverflowError):
            pass
    if (year := _year(tokens, at)) is not None:
        found.append((Period(date(year, 1, 1), date(year + 1, 1, 1)), at + 1))
    if _lower(tokens, at) == "year" and (year := _year(tokens, at + 1)) is not None:
        found.append((Period(date(year, 1, 1), date(year + 1, 1, 1)), at + 2))
    month = _MONTH_NUMBERS.get(_lower(tokens, at))
    if month is not None:
        found += _days_of_month(tokens, at, month)
        after = at + 2 if _lower(tokens, at + 1) in (",", "of") else at + 1
        if (year := _year(tokens, after)) is not None:
            found.append((_month(year, month), after + 1))
        elif takes_month:
            # The last one that has begun.
            found.append((_month(today.year - (month > today.month), month), at + 1))
    day_number = number_word(tokens[at]) if at < len(tokens) and tokens[at].kind == "number" else None
    month = _MONTH_NUMBERS.get(_lower(tokens, at + 1))
    if day_number is not None and month is not None and (year := _year(tokens, at + 2)) is not None:
        found += _one_day(year, month, day_number, at + 3)
    quarter = _QUARTERS.get(_lower(tokens, at))
    after = at + 2 if _lower(tokens, at + 1) == "of" else at + 1
    if quarter is not None and (year := _year(tokens, after)) is not None:
        last = _month(year, quarter + 2)
        found.append((Period(date(year, quarter, 1), last.end), after + 1))
    return found


def _days_of_month(tokens: Sequence[Token], at: int, month: int) -> list[Read]:
    """March 5, 2024; March 5 2024."""
    day = tokens[at + 1].lower if at + 1 < len(tokens) and tokens[at + 1].kind == "number" else ""
    after = at + 3 if _lower(tokens, at + 2) == "," else at + 2
    year = _year(tokens, after)
    return _one_day(year, month, day, after + 1) if day and year is not None else []


def _one_day(year: int, month: int, day: str, end: int) -> list[Read]:
    if not day.isdigit() or not 1 <= int(day) <= monthrange(year, month)[1]:
        return []
    found = date(year, month, int(day))
    return [(Period(found, found + _DAY), end)]


def _relative(tokens: Sequence[Token], at: int, today: date, *, is_named: bool | None = None) -> list[Read]:
    """today, this year, last month, the last 30 days."""
    if _lower(tokens, at) == "the" and is_named is None:
        return _relative(tokens, at + 1, today, is_named=False)
    found: list[Read] = []
    first, second = _lower(tokens, at), _lower(tokens, at + 1)
    if is_named is not False:
        if first == "today":
            found.append((Period(today, today + _DAY), at + 1))
        if first == "yesterday":
            found.append((Period(today - _DAY, today), at + 1))
        if first in ("this", "last", "previous", "current") and second in ("week", "month", "year"):
            found.append((_calendar(second, today, back=first in ("last", "previous")), at + 2))
    if first in ("last", "past", "previous") and at + 2 < len(tokens):
        count, unit = number_word(tokens[at + 1]), _UNITS.get(_lower(tokens, at + 2))
        if count is not None and unit is not None and count.isdigit() and 1 <= int(count) <= _COUNT_MAX:
            start = _back(today, unit, int(count))
            found.append((Period(start, today + _DAY), at + 3))
    return found


def _calendar(unit: str, today: date, *, back: bool) -> Period:
    """The week, month or year of today, or the one before it. A week begins on Monday."""
    if unit == "year":
        year = today.year - back
        return Period(date(year, 1, 1), date(year + 1, 1, 1))
    if unit == "month":
        day = today.replace(day=1) - _DAY if back else today
        return _month(day.year, day.month)
    monday = today - timedelta(days=today.weekday() + 7 * back)
    return Period(monday, monday + timedelta(days=7))


def _back(today: date, unit: str, count: int) -> date:
    if unit in ("day", "week"):
        return today - timedelta(days=count * (7 if unit == "week" else 1))
    months = today.year * 12 + today.month - 1 - count * (12 if unit == "year" else 1)
    year, month = divmod(months, 12)
    return date(year, month + 1, min(today.day, monthrange(year, month + 1)[1]))


def _month(year: int, month: int) -> Period:
    start = date(year, month, 1)
    return Period(start, start + timedelta(days=monthrange(year, month)[1]))


def _year(tokens: Sequence[Token], at: int) -> int | None:
    text = tokens[at].lower if at < len(tokens) and tokens[at].kind == "number" else ""
    return int(text) if text.isdigit() and len(text) == len(str(MAXYEAR)) and int(text) in YEARS else None


def _lower(tokens: Sequence[Token], at: int) -> str:
    return tokens[at].lower if at < len(tokens) and tokens[at].kind in ("word", "mark") else ""


WORDS = frozenset(
    {
        *_MONTH_NUMBERS,
        *_QUARTERS,
        *_UNITS,
        *"in during on from of for within before prior to after later earlier than since between and".split(),
        *"today yesterday this last previous current past the year".split(),
    }
)
