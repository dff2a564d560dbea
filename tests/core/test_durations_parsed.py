"""Parsing durations to the last unit, and refusing what is not a duration."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model.text.durations import DURATION_SECONDS_MAX, parse_duration, parse_wait


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30.0),
        ("5m", 300.0),
        ("2h", 7200.0),
        ("2d", 172800.0),
        ("1d2h3m4s5ms", 93784.005),
        ("1.5h", 5400.0),
        ("P2W", 1209600.0),
        ("P1DT12H", 129600.0),
        ("PT1H2M3.5S", 3723.5),
        # Nothing of every unit is nothing.
        ("0s", 0.0),
        ("PT0S", 0.0),
        (0, 0.0),
    ],
)
def test_every_unit_counts_for_what_it_is(written: Any, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        # 1.1 + 0.003 is not 1.103 in binary fractions.
        ("1.1s3ms", 1.103),
        # A billionth of a second is kept, less than that is dust.
        ("0.000000001s", 1e-9),
        ("0.00000000149s", 1e-9),
    ],
)
def test_a_duration_has_no_dust_of_binary_fractions(written: str, seconds: float) -> None:
    assert parse_duration(written) == seconds


def test_a_century_is_the_longest_duration() -> None:
    century = 100 * 366 * 86400

    assert century == DURATION_SECONDS_MAX
    assert (parse_duration("36600d"), parse_duration(century)) == (century, century)
    for longer in ("36600d1s", century + 1):
        with pytest.raises(ValueError, match=str(longer)):
            parse_duration(longer)


@pytest.mark.parametrize(
    "written",
    [
        "",
        # A `T` announces hours, minutes or seconds.
        "P",
        "PT",
        "P1DT",
        # The units go from the largest to the smallest.
        "1s1m",
        "1ms1s",
        "5",
        "-5s",
        -1,
        True,
        None,
    ],
)
def test_what_is_no_duration_is_an_error(written: Any) -> None:
    with pytest.raises(ValueError):
        parse_duration(written)


@pytest.mark.parametrize("value", ["+5", "5", "5.0", "05"])
def test_seconds_in_a_text_are_a_wait_as_well(value: str) -> None:
    assert parse_wait(value) == 5.0


def test_a_fraction_may_begin_with_its_point() -> None:
    assert parse_wait(".5") == 0.5


@pytest.mark.parametrize("value", ["infinity", "nan", " 5"])
def test_what_python_would_take_for_a_number_and_nobody_else_is_no_wait(value: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_wait(value)

    assert str(caught.value) == f"'{value}' is not a duration such as 30s"
