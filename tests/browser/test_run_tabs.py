"""The tabs of a run, what can be done with it, and two runs beside each other, in a browser."""

from __future__ import annotations

from typing import Any

import pytest
from tests.browser.conftest import Site, Window

FAILING = """
name: nightly
inputs: {day: {type: string, default: monday}, rows: {type: integer, default: 3}}
steps:
  - {step: fetch, shell: 'echo fetched ${inputs.day} ${inputs.rows}'}
  - step: load
    needs: [fetch]
    shell: 'test "${inputs.day}" = sunday || { echo "connection refused" >&2; exit 7; }'
    next:
      - {to: publish}
      - {to: repair, on: failure, codes: [EXIT_NONZERO]}
  - {step: publish, shell: 'true'}
  - {step: repair, shell: 'exit 3'}
"""
# Runs until the file is there.
HELD = """
name: held
steps:
  - {step: wait, shell: 'while [ ! -e GO ]; do sleep 0.05; done'}
  - {step: after, needs: [wait], shell: 'true'}
"""


def ended(site: Site, run_id: int, status: str = "failed") -> int:
    """Wait until the run has this status."""
    site.command("wait", str(run_id), "--timeout", "60s")
    assert site.ask("GET", f"runs/{run_id}")["status"] == status
    return run_id


@pytest.fixture
def failed(site: Site) -> int:
    return ended(site, site.run("nightly", FAILING))


@pytest.fixture
def held(site: Site) -> Any:
    """A run that goes on until `release` is called."""
    text = HELD.replace("GO", str(site.folder / "go"))
    run_id = site.run("held", text)
    yield run_id
    (site.folder / "go").touch()


def confirm(page: Any, label: str) -> None:
    page.locator("dialog").get_by_role("button", name=label, exact=True).click()


def test_the_graph_leads_to_the_page_of_a_step(window: Window, failed: int) -> None:
    page = window.open(f"/runs/{failed}?tab=graph")

    assert page.locator(".line.failure.taken").count() == 1
    page.locator("svg.page-graph a", has_text="repair").click()

    page.wait_for_url(f"**/runs/{failed}/steps/repair")


def test_the_graph_around_a_step_is_found_by_its_name(window: Window, failed: int) -> None:
    page = window.open(f"/runs/{failed}?tab=graph")

    page.get_by_label("Show what is around this step").fill("publish")
    page.keyboard.press("Enter")

    page.locator(".neighbours").wait_for()
    assert page.locator(".node.chosen").get_attribute("data-step") == "publish"


def test_a_retry_says_what_would_run_and_runs_it(window: Window, site: Site, failed: int) -> None:
    page = window.open(f"/runs/{failed}?tab=grid")

    page.get_by_role("button", name="Retry", exact=True).click()
    page.locator(".plan-sentence", has_text="Round 2 would run 3 steps and keep the results of 1").wait_for()
    page.get_by_label("Reason (optional)").fill("the database is back")
    confirm(page, "Retry")

    page.get_by_role("columnheader", name="Round 2").wait_for()
    assert site.ask("GET", f"runs/{failed}")["round"] == 2


def test_a_retry_from_a_step_runs_it_and_what_follows(window: Window, failed: int) -> None:
    page = window.open(f"/runs/{failed}?tab=grid")

    page.locator("#row-load").get_by_role("button", name="Retry from here").click()
    page.get_by_label("Begin with").select_option("fetch")

    page.locator(".plan-sentence", has_text="would run 4 steps").wait_for()


def test_a_fork_with_another_input_starts_another_run(window: Window, site: Site, failed: int) -> None:
    page = window.open(f"/runs/{failed}")

    page.get_by_role("button", name="Fork", exact=True).click()
    dialog = page.locator("dialog")
    dialog.locator(".plan-sentence", has_text="The new run would run").wait_for()
    page.get_by_label("From step").select_option("fetch")
    dialog.get_by_label("day").fill("sunday")
    dialog.get_by_label("rows").fill("many")
    dialog.get_by_label("day").focus()
    page.get_by_text("the input 'rows' is not JSON").wait_for()
    dialog.get_by_label("rows").fill("3")
    dialog.get_by_label("day").focus()
    page.locator(".plan-sentence", has_text="would run 4 steps").wait_for()
    confirm(page, "Start the fork")

    page.wait_for_url(f"**/runs/{failed + 1}")
    ended(site, failed + 1, "completed")
    assert site.ask("GET", f"runs/{failed + 1}")["inputs"] == {"day": "sunday", "rows": 3}


def test_a_fork_with_an_edited_text_runs_that_text(window: Window, site: Site, failed: int) -> None:
    page = window.open(f"/runs/{failed}")
    page.get_by_role("button", name="Fork", exact=True).click()
    dialog = page.locator("dialog")
    dialog.locator(".plan-sentence", has_text="The new run would run").wait_for()

    dialog.get_by_label("Definition").select_option("an edited text")
    text = dialog.get_by_label("Text")
    text.fill(text.input_value() + "  oops")
    dialog.get_by_role("alert").get_by_text("oops").or_(dialog.locator(".problem:not(:empty)")).first.wait_for()
    text.fill(
        "name: nightly\nsteps:\n  - {step: fetch, shell: 'true'}\n  - {step: mended, needs: [fetch], shell: 'true'}\n"
    )
    dialog.get_by_label("From step").select_option("fetch")
    dialog.locator(".plan-names code", has_text="mended").wait_for()
    confirm(page, "Start the fork")

    page.wait_for_url(f"**/runs/{failed + 1}")
    ended(site, failed + 1, "completed")
    assert site.ask("GET", f"runs/{failed + 1}/steps/mended")["status"] == "completed"


