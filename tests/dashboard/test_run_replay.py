"""The tab Replay of a run: each point of it is rendered by the server, and moves graph, timeline, steps and ladder."""

from __future__ import annotations

import re

from tests.dashboard.conftest import HOSTILE, Flows, show, text_of
from tests.support.api_client import Client

from mulligan.service.service import Service

FLOW = """
name: nightly
steps:
  - step: fetch
    shell: '[ "$MULLIGAN_ATTEMPT" -ge 2 ] || exit 7'
    retry: {rules: [{exit_codes: [7], max_retries: 2, delay: 1ms}]}
  - {step: load, needs: [fetch], shell: 'exit 3'}
"""


def seq_of(service: Service, run_id: int, kind: str) -> int:
    """The number of the first event of this type."""
    entries = service.reader.events(run_id)
    return next(entry.seq for entry in entries if entry.fact.__struct_config__.tag == kind)


def part(html: str, name: str) -> str:
    """The words of the panel with this name."""
    found = re.search(rf'<section class="panel" aria-labelledby="{name}">.*?</section>', html, re.DOTALL)
    assert found is not None, name
    return text_of(f"<main>{found[0]}")


def test_an_address_with_an_event_shows_the_run_as_it_was_then(pages: Client, flows: Flows, service: Service) -> None:
    run_id = flows.run(FLOW)
    seq = seq_of(service, run_id, "retry.scheduled")

    html = show(pages, f"/runs/{run_id}", tab="replay", at=seq)

    assert re.search(rf'<input[^>]*type="range"[^>]*value="{seq}"', html)
    assert "retry 1 of 2" in text_of(html)
    assert "waiting to retry fetch" in part(html, "replay-steps") and "waiting load" in part(html, "replay-steps")
    assert "1 of 2 used (exit code 7)" in part(html, "replay-ladder")
    assert '<li class="current"><b>retry</b>' in html
    assert "attempt 2" in part(html, "replay-waits")
    assert "The delay before attempt 2 of 'fetch' was over" in part(html, "replay-next")
    assert "1 step that had started" in part(html, "replay-timeline")
    assert 'data-step="load"' in html
    assert f'href="/runs/{run_id}?tab=replay&amp;at={seq + 1}"' in html
    assert " style=" not in html


def test_without_an_event_it_is_the_last_one_and_a_fork_is_offered_only_where_the_run_went_on(
    pages: Client, flows: Flows, service: Service
) -> None:
    run_id = flows.run(FLOW)
    last = service.runs.record(run_id).seq

    html = show(pages, f"/runs/{run_id}", tab="replay")

    assert f"Event {last} of {last}" in text_of(html) and "This is the last event so far" in text_of(html)
    assert 'id="replay-fork"' not in html
    earlier = {"tab": "replay", "at": seq_of(service, run_id, "retry.scheduled")}
    assert 'id="replay-fork"' in show(pages, f"/runs/{run_id}", **earlier)
    assert 'id="replay-fork"' not in show(pages, f"/runs/{run_id}", scope="read", **earlier)


def test_an_event_that_the_run_does_not_have_is_said(pages: Client, flows: Flows) -> None:
    run_id = flows.run(FLOW)

    reply = pages.get(f"/runs/{run_id}", tab="replay", at=9000)

    assert reply.status == 422
    assert "none with the number 9000" in text_of(reply.body.decode())


def test_a_run_that_has_not_started_has_nothing_to_replay(pages: Client) -> None:
    run_id = int(pages.post("runs", {"text": FLOW}).json["run_id"])

    assert "has not started yet" in text_of(show(pages, f"/runs/{run_id}", tab="replay"))


def test_what_a_step_said_stays_text(pages: Client, flows: Flows) -> None:
    said = f"cat >&2 <<'E'\n      {HOSTILE}\n      E\n      exit 1"
    run_id = flows.run(f"name: bad\nsteps:\n  - step: one\n    shell: |\n      {said}\n")

    html = show(pages, f"/runs/{run_id}", tab="replay", at=5)

    assert "<script>window.hit" not in html and "<img src=x" not in html
