"""The page that opens first, in a browser."""

from __future__ import annotations

from tests.browser.conftest import Site, Window

FLOW = """
inputs: {code: {type: integer, default: 0}}
steps:
  - step: load
    shell: "echo no such table: orders_raw >&2; exit ${inputs.code}"
"""


def test_failures_that_were_seen_are_folded_away_until_something_else_fails(site: Site, window: Window) -> None:
    site.publish("nightly", FLOW)
    site.settle(site.start_run("nightly", code=3))
    site.settle(site.start_run("nightly"))
    page = window.open("/")

    page.get_by_role("heading", name="1 run failed and a later one completed").wait_for()
    page.locator("#recent tbody tr", has_text="no such table").wait_for()
    page.get_by_role("button", name="Mark as seen").click()

    page.get_by_role("heading", name="Nothing needs you").wait_for()
    assert page.evaluate("document.activeElement.id") == "main"
    page.reload()
    assert page.locator("#over tbody tr").is_hidden()

    site.settle(site.start_run("nightly", code=4))
    site.settle(site.start_run("nightly"))
    page.get_by_role("heading", name="1 run failed and a later one completed").wait_for()
    page.locator("#recent tbody tr .runs", has_text="1").wait_for()
