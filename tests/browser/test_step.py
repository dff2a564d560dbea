"""The page of a step in a browser: its log with search and links, its items, its buttons, its keys."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from tests.browser.conftest import NARROW, Site, Window

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"' onmouseover=alert(1) &lt;b&gt; </textarea>"
FAILING = """
name: nightly
steps:
  - step: first
    shell: exit 1
  - step: fetch
    shell: |
      for i in $(seq 2000); do echo "line $i"; done
      printf '\\033[1;31mERROR\\033[0m <b>refused</b>\\n' >&2
      exit 3
  - step: last
    shell: exit 2
"""
FOLLOWED = """
name: followed
steps:
  - step: talk
    shell: |
      echo begun
      until test -e go; do sleep 0.05; done
      for i in $(seq 300); do echo "more $i"; done
      until test -e stop; do sleep 0.05; done
      exit 4
    retry: 1
"""
ITEMS = """
name: sweep
inputs: {count: {type: integer, default: 3000}}
steps:
  - step: list
    python: |
      def main(count):
          return [{"n": i} for i in range(count)]
    args: {count: '${inputs.count}'}
  - step: each
    needs: [list]
    map: {over: '${steps.list.output}'}
    do: [{shell: "test ${item.n} != 7 -a ${item.n} != 42 || { echo \\"bad row ${item.n}\\" >&2; exit 5; }"}]
