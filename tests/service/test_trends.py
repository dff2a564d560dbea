"""What many runs together say, on both stores."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.nightly import POSTGRES
from tests.support.store_files import write_empty_store

from mulligan.core.model.events import Entry, RunFailed, RunStarted
from mulligan.core.model.reports import RunRequested
from mulligan.core.model.workflow import END, Action, Step, Workflow, encode, version
from mulligan.core.state.state import Tally
from mulligan.errors import InputInvalid
from mulligan.ports import Commit, NewRun, Store, WorkerRecord
from mulligan.service.driving.driver import Capacity
from mulligan.service.home import DATABASE, Home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.runs.statistics.trends import monday
from mulligan.service.service import Service

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("forked_children")]

FLAKY = """
name: flaky
steps:
  - step: fetch
    shell: test "$MULLIGAN_ATTEMPT" -gt 1
    resources: {memory: 2GiB}
    retry: {exit_codes: [1], max_retries: 2, delay: 0}
  - step: load
    shell: exit 3
    needs: [fetch]
    retry: {exit_codes: [3], max_retries: 1, delay: 0}
    continue_on_error: true
"""

AGENT = "name: NAME\nsteps:\n  - {step: think, agent: {provider: robot, prompt: hello}}\n"
SPENDS = """echo '{"content": "done", "tokens": 10, "cost": "COST"}' > "$MULLIGAN_OUTPUT\""""


@pytest.fixture(params=["sqlite", POSTGRES])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    url = request.getfixturevalue("store_schema_url") if request.param == "postgres" else ""
    if not url:
        write_empty_store(tmp_path / "home" / DATABASE)
    with Service(Home(tmp_path / "home", url), "ada") as opened:
        yield opened


def run(service: Service, folder: Path, text: str, times: int = 1) -> None:
    file = folder / "flow.yaml"
    file.write_text(text)
    prepared = prepare(service.workflows.load_workflow(file), {}, folder)
    with service.driving.driver(Capacity(cpus=4.0, memory=4 << 30)) as driver:
        for run_id in service.changes.create(prepared, times=times):
            driver.drive(run_id, 0.0)


def test_recovery_is_counted_by_week_and_by_step(service: Service, tmp_path: Path) -> None:
    run(service, tmp_path, FLAKY, times=2)
    now = datetime.now(UTC)

    trend = service.trends.recovery(now, weeks=4)

    assert [(one.week, one.rung, one.tried, one.worked) for one in trend.weeks] == [(monday(now), "retry", 4, 2)]
    assert [(one.step, one.tried, one.worked) for one in trend.stats] == [("fetch", 2, 2), ("load", 2, 0)]
    assert (trend.workflows, trend.runs, trend.is_cut) == (["flaky"], 2, False)
    assert trend.stats == service.runs.stats()
    assert service.trends.recovery(now, workflow="other").stats == []
    assert service.trends.recovery(now + timedelta(weeks=9), weeks=4).runs == 0


def test_the_usage_of_a_workflow_is_that_of_its_newest_runs_together(service: Service, tmp_path: Path) -> None:
    run(service, tmp_path, FLAKY, times=3)

    found = service.trends.usage("flaky", runs=2)
    fetch = found.usage[0]

    assert len(found.run_ids) == 2
    assert found.run_ids[0] > found.run_ids[1]
    assert (fetch.step, fetch.attempts, fetch.asked.memory) == ("fetch", 4, 2 << 30)
    assert [one.why for one in fetch.proposals if one.what == "memory"] == ["too_much"]
    small = service.trends.usage("flaky", runs=2, events_max=1)
    assert (small.run_ids, small.left_out) == ([], 2)
    assert service.trends.workflows() == ["flaky"]


def test_what_agents_spent_is_summed_by_workflow(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, cost, times in (("cheap", "0.1", 2), ("dear", "0.5", 1)):
        monkeypatch.setenv("MULLIGAN_AGENT_ROBOT", SPENDS.replace("COST", cost))
        run(service, tmp_path, AGENT.replace("NAME", name), times)

    found = service.trends.spending(datetime.now(UTC), days=7)

    spent = [(one.workflow, one.runs, one.spent["cost"], one.largest_run_id) for one in found.workflows]
    assert spent == [("dear", 1, "0.5", 3), ("cheap", 2, "0.2", 2)]
    assert (found.total["cost"], found.total["tokens"], found.runs) == ("0.7", 30, 3)


def test_nothing_was_ever_run(service: Service) -> None:
    now = datetime.now(UTC)

    assert service.trends.recovery(now).weeks == []
    assert service.trends.usage("none").usage == []
    assert service.trends.spending(now).workflows == []
    assert service.trends.workflows() == []
    with pytest.raises(InputInvalid):
        service.trends.recovery(now, weeks=0)


def test_a_week_begins_on_monday() -> None:
    assert monday(datetime(2026, 11, 15, 23, 59, tzinfo=UTC)) == datetime(2026, 11, 9, tzinfo=UTC)
    assert monday(datetime(2026, 11, 16, tzinfo=UTC)) == datetime(2026, 11, 16, tzinfo=UTC)


class _Counted:
    """A store that counts what is asked of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self._store, name)


def tallied(service: Service, tally: bytes, count: int, key: str = "s:retry:0") -> list[int]:
    """Runs of one workflow that have ended, each with one tally."""
    store, at = service.reader.store, datetime.now(UTC)
    data = encode(
        Workflow(name="counted", steps=(Step(name="s", action=Action("shell", {"text": "x"})),), end=Step(name=END))
    )
    new = NewRun(data, version(data), "counted", RunRequested(at, 0, {}))
    turns = store.create([new] * count, "w")
    inbox = {message.run_id: message.id for message in store.inbox([turn.run_id for turn in turns])}
    store.commit(
        [
            Commit(
                turn=turn,
                after=0,
                entries=[
                    Entry(1, at, 0, RunStarted(turn.run_id, "counted", "v", {}, "")),
                    Entry(2, at, 1, RunFailed()),
                ],
                rows=[("tallies", key, "", tally)],
                status="failed",
                round=1,
                at=at,
                drained=[(inbox[turn.run_id], None)],
                is_last=True,
            )
            for turn in turns
        ]
    )
    return [turn.run_id for turn in turns]


def test_statistics_of_all_runs_take_as_many_statements_however_many_there_are(service: Service) -> None:
    service.reader.store.register(WorkerRecord("w", "here", 1))
    store = service.reader.store
    asked: list[list[str]] = []
    for count in (3, 300):
        tallied(service, msgspec.msgpack.encode(Tally(2, 1, 2, 1.5)), count)
        counted = _Counted(store)
        service.reader.__dict__["store"] = counted
        (found,) = service.runs.stats()
        asked.append(counted.asked)
        service.reader.__dict__["store"] = store

    assert (found.runs, found.tried, found.worked, found.average_seconds) == (303, 606, 303, 0.75)
    assert asked[0] == asked[1] == ["tallies", "load"]


def test_what_is_damaged_in_one_run_is_left_out_of_the_statistics_of_the_others(service: Service) -> None:
    service.reader.store.register(WorkerRecord("w", "here", 1))
    tallied(service, msgspec.msgpack.encode(Tally(2, 1)), 2)
    tallied(service, b"\xc1 not msgpack", 1)
    tallied(service, msgspec.msgpack.encode(Tally(9, 9)), 1, key="no key of a tally")

    (found,) = service.runs.stats()

    assert (found.runs, found.tried) == (2, 4)
    assert service.runs.agent_stats() == []
