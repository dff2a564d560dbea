"""The instants of cron expressions, over a year in many zones, against a clock that looks at every minute."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from mulligan.errors import InputInvalid
from mulligan.service.schedules.cron import check_cron, cron_instants

BEGIN, END = datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
# Both changes of the clock, a change of half an hour, changes at midnight, half-hour and quarter-hour zones, none.
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "America/Havana",
    "Asia/Kathmandu",
    "UTC",
)
ONE_MINUTE = timedelta(minutes=1)


def forwards(cron: str, zone: str) -> list[datetime]:
    return list(takewhile(lambda one: one < END, cron_instants(cron, zone, BEGIN)))


def backwards(cron: str, zone: str) -> list[datetime]:
    found = cron_instants(cron, zone, END - timedelta(microseconds=1), backwards=True)
    return list(takewhile(lambda one: one > BEGIN, found))[::-1]


@pytest.mark.parametrize("zone", ZONES[:4])
def test_an_expression_with_a_star_follows_the_real_time(zone: str) -> None:
    place = ZoneInfo(zone)
    quarters = (BEGIN + number * 15 * ONE_MINUTE for number in range(int((END - BEGIN) / (15 * ONE_MINUTE))))
    shown = ((one, one.astimezone(place)) for one in quarters if one > BEGIN)

    found = forwards("*/30 2 * * *", zone)

    assert found == [one for one, wall in shown if wall.hour == 2 and wall.minute in (0, 30)]
    assert backwards("*/30 2 * * *", zone) == found


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("cron", ["30 2 * * *", "0 0 * * *"])
def test_a_given_time_of_day_comes_once_on_every_day(cron: str, zone: str) -> None:
    place = ZoneInfo(zone)
    found = forwards(cron, zone)

    walls = list(_walls(cron))
    # As the clock shows them; a time that it leaves out is the first moment after the gap.
    expected = sorted({_first_moment(wall, place) for wall in walls})
    assert found == [one for one in expected if BEGIN < one < END]
    assert backwards(cron, zone) == found


def _walls(cron: str) -> Iterator[datetime]:
    return takewhile(lambda wall: wall < datetime(2026, 1, 2), CronSim(cron, datetime(2024, 12, 30)))


def _first_moment(wall: datetime, place: ZoneInfo) -> datetime:
    """Minute by minute: when a clock in this zone first shows this time, or a later one."""
    moment = wall.replace(tzinfo=place).astimezone(UTC) - timedelta(minutes=61)
    while moment.astimezone(place).replace(tzinfo=None, fold=0) < wall:
        moment += ONE_MINUTE
    return moment


@pytest.mark.parametrize(
    ("cron", "zone", "day", "expected"),
    [
        # The night in spring in which 2:00 becomes 3:00: the run of 2:30 is at 3:00, and only then.
        ("30 2 * * *", "Europe/Berlin", "2025-03-30", ["01:00"]),
        ("*/30 2 * * *", "Europe/Berlin", "2025-03-30", []),
        # The night in autumn in which 3:00 becomes 2:00: the first 2:30 counts.
        ("30 2 * * *", "Europe/Berlin", "2025-10-26", ["00:30"]),
        ("*/30 2 * * *", "Europe/Berlin", "2025-10-26", ["00:00", "00:30", "01:00", "01:30"]),
        # Midnight does not exist on this day.
        ("0 0 * * *", "America/Santiago", "2025-09-07", ["04:00"]),
        # The clock goes forward by half an hour, from 2:00 to 2:30.
        ("*/15 3 * * *", "Australia/Lord_Howe", "2025-10-04", ["16:00", "16:15", "16:30", "16:45"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2025-10-04", ["15:30"]),
    ],
)
def test_nights_in_which_the_clock_is_changed(cron: str, zone: str, day: str, expected: list[str]) -> None:
    begin = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(seconds=1)
    found = takewhile(lambda one: one < begin + timedelta(days=1), cron_instants(cron, zone, begin))

    assert [f"{one:%H:%M}" for one in found] == expected


def test_it_can_begin_at_any_moment_of_a_night_in_which_the_clock_is_changed() -> None:
    begin = datetime(2025, 10, 25, 22, tzinfo=UTC)
    for cron in ("30 2 * * *", "*/20 * * * *", "0 3 * * *"):
        whole = list(islice(cron_instants(cron, "Europe/Berlin", begin), 20))
        for minutes in range(0, 300, 10):
            at = begin + minutes * ONE_MINUTE
            assert next(cron_instants(cron, "Europe/Berlin", at)) == next(one for one in whole if one > at)


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("0 * * * * *", "has 6 fields"),
        ("61 * * * *", "bad minute"),
        ("0 0 31 2 *", "bad day-of-month"),
        ("x * * * *", "bad minute"),
    ],
)
def test_an_expression_that_makes_no_sense_is_refused(cron: str, words: str) -> None:
    with pytest.raises(InputInvalid, match=words):
        check_cron(cron, "UTC", BEGIN)


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../etc/passwd", "/etc/localtime", "Europe"])
def test_a_zone_that_is_none_is_refused(zone: str) -> None:
    with pytest.raises(InputInvalid, match="is not a time zone"):
        check_cron("0 0 * * *", zone, BEGIN)


def test_names_for_common_expressions() -> None:
    assert list(islice(cron_instants("@daily", "UTC", BEGIN), 2)) == [BEGIN + timedelta(days=day) for day in (1, 2)]
