"""The page that opens first and the list of runs, in a browser: filters, views, many runs at once, live, keyboard."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from tests.browser.conftest import HOSTILE_TEXTS, NARROW, Site, Window, assert_accessible

FAILING = "name: nightly\nlabels: {team: data}\nsteps:\n  - step: load\n    shell: echo no such table >&2; exit 3\n"
PARKED = "name: orders\nsteps:\n  - step: pay\n    shell: exit 4\n    triage: true\n"
WAITING = "name: long\nsteps:\n  - step: wait\n    shell: sleep 300\n"


def runs_here(site: Site) -> None:
    """A run that failed, one that is parked, and one that goes on; all as they will stay."""
    for name, text in (("nightly", FAILING), ("orders", PARKED)):
        site.settle(site.run(name, text))
    site.run("long", WAITING)


@pytest.mark.parametrize("site", ["sqlite", "postgres"], indirect=True)
def test_a_run_that_fails_appears_without_a_reload(site: Site, window: Window) -> None:
    page = window.open("/")
    page.get_by_role("heading", name="Nothing needs you").wait_for()
    page.locator("#connection[data-state=live]").wait_for()

    run_id = site.run("nightly", FAILING)

    page.get_by_role("heading", name="1 workflow fails").wait_for()
    page.get_by_role("table", name="Failing workflows").get_by_role("link", name="nightly").click()
    page.wait_for_url(f"**/runs/{run_id}")


def test_the_bar_of_a_day_leads_to_its_runs(site: Site, window: Window) -> None:
    run_id = site.run("nightly", FAILING)
    site.settle(run_id)
    page = window.open("/")

    page.locator("svg.days a").focus()
    page.keyboard.press("Enter")

    page.wait_for_url("**/runs?workflow=nightly&since=*&until=*")
    page.locator(f"#run-{run_id}").wait_for()


def test_filters_apply_at_once_and_a_view_is_kept(site: Site, window: Window) -> None:
    runs_here(site)
    page = window.open("/runs")

    page.get_by_label("Workflow").fill("nightly")
    page.get_by_label("Workflow").press("Enter")
    page.wait_for_url("**/runs?workflow=nightly")
    page.get_by_role("button", name="Save this view").click()
    page.get_by_label("Name").fill("Every <b>night</b>")
    page.get_by_role("button", name="Save", exact=True).click()
    window.open("/runs")
    page.get_by_role("link", name="Every <b>night</b>").click()

    page.wait_for_url("**/runs?workflow=nightly")
    assert page.locator("tbody tr").count() == 1
    page.get_by_role("button", name="Forget the view Every <b>night</b>").click()
    assert page.get_by_role("link", name="Every <b>night</b>").count() == 0


def test_many_runs_are_cancelled_and_each_result_is_said(site: Site, window: Window) -> None:
    runs_here(site)
    page = window.open("/runs")

    page.get_by_label("Select run 1").check()
    page.get_by_label("Select run 3").check()
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_label("Reason (optional)").fill("not today")
    page.get_by_role("button", name="Cancel the runs").click()

    dialog = page.get_by_role("dialog")
    dialog.get_by_role("heading", name="1 of 2 done").wait_for()
    assert "is being cancelled" in dialog.inner_text()
    assert "ended" in dialog.inner_text()
    dialog.get_by_role("button", name="Close").click()
    page.locator("#run-3", has_text="cancelled").wait_for()
    assert site.ask("GET", "runs/3")["reason"] == "not today"


def test_many_runs_are_retried_with_the_keyboard_alone(site: Site, window: Window) -> None:
    site.settle(site.run("nightly", FAILING))
    page = window.open("/runs")
    page.locator("#connection[data-state=live]").wait_for()

    page.keyboard.press("j")
    page.keyboard.press("x")
    page.get_by_role("button", name="Retry…").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Retry the runs").focus()
    page.keyboard.press("Enter")

    page.get_by_role("dialog").get_by_role("heading", name="Done").wait_for()
    page.keyboard.press("Escape")
    page.locator("#run-1", has_text="round 2").wait_for()


def test_a_selection_outlives_a_refresh(site: Site, window: Window) -> None:
    site.settle(site.run("nightly", FAILING))
    page = window.open("/runs")
    page.locator("#connection[data-state=live]").wait_for()

    page.get_by_label("Select run 1").check()
    run_id = site.run("nightly")

    page.locator(f"#run-{run_id}").wait_for()
    assert page.get_by_label("Select run 1").is_checked()
    assert page.locator("#selected-count").inner_text() == "1 run selected"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_both_pages_are_accessible_and_fit_a_narrow_screen(
    dark: bool, site: Site, open_window: Callable[..., Window]
) -> None:
    runs_here(site)
    wide, narrow = open_window(dark=dark), open_window(dark=dark, size=NARROW)

    for path in ("/", "/runs", "/runs?workflow=nightly&label=team=data&since=24h"):
        for window in (wide, narrow):
            page = window.open(path)
            page.locator("#connection[data-state=live]").wait_for()
            assert_accessible(page)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_hostile_texts_stay_text(site: Site, window: Window) -> None:
    # What a shell gets is an expression where it has "${".
    spoken = " ".join(shlex.quote(text) for text in HOSTILE_TEXTS if "${" not in text)
    step = json.dumps(f"printf '%s ' {spoken} >&2; exit 3")
    site.publish("nightly", f"name: nightly\nsteps:\n  - step: load\n    shell: {step}\n")
    labels = {f"label-{number}": text[:180] for number, text in enumerate(HOSTILE_TEXTS) if text.isprintable()}
    run_id = site.ask("POST", "runs", {"workflow": "nightly", "labels": labels})["run_id"]
    site.settle(run_id)
    window.watch_for_scripts()

    for path in (
        "/",
        "/runs",
        f"/runs?{urlencode({'label': f'label-0={HOSTILE_TEXTS[0]}', 'text': HOSTILE_TEXTS[1]})}",
    ):
        page = window.open(path)
        page.locator("#connection[data-state=live]").wait_for()
        assert page.locator("main script, main img, main iframe, main style").count() == 0
