"""The overview of a run in a browser: what it says, what its button does, and how it follows the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.browser.conftest import NARROW, Site, Window

WAITS = """
name: waits
inputs: {file: {type: string}}
steps:
  - {step: first, shell: 'true'}
  - {step: second, needs: [first], shell: 'while [ ! -e ${inputs.file} ]; do sleep 0.05; done'}
  - {step: third, needs: [second], shell: 'true'}
"""
FAILS = """
name: fails
steps:
  - {step: fetch, shell: 'true'}
  - {step: load, needs: [fetch], shell: 'echo "disk is full" >&2; exit 3', retry: {max_retries: 1, delay: 0s}}
  - {step: report, needs: [load], shell: 'true'}
"""
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"


@pytest.mark.parametrize("site", ["sqlite", "postgres"], indirect=True)
def test_a_run_is_followed_without_loading_the_page_again(site: Site, window: Window, tmp_path: Path) -> None:
    file = tmp_path / "go"
    run_id = site.run("waits", WAITS, file=str(file))
    page = window.open(f"/runs/{run_id}")
    page.wait_for_selector("#run-counts li[data-status=running]:visible")
    page.evaluate("window.isTheSamePage = true")
    page.wait_for_selector(".gantt-row:nth-child(2) .now")

    file.touch()

    page.wait_for_selector("#run-reason.good")
    assert page.inner_text("#why") == "Completed"
    page.wait_for_function("() => document.querySelectorAll('.gantt-row .good').length >= 3")
    assert page.inner_text("#run-counts li[data-status=completed] b") == "3"
    assert page.evaluate("window.isTheSamePage") is True


def test_the_button_of_a_failed_run_shows_what_would_run_and_retries_it(site: Site, window: Window) -> None:
    run_id = site.run("fails", FAILS)
    page = window.open(f"/runs/{run_id}")
    page.wait_for_selector("#run-reason.bad")
    assert page.inner_text("#why") == "'load' failed, and nothing handled it"

    page.click("#run-reason button")
    page.wait_for_selector("dialog .preview >> text=load")
    page.click("dialog button[type=submit]")

    # The dialog speaks of the round before it has begun.
    page.wait_for_selector(f"text=run {run_id}, round 2")
    assert site.ask("GET", f"runs/{run_id}")["round"] == 2


def test_the_mosaic_is_reached_by_keyboard_and_opens_a_step(site: Site, window: Window) -> None:
    run_id = site.run("fails", FAILS)
    page = window.open(f"/runs/{run_id}")
    page.wait_for_selector("#run-reason.bad")
    page.wait_for_function("() => performance.getEntriesByName('run-data').length")

    page.focus("#mosaic")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#mosaic-said >> text=fetch: completed")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#mosaic-said >> text=load: failed")
    page.keyboard.press("Enter")

    page.wait_for_url(f"**/runs/{run_id}/steps/load")


def test_completed_steps_can_be_hidden(site: Site, window: Window) -> None:
    run_id = site.run("fails", FAILS)
    page = window.open(f"/runs/{run_id}")
    page.wait_for_selector("#run-reason.bad")
    page.wait_for_selector(".gantt-row >> text=fetch")

    page.check("#hide-completed")

    page.wait_for_selector(".gantt-row >> text=fetch", state="detached")
    page.focus("#mosaic")
    page.keyboard.press("Home")
    page.wait_for_selector("#mosaic-said >> text=load: failed")


def test_what_a_step_says_is_text_also_in_the_charts(site: Site, window: Window) -> None:
    text = json.dumps({"name": "bad", "steps": [{"step": "a", "shell": f"echo '{HOSTILE}' >&2; exit 1"}]})
    run_id = site.run("bad", text)
    page = window.open(f"/runs/{run_id}")
    page.wait_for_selector("#run-reason.bad")

    page.focus("#mosaic")
    page.keyboard.press("Home")

    page.wait_for_selector("#mosaic-said >> text=<script>alert(1)</script>")
    assert page.query_selector("main img, main script") is None


def test_a_narrow_page_does_not_scroll_sideways(site: Site, open_window: Callable[..., Any]) -> None:
    run_id = site.run("fails", FAILS)
    page = open_window(size=NARROW).open(f"/runs/{run_id}")
    page.wait_for_selector("#run-reason.bad")
    page.wait_for_selector(".gantt-row >> text=load")

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
