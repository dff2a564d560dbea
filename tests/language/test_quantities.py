"""Durations, sizes and factors."""

from __future__ import annotations

import pytest

from mulligan.language.text.quantities import factor, parse_duration, size, suggest_duration


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("2d", 172800.0),
        ("1.5h", 5400.0),
        ("1h2m3s4ms", 3723.004),
        ("PT5M", 300.0),
        ("PT1H30M", 5400.0),
        ("P1DT12H", 129600.0),
        ("P1W", 604800.0),
        ("PT0.5S", 0.5),
        # a bare number is seconds
        (30, 30.0),
        (0.25, 0.25),
        (0, 0.0),
    ],
)
def test_a_duration_is_seconds(written: object, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    "written",
    [
        "",
        "soon",
        "5",
        "5 m",
        "m5",
        "30m1h",
        "-5s",
        "P",
        "PT",
        "P1M2",
        "5min",
        -1,
        True,
        None,
        [],
        1e300,
        "9" * 40 + "d",
    ],
)
def test_what_is_no_duration_is_an_error(written: object) -> None:
    with pytest.raises(ValueError):
        parse_duration(written)


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("512MiB", 512 * 2**20),
        ("4GB", 4 * 10**9),
        ("4gb", 4 * 10**9),
        ("1.5 GiB", 3 * 2**29),
        ("10K", 10_000),
        ("10Ki", 10_240),
        ("7B", 7),
    ],
)
def test_a_size_is_bytes(written: object, number: int) -> None:
    assert size(written) == number


@pytest.mark.parametrize("written", ["", "big", "MiB", "-1GB", "0B", 0, -1, 1024, "2048", True, None, "4GBs"])
def test_what_is_no_size_is_an_error(written: object) -> None:
    with pytest.raises(ValueError):
        size(written)


@pytest.mark.parametrize(("written", "number"), [("x1.5", 1.5), ("x2", 2.0), (3, 3.0), (1, 1.0)])
def test_a_factor_is_a_number(written: object, number: float) -> None:
    assert factor(written) == number


@pytest.mark.parametrize("written", ["", "1.5", "x", "x0.5", 0, True, None, "x5000", "xx2"])
def test_what_is_no_factor_is_an_error(written: object) -> None:
    with pytest.raises(ValueError):
        factor(written)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("5 minutes", "5m"),
        ("5min", "5m"),
        ("10 s", "10s"),
        ("1 hour, 30 minutes", "1h30m"),
        ("1.5 Hours", "1.5h"),
        ("250 millis", "250ms"),
        ("1:30:00", "1h30m"),
        ("00:05:09", "5m9s"),
        # hours and minutes, or minutes and seconds
        ("1:30", None),
        # nothing that we could say better
        ("5 fortnights", None),
        ("30 seconds 5 minutes", None),
        ("0:00:00", None),
        ("soon", None),
        ("", None),
    ],
)
def test_a_duration_in_other_words_has_a_spelling_of_ours(written: str, meant: str | None) -> None:
    assert suggest_duration(written) == meant
