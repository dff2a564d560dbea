"""The overview of a run: why it is as it is, and what can be done."""

from __future__ import annotations

import json
import re

from tests.dashboard.conftest import HOSTILE, Flows, show, text_of
from tests.support.api_client import Client

from mulligan.service.service import Service

FAILS = """
name: nightly
steps:
  - {step: fetch, shell: 'true'}
  - {step: load, needs: [fetch], shell: 'echo "disk is full" >&2; exit 3', retry: {max_retries: 1, delay: 0s}}
  - {step: report, needs: [load], shell: 'true'}
"""
PARKS = """
name: release
steps:
  - {step: deploy, shell: 'echo "no route" >&2; exit 9', triage: true}
"""
GOOD = "name: good\nsteps: [{step: a, shell: 'true'}]\n"


def test_a_failed_run_says_what_failed_why_what_was_tried_and_offers_a_retry(pages: Client, flows: Flows) -> None:
    run_id = flows.run(FAILS)

    html = show(pages, f"/runs/{run_id}")

    text = text_of(html)
    assert "'load' failed, and nothing handled it" in text
    assert "disk is full" in text
    assert "Tried retry 1 of 1" in text
    assert "1 step did not run because of it" in text
    (action,) = (
        json.loads(found.replace("&quot;", '"')) for found in re.findall(r'data-action="([^"]*)"', reason(html))
    )
    assert action["path"] == f"runs/{run_id}:retry"
    assert action["preview"] is True


def test_a_failed_child_run_and_its_steps_offer_a_retry(pages: Client, flows: Flows) -> None:
    run_id = flows.run("name: outer\nsteps: [{step: call, group: {steps: [{step: load, shell: exit 3}]}}]\n")

    html = show(pages, f"/runs/{run_id + 1}")
    step = show(pages, f"/runs/{run_id + 1}/steps/load")

    assert f"runs/{run_id + 1}:retry" in reason(html)
    assert "&quot;kind&quot;: &quot;retry&quot;" in html
    assert f"runs/{run_id + 1}/steps/load:retry" in step


def reason(html: str) -> str:
    return html.partition('id="run-reason"')[2].partition("</section>")[0]


WAITS = """
name: order
steps:
  - {step: reserve, shell: 'true'}
  - {step: pay, needs: [reserve], wait: {event: paid}}
"""


def test_a_run_that_waits_for_an_event_says_for_which_and_how_it_is_sent(pages: Client, flows: Flows) -> None:
    run_id = flows.run(WAITS)

    said = text_of(show(pages, f"/runs/{run_id}"))

    assert "Waits for an event" in said
    assert f"'pay' waits for the event 'paid'. To send it: mulligan send {run_id} paid VALUE" in said


def test_a_run_says_that_one_that_it_called_waits_for_an_event(pages: Client, flows: Flows) -> None:
    run_id = flows.run("name: outer\nsteps: [{step: call, group: {steps: [{step: pay, wait: {event: paid}}]}}]\n")

    said = text_of(show(pages, f"/runs/{run_id}"))

    assert f"'pay' of run {run_id + 1}, which this run called, waits for an event" in said


def test_a_parked_step_is_the_headline_and_leads_to_the_inbox(pages: Client, flows: Flows) -> None:
    run_id = flows.run(PARKS)

    html = show(pages, f"/runs/{run_id}")

    assert "'deploy' failed and waits for a decision" in text_of(html)
    assert "no route" in reason(html)
    assert f'href="/inbox?run={run_id}&amp;step=deploy"' in reason(html)
    assert badge(html) == "waits for a decision"


def badge(html: str) -> str:
    return re.findall(r'id="run-status"[^>]*>([^<]*)<', html)[0]


def test_a_run_that_called_one_which_waits_says_so(pages: Client, flows: Flows) -> None:
    (flows.folder / "release.yaml").write_text(PARKS, encoding="utf-8")
    run_id = flows.run("name: outer\nsteps: [{step: release, workflow: ./release.yaml}]\n")

    html = show(pages, f"/runs/{run_id}")

    child = run_id + 1
    assert f"'deploy' of run {child}, which this run called, waits for a decision" in text_of(html)
    assert f'href="/inbox?run={child}&amp;step=deploy"' in reason(html)
    assert f'href="/runs/{child}/steps/deploy"' in reason(html)
    assert badge(html) == "waits for a decision"


def test_a_run_that_waits_for_a_paused_step_can_be_resumed_there(pages: Client, flows: Flows) -> None:
    run_id = flows.start(FAILS)
    pages.post(f"runs/{run_id}:pause", {"step": "fetch", "reason": "the disk is being changed"})
    flows.drive(run_id)

    html = show(pages, f"/runs/{run_id}")
    grid = show(pages, f"/runs/{run_id}", tab="grid")
    graph = show(pages, f"/runs/{run_id}", tab="graph", step="fetch")

    assert badge(html) == "waits to be resumed"
    assert "'fetch' is paused" in text_of(html) and "the disk is being changed" in text_of(html)
    assert f"runs/{run_id}:resume" in reason(html) and "&quot;step&quot;: &quot;fetch&quot;" in reason(html)
    assert "Resume this step" in grid and "Resume this step" in graph and "Pause this step" not in graph


