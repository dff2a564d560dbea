"""The inbox with a keyboard alone, with two people at once, and while things change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.browser.conftest import NARROW, Site, Window, assert_accessible

BOTH = pytest.mark.parametrize("site", ["sqlite", "postgres"], indirect=True)
PARKED = """name: nightly
steps:
  - step: load
    shell: 'test -e fixed || { echo "no space left" >&2; exit 74; }'
    triage: true
  - step: check
    needs: [load]
    shell: 'true'
"""
APPROVAL = "name: release\nsteps:\n  - step: ship\n    approve: {message: 'Ship 4.2?'}\n"
HOSTILE = """<script>window.executed = 1</script><img src=x onerror="window.executed = 1">"""


def waiting(site: Site, page: Any, number: int) -> None:
    """Wait until so many entries are in the list, without loading the page again."""
    rows = page.locator(".entries li")
    if number:
        rows.nth(number - 1).wait_for()
    rows.nth(number).wait_for(state="detached")
    assert site.ask("GET", "pending")["total"] == number


def parked(site: Site, page: Any, times: int) -> list[int]:
    runs = [site.run("nightly", PARKED if not number else "") for number in range(times)]
    waiting(site, page, times)
    return runs


def test_a_run_that_waits_leads_to_its_entry_which_is_ready_for_a_key(site: Site, window: Window) -> None:
    page = window.open("/inbox")
    _, second = parked(site, page, 2)

    page.goto(f"{page.url.partition('/inbox')[0]}/runs/{second}")
    page.locator("#run-status", has_text="waits for a decision").wait_for()
    page.get_by_role("link", name="Decide").click()

    page.locator(f".entries li[data-run='{second}'][data-current] a:focus").wait_for()
    page.keyboard.press("r")
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("load: attempt 2 would start").wait_for()
    assert dialog.get_by_text("preview").count() == 0
    dialog.get_by_label("Reason").fill("again")
    page.keyboard.press("Control+Enter")
    page.locator(".toast").get_by_role("link", name=f"Open run {second}").click()
    page.wait_for_url(f"**/runs/{second}")


@BOTH
def test_one_decides_with_the_keyboard_alone_and_the_run_goes_on(site: Site, window: Window) -> None:
    page = window.open("/inbox")
    page.get_by_text("Nothing waits for a person.").wait_for()
    first, second = parked(site, page, 2)

    page.keyboard.press("j")
    page.keyboard.press("j")
    page.get_by_label(f"load of run {second}").get_by_text("EXIT_NONZERO 74: no space left").wait_for()
    page.keyboard.press("f")
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("nothing would start").or_(dialog.locator(".preview li")).first.wait_for()
    page.keyboard.type("the volume is full")
    page.keyboard.press("Control+Enter")

    waiting(site, page, 1)
    page.locator(f"li[data-run='{first}'] a:focus").wait_for()
    page.get_by_label(f"load of run {first}").get_by_text("the volume is full").wait_for()
    page.get_by_text("failed with EXIT_NONZERO; the run failed").wait_for()
    assert site.ask("GET", f"runs/{second}")["status"] == "failed"


def test_all_of_one_error_are_selected_and_decided_about_together(site: Site, window: Window) -> None:
    page = window.open("/inbox")
    parked(site, page, 3)
    site.run("release", APPROVAL)
    waiting(site, page, 4)
    (site.home / "work" / "fixed").touch()

    page.keyboard.press("j")
    page.keyboard.press("e")
    page.get_by_role("toolbar").get_by_text("3 selected").wait_for()
    page.keyboard.press("r")
    page.get_by_role("dialog").get_by_text("3 steps; 3 attempts would start").wait_for()
    page.keyboard.type("the volume was doubled")
    page.keyboard.press("Control+Enter")

    waiting(site, page, 1)
    page.keyboard.press("j")
    page.keyboard.press("a")
    page.get_by_role("dialog").get_by_role("heading", name="Approve ship").wait_for()
    page.keyboard.type("tested")
    page.keyboard.press("Control+Enter")
    page.get_by_text("Nothing waits for a person.").wait_for()


@BOTH
def test_the_second_of_two_people_is_told_who_was_first(site: Site, open_window: Callable[..., Window]) -> None:
    ada, ben = open_window().open("/inbox"), open_window().open("/inbox")
    (run_id,) = parked(site, ada, 1)
    waiting(site, ben, 1)
    ben.keyboard.press("j")
    ben.keyboard.press("f")
    ben.get_by_role("dialog").locator(".preview li").first.wait_for()
    ben.keyboard.type("it looks hopeless")
    (site.home / "work" / "fixed").touch()

    ada.keyboard.press("j")
    ada.keyboard.press("r")
    ada.get_by_role("dialog").locator(".preview li").first.wait_for()
    ada.keyboard.type("the volume was doubled")
    ada.keyboard.press("Control+Enter")

    # What he typed is still there, and the dialog says why it does not count.
    dialog = ben.get_by_role("dialog")
    dialog.get_by_text("already classified as retry").wait_for()
    assert dialog.get_by_label("Reason").input_value() == "it looks hopeless"
    assert ben.evaluate("document.activeElement.id") == "decision-reason"
    assert dialog.get_by_role("button", name="Let fail").is_disabled()
    ben.keyboard.press("Escape")
    ben.get_by_text("Decided: retry").wait_for()
    waiting(site, ben, 0)
    assert site.ask("GET", f"runs/{run_id}")["status"] in ("running", "completed")


def test_what_changes_meanwhile_takes_neither_focus_nor_text_nor_selection(site: Site, window: Window) -> None:
    page = window.open("/inbox")
    first, _ = parked(site, page, 2)
    page.locator(f"li[data-run='{first}'] .one").check()
    page.locator(f"li[data-run='{first}'] a").focus()
    page.keyboard.press("r")
    page.get_by_role("dialog").locator(".preview li").first.wait_for()
    page.keyboard.type("half a rea")

    site.run("nightly")
    waiting(site, page, 3)
    page.keyboard.type("son")

    assert page.get_by_label("Reason").input_value() == "half a reason"
    page.keyboard.press("Escape")
    assert page.locator(f"li[data-run='{first}'] .one").is_checked()
    assert page.locator(f"li[data-run='{first}']").get_attribute("data-current") is not None


def test_whatever_a_step_or_a_person_says_is_text(site: Site, window: Window) -> None:
    page = window.open("/inbox")
    quoted = HOSTILE.replace("'", "'\\''")
    text = (
        f"name: odd\nsteps:\n  - step: load\n    shell: |\n      echo '{quoted}' >&2\n      exit 3\n    triage: true\n"
    )
    first = site.run("odd", text)
    waiting(site, page, 1)
    decision = {"run_id": first, "step": "load", "verdict": "retry", "reason": HOSTILE}
    site.ask("POST", "decisions", {"decisions": [decision]})
    page.get_by_text("parked again with EXIT_NONZERO").wait_for()

    page.keyboard.press("j")
    page.keyboard.press("f")
    page.get_by_role("dialog").locator(".preview li").first.wait_for()

    assert page.evaluate("window.executed") is None
    assert page.locator("main img, main script").count() == 0


def test_on_a_telephone_the_details_follow_the_list(site: Site, open_window: Callable[..., Window]) -> None:
    page = open_window(size=NARROW).open("/inbox")
    parked(site, page, 2)

    page.locator(".entries li a").nth(1).click()

    page.get_by_role("button", name="Retry").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_and_its_dialog_are_accessible(site: Site, open_window: Callable[..., Window], dark: bool) -> None:
    page = open_window(dark=dark).open("/inbox")
    parked(site, page, 2)
    site.run("release", APPROVAL)
    waiting(site, page, 3)

    page.keyboard.press("e")
    page.get_by_role("toolbar").wait_for()
    assert_accessible(page)
    page.keyboard.press("r")
    page.get_by_role("dialog").locator(".preview li").first.wait_for()
    assert_accessible(page, within="dialog")


def test_a_suggestion_of_an_agent_is_accepted_with_one_key(site: Site, window: Window) -> None:
    port = site.port
    site.stop()
    answer = '{"verdict": "fail", "confidence": 0.3, "reason": "the disk is full"}'
    site.variables["MULLIGAN_AGENT_NIGHT"] = f"echo '{answer}'"
    site.start(port=port)
    page = window.open("/inbox")
    run_id = site.run("nightly", PARKED.replace("triage: true", "triage: {by: agent, agent: night}"))
    waiting(site, page, 1)

    page.get_by_text("Not applied: it is not sure enough (30% is below 80%).").wait_for()
    page.locator(".entries a").first.focus()
    page.keyboard.press("y")

    page.get_by_text("decided as the agent suggests").wait_for()
    waiting(site, page, 0)
    site.settle(run_id)
    assert "agreed with agent 'night': the disk is full" in site.command("explain", str(run_id)).stdout
