"""A schedule as people write it: what is read of it, and in which words it is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import msgspec
import pytest

from mulligan.core.model.schedule import Schedule
from mulligan.errors import InputInvalid
from mulligan.service.server.schedules.forms import ScheduleForm, check_timing, instant_text, instants, read_schedule

NOW = datetime(2025, 1, 1, 0, 30, tzinfo=UTC)
ONE_OF_THEM = "give one: cron '30 2 * * *', or every 6h"


def refused(**keys: Any) -> tuple[str, str]:
    with pytest.raises(InputInvalid) as found:
        read_schedule(ScheduleForm("etl", **keys), NOW)
    return found.value.message, found.value.hint


def test_a_key_that_no_form_has_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `evry`"):
        msgspec.convert({"workflow": "etl", "evry": "6h"}, ScheduleForm)


def test_everything_that_a_form_says_is_in_the_schedule() -> None:
    shared: dict[str, Any] = {"version": 2, "inputs": {"who": "you"}, "labels": {"team": "data"}, "overlap": "queue"}
    by_cron = ScheduleForm("etl", cron="30 2 * * *", timezone="Europe/Berlin", catch_up="all(7)", **shared)
    by_interval = ScheduleForm("etl", every="1.5", anchor="2025-01-01T02:00:00+01:00", pause_after=3)

    assert read_schedule(by_cron, NOW) == Schedule(
        "etl", cron="30 2 * * *", timezone="Europe/Berlin", catch_up="all", catch_up_max=7, **shared
    )
    assert read_schedule(by_interval, NOW) == Schedule(
        "etl", every=1.5, anchor=datetime(2025, 1, 1, 1, tzinfo=UTC), pause_after=3
    )
    assert read_schedule(ScheduleForm("etl", cron="@daily"), NOW) == Schedule("etl", cron="@daily")
    assert msgspec.json.encode(by_cron.__class__("etl", every=90.0)) == b'{"workflow":"etl","every":90.0}'


@pytest.mark.parametrize(
    ("keys", "message", "hint"),
    [
        ({}, "the schedule has neither 'cron' nor 'every'", ONE_OF_THEM),
        ({"cron": "@daily", "every": "1h"}, "the schedule has both 'cron' and 'every'", ONE_OF_THEM),
        (
            {"every": "1h", "timezone": "UTC"},
            "'timezone' is for 'cron'; an interval has none",
            "leave it out, or use 'cron'",
        ),
        (
            {"cron": "@daily", "anchor": "2025-01-01T00:00:00Z"},
            "'anchor' is for 'every'; cron has none",
            "leave it out, or use 'every'",
        ),
        ({"every": "1h", "version": 0}, "version 0 does not exist", "versions count from 1"),
        ({"every": "1h", "version": 2**31}, "version 2147483648 does not exist", "versions count from 1"),
        ({"cron": "0 0 * * *" + " " * 192}, "the cron expression has more than 200 characters", ""),
        ({"every": "1h", "pause_after": 0}, "pause_after 0 is not between 1 and 1,000", ""),
        ({"every": "1h", "pause_after": 1001}, "pause_after 1001 is not between 1 and 1,000", ""),
        ({"every": "1h", "catch_up": "most"}, "'most' is not one of none, last, all, all(20)", ""),
        ({"every": "soon"}, "every 'soon' is not a duration", "write it like 30s, 15m or 6h"),
        ({"every": "999ms"}, "every '999ms' is too short", "at least 1s"),
    ],
)
def test_a_form_that_makes_no_sense_is_refused_in_words(keys: dict[str, Any], message: str, hint: str) -> None:
    assert refused(**keys) == (message, hint)


@pytest.mark.parametrize(
    "keys",
    [
        {"every": "1s", "version": 1, "pause_after": 1},
        {"every": 1.0, "version": 2**31 - 1, "pause_after": 1000},
        {"cron": "0 0 * * *" + " " * 191},
    ],
)
def test_limits_themselves_are_allowed(keys: dict[str, Any]) -> None:
    read_schedule(ScheduleForm("etl", **keys), NOW)


def test_a_zone_or_an_expression_that_this_machine_cannot_read_is_refused() -> None:
    with pytest.raises(InputInvalid, match="'Mars/Base' is not a time zone"):
        check_timing(Schedule("etl", cron="@daily", timezone="Mars/Base"), NOW)
    with pytest.raises(InputInvalid, match="has 1 field, not five"):
        read_schedule(ScheduleForm("etl", cron="sometimes"), NOW)


def test_the_instants_of_an_interval_are_counted_from_its_anchor_in_both_directions() -> None:
    plain = Schedule("etl", every=3600.0)
    anchored = Schedule("etl", every=3600.0, anchor=NOW.replace(minute=10))
    hours = [NOW.replace(minute=0) + number * timedelta(hours=1) for number in (-1, 0, 1, 2)]

    assert list(islice(instants(plain, NOW), 2)) == hours[2:]
    assert list(islice(instants(plain, NOW, backwards=True), 2)) == hours[1::-1]
    assert next(instants(anchored, NOW)) == NOW.replace(hour=1, minute=10)


def test_an_instant_is_written_in_utc() -> None:
    assert instant_text(datetime.fromisoformat("2026-11-16T03:00:00+01:00")) == "2026-11-16T02:00:00Z"
