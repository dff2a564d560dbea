"""Rules from the runs of a store: what is read, what is asked for, and drafts of published workflows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.histories import PARKS, T0, decided
from tests.support.stored_histories import store_runs

from mulligan.analysis.suggest.changes import AddRule
from mulligan.errors import NotFound, Refused, UnknownStep
from mulligan.formats import examine
from mulligan.service.authoring.suggest import choose
from mulligan.service.home import Home
from mulligan.service.service import Service

TEXT = """\
name: test
steps:
  # the slow one
  - step: fetch
    shell: ./fetch.sh
    triage: true
"""
DEFINITION = examine(Path("test.yaml"), text=TEXT).workflow
RULE = AddRule("fetch", 1, 240.0, exit_codes=(11,))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(Home(tmp_path / "home"), "ada") as opened:
        yield opened


@pytest.fixture
def filled(service: Service) -> Service:
    store_runs(service, DEFINITION, [decided(DEFINITION, number) for number in range(12)])
    return service


def test_an_empty_store_has_nothing_to_propose(service: Service):
    found = service.workflows.suggest()

    assert (found.proposals, found.nearly, found.looked_at.runs) == ([], [], 0)


def test_the_runs_of_a_store_are_read_and_say_what_to_change(filled: Service):
    found = filled.workflows.suggest()

    (proposal,) = found.proposals
    assert proposal.change == RULE
    assert proposal.yaml == "- step: fetch\n  retry: {exit_codes: [11], max_retries: 1, delay: 4m}"
    assert proposal.counted.run_ids == (12, 11, 10, 9, 8)
    looked_at = found.looked_at
    assert (looked_at.workflows, looked_at.runs, looked_at.failures, looked_at.decisions) == (["test"], 12, 12, 12)
    assert proposal.id == filled.workflows.suggest("test").proposals[0].id


def test_only_runs_of_the_time_that_is_asked_for_are_read(filled: Service):
    assert filled.workflows.suggest("test", since=T0 + timedelta(hours=9)).looked_at.runs == 3

    with pytest.raises(NotFound, match="no run of 'test' was started in this time"):
        filled.workflows.suggest("test", since=T0 + timedelta(days=9))


def test_a_file_that_has_the_rule_already_gets_no_proposal(filled: Service):
    mended = examine(Path("test.yaml"), text=TEXT + "    retry: {exit_codes: [11]}\n").workflow

    assert filled.workflows.suggest(policy=mended).proposals == []
    assert filled.workflows.suggest(policy=DEFINITION).proposals


def test_an_unknown_workflow_or_step_is_refused(filled: Service):
    with pytest.raises(NotFound, match="there is no run of 'tset'") as refused:
        filled.workflows.suggest("tset")
    assert refused.value.hint == "did you mean 'test'?"
    with pytest.raises(UnknownStep):
        filled.workflows.suggest("test", step="fetsch")
    assert filled.workflows.suggest("test", step="fetch").proposals


def test_runs_of_another_project_are_not_read(filled: Service):
    other = filled.as_user("eve", project="other")

    assert other.workflows.suggest().looked_at.runs == 0


def test_a_proposal_becomes_a_draft_that_somebody_has_to_publish(filled: Service):
    filled.catalogue.publish("test", TEXT)
    found = filled.workflows.suggest("test")

    planned = filled.workflows.draft_suggestions("test", found.proposals, dry_run=True)
    done = filled.workflows.draft_suggestions("test", found.proposals)

    assert (planned.revision, done.revision) == (0, 1)
    assert done.written == [found.proposals[0].id]
    assert planned.diff == done.diff
    draft = filled.catalogue.draft("test")
    assert "# the slow one" in draft.text
    assert draft.note == "retry exit code 11 once, 4m after a failure"
    assert filled.catalogue.load("test").steps[0].rules == ()
    filled.catalogue.publish_draft("test")
    assert filled.catalogue.load("test").steps[0].rules == (RULE.rule,)
    assert filled.workflows.suggest("test").proposals == []


def test_a_draft_of_ones_own_is_continued_and_that_of_somebody_else_stays(filled: Service):
    filled.catalogue.publish("test", TEXT)
    filled.catalogue.put_draft("test", TEXT + "    timeout: 5m\n")
    found = filled.workflows.suggest("test")

    filled.workflows.draft_suggestions("test", found.proposals)

    assert "timeout: 5m" in filled.catalogue.draft("test").text
    eve = filled.as_user("eve")
    with pytest.raises(Refused, match="has a draft of ada"):
        eve.workflows.draft_suggestions("test", found.proposals)


def test_a_proposal_is_chosen_by_its_id(filled: Service):
    found = filled.workflows.suggest("test")

    assert choose(found, []) == found.proposals
    assert choose(found, [found.proposals[0].id]) == found.proposals
    with pytest.raises(NotFound, match="there is no proposal 'nope'"):
        choose(found, ["nope"])


def test_the_newest_runs_are_read_until_there_are_too_many_events(filled: Service, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mulligan.service.authoring.suggest.EVENTS_MAX", 40)

    looked_at = filled.workflows.suggest("test").looked_at

    assert (looked_at.runs, looked_at.left_out) == (3, 9)


def test_a_step_that_is_parked_in_the_test_is_one_in_the_file():
    assert DEFINITION.steps[0].triage == PARKS
