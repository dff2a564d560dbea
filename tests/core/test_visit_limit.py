"""The visit after `max_visits` fails with LOOP_LIMIT and never runs."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Rule, Triage
from mulligan.core.turn import fold
from mulligan.errors import ExpressionFailed
from mulligan.testing.history import History, command, edge, handler, step, workflow


def beyond(**fields: Any) -> History:
    """A run whose step `a` goes back to itself, has one visit, and is in its second."""
    flow = workflow(step("a", max_visits=1, next=["a", edge("fix", "failure")], **fields), step("fix"))
    return History(flow).start().ok("a")


def attempts_of_visit_2(run: History) -> list[e.AttemptScheduled]:
    entered = next(n for n, entry in enumerate(run.log) if entry.fact == e.StepEntered("a", 2))
    facts = [entry.fact for entry in run.log[entered:]]
    return [fact for fact in facts if isinstance(fact, e.AttemptScheduled) and fact.place == "a"]


@pytest.mark.parametrize(
    ("fields", "passed"),
    [
        ({}, ("retry", "no_rule")),
        ({"rules": (Rule(codes=("LOOP_LIMIT",), max_retries=3),)}, ("retry", "loop_limit")),
        ({"on_failure": handler("fix", rerun=2)}, ("handle", "loop_limit")),
        ({"triage": Triage()}, ("triage", "loop_limit")),
        ({"triage": Triage(timeout=5, default="retry")}, ("triage", "loop_limit")),
        ({"triage": Triage(when="always", timeout=5, default="retry")}, ("triage", "loop_limit")),
        ({"triage": Triage(when="exhausted", timeout=5, default="retry")}, ("triage", "loop_limit")),
    ],
    ids=["plain", "rule", "handler", "triage", "default", "always", "exhausted"],
)
def test_nothing_gives_the_visit_beyond_the_last_an_attempt(fields: dict[str, Any], passed: tuple[str, str]) -> None:
    run = beyond(**fields)

    run.wait(5)

    assert attempts_of_visit_2(run) == []
    assert (run["a"].status, run["a"].visit, run["a"].failure.code) == ("failed", 2, "LOOP_LIMIT")
    assert passed in run.passed
    assert run.queued == ["fix"]


def test_no_recovery_script_runs_for_a_retry_that_will_not_happen() -> None:
    rule = Rule(codes=("LOOP_LIMIT",), max_retries=1, recovery_script=command("script"))

    run = beyond(rules=(rule,))

    assert run.facts(e.RetryScheduled) == []


def test_a_handler_may_stand_in_for_the_visit_that_never_runs() -> None:
    run = beyond(on_failure=handler("use the last result", strategy="fallback"))

    run.ok("a.on_failure@2.0", output="old")

    assert (run["a"].status, run["a"].output) == ("completed", "old")


def test_a_condition_that_fails_in_the_visit_beyond_the_last_leads_to_no_attempt() -> None:
    flow = workflow(step("a", max_visits=1, when="due", next=["a"], triage=Triage(timeout=5, default="retry")))
    run = History(flow, {"due": True}).start()

    run.evaluator.answers["due"] = ExpressionFailed("no such key")
    run.ok("a").wait(5)

    assert attempts_of_visit_2(run) == []
    assert (run["a"].status, run["a"].failure.code) == ("failed", "EXPRESSION_FAILED")


def test_a_visit_beyond_the_last_that_was_parked_by_an_older_version_does_not_run_either() -> None:
    run = beyond(triage=Triage())
    last = next(entry for entry in run.log if isinstance(entry.fact, e.RungPassed) and entry.fact.rung == "triage")
    old = History(run.state.workflow)
    parked = e.Entry(last.seq, last.at, last.caused_by, e.StepParked("a", 2, 2, run["a"].failure, "unmatched"))
    old.log = [*run.log[: last.seq - 1], parked]
    old.state = fold(run.state.workflow, old.log)

    old.classify("a", "retry", reason="once more")

    assert attempts_of_visit_2(old) == []
    assert (old["a"].status, old["a"].failure.code) == ("failed", "LOOP_LIMIT")


def test_another_round_has_visits_of_its_own() -> None:
    flow = workflow(step("a", max_visits=1, next=["a"]))
    run = History(flow).start().ok("a")
    assert run.status == "failed"

    run.retry()

    assert (run["a"].visit, run.queued) == (3, ["a"])


def test_end_has_a_visit_in_every_round() -> None:
    run = History(workflow(step("a"), end=step("end", max_visits=1))).start()

    for _ in range(3):
        run.fail("a").ok("end").retry()

    assert [fact.visit for fact in run.facts(e.StepEntered) if fact.step == "end"] == [1, 2, 3]
