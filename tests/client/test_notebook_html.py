"""What a notebook shows of a run: everything escaped, a bounded number of rows, and nothing that leaves the cell."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from tests.support.nightly import examples

from mulligan.client import notebook_html
from mulligan.client.notebook_html import render_progress, render_run, render_runs, render_story, render_workflow
from mulligan.history.story import story
from mulligan.language import load_text
from mulligan.language.expressions import Cel
from mulligan.service.authoring.area import Workflows
from mulligan.service.driving.run_progress import RunProgress
from mulligan.service.runs.views.failure_summary import FailureSummary
from mulligan.service.runs.views.run_list import RunLine
from mulligan.service.runs.views.run_story import LocatedLine
from mulligan.service.runs.views.run_view import RunView, view_state
from mulligan.testing.history import T0, History, retry, step, workflow
from mulligan.worker.logs.progress_records import Progress

NOW = T0 + timedelta(seconds=90)


def shown(run: History, **fields: Any) -> RunView:
    """The run as `Service.overview` gives it."""
    found = view_state(run.state)
    for one in (*found.steps.values(), *([found.end] if found.end else [])):
        one.usage, one.items, one.undone, one.undo_failed, one.children = None, None, False, False, []
        one.progress, one.tries = None, []
    for group in found.matrices.values():
        group.attempts, group.usage = 0, None
    line = {"workflow": "test", "created_at": T0.isoformat(), "updated_at": NOW.isoformat()}
    return msgspec.structs.replace(found, **{**line, **fields})


def rendered(run: History, graph: str = "", **fields: Any) -> str:
    summary = FailureSummary()
    summary.update(run.log)
    return render_run(shown(run, **fields), summary.lines(run.state), graph, now=NOW)


class Text(HTMLParser):
    """The words of a document, its elements, and whether each of them is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.elements: Counter[str] = Counter()
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_a_run_shows_its_status_its_steps_and_how_each_failure_was_handled() -> None:
    run = History(workflow(step("fetch", rules=retry(2)), step("load", needs=["fetch"]), step("lint")))
    run.start().fail("fetch", exit_code=75, stderr_tail="no route").ok("fetch").ok("load").fail("lint", exit_code=3)

    found = Text(rendered(run))

    assert found.open == []
    assert found.text.startswith("test failed run 1 · 90s · 3 steps, 1 failed step status attempts time")
    assert "fetch completed 2 EXIT_NONZERO 75: no route → retried, then completed" in found.text
    assert "lint failed 1 EXIT_NONZERO 3 → not handled: the run fails" in found.text


def test_what_a_step_is_called_and_what_it_writes_is_never_markup() -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    run = History(workflow(step("fetch"), step("load")))
    run.start().fail("fetch", stderr_tail=evil).ok("load")
    data = shown(run, workflow=evil, outputs={evil: [evil]}, reason=evil)
    data.steps[evil] = data.steps.pop("load")
    summary = FailureSummary()
    summary.update(run.log)

    html = render_run(data, summary.lines(run.state), now=NOW)

    found = Text(html)
    assert found.elements["script"] == found.elements["img"] == 0
    assert found.text.count("<script>alert(1)</script>") >= 5


def test_what_waits_for_a_person_is_shown_with_what_to_type() -> None:
    flow = load_text("""
steps:
  - {step: gate, approve: {message: "ship <it>?"}, next: end}
  - {step: build, shell: make, triage: true}
""")
    run = History(flow, evaluator=Cel()).start().started("gate").fail("build", exit_code=7)

    found = Text(rendered(run))

    assert "waits for a person" in found.text
    assert "gate waits for an approval: ship <it>? run.approve('gate', reason='…')" in found.text
    assert "build waits for a person to classify EXIT_NONZERO 7" in found.text
    assert "run.classify('build', 'retry', reason='…') # or 'fail'" in found.text


