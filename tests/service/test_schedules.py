"""Schedules in a store: each instant is started once, whoever starts it and whoever dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.nightly import POSTGRES
from tests.support.store_files import write_empty_store

from mulligan.errors import InputInvalid, Refused, RevisionMismatch
from mulligan.ports.fault_points import SERVER_FAULT_POINTS, fault_listeners
from mulligan.ports.server_records import Document
from mulligan.service.home import DATABASE, Home
from mulligan.service.runs.views.run_list import RunQuery
from mulligan.service.server.catalogue.catalogue import UnknownWorkflow
from mulligan.service.server.schedules.cron import cron_instants
from mulligan.service.server.schedules.forms import ScheduleForm
from mulligan.service.server.schedules.past_instants import read_runs
from mulligan.service.server.schedules.schedules import Schedules, UnknownSchedule
from mulligan.service.service import Service

pytestmark = pytest.mark.postgres

HELLO = "inputs: {who: {default: world}}\nsteps:\n  - step: hello\n    shell: echo hi ${inputs.who}\n"
T0 = datetime(2025, 1, 1, 0, 30, tzinfo=UTC)


class Killed(BaseException):
    """The process is gone."""


class Server:
    """One process with a connection of its own, and a clock that the test sets."""

    def __init__(self, home: Home, clock: list[datetime]) -> None:
        self.service = Service(home, "ada")
        self.clock = clock
        self.schedules = Schedules(
            self.service.reader, "ada", "", lambda: clock[0], lambda by, project: self.service.as_user(by)
        )

    def fire(self) -> datetime | None:
        return self.schedules.fire_due(self.clock[0])


@pytest.fixture(params=["sqlite", POSTGRES])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Server]]:
    url = request.getfixturevalue("store_schema_url") if request.param == "postgres" else ""
    if not url:
        write_empty_store(tmp_path / "home" / DATABASE)
    clock = [T0]
    with ExitStack() as stack:

        def start() -> Server:
            server = Server(Home(tmp_path / "home", url), clock)
            stack.callback(server.service.close)
            return server

        yield start


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(Home(tmp_path / "home"), [T0])
    found.service.catalogue.publish("hello", HELLO)
    yield found
    found.service.close()


def cron(text: str = "0 * * * *", **keys: Any) -> ScheduleForm:
    return ScheduleForm("hello", cron=text, **keys)


def test_three_racing_servers_that_die_start_each_instant_of_a_year_once(servers: Callable[[], Server]) -> None:
    """Every Sunday night, both changes of the clock among them. Servers die at every fault point in turn."""
    ours = [servers() for _ in range(3)]
    ours[0].service.catalogue.publish("hello", HELLO)
    ours[0].schedules.put("weekly", cron("30 2 * * SUN", timezone="Europe/Berlin", overlap="allow"))
    weeks = list(islice(cron_instants("30 2 * * SUN", "Europe/Berlin", T0), 52))
    points = list(SERVER_FAULT_POINTS)
    turn = 0

    def listen(name: str) -> None:
        """The process that is here dies; another one, or none, does the rest at this moment."""
        fault_listeners.remove(listen)
        if turn % 3 == 0:
            ours[(turn + 1) % 3].fire()
        if name == points[turn % 2] or turn % 5 == 0:
            raise Killed

    for turn, instant in enumerate(weeks):
        ours[0].clock[0] = instant + timedelta(seconds=1)
        for number in range(3):
            fault_listeners.append(listen)
            try:
                ours[(turn + number) % 3].fire()
            except Killed:
                pass
            finally:
                if listen in fault_listeners:
                    fault_listeners.remove(listen)
        ours[turn % 3].fire()

    assert sum(ours[0].service.runs.status_counts().values()) == 52
    state = ours[0].schedules.show("weekly")
    assert len({one.instant for one in state.active}) == len({one.run_id for one in state.active}) == 52
    assert [one.instant for one in state.active] == weeks
    assert (state.waiting, state.skips) == (0, ())


def test_a_schedule_shows_what_comes_next_and_what_it_did(server: Server) -> None:
    put = server.schedules.put("nightly", cron("30 2 * * *", timezone="Europe/Berlin", inputs={"who": "you"}))
    server.clock[0] = datetime(2025, 1, 1, 1, 30, 5, tzinfo=UTC)

    again = server.fire()
    shown = server.schedules.show("nightly")

    assert [f"{one:%d %H:%M}" for one in put.next[:2]] == ["01 01:30", "02 01:30"]
    assert shown.last is not None
    assert (shown.last.instant, shown.last.run_id) == (datetime(2025, 1, 1, 1, 30, tzinfo=UTC), 1)
    assert again == server.clock[0] + timedelta(seconds=1)
    run = server.service.reader.state(1).run if server.service.runs.records([1])[0].seq else None
    assert run is None or run.inputs == {"who": "you"}
    assert [one.name for one in server.schedules.all()] == ["nightly"]


def test_a_changed_time_starts_nothing_of_the_past_and_a_pause_survives_the_change(server: Server) -> None:
    server.schedules.put("often", cron("*/10 * * * *", catch_up="all"))
    server.schedules.pause("often", "for now")
    server.clock[0] = T0 + timedelta(hours=3)
    server.schedules.put("often", cron("*/5 * * * *", catch_up="all"))

    server.fire()
    resumed = server.schedules.resume("often")
    server.fire()

    assert resumed.last is None
    assert server.service.runs.page(RunQuery()).runs == []
    server.clock[0] += timedelta(minutes=5)
    server.fire()
    assert len(server.service.runs.page(RunQuery()).runs) == 1


def test_a_run_that_cannot_be_started_is_said_and_pauses_the_schedule(server: Server) -> None:
    server.schedules.put("hourly", cron(pause_after=2))
    server.service.catalogue.publish("hello", HELLO.replace("{default: world}", "{type: string}"))
    for hour in (1, 2, 3):
        server.clock[0] = datetime(2025, 1, 1, hour, tzinfo=UTC)
        server.fire()

    shown = server.schedules.show("hourly")

    assert shown.pause is not None
    assert (shown.pause.reason, shown.pause.is_automatic, shown.next) == ("2 runs in a row failed", True, ())
    assert [one.reason.split(":")[0] for one in shown.skips] == ["the run could not be started"] * 2
    assert "who" in shown.skips[0].reason


def test_failed_runs_pause_the_schedule_and_a_success_counts_from_the_beginning(server: Server) -> None:
    text = "notify: {on: [needs_person], to: [ops, team]}\nsteps:\n  - step: a\n    shell: exit 3\n"
    server.service.catalogue.publish("hello", text)
    server.schedules.put("hourly", cron(pause_after=2))
    for hour in (1, 2):
        server.clock[0] = datetime(2025, 1, 1, hour, tzinfo=UTC)
        server.fire()
        with server.service.driving.driver() as driver:
            driver.drive(hour)

    server.clock[0] += timedelta(minutes=1)
    server.fire()
    shown = server.schedules.show("hourly")

    assert shown.pause is not None
    assert shown.pause.reason == "2 runs in a row failed; the last was run 2"
    notices = server.service.reader.store.server_records.notices()
    assert sorted(one.target for one in notices) == ["ops", "team"]
    body = msgspec.json.decode(notices[0].body)
    assert body["title"] == "schedule 'hourly' of hello has paused itself: 2 runs in a row failed; the last was run 2"
    assert "mulligan schedule resume hourly" in body["details"][0]
    assert shown.active == ()


def test_a_schedule_that_cannot_be_read_keeps_no_other_from_starting(server: Server) -> None:
    records = server.service.reader.store.server_records
    records.put_document(Document("schedule", "a-broken-one", b"{}", T0))
    server.schedules.put("hourly", cron())
    server.clock[0] = datetime(2025, 1, 1, 1, tzinfo=UTC)

    with pytest.raises(Refused, match="schedule 'a-broken-one' cannot be followed"):
        server.fire()

    assert len(server.service.runs.page(RunQuery()).runs) == 1
    server.clock[0] = datetime(2025, 1, 1, 2, tzinfo=UTC)
    again = server.fire()
    assert again == server.clock[0] + timedelta(seconds=1), "the others are looked at as often as without it"
    assert server.schedules.show("hourly").last is not None


def test_overlap_cancel_cancels_the_run_before(server: Server) -> None:
    server.schedules.put("hourly", cron(overlap="cancel"))
    for hour in (1, 2):
        server.clock[0] = datetime(2025, 1, 1, hour, tzinfo=UTC)
        server.fire()

    assert [one.status for one in server.service.runs.records([1, 2])] != ["running", "running"]
    assert server.service.reader.state(1).run.status in ("cancelled", "cancelling")


def test_a_backfill_from_the_first_of_all_times_is_one_from_the_first_instants(server: Server) -> None:
    server.schedules.put("yearly", cron("30 2 1 1 *"))

    would = server.schedules.backfill("yearly", datetime.min.replace(tzinfo=UTC), T0, dry_run=True)

    assert would.instants[0] == datetime(1970, 1, 1, 2, 30, tzinfo=UTC)


def test_a_backfill_starts_what_has_no_run_yet(server: Server) -> None:
    server.schedules.put("hourly", cron(overlap="allow"))
    server.clock[0] = T0 + timedelta(hours=1)
    server.fire()
    begin, end = datetime(2024, 12, 31, 22, tzinfo=UTC), datetime(2025, 1, 1, 1, tzinfo=UTC)

    would = server.schedules.backfill("hourly", begin, end, dry_run=True)
    before = len(server.service.runs.page(RunQuery()).runs)
    done = server.schedules.backfill("hourly", begin, end)
    server.fire()

    again = server.schedules.backfill("hourly", begin, end)
    server.fire()

    assert [f"{one:%H}" for one in would.instants] == ["22", "23", "00"]
    assert (would.with_run, before, would.instants) == (1, 1, done.instants)
    assert (again.instants, again.with_run) == ((), 4)
    assert len(server.service.runs.page(RunQuery()).runs) == 4


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (ScheduleForm("hello"), "neither 'cron' nor 'every'"),
        (ScheduleForm("hello", cron="0 0 * * *", every="1h"), "both 'cron' and 'every'"),
        (ScheduleForm("hello", every="1h", timezone="UTC"), "'timezone' is for 'cron'"),
        (ScheduleForm("hello", cron="0 0 * * *", anchor="2025-01-01T00:00:00Z"), "'anchor' is for 'every'"),
        (ScheduleForm("hello", every="soon"), "is not a duration"),
        (ScheduleForm("hello", every="10ms"), "is too short"),
        (ScheduleForm("hello", every="1h", anchor="2025-01-01"), "has no time zone"),
        (ScheduleForm("hello", every="1h", catch_up="most"), "is not one of none, last, all"),
        (ScheduleForm("hello", every="1h", pause_after=0), "is not between"),
        (ScheduleForm("hello", every="1h", inputs={"whom": 1}), "whom"),
        (ScheduleForm("hello", every="1h", version=0), "versions count from 1|does not exist"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(server: Server, form: ScheduleForm, words: str) -> None:
    with pytest.raises(InputInvalid, match=words):
        server.schedules.put("a", form)

    assert server.schedules.all() == []


def test_refusals_name_what_is_not_there_or_not_possible(server: Server) -> None:
    with pytest.raises(UnknownWorkflow):
        server.schedules.put("a", ScheduleForm("other", every="1h"))
    server.schedules.put("a", cron(), expected=0)

    with pytest.raises(RevisionMismatch):
        server.schedules.put("a", cron("1 * * * *"), expected=0)
    with pytest.raises(UnknownSchedule, match="there is no schedule 'b'"):
        server.schedules.show("b")
    with pytest.raises(Refused, match="is not paused"):
        server.schedules.resume("a")
    with pytest.raises(InputInvalid, match="about the past"):
        server.schedules.backfill("a", T0, T0 + timedelta(days=1))
    with pytest.raises(InputInvalid, match="more than 1,000 instants"):
        server.schedules.backfill("a", T0 - timedelta(days=365), T0)
    server.schedules.delete("a")
    with pytest.raises(UnknownSchedule):
        server.schedules.delete("a")


SCHEDULED = (
    HELLO
    + """\
