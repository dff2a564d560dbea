"""Schedules, recovery, usage, workers, audit, tokens and notices in a browser: each button does what it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.browser.conftest import NARROW, Site, Window, assert_accessible

HELLO = "inputs: {who: {default: world}}\nsteps:\n  - step: hello\n    shell: echo hi ${inputs.who}\n"
HELD = """
breakers: {mainframe: {failures: 1, reset: 1h}}
steps:
  - step: call
    shell: exit 1
    breaker: mainframe
"""
FAILED = (
    "labels: {note: '<img src=x onerror=hit(1)>'}\nsteps:\n  - step: hello\n    shell: echo '<b>no</b>' >&2; exit 3\n"
)


def dialog(page: Any, name: str) -> Any:
    found = page.get_by_role("dialog", name=name)
    found.wait_for()
    return found


@pytest.mark.parametrize("site", ["sqlite", "postgres"], indirect=True)
def test_a_schedule_is_made_with_a_preview_paused_resumed_backfilled_and_removed(site: Site, window: Window) -> None:
    site.publish("hello", HELLO)
    page = window.open("/schedules")

    page.get_by_role("link", name="New schedule").click()
    page.get_by_label("Name").fill("nightly")
    page.get_by_label("Workflow").fill("hello")
    page.get_by_label("Time zone").fill("Asia/Tokyo")
    page.get_by_label("who").fill("${schedule.dat}")
    page.locator("#form-problem", has_text="did you mean 'date'?").wait_for()
    page.get_by_label("who").fill("${schedule.date}")
    page.get_by_label("Cron", exact=True).fill("30 2 * *")
    page.locator("#form-problem", has_text="cron").wait_for()
    page.get_by_label("Cron", exact=True).fill("30 2 * * *")
    page.locator("#preview tbody tr").nth(9).wait_for()
    page.locator("#preview", has_text=", 02:30").wait_for()
    page.locator("#preview tbody tr", has_text="who=20").nth(9).wait_for()
    page.get_by_role("button", name="Make the schedule").click()

    page.get_by_role("heading", name="nightly", exact=True).wait_for()
    made = site.ask("GET", "schedules/nightly")
    assert (made["cron"], made["timezone"], made["workflow"]) == ("30 2 * * *", "Asia/Tokyo", "hello")
    assert made["inputs"] == {"who": "${schedule.date}"}

    page.get_by_role("button", name="Pause").click()
    asked = dialog(page, "Pause nightly")
    asked.get_by_label("Reason").fill("<b>moving</b>")
    asked.get_by_role("button", name="Pause").click()
    page.get_by_text("Paused by root: <b>moving</b>").or_(page.get_by_text("<b>moving</b>")).first.wait_for()
    assert site.ask("GET", "schedules/nightly")["is_paused"] is True
    page.get_by_role("button", name="Resume").click()
    dialog(page, "Resume nightly").get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Pause").wait_for()

    page.get_by_role("button", name="Backfill…").click()
    asked = dialog(page, "Backfill nightly")
    asked.get_by_text("1 start:").wait_for()
    assert "with who=20" in asked.inner_text()
    asked.get_by_role("button", name="Start them").click()
    # The calendar shows the run without a reload.
    page.locator(".calendar a.instant").first.wait_for()

    page.get_by_role("button", name="Remove").click()
    dialog(page, "Remove nightly?").get_by_role("button", name="Remove the schedule").click()
    page.get_by_text("No schedules yet.").wait_for()
    assert site.ask("GET", "schedules")["schedules"] == []


def test_a_form_that_somebody_overtook_is_refused(site: Site, window: Window) -> None:
    site.publish("hello", HELLO)
    site.ask("PUT", "schedules/nightly", {"workflow": "hello", "every": "6h"})
    page = window.open("/schedules/nightly/edit")
    page.locator("#preview tbody tr").first.wait_for()

    site.ask("PUT", "schedules/nightly", {"workflow": "hello", "every": "7h"})
    page.get_by_label("Every").fill("8h")
    page.get_by_role("button", name="Save").click()

    page.locator("#form-problem", has_text="nightly").wait_for()
    assert site.ask("GET", "schedules/nightly")["every"] == 7 * 3600


def test_an_open_breaker_is_reset(site: Site, window: Window) -> None:
    page = window.open("/recovery")
    page.locator("#connection[data-state=live]").wait_for()
    # It opens while we look.
    run_id = site.run("held", HELD)
    page.get_by_role("button", name="Reset").click()

    dialog(page, "Close the breaker mainframe").get_by_role("button", name="Close the breaker").click()

    page.locator("#breaker-mainframe .status.good").wait_for()
    assert site.ask("GET", "breakers")["breakers"][0]["status"] == "closed"
    assert site.ask("GET", f"runs/{run_id}")["status"] == "failed"


def test_a_token_is_made_its_secret_shown_once_and_it_is_revoked(site: Site, window: Window) -> None:
    page = window.open("/tokens")
    page.get_by_role("button", name="New token").click()
    asked = dialog(page, "New token")
    asked.get_by_label("For whom").fill("ci")
    asked.get_by_label(re.compile("^run:")).check()
    asked.get_by_text("Limits").click()
    asked.get_by_label("Only these workflows").fill("hello, nightly")
    asked.get_by_role("button", name="Make the token").click()

    secret = page.locator(".secret code").inner_text()
    assert secret.startswith("mul_")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="I have kept it").click()
    page.get_by_text("only hello, nightly").wait_for()
    assert secret not in page.content()
    made = site.ask("GET", "tokens")["tokens"][0]
    assert (made["user"], made["scopes"], made["workflows"]) == ("ci", ["read", "run"], ["hello", "nightly"])

    page.get_by_role("button", name="Revoke").first.click()
    dialog(page, "Revoke the token of ci?").get_by_role("button", name="Revoke").click()
    page.get_by_text("1 expired or revoked").wait_for()
    page.goto(f"{site.url}/audit")
    page.get_by_label("What was changed").select_option("DELETE /api/v1/tokens/{token_id}")
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("table", name="Audit").get_by_role("link", name="DELETE tokens/{token_id}").wait_for()


def test_a_token_for_an_agent_shows_its_guard_rails_before_it_is_made(site: Site, window: Window) -> None:
    page = window.open("/tokens")
    page.get_by_role("button", name="New token").click()
    asked = dialog(page, "New token")
    asked.get_by_label("For whom").fill("night")
    asked.get_by_label(re.compile("^it is an agent")).check()
    assert asked.get_by_label("Decisions an hour").input_value() == "20"
    assert asked.get_by_label(re.compile("^admin:")).is_disabled()
    asked.get_by_label("fail", exact=True).uncheck()
    asked.get_by_label("Sure of a decision").fill("0.8")
    asked.get_by_role("button", name="Make the token").click()
    page.get_by_role("button", name="I have kept it").click()

    page.get_by_text("20 decisions an hour; may decide retry; at least 80% sure").wait_for()
    made = site.ask("GET", "tokens")["tokens"][0]
    assert (made["user"], made["scopes"], made["verdicts"]) == ("agent:night", ["read", "decide"], ["retry"])


def test_the_rules_for_all_workflows_are_edited(site: Site, window: Window) -> None:
    page = window.open("/notices")

    page.get_by_role("button", name="Edit").click()
    asked = dialog(page, "Rules for all workflows")
    asked.get_by_label("As JSON").fill('[{"on": ["nonsense"], "to": ["ops"]}]')
    asked.get_by_role("button", name="Save").click()
    asked.locator(".problem:not(:empty)").wait_for()
    asked.get_by_label("As JSON").fill('[{"on": ["failed"], "to": ["ops"]}]')
    asked.get_by_role("button", name="Save").click()

    page.get_by_role("table", name="Rules").get_by_text("ops").wait_for()
    assert site.ask("GET", "hooks")["rules"] == [{"on": ["failed"], "to": ["ops"]}]


def test_the_report_of_a_run_works_behind_its_policy(site: Site, window: Window) -> None:
    run_id = site.run("hello", FAILED)
    page = window.open(f"/runs/{run_id}")
    page.get_by_text("failed").first.wait_for()

    page.get_by_role("link", name="Report").click()

    page.locator(".timeline .track").first.wait_for()
    assert page.evaluate("getComputedStyle(document.querySelector('.track')).display") == "block"


@pytest.mark.parametrize("dark", [False, True])
def test_every_page_is_accessible_and_executes_nothing(
    site: Site, open_window: Callable[..., Window], dark: bool
) -> None:
    hostile = "<img src=x onerror=hit(2)>"
    site.run("hello", FAILED)
    site.run("held", HELD)
    site.ask("PUT", "schedules/nightly", {"workflow": "hello", "cron": "30 2 * * *", "labels": {"note": hostile}})
    site.ask("POST", "schedules/nightly:backfill", {"from": "2026-01-01T00:00:00Z", "to": "2026-01-20T00:00:00Z"})
    site.ask("PUT", "schedules/often", {"workflow": "hello", "every": "1h"})
    site.ask("POST", "schedules/often:pause", {"reason": hostile})
    site.ask("POST", "tokens", {"user": hostile, "scopes": ["read"], "note": hostile})
    paths = "/schedules /schedules/nightly /schedules/nightly/edit /recovery /usage /usage?workflow=hello /workers"

    for size in ({"width": 1280, "height": 860}, NARROW):
        window = open_window(size=size, dark=dark)
        window.watch_for_scripts()
        for path in (*paths.split(), "/workers/doctor", "/audit", "/tokens", "/notices", "/schedules/new"):
            page = window.open(path)
            page.locator("#connection[data-state=live]").wait_for()
            # A page is never wider than the window: what is wide scrolls inside it.
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            if size != NARROW:
                assert_accessible(page)
