"""What all pages have: logging in, the navigation, the state of the connection, the keyboard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.browser.conftest import NARROW, Site, Window, assert_accessible


def test_a_token_logs_in_and_leads_to_the_page_that_was_asked_for(browser: Any, site: Site) -> None:
    page = browser.new_page()
    page.goto(f"{site.url}/")

    page.get_by_label("Token").fill("mul_wrong")
    page.get_by_role("button", name="Log in").click()
    page.get_by_text("this token is not valid here").wait_for()
    page.get_by_label("Token").fill(site.token)
    page.get_by_role("button", name="Log in").click()

    page.get_by_role("navigation", name="Main").wait_for()
    page.close()


@pytest.mark.parametrize("site", ["sqlite", "postgres"], indirect=True)
def test_a_lost_server_is_shown_and_comes_back_without_a_reload(site: Site, window: Window) -> None:
    page = window.open("/")
    page.locator("#connection[data-state=live]").wait_for()
    page.evaluate("window.stillTheSame = true")
    port = site.port

    site.stop()
    page.locator("#connection[data-state=lost]").wait_for()
    site.start(port=port)

    page.locator("#connection[data-state=live]").wait_for()
    assert page.evaluate("window.stillTheSame") is True


def test_keys_go_to_pages_and_show_themselves(window: Window) -> None:
    page = window.open("/")

    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keyboard shortcuts").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("/")

    assert page.evaluate("document.activeElement.id") == "search"


def test_the_theme_is_chosen_and_kept(window: Window) -> None:
    page = window.open("/")

    page.get_by_role("button", name="Change the theme").click()
    page.reload()

    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_somebody_who_logs_out_sees_nothing(open_window: Callable[..., Window]) -> None:
    page = open_window().open("/")

    page.get_by_role("button", name="Log out").click()

    page.get_by_role("heading", name="Log in").wait_for()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_what_every_page_has_is_accessible(dark: bool, open_window: Callable[..., Window]) -> None:
    page = open_window(dark=dark, size=NARROW).open("/")
    page.locator("#connection[data-state=live]").wait_for()

    assert_accessible(page)


def test_a_hostile_text_that_is_executed_is_noticed(window: Window) -> None:
    window.watch_for_scripts()
    page = window.open("/")

    page.evaluate("window.hit(1)")

    assert window.problems == ["executed: hostile text 1"]
    window.problems.clear()


def test_the_entry_of_a_page_is_in_sight_on_a_narrow_screen(open_window: Callable[..., Window]) -> None:
    page = open_window(size=NARROW).open("/tokens")
    page.locator("#connection[data-state=live]").wait_for()

    found = page.get_by_role("navigation", name="Main").get_by_role("link", name="Tokens").bounding_box()

    assert 0 <= found["x"] <= NARROW["width"] - found["width"]
    assert page.evaluate("scrollY") == 0
