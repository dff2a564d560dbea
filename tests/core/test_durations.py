"""Durations and times as values of a wait."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from mulligan.core.model.text.durations import parse_time, parse_wait


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (30, 30.0),
        (0.25, 0.25),
        ("30", 30.0),
        ("1h30m", 5400.0),
        ("PT5M", 300.0),
        # Until something that is over already.
        (-5, 0.0),
        ("-5", 0.0),
    ],
    ids=repr,
)
def test_a_computed_wait_is_a_duration_or_seconds(value: Any, seconds: float) -> None:
    assert parse_wait(value) == seconds


@pytest.mark.parametrize(
    "value", ["soon", "", None, True, [1], "nan", "inf", "1e400", 1e300, 10**400, "5 minutes"], ids=repr
)
def test_a_wait_that_is_no_duration_says_so(value: Any) -> None:
    with pytest.raises(ValueError) as caught:
        parse_wait(value)

    assert str(caught.value) == f"'{value}' is not a duration such as 30s"


def test_a_moment_is_a_time_with_its_zone() -> None:
    assert parse_time("2030-01-31T10:00:00+01:00") == datetime(2030, 1, 31, 9, tzinfo=UTC)


@pytest.mark.parametrize("value", ["soon", "", None, 5, "2030-13-01T00:00:00Z", "9999-12-31T23:59:59-12:00"], ids=repr)
def test_what_is_no_moment_says_so(value: Any) -> None:
    with pytest.raises(ValueError) as caught:
        parse_time(value)

    assert str(caught.value) == f"'{value}' is not a time such as 2030-01-31T09:00:00Z"


@pytest.mark.parametrize("value", ["2030-01-31T09:00:00", "2030-01-31"])
def test_a_moment_without_its_zone_says_so(value: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_time(value)

    assert str(caught.value) == f"'{value}' has no time zone"