"""
PARKED = "name: parked\nsteps:\n  - step: fetch\n    shell: 'test -e fixed'\n    triage: true\n"


def ended(site: Site, run_id: int) -> None:
    site.command("wait", str(run_id), "--timeout", "60")


def test_the_log_of_a_failed_step_opens_at_its_error_with_its_colours(site: Site, window: Window) -> None:
    run_id = site.run("nightly", FAILING)
    ended(site, run_id)

    page = window.open(f"/runs/{run_id}/steps/fetch")

    line = page.locator(".log-line").last
    # The rows are there before their text.
    line.locator(".ansi-1").wait_for()
    assert line.locator(".line-text").inner_text() == "ERROR <b>refused</b>"
    assert line.locator(".ansi-1.ansi-bold").inner_text() == "ERROR"
    page.get_by_role("button", name="stdout", exact=True).click()
    page.locator(".line-text", has_text=re.compile("^line 2000$")).wait_for()
    assert page.locator(".log-line").count() < 100


def test_search_counts_and_moves_and_a_line_has_a_link(site: Site, window: Window) -> None:
    run_id = site.run("nightly", FAILING)
    ended(site, run_id)
    page = window.open(f"/runs/{run_id}/steps/fetch?attempt=1&stream=stdout#L1000")
    page.locator(".log-line.marked", has_text="line 1000").wait_for()

    box = page.get_by_role("searchbox", name="Search the log")
    box.fill("LINE 19")
    page.get_by_text("not found").wait_for()
    box.fill("line 199")
    page.get_by_text("2 of 11 lines").wait_for()
    page.locator(".log-line.hit", has_text="line 1990").wait_for()
    box.press("Enter")
    page.get_by_text("3 of 11 lines").wait_for()
    box.press("Shift+Enter")
    box.press("Shift+Enter")
    page.get_by_text("1 of 11 lines").wait_for()
    hit = page.locator(".log-line.hit")
    assert hit.locator("mark").inner_text() == "line 199"
    hit.locator(".line-number").click()

    assert page.url.endswith("place=fetch&attempt=1&stream=stdout#L199")


def test_a_log_is_followed_through_a_retry(site: Site, window: Window) -> None:
    run_id = site.run("followed", FOLLOWED)
    page = window.open(f"/runs/{run_id}/steps/talk")
    page.locator(".line-text", has_text="begun").wait_for()
    work = site.home / "work"

    (work / "go").touch()
    page.locator(".line-text", has_text=re.compile("^more 300$")).wait_for()
    (work / "stop").touch()

    page.locator(".badge", has_text="failed").wait_for()
    page.get_by_label("Attempt", exact=True).locator("option", has_text="attempt 2, failed").wait_for(state="attached")
    page.get_by_role("row", name=re.compile("retry 1 of 1")).wait_for()


def test_items_are_listed_with_failures_first_and_filtered(site: Site, window: Window) -> None:
    run_id = site.run("sweep", ITEMS, count=400)
    ended(site, run_id)
    page = window.open(f"/runs/{run_id}/steps/each")

    rows = page.locator(".item-box .item-row")
    rows.nth(1).get_by_text("bad row 42").wait_for()
    assert rows.nth(0).inner_text().split("\n")[0] == "7"
    assert rows.count() < 60
    page.locator(".item-box").evaluate("one => { one.scrollTop = one.scrollHeight; }")
    page.locator(".item-row", has_text="n=399").wait_for()
    page.get_by_role("button", name="failed 2").click()
    rows.nth(2).wait_for(state="detached")
    assert page.url.endswith("?status=failed")
    page.get_by_role("link", name="42", exact=True).click()

    page.get_by_role("heading", name="each[42]").wait_for()
    page.locator(".line-text", has_text="bad row 42").wait_for()
    page.keyboard.press("p")
    page.get_by_role("heading", name="each[7]").wait_for()


def test_n_and_p_go_through_the_failed_steps(site: Site, window: Window) -> None:
    run_id = site.run("nightly", FAILING)
    ended(site, run_id)
    page = window.open(f"/runs/{run_id}/steps/fetch")
    page.locator(".log-line").first.wait_for()

    page.keyboard.press("n")
    page.wait_for_url(f"**/runs/{run_id}/steps/last")
    page.locator("#connection[data-state=live]").wait_for()
    page.keyboard.press("p")

    page.wait_for_url(f"**/runs/{run_id}/steps/fetch")


@pytest.mark.parametrize("site", ["sqlite", "postgres"], indirect=True)
def test_a_parked_step_is_retried_and_its_page_follows(site: Site, window: Window) -> None:
    run_id = site.run("parked", PARKED)
    page = window.open(f"/runs/{run_id}/steps/fetch")
    page.locator(".badge", has_text="parked").wait_for()
    (site.home / "work" / "fixed").touch()

    page.get_by_role("button", name="Retry step").click()
    page.get_by_label("Reason").fill("the file is there now")
    page.get_by_role("button", name="Run it again").click()

    page.locator(".badge", has_text="completed").wait_for()
    assert site.ask("GET", f"runs/{run_id}/steps/fetch")["attempts"] == 2


def test_hostile_text_in_logs_items_and_outputs_is_shown_as_text(
    site: Site, open_window: Callable[..., Window]
) -> None:
    printed = repr(HOSTILE + "\x1b]8;;javascript:alert(1)\x07link\x1b]8;;\x07\u202e\x1b[999;999H")
    text = f"""
name: hostile
steps:
  - step: says
    python: |
      def main():
          print({printed})
          return [{{{printed}: {printed}}}]
  - step: each
    needs: [says]
    map: {{over: '${{steps.says.output}}'}}
    do: [{{shell: 'printf "%s\\n" "$V" >&2; exit 1', env: {{V: '${{string(item)}}'}}}}]
"""
    run_id = site.run("hostile", text.replace("${string(item)}", "${item}"))
    ended(site, run_id)
    window = open_window(size=NARROW)
    page = window.page
    page.on("dialog", lambda one: window.problems.append(f"a dialog: {one.message}"))

    for path, place in (("says", ".line-text"), ("each", ".item-row b"), ("each/items/0", ".line-text")):
        window.open(f"/runs/{run_id}/steps/{path}")
        page.locator(place).first.wait_for()
        assert page.locator("main script, main img, main [onmouseover]").count() == 0

    window.open(f"/runs/{run_id}/steps/says")
    page.locator(".line-text", has_text="<script>alert(1)</script>").wait_for()
    assert "\\u202e" in page.locator(".line-text").first.inner_text()
