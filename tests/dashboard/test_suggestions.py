"""Suggested rules: over HTTP, as a page, and as a draft."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.dashboard.conftest import HOSTILE, show, text_of
from tests.support.api_client import Client
from tests.support.histories import decided
from tests.support.stored_histories import store_runs

from mulligan.formats import examine
from mulligan.service.service import Service

TEXT = """\
name: nightly
steps:
  # the slow one
  - step: fetch
    shell: ./fetch.sh
    triage: true
"""
PAGE = "/recovery/suggestions"


@pytest.fixture
def filled(service: Service) -> Service:
    """Runs that people have retried. The message has exit code 1, so that the rule quotes it."""
    definition = examine(Path("nightly.yaml"), text=TEXT).workflow
    runs = [decided(definition, number, exit_code=1, message=f"{HOSTILE} was seen") for number in range(12)]
    store_runs(service, definition, runs)
    return service


def test_an_empty_server_has_nothing_to_propose(pages: Client) -> None:
    assert "Nothing to propose." in text_of(show(pages, PAGE))
    assert pages.get("suggestions").json["proposals"] == []


def test_a_proposal_is_shown_with_its_evidence_and_hostile_text_stays_text(pages: Client, filled: Service) -> None:
    html = show(pages, PAGE, since="all")
    text = text_of(html)

    assert "<script>alert" not in html and "onerror=alert(1)>" not in html
    assert "'fetch' failed 12 times in 12 runs with exit code 1" in text
    assert "people said retry 12 times, 12 of these worked" in text
    assert "retry: {pattern:" in text
    assert "Would have saved" in text and "12 decisions" in text
    assert "mulligan suggest FILE --write --pick" in text
    assert 'href="/runs/12"' in html
    assert 'href="/recovery/suggestions"' in show(pages, "/recovery")


def test_of_a_published_workflow_a_draft_is_made_and_the_editor_opens(pages: Client, filled: Service) -> None:
    filled.catalogue.publish("nightly", TEXT)

    assert "Make a draft" in text_of(show(pages, PAGE, since="all", workflow="nightly"))
    (proposal,) = pages.get("suggestions", workflow="nightly").json["proposals"]
    tried = pages.post("workflows/nightly:suggest", {"ids": [proposal["id"]], "dry_run": True})
    done = pages.post("workflows/nightly:suggest", {"ids": [proposal["id"]]})

    assert (tried.json["revision"], tried.json["dry_run"]) == (0, True)
    assert (done.status, done.json["written"], done.json["revision"]) == (200, [proposal["id"]], 1)
    (step,) = filled.catalogue.load("nightly").steps
    assert step.rules == ()
    filled.catalogue.publish_draft("nightly")
    (step,) = filled.catalogue.load("nightly").steps
    assert step.rules[0].pattern == proposal["change"]["pattern"]
    assert "# the slow one" in (filled.catalogue.workflow("nightly").text or "")


def test_what_is_not_there_is_refused(pages: Client, filled: Service) -> None:
    assert pages.get("suggestions", workflow="none").status == 404
    assert pages.get("suggestions", since="soon").status == 422
    assert pages.get("suggestions", step="none").status == 404
    assert pages.post("workflows/nightly:suggest", {}).status == 404
    filled.catalogue.publish("nightly", TEXT)
    assert pages.post("workflows/nightly:suggest", {"ids": ["none"]}).status == 404
    assert pages.post("workflows/nightly:suggest", {}, scope="read").status == 403
    assert "No run of this workflow" in text_of(show(pages, PAGE, workflow="none"))


def test_whoever_may_only_read_gets_no_button(pages: Client, filled: Service) -> None:
    filled.catalogue.publish("nightly", TEXT)

    reply = pages.get(PAGE, scope="read", since="all")

    assert b"Make a draft" not in reply.body and b"Proposal:" in reply.body
