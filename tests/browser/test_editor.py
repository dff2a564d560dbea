"""Workflows and their editor: problems as you type, the graph beside the text, drafts, publishing, running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from tests.browser.conftest import NARROW, Site, Window, assert_accessible

TEXT = """\
# Loads the warehouse.
inputs:
  day: {type: string}
  rows: {type: integer, default: 10}
steps:
  - step: fetch  # slow
    shell: echo "${inputs.day}" "${inputs.rows}"
  # what mends it
  - {step: repair, shell: 'true'}
  - step: load
    needs: [fetch]
    shell: 'true'
"""


def open_editor(window: Window, site: Site, text: str = TEXT) -> Any:
    site.publish("nightly", text)
    page = window.open("/workflows/nightly/edit")
    page.locator("#graph [data-step=fetch]").wait_for()
    return page


def append(page: Any, text: str) -> None:
    page.locator(".cm-content").click()
    page.keyboard.press("Control+End")
    page.keyboard.insert_text(text)


def test_an_error_is_shown_with_a_caret_while_somebody_types(site: Site, window: Window) -> None:
    page = open_editor(window, site)

    append(page, "    need: [fetch]\n")

    page.locator("#problems pre.caret", has_text="^^^^ did you mean 'needs'?").wait_for()
    page.locator(".cm-lintRange-error", has_text="need").wait_for()
    assert page.locator("#graph.old").count() == 1
    assert page.get_by_role("button", name="Publish").is_disabled()
    page.keyboard.press("Control+z")
    page.locator("#problems:empty").wait_for(state="attached")
    page.locator("#graph:not(.old)").wait_for()


def test_a_step_leads_to_its_line_and_a_line_to_its_step(site: Site, window: Window) -> None:
    page = open_editor(window, site)

    page.locator("#graph [data-step=load]").click()
    page.locator(".cm-activeLine", has_text="step: load").wait_for()
    page.keyboard.press("ArrowUp")

    page.locator("#graph .here[data-step=repair]").wait_for()
    page.keyboard.press("Control+Home")
    page.locator("#graph .here").wait_for(state="detached")


def test_a_failure_edge_is_dragged_and_written_into_the_text(site: Site, window: Window) -> None:
    page = open_editor(window, site)

    page.locator("#graph [data-step=fetch]").drag_to(page.locator("#graph [data-step=repair]"))
    page.get_by_label("when fetch fails, run repair, then rerun fetch").check()
    page.get_by_role("button", name="Write it into the text").click()

    page.locator('#graph path.failure[data-from="fetch"][data-to="repair"]').wait_for(state="attached")
    page.locator("#draft-state[data-state=saved]").wait_for()
    draft = site.ask("GET", "workflows/nightly/draft")["text"]
    mended = '"${inputs.rows}"\n    next: {to: repair, on: failure, then: rerun}\n'
    assert draft == TEXT.replace('"${inputs.rows}"\n', mended)


def test_a_step_is_added_by_a_dialog_together_with_its_edge(site: Site, window: Window) -> None:
    page = open_editor(window, site)

    page.locator("#graph [data-step=load]").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="On failure…").click()
    page.get_by_label("when load fails, go to").check()
    page.get_by_label("Name of the new step").fill("notify")
    page.get_by_label("What it does").fill("echo failed")
    page.get_by_label("Only for these exit codes").fill("TIMEOUT")
    page.get_by_role("button", name="Write it into the text").click()

    page.locator("#graph [data-step=notify]").wait_for()
    page.locator("#draft-state[data-state=saved]").wait_for()
    draft = site.ask("GET", "workflows/nightly/draft")["text"]
    assert (
        draft
        == TEXT + "    next: {to: notify, on: failure, codes: [TIMEOUT]}\n  - step: notify\n    shell: echo failed\n"
    )


def test_a_retry_for_an_exit_code_is_written_by_the_dialog_and_shown_before_it_is_published(
    site: Site, window: Window
) -> None:
    page = open_editor(window, site)

    page.locator("#graph [data-step=load]").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="On failure…").click()
    page.get_by_label("Only for these exit codes").fill("75")
    page.get_by_role("button", name="Write it into the text").click()
    page.locator("#draft-state[data-state=saved]").wait_for()
    page.get_by_role("button", name="Publish").click()

    page.locator(".changes .added", has_text="retry:").wait_for()
    draft = yaml.safe_load(site.ask("GET", "workflows/nightly/draft")["text"])
    load = next(one for one in draft["steps"] if one["step"] == "load")
    assert load["retry"] == {"exit_codes": [75], "max_retries": 2, "delay": "10s"}


def test_a_new_workflow_takes_the_name_that_is_right_in_the_end(site: Site, window: Window) -> None:
    site.publish("nightly", TEXT)
    page = window.open("/workflows/new")
    name, state = page.get_by_label("Name of the workflow"), page.locator("#draft-state")

    for wrong, words in (("My Flow!", "letters, digits"), ("nightly", "there is a workflow 'nightly' already")):
        name.fill(wrong)
        append(page, "    # more\n")
        state.filter(has_text=words).wait_for()
    name.fill("my-flow")
    name.press("Enter")
    name.blur()
    page.locator("#draft-state[data-state=saved]").wait_for()

    assert "# more" in site.ask("GET", "workflows/my-flow/draft")["text"]
    assert "more" not in site.ask("GET", "workflows/nightly")["text"]


def test_what_cannot_be_saved_is_kept_in_the_tab_and_saved_when_the_server_answers(site: Site, window: Window) -> None:
    page = open_editor(window, site)
    page.route("**/draft", lambda route: route.abort())
    append(page, "    # not yet saved\n")
    page.locator("#draft-state[data-state=lost]").wait_for()

    page.on("dialog", lambda dialog: dialog.accept())
    page.reload()
    page.locator(".cm-line", has_text="# not yet saved").wait_for()
    page.unroute("**/draft")
    page.locator("#draft-state[data-state=saved]").wait_for()

    assert "# not yet saved" in site.ask("GET", "workflows/nightly/draft")["text"]


def test_a_mistake_is_said_in_the_form_and_the_text_stays(site: Site, window: Window) -> None:
    page = open_editor(window, site)

    page.get_by_role("button", name="Add a step").click()
    page.get_by_label("Name of the new step").fill("two words")
    page.get_by_label("What it does").fill("echo")
    page.get_by_role("button", name="Write it into the text").click()

    page.locator("dialog [role=alert]", has_text="two words").wait_for()
    page.keyboard.press("Escape")
    assert page.locator(".cm-line", has_text="two words").count() == 0


def test_what_the_server_refuses_is_said_in_the_dialog(site: Site, window: Window) -> None:
    page = open_editor(window, site)

    page.get_by_role("button", name="Add a step").click()
    page.get_by_label("Name of the new step").fill("fetch")
    page.get_by_label("What it does").fill("echo")
    page.get_by_role("button", name="Write it into the text").click()

    page.get_by_role("alert").filter(has_text="there is a step 'fetch' already").wait_for()


def test_keys_and_steps_are_completed_and_explained(site: Site, window: Window) -> None:
    page = open_editor(window, site)

    append(page, "    tim")
    # For a moment after the list opens the editor takes Enter for a new line, so that nobody chooses by accident.
    page.locator(".cm-tooltip-autocomplete li", has_text="timeout").click()
    page.keyboard.insert_text("5m\n")
    page.keyboard.insert_text("    next: re")
    page.keyboard.press("Control+Space")
    page.locator(".cm-tooltip-autocomplete", has_text="repair").wait_for()
    page.keyboard.press("Escape")
    page.locator(".cm-line", has_text="timeout: 5m").wait_for()
    page.locator(".cm-line", has_text="needs: [fetch]").locator("span", has_text="needs").first.hover()

    page.locator(".cm-help", has_text="steps that must end first").wait_for()


def test_a_second_editor_sees_both_texts_and_nothing_is_overwritten(
    site: Site, open_window: Callable[..., Window]
) -> None:
    first, second = open_window(), open_window()
    one = open_editor(first, site)
    other = second.open("/workflows/nightly/edit")
    other.locator("#graph [data-step=fetch]").wait_for()

    append(one, "# of the first\n")
    one.locator("#draft-state[data-state=saved]").wait_for()
    append(other, "# of the second\n")

    dialog = other.get_by_role("dialog", name="Somebody else has changed this draft")
    dialog.locator(".differs", has_text="# of the first").wait_for()
    dialog.locator(".differs", has_text="# of the second").wait_for()
    assert site.ask("GET", "workflows/nightly/draft")["text"] == TEXT + "# of the first\n"
    dialog.get_by_role("button", name="Take theirs").click()
    other.locator(".cm-line", has_text="# of the first").wait_for()
    assert other.locator(".cm-line", has_text="# of the second").count() == 0


def test_a_draft_is_kept_over_a_reload_published_with_a_note_and_compared(site: Site, window: Window) -> None:
    page = open_editor(window, site)

    append(page, "# more\n")
    page.locator("#draft-state[data-state=saved]").wait_for()
    page.reload()
    page.locator(".cm-line", has_text="# more").wait_for()
    page.get_by_role("button", name="Publish").click()
    page.get_by_text("It becomes version 2.").wait_for()
    page.get_by_label("What changed").fill("a comment")
    page.get_by_role("dialog").get_by_role("button", name="Publish").click()

    page.wait_for_url("**/workflows/nightly")
    page.get_by_role("link", name="Versions").click()
    page.locator(".diff .added", has_text="# more").wait_for()
    page.get_by_text("a comment").wait_for()


def test_a_new_workflow_gets_its_name_and_is_saved(site: Site, window: Window) -> None:
    page = window.open("/workflows/new")

    page.get_by_label("Name of the workflow").fill("fresh")
    page.keyboard.press("Tab")
    page.wait_for_url("**/workflows/fresh/edit")
    page.locator("#draft-state[data-state=saved]").wait_for()
    page.get_by_role("button", name="Publish").click()
    page.get_by_role("dialog").get_by_role("button", name="Publish").click()

    page.wait_for_url("**/workflows/fresh")
    assert site.ask("GET", "workflows/fresh")["version"] == 1


def test_a_file_of_another_system_is_opened_and_converted_beside(site: Site, window: Window) -> None:
    page = window.open("/workflows/new")
    page.locator("#graph .node").first.wait_for()

    torc = b"name: two\njobs:\n  - name: first\n    command: echo 1\n"
    page.locator("#file").set_input_files({"name": "two.yaml", "mimeType": "text/yaml", "buffer": torc})
    page.get_by_text("This is a file of torc.").wait_for()
    page.get_by_role("button", name="Show it as a Mulligan file").click()
    page.locator("#converted", has_text="step: first").wait_for()
    page.get_by_role("button", name="Use this text").click()

    page.locator(".cm-line", has_text="step: first").wait_for()
    page.locator("#foreign").wait_for(state="hidden")


def test_a_run_is_started_with_typed_inputs(site: Site, window: Window) -> None:
    site.publish("nightly", TEXT)
    page = window.open("/workflows")

    page.get_by_role("link", name="Run nightly").click()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("alert").filter(has_text="it is needed").wait_for()
    page.get_by_label("day").fill("monday")
    page.get_by_label("rows").fill("many")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("alert").filter(has_text="it must be a whole number").wait_for()
    page.get_by_label("rows").fill("7")
    page.get_by_label("Labels").fill("team=data")
    page.get_by_role("button", name="Run", exact=True).click()

    page.wait_for_url("**/runs/1")
    run = site.ask("GET", "runs/1")
    assert run["inputs"] == {"day": "monday", "rows": 7}
    assert run["labels"]["team"] == "data"


@pytest.mark.parametrize(
    "path",
    [
        "/workflows",
        "/workflows/nightly",
        "/workflows/nightly?tab=run",
        "/workflows/nightly?tab=versions",
        "/workflows/nightly/edit",
        "/workflows/new",
    ],
)
def test_everybody_can_read_the_pages(site: Site, open_window: Callable[..., Window], path: str) -> None:
    site.publish("nightly", TEXT)
    site.publish("nightly", TEXT + "# two\n")
    page = open_window(size=NARROW, dark=True).open(path)
    page.locator("#connection[data-state=live]").wait_for()

    assert_accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_was_not_saved_when_a_session_ended_is_there_again(site: Site, window: Window) -> None:
    page = open_editor(window, site)
    page.route("**/api/v1/**/draft", lambda route: route.abort())

    append(page, "# not saved\n")
    page.locator("#draft-state[data-state=lost]").wait_for()
    page.on("dialog", lambda asked: asked.accept())
    page.unroute("**/api/v1/**/draft")
    page.reload()

    page.locator(".cm-line", has_text="# not saved").wait_for()
    page.locator("#draft-state[data-state=saved]").wait_for()
    assert site.ask("GET", "workflows/nightly/draft")["text"] == TEXT + "# not saved\n"
