"""What came of the past instants of a schedule."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mulligan.core.schedules.deciding import Pause, ScheduleState, Skip
from mulligan.errors import InputInvalid
from mulligan.ports import RunRecord
from mulligan.service import Home, PastInstant, ScheduleForm, Service, describe_timing
from mulligan.service.schedules.past_instants import judge_instants, match_runs
from mulligan.service.schedules.schedules import Schedules, UnknownSchedule

T0 = datetime(2025, 1, 1, 0, 30, tzinfo=UTC)
HELLO = "steps:\n  - step: hello\n    shell: 'true'\n"


def hour(number: int) -> datetime:
    return datetime(2025, 1, 1, number, tzinfo=UTC)


def run_at(run_id: int, at: datetime, status: str = "completed") -> RunRecord:
    return RunRecord(run_id, "hello", "v", status, 1, 1, at, at)


@pytest.fixture(params=["sqlite", "postgres"])
def schedules(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Schedules, list[datetime]]]:
    url = request.getfixturevalue("store_schema_url") if request.param == "postgres" else ""
    clock = [T0]
    with Service(Home(tmp_path / "home", url), "ada") as service:
        service.catalogue.publish("hello", HELLO)
        yield Schedules(service.reader, "ada", "", lambda: clock[0], lambda by, _: service.in_the_name_of(by)), clock


def test_each_instant_has_its_run_or_the_reason_why_it_has_none(schedules: tuple[Schedules, list[datetime]]) -> None:
    ours, clock = schedules
    ours.put("hourly", ScheduleForm("hello", cron="0 * * * *", overlap="skip"))
    for number in (1, 2):
        clock[0] = hour(number) + timedelta(seconds=1)
        ours.fire_due(clock[0])
        ours.fire_due(clock[0])

    past = ours.past("hourly")

    skipped, started = past.instants
    assert (started.instant, started.outcome, started.status) == (hour(1), "started", "running")
    assert (skipped.instant, skipped.outcome, skipped.run_id) == (hour(2), "skipped", None)
    assert "has not ended" in skipped.reason
    assert (past.timezone, past.is_cut) == ("UTC", False)


def test_a_backfill_shows_instants_from_before_the_schedule(schedules: tuple[Schedules, list[datetime]]) -> None:
    ours, clock = schedules
    ours.put("hourly", ScheduleForm("hello", cron="0 * * * *", overlap="allow"))
    before = hour(0) - timedelta(hours=2)
    ours.backfill("hourly", before, hour(0))
    ours.fire_due(clock[0])

    past = ours.past("hourly")

    assert [one.instant for one in past.instants] == [hour(0), hour(0) - timedelta(hours=1), before]
    assert {one.outcome for one in past.instants} == {"started"}


def test_only_the_newest_instants_are_listed(schedules: tuple[Schedules, list[datetime]]) -> None:
    ours, clock = schedules
    ours.put("often", ScheduleForm("hello", every="1m"))
    clock[0] = T0 + timedelta(days=30)

    past = ours.past("often", limit=5)

    assert (len(past.instants), past.is_cut) == (5, True)
    with pytest.raises(InputInvalid):
        ours.past("often", limit=0)
    with pytest.raises(UnknownSchedule):
        ours.past("never")


def test_what_is_known_of_an_instant_without_a_run() -> None:
    state = ScheduleState(
        decided_until=hour(6),
        waiting=(hour(5),),
        pause=Pause(hour(7), "ada"),
        skips=(Skip(hour(1), "no server was there in time", until=hour(2)), Skip(hour(3), "run 1 has not ended")),
    )
    expected = [hour(number) for number in range(8, -1, -1)]

    found = {one.instant.hour: one.outcome for one in judge_instants(expected, {}, state)}

    assert found == {
        8: "skipped",
        7: "skipped",
        6: "missed",
        5: "waiting",
        4: "missed",
        3: "skipped",
        2: "missed",
        1: "missed",
        0: "missed",
    }
    not_decided = ScheduleState(decided_until=hour(1))
    assert [one.outcome for one in judge_instants([hour(2)], {}, not_decided)] == ["waiting"]


def test_runs_without_an_instant_belong_to_the_one_before_their_start() -> None:
    late = timedelta(minutes=3)
    runs = [run_at(3, hour(3) + late), run_at(2, hour(2) + late), run_at(1, hour(2) + late, "failed")]

    found = match_runs([hour(3), hour(2), hour(1)], runs, {2: "2025-01-01T02:00:00Z", 9: "no time"})

    assert {at.hour: run.run_id for at, run in found.items()} == {3: 3, 2: 2, 1: 1}
    assert judge_instants([hour(1)], found, ScheduleState())[-1] == PastInstant(hour(1), "started", 1, "failed")


@pytest.mark.parametrize(
    ("cron", "every", "words"),
    [
        ("30 2 * * *", None, "every day at 02:30"),
        ("0 9 * * MON-FRI", None, "Monday to Friday at 09:00"),
        ("0 9 * * 1,3,5", None, "every Monday, Wednesday and Friday at 09:00"),
        ("0 9 * * sun", None, "every Sunday at 09:00"),
        ("*/15 * * * *", None, "every 15 minutes"),
        ("* * * * *", None, "every minute"),
        ("0 * * * *", None, "every hour"),
        ("5 * * * *", None, "every hour at minute 5"),
        ("0 */6 * * *", None, "every 6 hours"),
        ("0 3 1 * *", None, "on day 1 of each month at 03:00"),
        ("0 3 L * *", None, "on the last day of each month at 03:00"),
        ("@daily", None, "every day at 00:00"),
        ("0 3 * 6 *", None, "0 3 * 6 *"),
        ("0 9 * * MON#1", None, "0 9 * * MON#1"),
        ("0 9 1 * MON", None, "0 9 1 * MON"),
        ("0 9,17 * * *", None, "0 9,17 * * *"),
        (None, 21600.0, "every 6h"),
        (None, 600.0, "every 10m"),
        (None, 5400.0, "every 1h30m"),
        (None, 30.0, "every 30s"),
    ],
)
def test_a_schedule_is_described_in_words(cron: str | None, every: float | None, words: str) -> None:
    assert describe_timing(cron, every) == words
