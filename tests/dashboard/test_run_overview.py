"""The overview of a run: why it is as it is, and what can be done."""

from __future__ import annotations

import json
import re

from tests.api.conftest import Client
from tests.dashboard.conftest import HOSTILE, Flows, show, text_of

from mulligan.service import Service

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


def reason(html: str) -> str:
    return html.partition('id="run-reason"')[2].partition("</section>")[0]


def test_a_parked_step_is_the_headline_and_leads_to_the_inbox(pages: Client, flows: Flows) -> None:
    run_id = flows.run(PARKS)

    html = show(pages, f"/runs/{run_id}")

    assert "'deploy' failed and waits for a decision" in text_of(html)
    assert "no route" in reason(html)
    assert 'href="/inbox"' in reason(html)


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
    monkeypatch.setattr("mulligan.service.run_details.QUICK_EVENTS_MAX", 1)

    first = show(pages, f"/runs/{run_id}")
    mosaic = pages.get(f"runs/{run_id}/mosaic").json
    pages.get(f"runs/{run_id}")
    then = show(pages, f"/runs/{run_id}")

    assert "Loading a large run" in text_of(first)
    assert mosaic["cells"] == "cfs"
    assert "'load' failed" in text_of(then)


def test_every_tab_opens_and_an_unknown_one_is_refused(pages: Client, flows: Flows) -> None:
    run_id = flows.run(GOOD)

    for tab in ("overview", "graph", "grid", "events", "data"):
        show(pages, f"/runs/{run_id}", tab=tab)
    assert pages.get(f"/runs/{run_id}", tab="other").status == 422
    assert pages.get("/runs/99").status == 404
