"""What came of the past instants of a schedule."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.nightly import POSTGRES
from tests.support.store_files import write_empty_store

from mulligan.core.schedules.deciding import Pause, ScheduleState, Skip
from mulligan.errors import InputInvalid
from mulligan.ports import RunRecord
from mulligan.service.home import DATABASE, Home
from mulligan.service.server.schedules.forms import ScheduleForm
from mulligan.service.server.schedules.past_instants import PastInstant, instant_labels, judge_instants, match_runs
from mulligan.service.server.schedules.schedules import Schedules, UnknownSchedule
from mulligan.service.server.schedules.timing_words import describe_timing
from mulligan.service.service import Service

T0 = datetime(2025, 1, 1, 0, 30, tzinfo=UTC)
HELLO = "steps:\n  - step: hello\n    shell: 'true'\n"


def hour(number: int) -> datetime:
    return datetime(2025, 1, 1, number, tzinfo=UTC)


def run_at(run_id: int, at: datetime, status: str = "completed") -> RunRecord:
    return RunRecord(run_id, "hello", "v", status, 1, 1, at, at)


@pytest.fixture(params=["sqlite", POSTGRES])
def schedules(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Schedules, list[datetime]]]:
    url = request.getfixturevalue("store_schema_url") if request.param == "postgres" else ""
    if not url:
        write_empty_store(tmp_path / "home" / DATABASE)
    clock = [T0]
    with Service(Home(tmp_path / "home", url), "ada") as service:
        service.catalogue.publish("hello", HELLO)
        yield Schedules(service.reader, "ada", "", lambda: clock[0], lambda by, _: service.as_user(by)), clock


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

    found = {one.instant.hour: (one.outcome, one.reason) for one in judge_instants(expected, {}, state)}

    assert found == {
        8: ("skipped", "the schedule is paused"),
        7: ("skipped", "the schedule is paused"),
        6: ("missed", "nothing was started, or its run was removed since"),
        5: ("waiting", "it is started when those before it have ended"),
        4: ("missed", "nothing was started, or its run was removed since"),
        3: ("skipped", "run 1 has not ended"),
        2: ("missed", "no server was there in time"),
        1: ("missed", "no server was there in time"),
        0: ("missed", "nothing was started, or its run was removed since"),
    }


@pytest.mark.parametrize("state", [ScheduleState(), ScheduleState(decided_until=hour(1))])
def test_an_instant_about_which_nothing_was_decided_asks_for_a_server(state: ScheduleState) -> None:
    assert judge_instants([hour(2)], {}, state) == [
        PastInstant(hour(2), "waiting", reason="no server has handled it yet: is one running?")
    ]


def test_what_is_being_started_waits_and_the_newest_reason_counts() -> None:
    skips = (Skip(hour(2), "run 1 has not ended"), Skip(hour(2), "no server was there in time, and catch_up is none"))

    starting, skipped = judge_instants([hour(2)], {}, ScheduleState(starting=(hour(3),), skips=skips))

    assert (starting.instant, starting.outcome) == (hour(3), "waiting")
    assert starting.reason == "it is started when those before it have ended"
    assert (skipped.outcome, skipped.reason) == ("missed", "no server was there in time, and catch_up is none")


def test_a_run_that_was_just_created_is_shown_as_running() -> None:
    shown = judge_instants([], {hour(1): run_at(4, hour(1), "new")}, ScheduleState())

    assert shown == [PastInstant(hour(1), "started", 4, "running")]


def test_a_run_says_its_schedule_and_its_instant_in_its_labels() -> None:
    labels = instant_labels("hourly", hour(2))

    assert labels == {"schedule": "hourly", "schedule_instant": "2025-01-01T02:00:00Z"}


def test_runs_without_an_instant_belong_to_the_one_before_their_start() -> None:
    late = timedelta(minutes=3)
    runs = [run_at(3, hour(3) + late), run_at(2, hour(2) + late), run_at(1, hour(2) + late, "failed")]

    found = match_runs([hour(3), hour(2), hour(1)], runs, {2: "2025-01-01T02:00:00Z"})

    assert {at.hour: run.run_id for at, run in found.items()} == {3: 3, 2: 2, 1: 1}
    # A label that somebody gave a run by hand says nothing.
    assert match_runs([hour(3)], [run_at(3, hour(3))], {3: "no time"}) == {}
    # The newest of two runs of one instant is shown, and none that is before all instants.
    named = {1: "2025-01-01T02:00:00Z", 2: "2025-01-01T02:00:00Z"}
    assert {run.run_id for run in match_runs([hour(9)], runs, named).values()} == {2}
    assert match_runs([hour(3)], [run_at(3, hour(3))], {})[hour(3)].run_id == 3
    assert judge_instants([hour(1)], found, ScheduleState())[-1] == PastInstant(hour(1), "started", 1, "failed")


def test_an_instant_without_a_run_says_nothing_of_one() -> None:
    assert PastInstant(hour(1), "missed") == PastInstant(hour(1), "missed", None, "", "")


@pytest.mark.parametrize(
    ("cron", "every", "words"),
    [
        ("30 2 * * *", None, "every day at 02:30"),
        ("0 9 * * MON-FRI", None, "Monday to Friday at 09:00"),
        ("0 9 * * 1,3,5", None, "every Monday, Wednesday and Friday at 09:00"),
        ("0 9 * * sun", None, "every Sunday at 09:00"),
        ("0 9 * * 2,4,6", None, "every Tuesday, Thursday and Saturday at 09:00"),
        ("*/15 * * * *", None, "every 15 minutes"),
        ("* * * * *", None, "every minute"),
        ("0 * * * *", None, "every hour"),
        ("5 * * * *", None, "every hour at minute 5"),
        ("0 */6 * * *", None, "every 6 hours"),
        ("0 3 1 * *", None, "on day 1 of each month at 03:00"),
        ("0 3 L * *", None, "on the last day of each month at 03:00"),
        ("0 9 * * MON,7", None, "every Monday and Sunday at 09:00"),
        ("0 9 * * 5-8", None, "0 9 * * 5-8"),
        ("7 */6 * * *", None, "every 6 hours at minute 7"),
        ("*/1 * * * *", None, "every minute"),
        ("*/x * * * *", None, "*/x * * * *"),
        ("*/15 9 * * *", None, "*/15 9 * * *"),
        ("*/15 * * * 1", None, "*/15 * * * 1"),
        ("1,2 * * * *", None, "1,2 * * * *"),
        ("0 */x * * *", None, "0 */x * * *"),
        ("*/5 */2 * * *", None, "*/5 */2 * * *"),
        ("0 9 1-5 * *", None, "0 9 1-5 * *"),
        ("0 9 * *", None, "0 9 * *"),
        ("@hourly", None, "every hour"),
        ("@daily", None, "every day at 00:00"),
        ("@midnight", None, "every day at 00:00"),
        (" @Weekly ", None, "every Sunday at 00:00"),
        ("@monthly", None, "on day 1 of each month at 00:00"),
        ("@yearly", None, "on 1 January at 00:00"),
        ("@annually", None, "on 1 January at 00:00"),
        (None, None, ""),
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