schedules:
  nightly: {cron: "30 2 * * *", timezone: Europe/Berlin, inputs: {who: you}, catch_up: all(3), pause_after: 2}
  often: {every: 10m, overlap: queue}
"""
)


def test_schedules_of_a_file_come_and_go_with_its_versions_and_a_pause_survives(server: Server) -> None:
    catalogue, schedules = server.service.catalogue, server.service.schedules

    would = catalogue.publish("etl", SCHEDULED, dry_run=True)
    none = schedules.all()
    done = catalogue.publish("etl", SCHEDULED)
    schedules.pause("etl.nightly", "not tonight")
    changed = catalogue.publish("etl", SCHEDULED.replace("30 2", "30 3"))
    night = schedules.show("etl.nightly")
    gone = catalogue.publish("etl", HELLO)

    assert would.schedules == done.schedules == changed.schedules == ("etl.nightly", "etl.often")
    assert none == []
    assert (night.cron, night.catch_up, night.inputs) == ("30 3 * * *", "all(3)", {"who": "you"})
    assert night.pause is not None
    assert night.pause.reason == "not tonight"
    assert gone.removed_schedules == ("etl.nightly", "etl.often")
    assert schedules.all() == []
    assert catalogue.prepare("etl", 1).workflow.schedules == {}


def test_a_schedule_of_a_file_is_changed_by_publishing_and_not_otherwise(server: Server) -> None:
    server.service.catalogue.publish("etl", SCHEDULED)
    server.schedules.put("hello.nightly", cron())

    with pytest.raises(Refused, match="belongs to the text of workflow 'etl'"):
        server.schedules.put("etl.often", cron())
    with pytest.raises(Refused, match="belongs to the text of workflow 'etl'"):
        server.schedules.delete("etl.often")
    with pytest.raises(Refused, match="was not made by a file"):
        server.service.catalogue.publish("hello", SCHEDULED)
    with pytest.raises(InputInvalid, match="schedule 'nightly': cron '61 2"):
        server.service.catalogue.publish("etl", SCHEDULED.replace("30 2", "61 2"))
    with pytest.raises(InputInvalid, match=r"schedule 'nightly': .*whom"):
        server.service.catalogue.publish("etl", SCHEDULED.replace("{who: you}", "{whom: you}"))

    assert server.service.catalogue.workflow("hello").version == 1
    assert server.service.catalogue.workflow("etl").version == 1


def test_the_past_of_a_schedule_has_no_run_of_another_one(server: Server) -> None:
    for name in ("one", "other"):
        server.schedules.put(name, cron(overlap="allow"))
        server.clock[0] += timedelta(hours=1)
        server.fire()
        server.fire()

    first, second = (server.schedules.past(name).instants for name in ("one", "other"))

    assert first and second
    assert not {run.run_id for run in first} & {run.run_id for run in second}


def test_schedules_of_two_projects_have_the_same_name_and_runs_of_their_own(server: Server) -> None:
    for project in ("red", "blue"):
        service = server.service.as_user("ada", project=project)
        service.catalogue.publish("hello", HELLO)
        service.schedules.put("often", ScheduleForm("hello", every="1h"))

    server.service.schedules.fire_due(server.service.now() + timedelta(hours=1))

    for project in ("red", "blue"):
        service = server.service.as_user("ada", project=project)
        (run,) = service.runs.page(RunQuery()).runs
        assert [one.last and one.last.run_id for one in service.schedules.all()] == [run.run_id]
        records, labels = read_runs(server.service.reader.store, "often", project, 10)
        assert ([one.run_id for one in records], [*labels]) == ([run.run_id], [run.run_id])
    assert server.service.as_user("ada", project="").schedules.all() == []
