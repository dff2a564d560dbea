"""Runs that are decided again with another policy, one case at a time."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.analysis.statistics import wilson_bounds
from mulligan.analysis.whatif.attempt_names import AttemptNames
from mulligan.analysis.whatif.knowledge import Draw, Knowledge
from mulligan.analysis.whatif.played_history import KnowledgeNeeded, PlayedHistory, Undecidable
from mulligan.analysis.whatif.recording import Recording, record
from mulligan.analysis.whatif.redecide import redecide
from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Triage, Workflow
from mulligan.core.state.state import State
from mulligan.testing.history import Answers, History, edge, handler, retry, step, workflow

PARKS = Triage(when="always")


def recorded(run: History) -> Recording:
    return record(Graph(run.state.workflow), run.log)


def decided(run: History, changed: Workflow, knowledge: Knowledge | None = None, **draw: Any) -> PlayedHistory:
    return redecide(
        recorded(run), Graph(changed), Answers(), knowledge=knowledge, draw=Draw(draw.pop("seed", 0), 1, **draw)
    )


def fetching(**policy: Any) -> Workflow:
    return workflow(step("fetch", **policy), step("load", needs=["fetch"]))


def parked(seconds: float) -> History:
    """A run in which somebody said retry after so many seconds, and that worked."""
    run = History(fetching(triage=PARKS)).start().started("fetch").wait(5).fail("fetch", 11)
    run.wait(seconds).classify("fetch", "retry").started("fetch").wait(5).ok("fetch").started("load").wait(2)
    return run.ok("load")


def test_a_decision_that_becomes_a_rule_is_a_fact_if_the_retry_comes_no_sooner():
    found = decided(parked(60), fetching(rules=retry(1, delay=120), triage=PARKS))

    assert (found.status, found.by, found.counts.decisions) == ("completed", "fact", 0)
    assert found.counts.seconds == 5 + 120 + 5 + 2
    assert (found.step, found.why) == ("fetch", "retried instead of parked after exit code 11")


def test_a_retry_that_comes_sooner_than_the_recorded_one_is_assumed_to_end_as_that():
    found = decided(parked(60), fetching(rules=retry(1, delay=1), triage=PARKS))

    assert (found.status, found.by, dict(found.assumed)) == ("completed", "assumed", {"sooner": 1})
    assert found.counts.seconds == 5 + 1 + 5 + 2


def test_a_retry_that_never_happened_is_drawn_from_what_is_known_about_that_failure():
    run = History(fetching()).start().started("fetch").fail("fetch", 11)
    changed, knowledge = fetching(rules=retry(1)), Knowledge()

    with pytest.raises(KnowledgeNeeded):
        decided(run, changed)
    with pytest.raises(Undecidable) as unknown:
        decided(run, changed, knowledge)
    for _ in range(3):
        knowledge.add(recorded(parked(60)))
    found = decided(run, changed, knowledge)

    assert (unknown.value.code, unknown.value.detail) == ("nothing_known", "a retry of 'fetch' after exit code 11")
    assert (found.status, found.by) == ("completed", "estimate")
    assert {(subject.place, subject.kind) for subject in found.drawn} == {("fetch", "again"), ("load", "first")}


def test_the_outcome_after_a_handler_says_nothing_about_a_retry_without_it():
    repaired = fetching(on_failure=handler("fix", rerun=1))
    run = History(repaired).start().started("fetch").fail("fetch", 11).started("fetch.on_failure@1.0")
    run.ok("fetch.on_failure@1.0").started("fetch").ok("fetch").started("load").ok("load")

    same = decided(run, repaired)
    with pytest.raises(Undecidable, match="nothing_known"):
        decided(run, fetching(rules=retry(1)), Knowledge())

    assert (run.status, same.why) == ("completed", "")


def test_a_shorter_timeout_is_a_fact_and_a_longer_one_is_not():
    slow = History(fetching(timeout=60.0)).start().started("fetch").wait(30).ok("fetch").started("load").ok("load")
    late = History(fetching(timeout=60.0)).start().started("fetch").wait(60)
    late.fail("fetch", is_timed_out=True)

    cut = decided(slow, fetching(timeout=20.0))
    same = decided(late, fetching(timeout=50.0))

    assert (cut.status, cut.by, cut.counts.seconds) == ("failed", "fact", 20)
    assert (same.status, same.by, same.counts.seconds) == ("failed", "fact", 50)
    with pytest.raises(KnowledgeNeeded):
        decided(late, fetching(timeout=90.0))


def test_a_round_that_would_not_have_been_needed_is_not_asked_for():
    run = History(fetching(rules=retry(1))).start()
    for _ in range(2):
        run.started("fetch").fail("fetch", 11)
    run.wait(3600).retry().started("fetch").ok("fetch").started("load").ok("load")

    allowed = decided(run, fetching(rules=retry(1), continue_on_error=True), Knowledge())
    fewer = decided(run, fetching())

    # Without a retry the first round fails sooner, and somebody asks for another one as then.
    assert (fewer.status, fewer.counts.attempts, fewer.counts.decisions, fewer.by) == ("completed", 3, 1, "fact")
    assert (allowed.status, allowed.counts.decisions) == ("completed", 0)


def test_visits_are_compared_by_the_remediation_before_them():
    def mended(**policy: Any) -> Workflow:
        routed = edge("mend", "failure", then="rerun")
        return workflow(step("fetch", next=[routed], max_visits=2, **policy), step("mend"))

    run = History(mended(rules=retry(1))).start()
    for _ in range(2):
        run.started("fetch").wait(1).fail("fetch", 11)
    run.started("mend").wait(1).ok("mend").started("fetch").wait(1).ok("fetch")

    found = decided(run, mended())

    # The attempt after the remediation is the third of the run then, and the second now.
    assert (run.status, found.status, found.by, found.counts.attempts) == ("completed", "completed", "fact", 3)


def test_a_corrected_definition_is_followed_unchanged_and_refused_changed():
    run = History(fetching()).start().started("fetch").fail("fetch", 11)
    run.retry_with(fetching(rules=retry(3))).started("fetch").ok("fetch").started("load").ok("load")

    then = record(Graph(fetching()), run.log)

    same = redecide(then, Graph(fetching()), Answers(), knowledge=None, draw=Draw(0, 1))
    sooner = redecide(then, Graph(fetching(continue_on_error=True)), Answers(), knowledge=Knowledge(), draw=Draw(0, 1))
    with pytest.raises(Undecidable, match="revised"):
        redecide(then, Graph(fetching(timeout=600.0)), Answers(), knowledge=None, draw=Draw(0, 1))

    assert (same.why, same.followed) == ("", len(run.log))
    # It completes before anybody corrects it.
    assert (sooner.status, sooner.counts.decisions) == ("completed", 0)


def test_a_run_that_nobody_has_decided_about_still_waits():
    run = History(fetching(triage=PARKS)).start().started("fetch").fail("fetch", 11)

    waiting = decided(run, fetching(triage=PARKS, timeout=600.0))
    failed = decided(run, fetching())

    assert (waiting.status, waiting.why) == ("waiting", "")
    assert (failed.status, failed.by) == ("failed", "fact")


def test_a_cancelled_run_is_cancelled_again_unless_it_has_ended_before():
    slow = fetching(rules=retry(1, delay=600))
    run = History(slow).start().started("fetch").wait(1).fail("fetch", 11).wait(60).cancel()

    ended = decided(run, fetching())
    later = decided(run, fetching(rules=retry(1, delay=900)))

    assert (run.status, ended.status, later.status) == ("cancelled", "failed", "cancelled")


def test_the_interval_of_a_share_is_that_of_wilson():
    # From the literature: 10 of 20, 0 of 10, 39 of 41.
    assert [round(one, 3) for one in wilson_bounds(10, 20)] == [0.299, 0.701]
    assert [round(one, 3) for one in wilson_bounds(0, 10)] == [0.0, 0.278]
    assert [round(one, 3) for one in wilson_bounds(39, 41)] == [0.839, 0.987]
    assert wilson_bounds(0, 0) == (0.0, 1.0)


def test_a_draw_depends_on_the_seed_the_run_and_what_is_drawn_alone():
    first = [Draw(0, run_id).number("fetch") for run_id in range(200)]

    assert first == [Draw(0, run_id).number("fetch") for run_id in range(200)]
    assert first != [Draw(1, run_id).number("fetch") for run_id in range(200)]
    assert 0.4 < sum(first) / 200 < 0.6


def test_attempts_in_the_key_of_a_place_are_named_by_visit_and_position():
    routed = edge("mend", "failure", then="rerun")
    mended = workflow(step("fetch", next=[routed], max_visits=2, rules=retry(1)), step("mend"))
    run = History(mended).start().fail("fetch", 11).fail("fetch", 11).ok("mend").ok("fetch")
    names, state = AttemptNames(), State(mended)
    for entry in run.log:
        evolve(state, entry)
        names.note(state, entry)

    assert names.name_of(state, "fetch", 2) == ("fetch", 1, 2)
    assert names.name_of(state, "fetch", 3) == ("fetch", 2, 1)
    # A handler after the third attempt of the run, which is the first of the second visit; an undo counts visits.
    assert names.place_name("fetch.on_failure@3.0") == "fetch.on_failure@2:1.0"
    assert names.place_name("fetch.undo@2") == "fetch.undo@2"