def test_an_approval_that_waits_beside_a_parked_step_did_not_fail(pages: Client, flows: Flows) -> None:
    run_id = flows.run(PARKS + "  - {step: ask, approve: {message: ship it}, next: end}\n")

    said = text_of(show(pages, f"/runs/{run_id}"))

    assert "as did" not in said
    assert "1 approval waits for a person too" in said or "1 parked step waits for a person too" in said


def test_a_message_of_any_length_does_not_fill_the_page(pages: Client, flows: Flows) -> None:
    text = "name: long\ninputs: {what: {}}\nsteps: [{step: ask, approve: {message: '${inputs.what}'}}]\n"
    run_id = flows.run(text, what="x" * 100_000)

    shown = [show(pages, f"/runs/{run_id}"), show(pages, f"/runs/{run_id}/steps/ask")]
    shown.append(show(pages, "/inbox", run=run_id, step="ask"))

    assert [("x" * 1_000 in html, len(html) < 60_000) for html in shown] == [(True, True)] * 3
    assert len(show(pages, f"/runs/{run_id}", tab="events")) < 120_000


def test_a_parked_failure_is_not_called_unhandled(pages: Client, flows: Flows) -> None:
    said = text_of(show(pages, f"/runs/{flows.run(PARKS)}"))

    assert "1 failure, 1 waiting for a decision" in said and "unhandled" not in said


def test_the_head_of_a_run_says_what_tells_it_from_others(pages: Client, flows: Flows) -> None:
    text = GOOD + "inputs: {day: {default: monday}}\n"
    run_id = flows.run(text, labels={"team": "data"}, day=HOSTILE)

    html = show(pages, f"/runs/{run_id}")

    facts = html.partition('id="run-facts"')[2].partition("</p>")[0]
    assert "team=data" in facts and "day=&lt;script&gt;" in facts and "<script>alert" not in html
    assert "started" in facts and "took" in facts


def test_items_that_failed_are_counted_by_what_they_failed_with(pages: Client, flows: Flows) -> None:
    run_id = flows.run(
        "name: sweep\nsteps:\n  - step: solve\n    map: {over: [11, 11, 0, 12]}\n    do: [{shell: 'exit ${item}'}]\n"
    )

    assert "2 × EXIT_NONZERO 11; 1 × EXIT_NONZERO 12" in reason(show(pages, f"/runs/{run_id}"))


def test_a_completed_run_has_nothing_to_do(pages: Client, flows: Flows) -> None:
    run_id = flows.run(GOOD)

    html = show(pages, f"/runs/{run_id}")

    assert "Completed 1 step completed" in text_of(html)
    assert "data-action" not in reason(html)
    assert "Failures" not in text_of(html)


def test_who_may_only_read_sees_no_button(pages: Client, flows: Flows) -> None:
    failed, parked = flows.run(FAILS), flows.run(PARKS)

    for run_id in (failed, parked):
        shown = reason(show(pages, f"/runs/{run_id}", scope="read"))
        assert "data-action" not in shown
        assert "/inbox" not in shown


def test_a_run_that_nobody_drives_says_so(pages: Client, flows: Flows) -> None:
    run_id = flows.start(GOOD)

    assert "Nobody drives this run" in text_of(show(pages, f"/runs/{run_id}"))


def test_what_a_step_said_is_text(pages: Client, flows: Flows) -> None:
    text = json.dumps({"name": "bad", "steps": [{"step": "a", "shell": f"echo {json.dumps(HOSTILE)} >&2; exit 1"}]})
    run_id = flows.run(text)

    html = show(pages, f"/runs/{run_id}")

    assert "<script>alert" not in html
    assert "<img src=x" not in html
    assert "style=" not in html.partition("<main")[2]


def test_a_large_run_is_there_before_it_is_loaded(pages: Client, flows: Flows, service: Service, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    run_id = flows.run(FAILS)
    monkeypatch.setattr("mulligan.service.runs.views.run_details.QUICK_EVENTS_MAX", 1)

    first = show(pages, f"/runs/{run_id}")
    mosaic = pages.get(f"runs/{run_id}/mosaic").json
    pages.get(f"runs/{run_id}")
    then = show(pages, f"/runs/{run_id}")

    assert "'load' failed, and nothing handled it EXIT_NONZERO 3: disk is full" in text_of(first)
    assert "Reading what was tried" in text_of(first) and "Tried retry" not in text_of(first)
    assert mosaic["cells"] == "cfs"
    assert "'load' failed" in text_of(then)


def test_every_tab_opens_and_an_unknown_one_is_refused(pages: Client, flows: Flows) -> None:
    run_id = flows.run(GOOD)

    for tab in ("overview", "graph", "grid", "events", "data"):
        show(pages, f"/runs/{run_id}", tab=tab)
    assert pages.get(f"/runs/{run_id}", tab="other").status == 422
    assert pages.get("/runs/99").status == 404


def test_the_page_of_what_is_not_there_leads_to_what_is(pages: Client, flows: Flows) -> None:
    run_id = flows.run(GOOD)

    unknown = pages.get("/runs/99").body.decode()
    step = pages.get(f"/runs/{run_id}/steps/none").body.decode()

    nobody = pages.get("/runs/99", scope=None).body.decode()

    assert 'href="/runs" class="button primary"' in unknown and "there is no run 99" in unknown
    assert "mulligan list" not in unknown and 'aria-label="Main"' in unknown
    assert f'href="/runs/{run_id}" class="button primary"' in step
    assert 'aria-label="Main"' not in nobody and "run 99" not in nobody
