"""Rung 3: a person or an agent decides about a failure that no rule matched."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.workflow import Action, Adjust, Resources, Rule, Template, Triage
from mulligan.errors import ExpressionFailed, InputInvalid, MulliganError, StepNotParked, UnknownStep
from mulligan.testing.history import T0, History, edge, expression, handler, retry, step, workflow

KNOWN = Rule(exit_codes=(10,), max_retries=1)


def run_of(triage: Triage | None = None, *rules: Rule, **fields: Any) -> History:
    """A run of `a`, which is triaged, of `b`, which needs it, and of `other`, which does not."""
    parked = step("a", triage=triage or Triage(), rules=rules, **fields)
    return History(workflow(parked, step("b", needs=["a"]), step("other"))).start()


def refusal(run: History, *args: Any, **fields: Any) -> MulliganError:
    """How a classification is refused. Nothing may have changed."""
    before = (len(run.log), str(run.state.places))
    with pytest.raises(MulliganError) as caught:
        run.classify(*args, **fields)
    assert (len(run.log), str(run.state.places)) == before
    return caught.value


# -- what is parked --------------------------------------------------------------------------------------------------


def test_a_failure_that_no_rule_matched_is_parked():
    """Torc: no matching rule gives pending_failed."""
    run = run_of(None, KNOWN).fail("a", 11, stderr_tail="never seen")

    assert run["a"].status == "pending_failed"
    (parked,) = run.facts(e.StepParked)
    assert (parked.attempt, parked.visit, parked.reason, parked.due) == (1, 1, "unmatched", None)
    assert (parked.failure.exit_code, parked.failure.message) == (11, "never seen")
    assert run.passed == [("retry", "no_rule")]


def test_a_step_without_any_rules_is_parked():
    """Torc: no handler gives pending_failed."""
    assert run_of().fail("a")["a"].status == "pending_failed"


def test_a_failure_whose_rule_is_used_up_has_failed():
    """Torc: too many retries give failed, not pending_failed."""
    run = run_of(None, KNOWN).fail("a", 10).fail("a", 10)

    assert run["a"].status == "failed"
    assert run.passed == [("retry", "retries_exhausted"), ("triage", "rule_matched"), ("route", "no_route")]


@pytest.mark.parametrize(("exit_code", "reason"), [(10, "exhausted"), (11, "unmatched")])
def test_with_exhausted_used_up_and_unmatched_failures_are_parked(exit_code, reason):
    run = run_of(Triage("exhausted"), KNOWN).fail("a", 10).fail("a", exit_code)

    assert run["a"].status == "pending_failed"
    assert run.facts(e.StepParked)[0].reason == reason


def test_with_always_every_failure_is_parked():
    run = run_of(Triage("always"), KNOWN).fail("a", 10).fail("a", 10)

    assert run.facts(e.StepParked)[0].reason == "always"


@pytest.mark.parametrize("when", ["unmatched", "exhausted"])
def test_a_critical_failure_is_not_parked(when):
    run = run_of(Triage(when)).fail("a", None, code="SECURITY_VIOLATION")

    assert run["a"].status == "failed"
    assert ("triage", "critical") in run.passed


def test_a_critical_failure_is_parked_with_always():
    run = run_of(Triage("always")).fail("a", None, code="SECURITY_VIOLATION")

    assert run["a"].status == "pending_failed"


def test_an_error_that_no_rule_may_retry_counts_as_unmatched():
    run = run_of(None, *retry(5)).fail("a", None, code="HTTP_4XX")

    assert run["a"].status == "pending_failed"


def test_a_step_without_triage_writes_nothing_about_it():
    run = History(workflow(step("a"))).start().fail("a")

    assert [rung for rung, _ in run.passed] == ["retry", "route"]


def test_a_handler_comes_before_triage():
    run = run_of(on_failure=handler("fix")).fail("a")

    assert run.queued == ["a.on_failure@1.0", "other"]
    assert run.fail("a.on_failure@1.0")["a"].status == "pending_failed"
    assert run.facts(e.StepParked)[0].failure.handler_failure is not None


def test_a_cleanup_runs_before_the_step_is_parked():
    run = run_of(on_failure=handler("sweep", strategy="cleanup")).fail("a").ok("a.on_failure@1.0")

    assert run["a"].status == "pending_failed"


def test_a_failure_of_a_rerun_is_parked_as_unmatched_only_if_no_rule_knows_it():
    run = run_of(None, *retry(0), on_failure=handler("fix", rerun=1)).fail("a").ok("a.on_failure@1.0").fail("a")

    assert run["a"].status == "failed"
    assert ("triage", "rule_matched") in run.passed


# -- while it is parked ----------------------------------------------------------------------------------------------


def test_a_parked_step_is_not_terminal_and_its_dependents_stay_blocked():
    """Torc: not terminal; downstream blocked, not cancelled."""
    run = run_of().fail("a").ok("other").wait(10_000)

    assert run.statuses == {"a": "pending_failed", "b": "waiting", "other": "completed"}
    assert run.status == "running"


def test_a_parked_step_takes_none_of_its_edges():
    edges = [edge("fix", on="failure"), edge("after", on="always")]
    run = History(workflow(step("a", triage=Triage(), next=edges), step("fix"), step("after"))).start().fail("a")

    assert run.statuses == {"a": "pending_failed", "fix": "waiting", "after": "waiting"}


def test_a_parked_step_is_cancelled_when_the_run_stops():
    run = run_of().fail("a").ok("other").cancel()

    assert (run["a"].status, run.status) == ("cancelled", "cancelled")


# -- classified ------------------------------------------------------------------------------------------------------


def test_classified_as_retry_it_runs_again_at_once():
    """Torc: action = retry makes the step ready."""
    run = run_of().fail("a").classify("a", "retry", reason="the mirror was down")

    assert run.follows == [
        e.StepClassified("a", 1, "retry", "the mirror was down", "someone"),
        e.AttemptScheduled("a", 2, "classified"),
    ]
    assert run.ok("a")["a"].status == "completed"
    assert run.queued == ["b", "other"]


def test_classified_as_fail_it_has_failed_and_its_dependents_are_skipped():
    """Torc: action = fail triggers what failure means downstream."""
    run = run_of().fail("a").classify("a", "fail", reason="a real bug").ok("other")

    assert run.statuses == {"a": "failed", "b": "skipped", "other": "completed"}
    assert run.status == "failed"


def test_classified_as_fail_it_climbs_on_to_its_route():
    flow = workflow(step("a", triage=Triage(), next=[edge("fix", on="failure")]), step("fix"))

    run = History(flow).start().fail("a").classify("a", "fail")

    assert run.queued == ["fix"]
    assert run.ok("fix").status == "completed"


def test_a_retry_may_have_other_memory_and_time():
    run = run_of(timeout=60.0, resources=Resources(memory=100)).fail("a")

    run.classify("a", "retry", memory=500, timeout=90.0)

    assert run.facts(e.StepClassified)[0].adjusted == Adjusted(memory=500, timeout=90.0)
    assert run.facts(e.AttemptScheduled)[-1].adjusted == Adjusted(memory=500, timeout=90.0)


def test_what_a_rule_raised_before_stays_where_nothing_else_is_said():
    rule = Rule(exit_codes=(10,), adjust=Adjust(memory=2.0, timeout=2.0))
    run = run_of(None, rule, timeout=60.0, resources=Resources(memory=100)).fail("a", 10).fail("a", 11)

    run.classify("a", "retry", timeout=7.0)

    assert run.facts(e.AttemptScheduled)[-1].adjusted == Adjusted(memory=200, timeout=7.0)


def test_the_time_that_a_rule_raised_stays_where_only_memory_is_said():
    rule = Rule(exit_codes=(10,), adjust=Adjust(memory=2.0, timeout=2.0))
    run = run_of(None, rule, timeout=60.0, resources=Resources(memory=100)).fail("a", 10).fail("a", 11)

    run.classify("a", "retry", memory=500)

    assert run.facts(e.AttemptScheduled)[-1].adjusted == Adjusted(memory=500, timeout=120.0)


def test_what_was_said_of_memory_stays_for_later_retries_of_the_visit():
    run = run_of(None, KNOWN).fail("a", 11).classify("a", "retry", memory=500).fail("a", 10)

    assert run.facts(e.AttemptScheduled)[-1].adjusted == Adjusted(memory=500)


def test_a_retry_that_fails_again_climbs_again_and_may_be_parked_again():
    run = run_of().fail("a").classify("a", "retry").fail("a", 2)

    assert run["a"].status == "pending_failed"
    assert [fact.attempt for fact in run.facts(e.StepParked)] == [1, 2]


def test_a_classified_retry_spends_no_budget_of_the_rules():
    run = run_of(None, KNOWN).fail("a", 11).classify("a", "retry").fail("a", 10)

    assert run.queued == ["a", "other"]


def test_a_classified_retry_whose_expressions_fail_climbs_again():
    gives = iter(["x", ExpressionFailed("no such key: 'y'")])
    action = Action("shell", {"text": "cat $V"}, {"V": Template((expression("v", "inputs"),))})
    run = History(workflow(step("a", triage=Triage(), action=action)), {"v": lambda _: next(gives)}).start().fail("a")

    run.classify("a", "retry")

    assert run["a"].status == "pending_failed"
    assert [fact.failure.code for fact in run.facts(e.StepParked)] == ["EXIT_NONZERO", "EXPRESSION_FAILED"]


# -- refused ---------------------------------------------------------------------------------------------------------


def test_a_step_that_is_not_there_cannot_be_classified():
    error = refusal(run_of().fail("a"), "aa", "retry")

    assert (type(error), error.message, error.data) == (UnknownStep, "'aa' is not a step of run 1", {"step": "aa"})


def test_a_command_cannot_be_classified():
    run = run_of(on_failure=handler("fix")).fail("a")

    assert type(refusal(run, "a.on_failure@1.0", "retry")) is UnknownStep


def test_a_step_that_is_not_parked_cannot_be_classified():
    error = refusal(run_of(), "a", "retry")

    assert type(error) is StepNotParked
    assert error.message == "step 'a' is ready, so there is nothing to classify"


def test_the_second_classification_comes_too_late():
    run = run_of().fail("a").classify("a", "fail")

    assert refusal(run, "a", "retry").message == "step 'a' is failed, so there is nothing to classify"


def test_whoever_comes_second_is_told_who_decided_and_why():
    run = run_of().fail("a").classify("a", "fail", reason="hopeless")

    assert refusal(run, "a", "retry").hint == "already classified as fail by someone: hopeless"


def test_a_classification_after_the_timeout_comes_too_late():
    run = run_of(Triage(timeout=60.0)).fail("a").wait(60)

    assert refusal(run, "a", "retry").message == "step 'a' is failed, so there is nothing to classify"


@pytest.mark.parametrize("reason", ["", "  \n"])
def test_a_classification_needs_a_reason(reason):
    error = refusal(run_of().fail("a"), "a", "retry", reason=reason)

    assert type(error) is InputInvalid
    assert error.render() == "error[input.invalid]: a classification needs a reason\n  say why: --reason TEXT"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"memory": 0}, "memory must be greater than 0, not 0"),
        ({"memory": -5}, "memory must be greater than 0, not -5"),
        ({"timeout": -1.0}, "timeout must be greater than 0, not -1"),
        ({"timeout": 0.0}, "timeout must be greater than 0, not 0"),
    ],
)
def test_a_retry_with_less_than_nothing_is_refused(fields, message):
    error = refusal(run_of().fail("a"), "a", "retry", **fields)

    assert (type(error), error.message) == (InputInvalid, message)


# -- when nobody comes -----------------------------------------------------------------------------------------------


def test_when_nobody_comes_in_time_it_has_failed():
    run = run_of(Triage(timeout=60.0)).fail("a")

    assert run.facts(e.StepParked)[0].due == T0 + timedelta(seconds=60)
    assert run.wait(59)["a"].status == "pending_failed"

    run.wait(1)
    assert run["a"].status == "failed"
    (said,) = run.facts(e.StepClassified)
    assert (said.verdict, said.by, said.reason, said.is_default) == (
        "fail",
        "timeout",
        "not classified before the timeout",
        True,
    )


def test_the_default_may_be_a_retry_but_only_once_a_visit():
    run = run_of(Triage(timeout=60.0, default="retry")).fail("a").wait(60)

    assert run.queued == ["a", "other"]

    run.fail("a").wait(60)
    assert run["a"].status == "failed"
    assert [fact.verdict for fact in run.facts(e.StepClassified)] == ["retry", "fail"]


def test_a_retry_that_a_person_asked_for_does_not_use_up_the_default():
    run = run_of(Triage(timeout=60.0, default="retry")).fail("a").classify("a", "retry").fail("a").wait(60)

    assert run.queued == ["a", "other"]


def test_a_new_visit_may_be_retried_by_default_again():
    triage = Triage(timeout=60.0, default="retry")
    flow = workflow(step("a", triage=triage, next=[edge("fix", on="failure", then="rerun")]), step("fix"))
    run = History(flow).start().fail("a").wait(60).fail("a").wait(60).ok("fix").fail("a")

    run.wait(60)

    assert run.queued == ["a"]


def test_the_default_fail_climbs_on_to_the_route():
    flow = workflow(step("a", triage=Triage(timeout=60.0), next=[edge("fix", on="failure")]), step("fix"))

    run = History(flow).start().fail("a").wait(60)

    assert run.queued == ["fix"]


def test_the_timer_of_an_earlier_parking_does_not_disturb_a_later_one():
    run = run_of(Triage(timeout=60.0)).fail("a").wait(50).classify("a", "retry").wait(5).fail("a")

    run.wait(5)

    assert run["a"].status == "pending_failed"
    assert run.wait(55)["a"].status == "failed"


def test_without_a_timeout_it_waits_for_ever():
    assert run_of().fail("a").wait(10**8)["a"].status == "pending_failed"


def test_only_steps_are_parked():
    run = run_of(Triage("always"), on_failure=handler("x")).fail("a").fail("a.on_failure@1.0")

    assert [fact.step for fact in run.facts(e.StepParked)] == ["a"]


def test_a_report_of_a_timer_for_a_step_that_was_classified_is_nothing():
    run = run_of(Triage(timeout=60.0)).fail("a").classify("a", "retry")

    run.report(r.TimerFired(T0 + timedelta(seconds=60), "triage", "a", 1))

    assert run.follows == []


def test_a_retry_that_a_person_grants_keeps_what_a_rule_has_raised():
    more = Rule(codes=("TIMEOUT",), max_retries=1, adjust=Adjust(timeout=2.0))
    flow = workflow(step("a", rules=(more,), timeout=30.0, triage=Triage(when="always")))
    run = History(flow).start().fail("a", None, is_timed_out=True).fail("a")

    run.classify("a", "retry")

    assert run.facts(e.AttemptScheduled)[-1].adjusted == Adjusted(timeout=60.0)


@pytest.mark.parametrize(("seconds", "status"), [(29, "ready"), (30, "pending_failed")])
def test_a_retry_that_comes_when_the_deadline_of_the_visit_is_up_starts_nothing(seconds: int, status: str):
    flow = workflow(step("a", triage=Triage(when="always"), deadline=30.0))
    run = History(flow).start().fail("a").wait(seconds)

    run.classify("a", "retry")

    assert run["a"].status == status
    assert [f.failure.code for f in run.facts(e.AttemptFailed)][1:] == ([] if status == "ready" else ["TIMEOUT"])