def test_the_outputs_of_a_run_that_has_ended_are_shown_and_bounded() -> None:
    run = History(workflow(step("fetch"))).start().ok("fetch")

    found = Text(rendered(run, outputs={"rows": 3, "text": "x" * 10_000, **{f"o{n}": n for n in range(30)}}))

    assert "rows 3" in found.text
    assert len(found.text) < 2000
    assert "and 12 more" in found.text


def test_of_a_run_of_ten_thousand_steps_the_failed_and_running_ones_are_shown() -> None:
    count = examples(1_000, 10_000)
    run = History(workflow(*(step(f"s{n}") for n in range(count)))).start()
    run.fail("s77").fail(f"s{count - 1}")
    run.started("s400")

    html = rendered(run)

    found = Text(html)
    assert len(html) < 30_000
    assert "s77 failed" in found.text and f"s{count - 1} failed" in found.text and "s400 running" in found.text
    assert f"and {count - 3:,} more: {count - 3:,} ready" in found.text


def test_a_long_run_without_trouble_shows_its_first_steps() -> None:
    run = History(workflow(*(step(f"s{n}") for n in range(200)))).start().ok(*(f"s{n}" for n in range(200)))

    found = Text(rendered(run))

    assert found.elements["tr"] == notebook_html.STEPS_MAX + 2
    assert "and 150 more: 150 completed" in found.text


def test_the_steps_of_a_large_matrix_share_a_row_and_failed_ones_stand_below_it() -> None:
    flow = load_text("""
steps:
  - {step: "sim_{seed}", matrix: {seed: 1..30}, shell: "true"}
""")
    run = History(flow).start()
    for number in range(1, 31):
        (run.fail if number == 7 else run.ok)(f"sim_{number}")

    found = Text(rendered(run))

    assert "sim × 30 failed" in found.text
    assert "1 failed, 29 completed" in found.text
    assert "sim_7 failed EXIT_NONZERO 1" in found.text
    assert "sim_8" not in found.text


def test_failed_items_that_failed_alike_share_a_line() -> None:
    flow = load_text("""
steps:
  - step: check
    map: {over: [1, 2, 3, 4], on_item_failure: collect}
    do: ["./check.sh ${item}"]
""")
    run = History(flow, evaluator=Cel()).start()
    for number in range(4):
        (run.ok if number == 2 else run.fail)(f"check[{number}].0")

    found = Text(rendered(run))

    assert "3 items EXIT_NONZERO 1 → its step completed without it" in found.text


def test_a_run_that_no_worker_has_taken_yet_has_a_headline() -> None:
    run = History(workflow(step("fetch"), step("load")))

    found = Text(render_run(shown(run, run_id=4, updated_at=T0.isoformat()), now=NOW))

    assert found.text.startswith("test running run 4 · 90s")


def test_the_style_is_for_our_own_elements_alone_and_loads_nothing() -> None:
    run = History(workflow(step("fetch"), step("load", needs=["fetch"]))).start()
    graph = Workflows.draw_for_notebook(run.state.workflow, run.statuses, nodes_max=60)

    html = rendered(run, graph)

    sheets = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    selectors = [
        one.strip() for sheet in sheets for rule in re.findall(r"([^{}]+)\{", sheet) for one in rule.split(",")
    ]
    assert len(sheets) == 2
    assert [one for one in selectors if not one.startswith((".mulligan-run", ".mulligan-graph"))] == []
    assert not re.search(r"@import|url\((?!#)|https?://(?!www\.w3\.org)|prefers-color-scheme|<script", html)


def test_the_graph_stands_beside_the_table_and_a_vast_one_scrolls() -> None:
    long = workflow(*(step(f"s{n}", needs=[f"s{n - 1}"] if n else []) for n in range(9)))
    run = History(workflow(step("fetch"), step("load", needs=["fetch"]))).start()
    narrow_graph = Workflows.draw_for_notebook(run.state.workflow, run.statuses, nodes_max=60)

    assert 'class="mulligan-figure"><svg' in rendered(run, narrow_graph)
    assert Workflows.draw_for_notebook(long, nodes_max=5) == ""
    assert 'class="mulligan-figure mulligan-vast"' in rendered(run, '<svg width="2000" height="9"></svg>')
    assert 'class="mulligan-figure mulligan-wide"' in rendered(run, '<svg width="900" height="9"></svg>')


