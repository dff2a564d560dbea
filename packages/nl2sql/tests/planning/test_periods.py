"""Times at their edges."""

from __future__ import annotations

from datetime import date

import pytest

from mulligan_nl2sql.planning.rules.periods import read_condition
from mulligan_nl2sql.planning.rules.tokens import tokenize

EDGES = [
    # Today, what is said, the first day, the day after the last one.
    ("2024-03-31", "last month", "2024-02-01", "2024-03-01"),
    ("2024-01-01", "last month", "2023-12-01", "2024-01-01"),
    ("2024-01-01", "last year", "2023-01-01", "2024-01-01"),
    ("2024-12-31", "this year", "2024-01-01", "2025-01-01"),
    ("2024-12-31", "this month", "2024-12-01", "2025-01-01"),
    ("2024-01-01", "yesterday", "2023-12-31", "2024-01-01"),
    ("2025-11-17", "this week", "2025-11-17", "2025-11-24"),
    ("2025-11-16", "this week", "2025-11-10", "2025-11-17"),
    ("2025-11-17", "last week", "2025-11-10", "2025-11-17"),
    ("2024-02-29", "in the last 1 years", "2023-02-28", "2024-03-01"),
    ("2024-03-31", "in the last 1 months", "2024-02-29", "2024-04-01"),
    ("2025-11-17", "last 7 days", "2025-11-10", "2025-11-18"),
    ("2025-11-17", "since November", "2025-11-01", None),
    ("2025-11-17", "since December", "2024-12-01", None),
    ("2025-11-17", "since 2024", "2024-01-01", None),
    ("2025-11-17", "after 2024", "2025-01-01", None),
    ("2025-11-17", "after 2024-12-31", "2025-01-01", None),
    ("2025-11-17", "before March 2024", None, "2024-03-01"),
    ("2025-11-17", "before 2020-01-01", None, "2020-01-01"),
    ("2025-11-17", "earlier than 2020", None, "2020-01-01"),
    ("2025-11-17", "in February 2024", "2024-02-01", "2024-03-01"),
    ("2025-11-17", "in Feb 2023", "2023-02-01", "2023-03-01"),
    ("2025-11-17", "in Q4 2024", "2024-10-01", "2025-01-01"),
    ("2025-11-17", "on February 29, 2024", "2024-02-29", "2024-03-01"),
    ("2025-11-17", "on 29 February 2024", "2024-02-29", "2024-03-01"),
    ("2025-11-17", "between 2023 and 2024", "2023-01-01", "2025-01-01"),
    ("2025-11-17", "from 2024-01-01 to 2024-01-01", "2024-01-01", "2024-01-02"),
    ("2025-11-17", "between November 2023 and January 2024", "2023-11-01", "2024-02-01"),
]
NO_TIMES = [
    "in March",
    "on February 29, 2023",
    "on 2023-02-29",
    "in 20244",
    "in 24",
    "between 2024 and 2023",
    "last 0 days",
    "last 9999 years",
    "on 03/04/2024",
    "in 9999",
    "next month",
]


@pytest.mark.parametrize(("today", "text", "start", "end"), EDGES)
def test_a_time_is_a_range_of_days(today: str, text: str, start: str | None, end: str | None) -> None:
    tokens = tokenize(text)

    found = [period for period, after in read_condition(tokens, 0, date.fromisoformat(today)) if after == len(tokens)]

    assert {(str(one.start), str(one.end)) for one in found} == {(str(start), str(end))}


@pytest.mark.parametrize("text", NO_TIMES)
def test_a_time_that_is_not_clear_is_none(text: str) -> None:
    tokens = tokenize(text)

    assert not [end for _, end in read_condition(tokens, 0, date(2025, 11, 17)) if end == len(tokens)]
