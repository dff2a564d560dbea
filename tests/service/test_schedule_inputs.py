"""The inputs of scheduled runs that depend on the instant: what they can read, and which run gets what."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mulligan.core.model.schedule import Schedule
from mulligan.errors import InputInvalid, LanguageError
from mulligan.ports.server_records import Document
from mulligan.service.home import Home
from mulligan.service.runs.views.run_list import RunQuery
from mulligan.service.server.schedules.forms import ScheduleForm, instants, read_schedule
from mulligan.service.server.schedules.instant_inputs import inputs_at, inputs_by_instant
from mulligan.service.server.schedules.schedules import Schedules, StoredSchedule
from mulligan.service.service import Service

DAILY = "inputs: {day: string, n: {type: integer, default: 0}}\nsteps:\n  - step: load\n    shell: echo ${inputs.day}\n"
NOW = datetime(2025, 1, 1, 12, tzinfo=UTC)
ALL_FIELDS = {
    "at": "${schedule.instant}",
    "day": "${schedule.date}",
    "after": "${schedule.previous}",
    "day_before": "${schedule.previous_date}",
    "before": "${schedule.next}",
    "day_after": "${schedule.next_date}",
    "of": "${schedule.name} in ${schedule.timezone}",
}


def schedule_of(cron: str | None = None, every: str | None = None, zone: str | None = None, **inputs: Any) -> Schedule:
    return read_schedule(ScheduleForm("load", cron=cron, every=every, timezone=zone, inputs=inputs), NOW)


def first_inputs(schedule: Schedule, after: datetime, count: int = 1) -> list[dict[str, Any]]:
    return [inputs_at("nightly", schedule, one) for one in islice(instants(schedule, after), count)]


def test_an_instant_is_given_in_the_zone_of_the_schedule_with_those_beside_it() -> None:
    schedule = schedule_of("30 0 * * *", zone="Europe/Berlin", **ALL_FIELDS)

    (inputs,) = first_inputs(schedule, datetime(2025, 1, 9, 12, tzinfo=UTC))

    assert inputs == {
        "at": "2025-01-10T00:30:00+01:00",
        "day": "2025-01-10",
        "after": "2025-01-09T00:30:00+01:00",
        "day_before": "2025-01-09",
        "before": "2025-01-11T00:30:00+01:00",
        "day_after": "2025-01-11",
        "of": "nightly in Europe/Berlin",
    }


def test_an_interval_is_given_in_utc() -> None:
    schedule = schedule_of(every="6h", **ALL_FIELDS)

    (inputs,) = first_inputs(schedule, datetime(2025, 1, 9, 20, tzinfo=UTC))

    assert (inputs["at"], inputs["day"], inputs["of"]) == ("2025-01-10T00:00:00Z", "2025-01-10", "nightly in UTC")
    assert (inputs["after"], inputs["day_before"]) == ("2025-01-09T18:00:00Z", "2025-01-09")


@pytest.mark.parametrize(
    ("after", "times"),
    [
        # 2:30 does not exist on 30 March, and exists twice on 26 October.
        (
            datetime(2025, 3, 28, 12, tzinfo=UTC),
            ["2025-03-29T02:30:00+01:00", "2025-03-30T03:00:00+02:00", "2025-03-31T02:30:00+02:00"],
        ),
        (
            datetime(2025, 10, 24, 12, tzinfo=UTC),
            ["2025-10-25T02:30:00+02:00", "2025-10-26T02:30:00+02:00", "2025-10-27T02:30:00+01:00"],
        ),
    ],
)
def test_when_the_clock_is_changed_each_day_comes_once_and_intervals_have_no_hole(
    after: datetime, times: list[str]
) -> None:
    schedule = schedule_of("30 2 * * *", zone="Europe/Berlin", **ALL_FIELDS)

    found = first_inputs(schedule, after, 3)

    assert [one["at"] for one in found] == times
    assert [one["day"] for one in found] == [time[:10] for time in times]
    assert [one["after"] for one in found[1:]] == times[:2]
    assert [one["before"] for one in found[:2]] == times[1:]


def test_a_single_placeholder_keeps_its_type_and_texts_in_lists_and_maps_are_filled_in() -> None:
    schedule = schedule_of(
        "0 6 * * *",
        year="${timestamp(schedule.instant).getFullYear()}",
        interval=["${schedule.previous}", "${schedule.instant}"],
        where={"path": "in/${schedule.date.replace('-', '/')}/data", "plain": 3},
        dollars="$${schedule.date}",
        all="${schedule}",
    )

    (inputs,) = first_inputs(schedule, NOW)

    assert inputs["year"] == 2025
    assert inputs["interval"] == ["2025-01-01T06:00:00Z", "2025-01-02T06:00:00Z"]
    assert inputs["where"] == {"path": "in/2025/01/02/data", "plain": 3}
    assert inputs["dollars"] == "${schedule.date}"
    assert inputs["all"]["next_date"] == "2025-01-03"


def test_inputs_of_several_instants_are_those_of_each() -> None:
    schedule = schedule_of("0 6 * * MON", who="us", **ALL_FIELDS)
    found = list(islice(instants(schedule, NOW), 4))

    together = inputs_by_instant("nightly", schedule, found)

    assert [{**one, "who": "us"} for one in together] == [inputs_at("nightly", schedule, one) for one in found]
    assert inputs_by_instant("nightly", schedule_of("@daily", who="us"), found) == ()
    assert inputs_by_instant("nightly", schedule, []) == ()


# -- in a store ------------------------------------------------------------------------------------------------------


class Server:
    """A service with a clock that the test sets."""

    def __init__(self, home: Home) -> None:
        self.service = Service(home, "ada")
        self.clock = NOW
        project = self.service.as_user
        self.schedules = Schedules(self.service.reader, "ada", "", lambda: self.clock, lambda by, _: project(by))
        self.service.catalogue.publish("load", DAILY)

    def fire(self, at: datetime) -> None:
        self.clock = at
        self.schedules.fire_due(at)

    def inputs(self) -> list[Any]:
        """Those of all runs, the oldest first."""
        runs = sorted(one.run_id for one in self.service.runs.page(RunQuery()).runs)
        return [self.service.reader.inputs(run_id) for run_id in runs]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(Home(tmp_path / "home"))
    yield found
    found.service.close()


def daily(**keys: Any) -> ScheduleForm:
    return ScheduleForm("load", cron="0 6 * * *", **{"inputs": {"day": "${schedule.date}"}, **keys})


def test_a_start_that_is_caught_up_or_backfilled_gets_the_day_of_its_own_instant(server: Server) -> None:
    server.schedules.put("days", daily(catch_up="all", overlap="allow"))
    server.fire(datetime(2025, 1, 4, 9, tzinfo=UTC))

    done = server.schedules.backfill("days", datetime(2024, 12, 30, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC))
    server.fire(datetime(2025, 1, 4, 9, 1, tzinfo=UTC))

    days = [one["day"] for one in server.inputs()]
    assert days == ["2025-01-02", "2025-01-03", "2025-01-04", "2024-12-30", "2024-12-31"]
    assert done.inputs == ({"day": "2024-12-30"}, {"day": "2024-12-31"})


def test_the_day_is_recorded_so_another_round_and_a_fork_have_it_too(server: Server) -> None:
    server.service.catalogue.publish("load", DAILY.replace("echo ${inputs.day}", "echo ${inputs.day}; exit 3"))
    server.schedules.put("days", daily())
    server.fire(datetime(2025, 1, 2, 6, tzinfo=UTC))
    with server.service.driving.driver() as driver:
        driver.drive(1)
    server.schedules.put("days", daily(inputs={"day": "changed"}))

    server.service.changes.retry(1)
    fork = server.service.changes.fork(1, "load", {}).fork_run_id

    assert [server.service.reader.inputs(run_id)["day"] for run_id in (1, fork)] == ["2025-01-02"] * 2
    assert server.service.reader.state(1).run.round == 2
    assert server.service.runs.replay(1).ok


def test_a_schedule_shows_what_each_of_its_next_starts_gets(server: Server) -> None:
    shown = server.schedules.put("days", daily(inputs={"day": "${schedule.previous_date}", "n": 3}))

    assert shown.inputs == {"day": "${schedule.previous_date}", "n": 3}
    assert shown.next_inputs[:2] == ({"day": "2025-01-01"}, {"day": "2025-01-02"})
    assert len(shown.next_inputs) == len(shown.next) == 10
    assert server.schedules.put("same", daily(inputs={"day": "x"})).next_inputs == ()


def test_a_schedule_without_placeholders_is_stored_as_before_and_one_with_them_says_so(server: Server) -> None:
    """A server of an older version refuses what it does not know, and takes texts of its own time as they are."""
    server.schedules.put("days", daily())
    server.schedules.put("same", daily(inputs={"day": "x"}))
    records = server.service.reader.store.server_records
    old = StoredSchedule(Schedule("load", every=3600.0, inputs={"day": "${HOME}"}), NOW)
    records.put_document(Document("schedule", "old", msgspec.json.encode(old), NOW))

    server.fire(NOW + timedelta(hours=1))

    data = {one.name: msgspec.json.decode(one.data)["schedule"] for one in records.documents("schedule")}
    assert data["days"]["reads_instant"] is True
    assert "reads_instant" not in data["same"]
    assert [one["day"] for one in server.inputs()] == ["${HOME}"]


@pytest.mark.parametrize(
    ("inputs", "message", "hint"),
    [
        ({"day": "${schedule.dat}"}, "input 'day': 'schedule' has no 'dat'", "did you mean 'date'?"),
        ({"day": "${schedule.data_interval_end}"}, "has no 'data_interval_end'", "did you mean 'instant'?"),
        ({"day": "${ds}"}, "'ds' is not known here", "did you mean 'schedule.date'?"),
        ({"day": "${inputs.n}"}, "'inputs' is not known here", "can read 'schedule' alone"),
        ({"day": "${env.HOME}"}, "'env' is not known here", "write '$${'"),
        ({"day": "${secrets.key}"}, "'secrets' is not known here", "can read 'schedule' alone"),
        ({"day": "${schedule.date"}, "'${' is not closed by '}'", "$${"),
        ({"day": "${schedule.date +}"}, "input 'day': ", ""),
        ({"day": "x", "n": "${schedule.date}"}, "input 'n' is '2025-01-02', a whole number", "${schedule.date}"),
        ({"day": "${timestamp(schedule.date)}"}, "input 'day': 'timestamp(schedule.date)': ", ""),
        ({"dya": "${schedule.date}"}, "has no input 'dya'", "day"),
    ],
)
def test_what_cannot_be_read_or_has_another_type_is_refused_when_it_is_put(
    server: Server, inputs: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(InputInvalid) as caught:
        server.schedules.put("days", daily(inputs=inputs))

    assert message in caught.value.message
    assert hint in caught.value.hint
    assert server.schedules.all() == []


def test_a_start_whose_inputs_cannot_be_made_is_skipped_with_the_reason(server: Server) -> None:
    """The expression works on the first of a month alone."""
    text = "${{'01': 'first'}[schedule.date.substring(8)]}"
    server.clock = datetime(2024, 12, 31, 12, tzinfo=UTC)
    put = server.schedules.put("days", daily(inputs={"day": text}))

    server.fire(datetime(2025, 1, 2, 6, tzinfo=UTC))

    shown = server.schedules.show("days")
    assert put.next_inputs[:2] == ({"day": "first"}, {})
    assert "the run could not be started: input 'day': " in shown.skips[-1].reason
    assert "no such key '02'" in shown.skips[-1].reason


def test_schedules_of_a_file_read_the_instant_and_are_refused_with_a_caret(server: Server) -> None:
    file = DAILY + 'schedules:\n  nightly: {cron: "0 6 * * *", inputs: {day: "${schedule.date}"}}\n'
    server.service.catalogue.publish("daily", file)

    shown = server.service.schedules.show("daily.nightly")
    with pytest.raises(LanguageError) as caught:
        server.service.catalogue.publish("daily", file.replace("schedule.date", "schedule.dat"))
    with pytest.raises(InputInvalid, match="schedule 'nightly': input 'n' is '20"):
        server.service.catalogue.publish("daily", file.replace('day: "', 'day: x, n: "'))

    assert shown.next_inputs[0] == {"day": f"{shown.next[0]:%Y-%m-%d}"}
    assert [(one.line, one.column, one.hint) for one in caught.value.problems] == [(6, 58, "did you mean 'date'?")]
    assert server.service.catalogue.workflow("daily").version == 1