def test_the_arrows_of_two_drawings_on_one_page_have_tips_of_their_own() -> None:
    one, two = (Workflows.draw_for_notebook(workflow(step("a"), step(name, needs=["a"])), nodes_max=9) for name in "bc")

    ids = [set(re.findall(r'id="([^"]+)"', svg)) for svg in (one, two)]

    assert ids[0] & ids[1] == set()
    assert set(re.findall(r"url\(#([^)]+)\)", one)) <= ids[0]


def test_a_large_run_that_is_driven_shows_its_counts_and_what_runs_now() -> None:
    run = History(workflow(*(step(f"s{n}") for n in range(300))))
    progress = RunProgress(lambda run_id, place, attempt: Progress(3, 12, "rows") if place == "s10" else None)
    run.start().ok("s1").fail("s2")
    for number in range(10, 40):
        run.started(f"s{number}")
    progress.update(run.state, run.log)

    found = Text(render_progress(progress, "big <b>", 12.0, now=NOW))

    assert found.text.startswith("big <b> running run 1 · 12s · 300 steps, 1 failed")
    assert "s10 running" in found.text and "3 of 12 rows" in found.text and "and more" in found.text
    assert found.elements["progress"] == 1
    assert found.elements["tr"] == notebook_html.ACTIVITIES_MAX + 1


SAID = [
    ({"done": 3, "total": 12, "text": "rows <b>"}, "3 of 12 rows <b>"),
    ({"done": 0.3, "total": 1}, "30%"),
    ({"done": 7}, "7"),
]


@pytest.mark.parametrize(("said", "text"), SAID)
def test_a_step_that_reports_progress_shows_it(said: dict[str, Any], text: str) -> None:
    run = History(workflow(step("fetch"))).start().started("fetch")
    data = shown(run)
    data.steps["fetch"].progress = Progress(**said)

    found = Text(render_run(data, now=NOW))

    assert text in found.text
    assert found.elements["progress"] == ("total" in said)


def test_a_list_of_runs_shows_how_each_stands() -> None:
    line = RunLine(
        run_id=7,
        workflow="nightly <b>",
        version="1",
        status="failed",
        round=1,
        degraded=False,
        reason="",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        updated_at=datetime(2026, 1, 1, tzinfo=UTC),
        seconds=3.25,
        parent_run_id=None,
        labels={},
        inputs={},
        driver=None,
        failure=None,
        waiting_for=[],
        asks=[],
    )

    found, none = Text(render_runs([line])), Text(render_runs([]))

    assert "7 nightly <b> failed" in found.text and "3.2s" in found.text
    assert none.text == "no runs"
    assert "and 50 more" in Text(render_runs([line] * 250)).text


def test_a_story_shows_what_happened_and_the_last_lines_of_a_failed_attempt() -> None:
    run = History(workflow(step("fetch", rules=retry(1)))).start()
    run.fail("fetch", stderr_tail="first <b>\nsecond\nthird").ok("fetch")
    lines = [LocatedLine(1, line.place, line) for line in story(run.log, run.state.workflow)]

    found = Text(render_story(lines))

    assert "fetch attempt 1 failed with EXIT_NONZERO 1" in found.text
    assert "retry 1 of 1" in found.text
    assert "more lines" in Text(render_story(lines * 300)).text


def test_a_workflow_shows_its_graph_or_why_there_is_none() -> None:
    graph = Workflows.draw_for_notebook(workflow(step("fetch")), nodes_max=9)

    found, too_large = render_workflow("nightly", 1, graph), render_workflow("big", 900, "", note="too large <b>")

    assert "<svg" in found and "nightly" in Text(found).text
    assert Text(too_large).text == "big 900 steps too large <b>"
