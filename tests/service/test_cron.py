"""The instants of cron expressions, over a year in many zones, against a clock that looks at every minute."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from mulligan.errors import InputInvalid
from mulligan.service.server.schedules import cron as cron_module
from mulligan.service.server.schedules.cron import CronMissing, check_cron, cron_instants

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
    newest_first = cron_instants(cron, zone, begin + timedelta(days=1), backwards=True)
    assert [f"{one:%H:%M}" for one in takewhile(lambda one: one > begin, newest_first)] == expected[::-1]


def test_it_can_begin_at_any_moment_of_a_night_in_which_the_clock_is_changed() -> None:
    begin = datetime(2025, 10, 25, 22, tzinfo=UTC)
    for cron in ("30 2 * * *", "*/20 * * * *", "0 3 * * *"):
        whole = list(islice(cron_instants(cron, "Europe/Berlin", begin), 20))
        for minutes in range(0, 300, 10):
            at = begin + minutes * ONE_MINUTE
            assert next(cron_instants(cron, "Europe/Berlin", at)) == next(one for one in whole if one > at)


def test_two_times_that_the_clock_leaves_out_are_one_instant() -> None:
    found = cron_instants("0,30 2 * * *", "Europe/Berlin", datetime(2025, 3, 29, 12, tzinfo=UTC))

    assert [f"{one:%d %H:%M}" for one in islice(found, 3)] == ["30 01:00", "31 00:00", "31 00:30"]


def test_every_time_that_the_clock_leaves_out_is_the_end_of_the_gap() -> None:
    begin, end = datetime(2025, 3, 29, 12, tzinfo=UTC), datetime(2025, 3, 30, 1, tzinfo=UTC)

    assert {next(cron_instants(f"{minute} 2 * * *", "Europe/Berlin", begin)) for minute in range(60)} == {end}


def test_an_expression_without_an_instant_before_the_end_of_the_calendar_is_refused() -> None:
    with pytest.raises(InputInvalid) as found:
        check_cron("0 0 1 1 *", "UTC", datetime(9999, 6, 1, tzinfo=UTC))

    assert found.value.message == "cron '0 0 1 1 *' has no instant"
    assert found.value.hint.startswith("no year has that day; five fields: ")


def test_without_the_library_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cron_module, "CronSim", None)

    with pytest.raises(CronMissing) as found:
        check_cron("0 0 * * *", "UTC", BEGIN)

    assert found.value.message == "cron expressions need 'cronsim', which is not installed"
    assert found.value.hint == "pip install 'mulligan[server]'; or use 'every:'"
    assert (found.value.code, found.value.exit_code) == ("schedule.library_missing", 2)


def test_the_moment_at_which_it_begins_counts_only_backwards() -> None:
    noon = datetime(2025, 6, 1, 12, tzinfo=UTC)

    assert next(cron_instants("0 * * * *", "UTC", noon)) == noon + timedelta(hours=1)
    assert next(cron_instants("0 * * * *", "UTC", noon, backwards=True)) == noon


def test_instants_end_with_the_last_year_that_can_be_written() -> None:
    found = cron_instants("0 * * * *", "UTC", datetime(9999, 12, 31, 21, 30, tzinfo=UTC))

    assert [one.hour for one in found] == [22, 23]


@pytest.mark.parametrize(
    ("cron", "message"),
    [
        ("", "cron '' has 0 fields, not five"),
        ("* * * *", "cron '* * * *' has 4 fields, not five"),
        ("0 * * * * *", "cron '0 * * * * *' has 6 fields, not five"),
        ("61 * * * *", "cron '61 * * * *': bad minute"),
        ("0 0 31 2 *", "cron '0 0 31 2 *': bad day-of-month"),
        ("x * * * *", "cron 'x * * * *': bad minute"),
        (f"{'x' * 150} * * * *", f"cron '{'x' * 100}': bad minute"),
        ("a" * 150, f"cron '{'a' * 100}' has 1 field, not five"),
    ],
)
def test_an_expression_that_makes_no_sense_is_refused(cron: str, message: str) -> None:
    with pytest.raises(InputInvalid) as found:
        check_cron(cron, "UTC", BEGIN)

    assert found.value.message == message
    assert (
        found.value.hint == "five fields: minute hour day month weekday, such as '30 2 * * MON-FRI'; or @daily, @hourly"
    )


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../etc/passwd", "/etc/localtime", "Europe", "x" * 150])
def test_a_zone_that_is_none_is_refused(zone: str) -> None:
    with pytest.raises(InputInvalid) as found:
        check_cron("0 0 * * *", zone, BEGIN)

    assert found.value.message == f"'{zone[:100]}' is not a time zone of this machine"
    assert found.value.hint == "a name such as Europe/Berlin or UTC"


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("@hourly", "2025-01-01 01:00", "2025-01-01 02:00"),
        ("@daily", "2025-01-02 00:00", "2025-01-03 00:00"),
        (" @Midnight", "2025-01-02 00:00", "2025-01-03 00:00"),
        ("@weekly", "2025-01-05 00:00", "2025-01-12 00:00"),
        ("@monthly", "2025-02-01 00:00", "2025-03-01 00:00"),
        ("@yearly", "2026-01-01 00:00", "2027-01-01 00:00"),
        ("@annually", "2026-01-01 00:00", "2027-01-01 00:00"),
    ],
)
def test_names_for_common_expressions(name: str, first: str, second: str) -> None:
    found = islice(cron_instants(name, "UTC", BEGIN), 2)

    assert [f"{one:%Y-%m-%d %H:%M}" for one in found] == [first, second]
