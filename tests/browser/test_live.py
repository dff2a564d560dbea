"""Many tabs at once, and a server that goes away and comes back: every kind of page stays live."""

from __future__ import annotations

from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.browser.conftest import Site, Window
from tests.browser.furnished import PAGES, furnish

BOTH = pytest.mark.parametrize("site", ["sqlite", "postgres"], indirect=True)
# Runs until the file is there.
HELD = """
name: held
steps:
  - {step: wait, shell: 'echo begun; while [ ! -e GO ]; do sleep 0.05; done; echo ended'}
  - {step: after, needs: [wait], shell: 'exit 7', triage: true}
"""
# Twelve pages, and what shows on each that the step 'after' of run 1 is parked.
TABS = {
    "/": "#waiting-1",
    "/runs": "#run-1 .ask",
    "/runs?status=open": "#run-1 .ask",
    "/runs/1": "#run-reason.ask",
    "/runs/1?tab=graph": ".node.is-pending_failed",
    "/runs/1?tab=grid": "#row-after .mark.bad",
    "/runs/1?tab=events": ".feed li:has-text('step.parked')",
    "/runs/1/steps/after": ".badge:has-text('parked')",
    "/runs/1/steps/wait": ".badge:has-text('completed')",
    "/inbox": ".entries li[data-run='1']",
    "/workflows": "#inbox-count:has-text('1')",
    "/schedules": "#inbox-count:has-text('1')",
}


def open_streams(site: Site) -> int:
    """How many live streams the server has."""
    connection = HTTPConnection(urlsplit(site.url).netloc)
    try:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {site.token}"})
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    (line,) = (one for one in text.splitlines() if one.startswith("mulligan_http_streams "))
    return int(float(line.split()[1]))


def tabs(window: Window, site: Site, paths: list[str]) -> dict[str, Any]:
    """A tab of the same browser for each of the addresses, all of them live."""
    found = {}
    for path in paths:
        found[path] = window.page.context.new_page()
        found[path].goto(site.url + path)
    for page in found.values():
        page.locator("#connection[data-state=live]").wait_for()
        page.evaluate("window.stillTheSame = true")
    return found


@BOTH
def test_twelve_tabs_of_a_browser_are_live_by_one_stream(site: Site, window: Window) -> None:
    go = site.folder / "go"
    run_id = site.run("held", HELD.replace("GO", str(go)))
    assert run_id == 1
    found = tabs(window, site, [*TABS])
    assert open_streams(site) == 1

    go.touch()

    for path, page in found.items():
        page.locator(TABS[path]).first.wait_for()
        assert page.evaluate("window.stillTheSame") is True, path
    assert open_streams(site) == 1


def test_every_page_shows_that_the_server_is_away_and_goes_on_when_it_is_back(site: Site, window: Window) -> None:
    furnish(site)
    found = tabs(window, site, [one.path for one in PAGES.values()])
    waiting = site.ask("GET", "pending?limit=1")["total"]
    port = site.port

    site.stop()
    for path, page in found.items():
        page.locator("#connection[data-state=lost]").wait_for()
        assert page.locator("h1").first.is_visible(), path
    site.start(port=port)
    for page in found.values():
        page.locator("#connection[data-state=live]").wait_for()
    site.start_run("asks", text="one more")

    # What happens from then on arrives: two entries more wait for a person. The page is the one that was opened.
    for path, page in found.items():
        page.locator(f"#inbox-count:has-text('{waiting + 2}')").wait_for()
        assert page.evaluate("window.stillTheSame") is True, path


def test_a_page_that_could_not_be_rendered_is_asked_for_again_although_nothing_more_happens(
    site: Site, window: Window
) -> None:
    site.publish("short", "name: short\nsteps: [{step: only, shell: 'true'}]\n")
    page = window.open("/runs")
    page.locator("#connection[data-state=live]").wait_for()
    run_id = 1
    refused = []

    def refuse(route: Any) -> None:
        """As a server does whose database is away: until the run has ended, and three times more."""
        has_ended = site.ask("GET", "runs?status=completed")["runs"] != []
        if refused.count(True) == 3:
            return route.continue_()
        refused.append(has_ended)
        return route.fulfill(status=503)

    # The stream stays open.
    page.route("**/runs", refuse)
    assert site.start_run("short") == run_id

    page.locator(f"#run-{run_id}").wait_for()
    assert refused.count(True) == 3