def test_a_run_is_paused_resumed_and_cancelled(window: Window, site: Site, held: int) -> None:
    page = window.open(f"/runs/{held}?tab=grid")
    page.locator("#row-wait .mark.now").wait_for()

    page.get_by_role("button", name="Pause", exact=True).click()
    page.locator(".plan-row", has_text="wait: attempt 1").wait_for()
    confirm(page, "Pause")
    page.get_by_role("button", name="Resume", exact=True).click()
    confirm(page, "Resume")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.locator(".plan-row", has_text="Would be asked to stop").wait_for()
    page.get_by_label("Skip cleanup and undo").check()
    confirm(page, "Cancel the run")

    page.locator("#run-status", has_text="cancelled").wait_for()
    assert site.ask("GET", f"runs/{held}")["status"] == "cancelled"


def test_events_and_statuses_arrive_while_the_run_goes_on(window: Window, site: Site, held: int) -> None:
    page = window.open(f"/runs/{held}?tab=events")
    page.locator("#event-1").wait_for()
    graph = window.page.context.new_page()
    graph.goto(f"{site.url}/runs/{held}?tab=graph")
    graph.locator(".node.is-running", has_text="wait").wait_for()

    (site.folder / "go").touch()

    page.locator(".feed li", has_text="run.completed").wait_for()
    graph.locator(".node.is-completed", has_text="after").wait_for()


def test_the_filter_of_the_events_and_the_stored_event(window: Window, failed: int) -> None:
    page = window.open(f"/runs/{failed}?tab=events")

    page.get_by_role("link", name="Failures").click()
    page.locator("summary", has_text="attempt.failed").first.click()

    page.locator(".raw[open] pre", has_text='"type":"attempt.failed"').wait_for()
    assert page.locator("summary", has_text="attempt.started").count() == 0


def test_completed_steps_are_hidden(window: Window, failed: int) -> None:
    page = window.open(f"/runs/{failed}?tab=grid")

    page.get_by_role("button", name="Hide completed").click()

    page.locator("#hide-completed[aria-pressed=true]").wait_for()
    assert page.locator("tbody tr").all_text_contents()[0].startswith("load")
    assert page.locator("#row-fetch").count() == 0


def test_two_runs_are_compared(window: Window, site: Site, failed: int) -> None:
    other = ended(site, site.run("nightly", FAILING.replace("exit 3", "exit 4"), day="sunday"), "completed")
    page = window.open(f"/runs/{failed}")

    page.get_by_role("link", name="Compare").click()
    page.get_by_role("link", name=f"Run {other}").click()

    page.get_by_text("1 input differs; the definition differs").wait_for()
    assert page.locator("#step-load .status").all_text_contents() == ["failed", "completed"]
    assert page.locator(".diff .added").count() == 1


# -- replay ----------------------------------------------------------------------------------------------------------


def test_the_slider_moves_everything_by_keys_and_its_address_can_be_shared(window: Window, failed: int) -> None:
    page = window.open(f"/runs/{failed}?tab=replay&at=2")
    slider, steps = page.locator("#replay-at"), page.locator(".replay-steps")
    assert "waiting" in steps.inner_text()

    slider.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.wait_for_selector("#replay[data-seq='6']")

    assert page.url.endswith("at=6")
    assert page.locator("#replay-sentence").inner_text().startswith("Event 6 of")
    moved = page.locator("#replay").inner_text()
    page.reload()
    assert page.locator("#replay").inner_text() == moved
    assert slider.input_value() == "6"


def test_play_goes_on_to_the_last_event_and_stops_there(window: Window, failed: int) -> None:
    page = window.open(f"/runs/{failed}?tab=replay")
    last = int(page.locator("#replay-at").get_attribute("max"))
    page.goto(f"{window.site.url}/runs/{failed}?tab=replay&at={last - 2}")

    page.locator("#replay-play").click()
    page.wait_for_selector(f"#replay[data-seq='{last}']")

    page.wait_for_selector("#replay-play:text-is('Play')")


def test_a_run_that_goes_on_gets_a_longer_slider_and_stays_where_it_is(window: Window, held: int, site: Site) -> None:
    while site.ask("GET", f"runs/{held}").get("seq", 0) < 4:
        pass
    page = window.open(f"/runs/{held}?tab=replay&at=2")
    before = page.locator("#replay-at").get_attribute("max")

    (site.folder / "go").touch()

    page.wait_for_selector(f"#replay-at:not([max='{before}'])")
    assert page.locator("#replay-sentence").inner_text().startswith("Event 2 of")
    assert page.url.endswith("at=2")


def test_a_fork_is_started_from_the_point_that_is_shown(window: Window, failed: int, site: Site) -> None:
    page = window.open(f"/runs/{failed}?tab=replay&at=4")

    page.locator("#replay-fork").click()
    confirm(page, "Fork here")

    page.wait_for_url(f"**/runs/{failed + 1}")
    assert site.ask("GET", f"runs/{failed + 1}")["workflow"] == "nightly"
