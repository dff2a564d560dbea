"""Every page of the dashboard, on a server that has hostile text everywhere.

Each loads on both databases and executes nothing; each can be read by everybody, on a telephone and on paper.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.browser.conftest import NARROW, Site, Window, assert_accessible
from tests.browser.furnished import PAGES, PLAIN_PAGES, Shown, furnish

from mulligan.dashboard.pages import PAGES as ROUTES
from mulligan.testing.postgres import own_schema

ALL = {**PAGES, **PLAIN_PAGES}
EACH = pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in ALL])
A4 = {"width": 718, "height": 1047}
# Elements and attributes that none of our pages has: one of them is a text that became more than text.
STRANGE = """() => [...document.querySelectorAll("body *")].filter((one) =>
    ["iframe", "img", "math", "object", "template", "base"].includes(one.localName)
    || (one.localName === "script" && one.textContent.includes("hit("))
    || [...one.attributes].some(({ name }) => name.startsWith("on"))
    || ["href", "src", "action", "formaction"].some((name) => /^\\s*javascript:/i.test(one.getAttribute(name)))
  ).map((one) => one.outerHTML.slice(0, 200))"""
# What somebody reaches with Tab and does not see: nothing changes in it, in what it draws, or in its row.
UNSEEN = """() => {
  document.activeElement.blur();
  const NAMES = ["outlineStyle", "outlineWidth", "stroke", "strokeWidth", "fill", "left"];
  const found = [];
  for (const one of document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")) {
    if (one.disabled || one.tabIndex < 0 || !one.checkVisibility({ visibilityProperty: true })) continue;
    const drawn = one.querySelector(".card, .hit");
    const around = [one, one.closest("li, tr"), drawn, one.nextElementSibling].filter(Boolean);
    const look = () => around.map((part) => NAMES.map((name) => getComputedStyle(part)[name]).join()).join(" | ");
    const before = look();
    one.focus();
    if (document.activeElement === one && look() === before) found.push(one.outerHTML.slice(0, 200));
    one.blur();
  }
  return found;
}"""


@pytest.fixture(scope="module", params=["sqlite"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One server with everything for all tests of this file: none of them changes anything."""
    folder = tmp_path_factory.mktemp("furnished")
    if request.param == "sqlite":
        yield from _furnished(Site(folder))
    else:
        with own_schema(request.getfixturevalue("server_url")) as url:
            yield from _furnished(Site(folder, url))


def _furnished(site: Site) -> Iterator[Site]:
    site.start()
    try:
        furnish(site)
        yield site
    finally:
        site.stop()


def shown(window: Window, name: str) -> Any:
    """The page, complete, with all of its details opened."""
    asked: Shown = ALL[name]
    page = window.open(asked.path)
    page.locator(asked.part).first.wait_for()
    if name in PAGES:
        page.locator("#connection[data-state=live]").wait_for()
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    return page


def test_every_page_is_listed() -> None:
    paths = [one.path.partition("?")[0].partition("#")[0] for one in PAGES.values()]
    routes = [one.path for one in ROUTES.routes if one.is_page]

    missing = [route for route in routes if not any(re.fullmatch(_pattern(route), path) for path in paths)]

    assert routes
    assert missing == []


def _pattern(route: str) -> str:
    return re.sub(r"\{\w+(:int)?\}", lambda found: r"\d+" if found[1] else "[^/]+", route)


@pytest.mark.parametrize("site", ["sqlite", "postgres"], indirect=True)
@EACH
def test_a_page_shows_everything_as_text(window: Window, name: str) -> None:
    window.watch_for_scripts()
    page = shown(window, name)

    assert page.evaluate(STRANGE) == []
    assert ("window.hit(" in page.locator("body").inner_text()) is ALL[name].is_hostile


@EACH
def test_everybody_can_use_a_page_in_light_and_dark(window: Window, name: str) -> None:
    page = shown(window, name)

    assert_accessible(page)
    page.emulate_media(color_scheme="dark")
    assert_accessible(page)
    # What has the focus after Tab shows it; what a script gives it to then, as well.
    page.keyboard.press("Tab")
    assert page.evaluate(UNSEEN) == []


@EACH
def test_a_page_fits_a_telephone_and_paper(open_window: Callable[..., Window], name: str) -> None:
    page = shown(open_window(size=NARROW, dark=True), name)

    assert _is_within(page)
    page.set_viewport_size(A4)
    page.emulate_media(media="print")
    assert _is_within(page)
    # On paper there is nothing to press, and it is black on white, whatever the theme is.
    assert page.locator("button:visible, .sidebar:visible, .top:visible").count() == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("h1").first.is_visible()


def _is_within(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))
