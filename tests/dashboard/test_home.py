"""The page that somebody opens first: what fails now, who waits, what is due, how the last days went."""

from __future__ import annotations

import re

from tests.dashboard.conftest import HOSTILE, Flows, show, text_of
from tests.support.api_client import Client

FAILING = "name: nightly\nsteps:\n  - step: load\n    shell: echo no such table >&2; exit 3\n"
COMPLETED = "name: nightly\nsteps:\n  - step: load\n    shell: 'true'\n"
BROKEN_API = """
name: orders
breakers: {shop: {failures: 1, reset: 1h}}
steps:
  - step: pay
    shell: exit 4
    breaker: shop
"""
PARKED = "name: orders\nsteps:\n  - step: pay\n    shell: exit 4\n    triage: true\n"


def test_a_server_without_runs_says_what_to_do(pages: Client) -> None:
    found = show(pages, "/")

    assert "Nothing needs you" in text_of(found)
    assert 'href="/workflows"' in found


def test_what_fails_is_listed_by_workflow_and_code_with_its_step_and_the_list_of_its_runs(
    pages: Client, flows: Flows
) -> None:
    flows.run(FAILING)
    newest = flows.run(FAILING)

    found = show(pages, "/")

    assert "1 workflow fails" in text_of(found)
    assert "no such table" in text_of(found)
    assert f'href="/runs/{newest}/steps/load"' in found
    assert "/runs?workflow=nightly&amp;failure=EXIT_NONZERO&amp;status=failed&amp;since=14d" in found


def test_what_failed_in_the_night_is_shown_until_somebody_has_seen_it_though_a_later_run_completed(
    pages: Client, flows: Flows
) -> None:
    flows.run(FAILING)
    flows.run(FAILING)
    later = flows.run(COMPLETED)

    found = show(pages, "/")
    shown, _, folded = found.partition("<details")
    cookie, seen = re.search(r'data-cookie="(\w+)"', found), re.search(r'data-seen="(\d+)"', found)
    assert cookie and seen
    after = pages.request("GET", "/", headers={"cookie": f"{cookie[1]}={seen[1]}"}).body.decode()
    before = pages.request("GET", "/", headers={"cookie": f"{cookie[1]}={int(seen[1]) - 1}"}).body.decode()

    assert "2 runs failed and later ones completed" in text_of(found)
    assert f"completed since: run {later}" in text_of(shown)
    assert folded == ""
    assert "Nothing needs you" in text_of(after)
    assert f"completed since: run {later}" in text_of("<main" + after.partition("<details")[2])
    assert "data-seen" not in after
    assert "1 run failed and a later one completed" in text_of(before)


def test_a_cookie_that_says_nothing_hides_nothing(pages: Client, flows: Flows) -> None:
    flows.run(FAILING)
    flows.run(COMPLETED)
    cookie = re.search(r'data-cookie="(\w+)"', show(pages, "/"))
    assert cookie

    for value in ("", "x", "-1", "9" * 19, "9" * 400, "%00", "²"):
        found = pages.request("GET", "/", headers={"cookie": f"{cookie[1]}={value}"}).body.decode()
        assert "1 run failed and a later one completed" in text_of(found), value


def test_what_waits_for_a_person_leads_to_the_inbox(pages: Client, flows: Flows) -> None:
    run_id = flows.run(PARKED)

    found = show(pages, "/")

    assert "1 run waits for a person" in text_of(found)
    assert f"orders {run_id}" in text_of(found)
    assert "'pay' is parked" in text_of(found)


def test_a_day_has_a_bar_by_outcome_that_leads_to_its_runs(pages: Client, flows: Flows) -> None:
    flows.run(FAILING)
    flows.run(COMPLETED)

    found = pages.request("GET", "/", headers={"cookie": "mulligan_zone=Pacific%2FKiritimati"}).body.decode()

    assert "2 runs" in text_of(found)
    assert "1 completed, 1 failed" in found
    # Midnight there is ten o'clock in UTC.
    assert "T10%3A00%3A00%2B00%3A00&amp;until=" in found


def test_a_zone_that_there_is_not_is_utc(pages: Client, flows: Flows) -> None:
    flows.run(COMPLETED)

    for zone in ("../../etc/passwd", "Nowhere", "%00", ""):
        found = pages.request("GET", "/", headers={"cookie": f"mulligan_zone={zone}"})
        assert b"T00%3A00%3A00%2B00%3A00&amp;until=" in found.body


def test_hostile_names_and_messages_are_text(pages: Client, flows: Flows) -> None:
    flows.run(FAILING.replace("no such table", "'<script>alert(1)</script><img src=x onerror=alert(2)>'"))
    flows.start("name: '<b>x</b>'\nsteps:\n  - step: a\n    shell: 'true'\n", labels={"team": HOSTILE})

    found = show(pages, "/")

    assert "<script>alert" not in found
    assert "<img src=x" not in found
    assert "<b>x" not in found


def test_runs_that_nobody_works_on_are_said_first(pages: Client, flows: Flows) -> None:
    flows.start(COMPLETED)

    found = show(pages, "/")

    assert "<h1>No worker is here</h1>" in found
    assert "No worker is here, so nothing runs. Start one: mulligan worker" in text_of(found)


def test_what_is_due_next_leads_to_its_schedule(pages: Client) -> None:
    pages.put("workflows/nightly", {"text": COMPLETED})
    pages.put("schedules/early", {"workflow": "nightly", "every": "1h"})
    pages.put("schedules/late", {"workflow": "nightly", "every": "2h"})
    pages.post("schedules/late:pause", {"reason": "not now"})

    found = show(pages, "/")

    assert 'id="due-early"' in found
    assert 'id="due-late"' not in found
    assert "paused: late" in text_of(found)


def test_a_circuit_breaker_that_is_open_is_shown_with_what_it_holds_back(pages: Client, flows: Flows) -> None:
    flows.run(BROKEN_API)

    found = text_of(show(pages, "/"))

    assert "1 circuit breaker open" in found
    assert "shop open after 1 failure" in found
