"""Whoever reads runs reads those of programs: each question of a face is asked of runs with every kind of call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.programs import read_programs
from tests.support.nightly import sample

import mulligan
from mulligan.service.logs.log_following import LogSelection
from mulligan.service.rendering.drawing.grouped_steps import choose_picture
from mulligan.service.runs.views.run_grid import GridQuery
from mulligan.service.runs.views.run_pages import StepQuery
from mulligan.service.service import Service, open_service

NOW = datetime(2030, 1, 1, tzinfo=UTC)
# The calls of each program in the order in which it made them.
CALLS = {
    "failed": ["count", "count#2", "count#3", "wait_for", *("book", "book#2", "book#3", "book#4", "book#5"), "pay"],
    "retried": ["count", "count#2", "count#3", "wait_for", *("book", "book#2", "book#3", "book#4", "book#5"), "pay"],
    "race": ["wait_for", "wait_for#2"],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readers")


@pytest.fixture(scope="module")
def runs(home: Path) -> Mapping[str, int]:
    """A run that failed and was undone, one that was retried with fewer calls undone, and one with a cancelled call."""
    failed = mulligan.run(read_programs.travel, home=home, folder=str(home), show=False)
    retried = mulligan.run(read_programs.travel, home=home, folder=str(home), show=False)
    (home / "money").touch()
    retried.retry()
    race = mulligan.run(read_programs.race, home=home, show=False)
    assert [one.status for one in (failed, retried, race)] == ["failed", "completed", "completed"], retried.explain()
    return {"failed": failed.id, "retried": retried.id, "race": race.id}


@pytest.fixture(scope="module")
def service(home: Path, runs: Mapping[str, int]) -> Iterator[Service]:
    with open_service(str(home)) as opened:
        yield opened


def _href(step: str) -> str:
    return f"/{step}"


# Those that name every call of a run, by what a person would call them.
NAMING: dict[str, Callable[[Service, int], Any]] = {
    "show": lambda s, run: s.runs.show(run)["steps"],
    "show --attempts": lambda s, run: s.runs.overview(run, with_attempts=True),
    "show --brief": lambda s, run: s.runs.brief_overview(run),
    "explain": lambda s, run: list(s.runs.story(run)),
    "explain --tree": lambda s, run: list(s.runs.story(run, is_tree=True)),
    "events": lambda s, run: list(s.logs.plain_events(run)),
    "graph --run": lambda s, run: choose_picture(*s.runs.drawn(run), is_expanded=True),
    "report": lambda s, run: s.runs.report(run, NOW),
    "report page": lambda s, run: s.runs.report_page(s.runs.report(run, NOW), folder=None, home_option=""),
    "traces": lambda s, run: s.telemetry.spans(run),
    "steps over HTTP": lambda s, run: s.runs.step_page(run, StepQuery()),
    "run page": lambda s, run: s.details.whole(run),
    "grid": lambda s, run: s.details.grid(run, GridQuery()),
    "graph of the page": lambda s, run: s.details.graph(run, _href, is_expanded=True),
    "timeline": lambda s, run: s.details.timeline(run),
    "story over HTTP": lambda s, run: s.details.story(run),
    "compare": lambda s, run: s.details.compare(run, run),
    "last event": lambda s, run: s.past.moment(run, s.runs.record(run).seq),
    "first and last event": lambda s, run: s.past.compare(run, 1, s.runs.record(run).seq),
    "picture of the last event": lambda s, run: s.past.picture(run, s.runs.record(run).seq, _href),
}
# Those that count or leave out.
COUNTING: dict[str, Callable[[Service, int], Any]] = {
    "list": lambda s, run: s.runs.summarize([run]),
    "snapshot": lambda s, run: s.runs.snapshot(run).failures,
    "mosaic": lambda s, run: s.details.mosaic(run),
    "failures": lambda s, run: s.details.failures(run),
    "failure outcomes": lambda s, run: s.runs.failure_outcomes(run),
    "waits": lambda s, run: s.runs.waits(run),
    "usage": lambda s, run: s.runs.usage(run),
    "stats": lambda s, run: s.runs.stats(),
    "agent stats": lambda s, run: s.runs.agent_stats(),
    "workflow": lambda s, run: s.runs.workflow(run),
    "changes since": lambda s, run: s.runs.changes_since(run, 1),
    "replay": lambda s, run: s.runs.replay(run),
    "feed": lambda s, run: s.details.feed(run),
    "children": lambda s, run: s.details.children(run),
    "artifacts": lambda s, run: s.details.artifacts(run),
    "data": lambda s, run: s.runs.data(run),
    "recovery": lambda s, run: s.trends.recovery(NOW),
    "usage of a workflow": lambda s, run: s.trends.usage("travel"),
    "spending": lambda s, run: s.trends.spending(NOW),
    "failing": lambda s, run: s.recent_runs.failing(),
    "metrics": lambda s, run: s.telemetry.store_metrics(),
    "pending": lambda s, run: s.decisions.list_pending(),
    "damage": lambda s, run: s.runs.explain_damage([run], ValueError("nothing")),
    "logs": lambda s, run: list(s.logs.follow_logs(run, LogSelection())),
}
OF_A_STEP: dict[str, Callable[[Service, int, str], Any]] = {
    "show": lambda s, run, step: s.runs.step_overview(run, step),
    "explain": lambda s, run, step: list(s.runs.story(run, step)),
    "page": lambda s, run, step: s.step_histories.step(run, step),
    "over HTTP": lambda s, run, step: s.details.step(run, step),
    "graph": lambda s, run, step: s.details.graph(run, _href, step=step),
    "output": lambda s, run, step: s.runs.output(run, step),
    "waits": lambda s, run, step: s.runs.waits(run, step),
    "handlers": lambda s, run, step: s.details.failure_handlers(run, step),
    "points": lambda s, run, step: s.past.points(run, step),
}


@pytest.mark.parametrize("name", sample(list(CALLS), 3))
@pytest.mark.parametrize("reader", NAMING)
def test_a_reader_of_a_run_names_all_calls_of_its_program(
    service: Service, runs: Mapping[str, int], name: str, reader: str
) -> None:
    found = repr(NAMING[reader](service, runs[name]))

    assert [call for call in CALLS[name] if call not in found] == []


@pytest.mark.parametrize("reader", COUNTING)
def test_a_reader_that_counts_reads_the_runs_of_programs(
    service: Service, runs: Mapping[str, int], reader: str
) -> None:
    for run in runs.values():
        COUNTING[reader](service, run)


@pytest.mark.parametrize("reader", OF_A_STEP)
def test_a_reader_of_a_step_reads_each_call(service: Service, runs: Mapping[str, int], reader: str) -> None:
    for name, calls in CALLS.items():
        for call in calls:
            assert OF_A_STEP[reader](service, runs[name], call) is not None
            assert service.runs.find_place(runs[name], call) == call


def test_all_calls_are_counted(service: Service, runs: Mapping[str, int]) -> None:
    mosaic, (line,) = service.details.mosaic(runs["failed"]), service.runs.summarize([runs["failed"]])

    assert mosaic.step_count == 1 + len(CALLS["failed"])
    # The program itself, one that counted too far, one with nobody and one without money.
    assert (mosaic.counts["failed"], line.failure and line.failure.step) == (4, "pay")
    assert {one.step: one.parts for one in service.runs.usage(runs["failed"])}["book"] == 5


def test_a_program_that_fails_names_the_failure_that_it_has_not_caught(
    service: Service, runs: Mapping[str, int]
) -> None:
    lines = {one.where: one.line.text for one in service.runs.story(runs["failed"])}

    assert lines["travel"].endswith("; failure of 'pay' not handled")
    assert lines["end"].startswith("the run failed: failures of 'pay', 'travel' not handled")


def test_each_moment_of_a_program_can_be_looked_at(service: Service, runs: Mapping[str, int]) -> None:
    for run in runs.values():
        for seq in sample(range(1, service.runs.record(run).seq + 1), 6):
            service.past.moment(run, seq)
            service.past.picture(run, seq, _href)


def test_the_story_says_where_each_call_was_made_and_what_became_of_it(
    service: Service, runs: Mapping[str, int]
) -> None:
    lines = {one.where: one.line.text for one in service.runs.story(runs["failed"])}
    race = {one.where: one.line.text for one in service.runs.story(runs["race"])}

    assert lines["count"] == "completed inline (read_programs.py:50)"
    assert "raised at read_programs.py:50" in lines["count#3"]
    assert lines["book#3"] == "undone"
    assert race["wait_for#2"] == "cancelled by 'race' (read_programs.py:64, branch 2)"
