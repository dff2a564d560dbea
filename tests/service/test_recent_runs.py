"""What fails now, and how the runs of the last days ended; on both stores."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest
from tests.support.nightly import POSTGRES
from tests.support.store_files import write_empty_store

from mulligan.core.effects.run_lists import run_failures
from mulligan.core.model.events import Entry, RunCompleted, RunFailed, RunStarted
from mulligan.core.model.failure import Failure
from mulligan.core.model.reports import RunRequested
from mulligan.core.state.state import FailureRecord
from mulligan.ports import Commit, NewRun, WorkerRecord
from mulligan.service.home import DATABASE, Home
from mulligan.service.runs.changes.changes import Changes
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.runs.statistics.recent_runs import RecentRuns
from mulligan.service.runs.stored.run_counts import CountCache
from mulligan.service.service import Service

NOON = datetime(2026, 3, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture(params=["sqlite", POSTGRES])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    store = request.getfixturevalue("store_schema_url") if request.param == "postgres" else ""
    if not store:
        write_empty_store(tmp_path / "home" / DATABASE)
    with Service(Home(tmp_path / "home", store) if store else Home(tmp_path / "home"), "a tester") as opened:
        opened.reader.store.register(WorkerRecord("w", "here", 1))
        yield opened


def recent(service: Service, now: datetime = NOON) -> RecentRuns:
    return RecentRuns(service.reader, lambda: now)


def ended(service: Service, workflow: str, at: datetime, code: str = "", *, project: str = "") -> int:
    """A run that completed, or failed with a code, an hour after its creation."""
    store = service.reader.store
    new = NewRun(b'{"name":"x"}', "v1", workflow, RunRequested(at, 0, {}), project=project)
    (turn,) = store.create([new], "w")
    (message,) = store.inbox([turn.run_id])
    failure = FailureRecord(0, "load", 1, Failure(code, "it broke"), 2, at) if code else None
    last = RunFailed() if failure else RunCompleted()
    store.commit(
        [
            Commit(
                turn=turn,
                after=0,
                entries=[Entry(1, at, 0, RunStarted(turn.run_id, workflow, "v1", {}, "")), Entry(2, at, 1, last)],
                rows=[("failures", "0", "", msgspec.msgpack.encode(failure))] if failure else [],
                status="failed" if failure else "completed",
                round=1,
                at=at + HOUR,
                drained=[(message.id, None)],
                is_last=True,
                failures=run_failures([failure]) if failure else None,
            )
        ]
    )
    return turn.run_id


def test_failed_runs_are_listed_by_workflow_and_code_and_what_fails_still_comes_first(service: Service) -> None:
    ended(service, "hourly", NOON - 9 * HOUR, "TIMEOUT")
    first = ended(service, "nightly", NOON - 8 * HOUR, "EXIT_NONZERO")
    newest = ended(service, "nightly", NOON - 7 * HOUR, "EXIT_NONZERO")
    other = ended(service, "nightly", NOON - 6 * HOUR, "TIMEOUT")
    good = ended(service, "hourly", NOON - 5 * HOUR)

    found = recent(service).failing()

    assert [(one.workflow, one.code, one.count, one.run.run_id) for one in found.groups] == [
        ("nightly", "TIMEOUT", 1, other),
        ("nightly", "EXIT_NONZERO", 2, newest),
        ("hourly", "TIMEOUT", 1, 1),
    ]
    assert found.groups[1].first_at == service.runs.record(first).created_at
    assert [one.completed and one.completed.run_id for one in found.groups] == [None, None, good]
    assert not found.is_cut


def test_a_failure_is_recent_for_three_days_unless_the_reader_has_seen_it(service: Service) -> None:
    ended(service, "hourly", NOON - 5 * DAY, "TIMEOUT")
    ended(service, "hourly", NOON - 2 * DAY, "TIMEOUT")
    ended(service, "nightly", NOON - 4 * DAY, "TIMEOUT")
    ended(service, "nightly", NOON - 9 * HOUR)
    ended(service, "hourly", NOON - 8 * HOUR)

    unseen = recent(service).failing().groups
    seen = recent(service).failing(NOON - 2 * DAY + HOUR).groups
    before = recent(service).failing(NOON - 2 * DAY).groups

    assert [(one.workflow, one.recent_count) for one in unseen] == [("hourly", 1), ("nightly", 0)]
    assert [one.recent_count for one in seen] == [0, 0]
    assert [one.recent_count for one in before] == [1, 0]


def test_a_failure_of_long_ago_is_not_what_fails_now(service: Service) -> None:
    ended(service, "nightly", NOON - 15 * DAY, "TIMEOUT")

    assert recent(service).failing().groups == []


def test_the_days_of_a_workflow_have_their_outcomes_by_the_calendar_of_the_reader(service: Service) -> None:
    ended(service, "nightly", datetime(2026, 3, 19, 23, 30, tzinfo=UTC), "TIMEOUT")
    ended(service, "nightly", NOON - HOUR)
    ended(service, "hourly", NOON - 20 * DAY)

    (in_utc,) = recent(service).history(UTC)
    (in_berlin,) = recent(service).history(ZoneInfo("Europe/Berlin"))

    assert [day.outcomes for day in in_utc.days[-2:]] == [{"failed": 1}, {"completed": 1}]
    assert [day.outcomes for day in in_berlin.days[-2:]] == [{}, {"failed": 1, "completed": 1}]
    assert len(in_utc.days) == 14
    assert in_utc.outcomes == {"failed": 1, "completed": 1}
    assert in_berlin.days[-1].begin.astimezone(UTC) == datetime(2026, 3, 19, 23, tzinfo=UTC)


def test_a_day_that_has_passed_is_counted_again_after_a_minute(service: Service) -> None:
    moment = 0.0
    service.reader.counts = CountCache(lambda: moment)
    read = recent(service)
    ended(service, "nightly", NOON - DAY)
    read.history(UTC)
    ended(service, "nightly", NOON - DAY)
    ended(service, "nightly", NOON)

    (soon,) = read.history(UTC)
    moment += 61
    (later,) = read.history(UTC)

    assert [day.total for day in soon.days[-2:]] == [1, 1]
    assert [day.total for day in later.days[-2:]] == [2, 1]


def test_a_project_has_its_own_days(service: Service) -> None:
    ended(service, "nightly", NOON, "TIMEOUT", project="blue")

    found = [RecentRuns(service.reader.in_project(project), lambda: NOON) for project in ("red", "blue")]

    assert [len(one.history(UTC)) for one in found] == [0, 1]
    assert [len(one.failing().groups) for one in found] == [0, 1]


def test_a_home_without_runs_has_nothing_to_tell(tmp_path: Path) -> None:
    with Service(Home(tmp_path / "nothing")) as opened:
        assert opened.recent_runs.failing().groups == []
        assert opened.recent_runs.history(UTC) == []


def test_a_new_run_has_the_time_of_the_store_whatever_the_clock_of_its_starter_says(
    store_schema_url: str, tmp_path: Path
) -> None:
    with Service(Home(tmp_path / "home", store_schema_url), "ada") as service:
        (tmp_path / "flow.yaml").write_text("steps: [{step: s, shell: 'true'}]")
        prepared = prepare(service.workflows.load_workflow(tmp_path / "flow.yaml"), {}, tmp_path)
        changes, store = Changes(service.reader, "ada"), service.reader.store
        before = store.now()
        for hours in (-3, 3):
            skewed = RunRequested(datetime.now(UTC) + hours * HOUR, 0, {}, prepared.version)
            changes.create_fork(prepared, skewed, None)
        changes.create(prepared)
        after = store.now()

        assert before is not None and after is not None
        for record in store.runs():
            assert before <= record.created_at <= after
