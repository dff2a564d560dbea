"""The page of coverage: the table, the story of a chosen cell, findings that lead to the editor; and its bounds."""

from __future__ import annotations

import pytest
from tests.support.api_client import Client

from mulligan.service.authoring import served_coverage

from .conftest import HOSTILE, show, text_of

NIGHTLY = """\
steps:
  - {step: fetch, shell: ./fetch.sh, timeout: 1m, retry: 1}
  - {step: load, needs: [fetch], shell: ./load.sh}
"""


def publish(pages: Client, text: str = NIGHTLY) -> None:
    reply = pages.put("workflows/nightly", {"text": text})
    assert reply.status == 200, reply.body


def test_the_table_stands_behind_a_tab_of_the_workflow(pages: Client) -> None:
    publish(pages)

    html = show(pages, "/workflows/nightly/coverage", scope="read")

    assert 'href="/workflows/nightly/coverage"' in show(pages, "/workflows/nightly", scope="read")
    assert "4 of 11 failures are dealt with; 7 fail the run" in text_of(html)
    assert 'aria-label="fetch, TIMEOUT: recovered if it happens once, fails the run if it goes on"' in html
    assert "<style" not in html and "style=" not in html and "<script>" not in html


def test_a_chosen_cell_shows_its_story(pages: Client) -> None:
    publish(pages)
    asked = {"step": "fetch", "failure": "TIMEOUT"}

    always = show(pages, "/workflows/nightly/coverage", scope="read", **asked)
    once = show(pages, "/workflows/nightly/coverage", scope="read", times="once", **asked)

    assert "attempt 2 failed with TIMEOUT after 60s" in text_of(always)
    assert "the run completed: a retry dealt with it; 2 attempts" in text_of(once)
    assert "step=fetch&amp;failure=TIMEOUT#story" in always
    assert 'aria-current="true">✓✗</a>' in always


def test_a_case_that_does_not_exist_is_said_beside_the_table(pages: Client) -> None:
    publish(pages)

    unknown = show(pages, "/workflows/nightly/coverage", scope="read", step="fetc", failure=HOSTILE)

    assert "No such case" in text_of(unknown)
    assert "did you mean" in text_of(unknown)
    assert HOSTILE not in unknown
    assert pages.get("/workflows/other/coverage").status == 404


def test_findings_lead_to_their_line_in_the_editor(pages: Client) -> None:
    publish(pages, NIGHTLY.replace(", retry: 1", ""))

    assert 'href="/workflows/nightly/edit?version=1#line-2"' in show(pages, "/workflows/nightly/coverage", scope="read")


def test_an_earlier_version_stays_the_one_that_is_shown(pages: Client) -> None:
    publish(pages)
    publish(pages, NIGHTLY.replace("retry: 1", "continue_on_error: true"))

    old = show(pages, "/workflows/nightly/coverage", scope="read", version=1)

    assert "version=1&amp;step=fetch" in old
    assert "7 fail the run" in text_of(old)
    assert "7 fail the run" not in text_of(show(pages, "/workflows/nightly/coverage", scope="read"))


def test_a_workflow_with_too_many_steps_is_not_played(pages: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(pages, "steps: [{step: 's_{i}', matrix: {i: 1..30}, shell: 'true'}]")
    monkeypatch.setattr(served_coverage, "STEPS_MAX", 20)

    assert "the workflow has 30 steps, and a server plays at most 20" in text_of(
        show(pages, "/workflows/nightly/coverage", scope="read")
    )


def test_work_that_takes_too_long_is_cut_and_the_page_says_so(pages: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(pages, NIGHTLY + "  - {step: third, shell: 'true'}\n")
    monkeypatch.setattr(served_coverage, "SECONDS_MAX", 0.0)

    assert "not all failures were played: the time was up" in text_of(
        show(pages, "/workflows/nightly/coverage", scope="read")
    )
