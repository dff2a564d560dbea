"""Why no rule granted a retry, rule by rule, for the person who classifies a parked step."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.workflow import Rule, Triage
from mulligan.core.state.state import TriageDecision
from mulligan.history.retry_reasons import why_not
from mulligan.testing.history import T0, History, handler, step, workflow

ALWAYS = Triage("always")


def parked(*rules: Rule, **fields: Any) -> History:
    """A run of one step that parks whatever no rule retries."""
    return History(workflow(step("a", triage=ALWAYS, rules=rules, **fields))).start()


def reasons(run: History) -> list[tuple[str, str]]:
    place = run["a"]
    assert place.failure is not None
    found = why_not(place.spec, place.climb, place.failure)
    assert [reason.rule for reason in found] == list(range(1, len(found) + 1))
    return [(reason.looks_for, reason.reason) for reason in found]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule(codes=("TIMEOUT", "CONNECTION")), ("TIMEOUT, CONNECTION", "the code was EXIT_NONZERO")),
        (Rule(exit_codes=(10, 11)), ("exit codes 10, 11", "exit code was 42")),
        (Rule(pattern="no space"), ("'no space'", "the message does not match")),
        # It fits, and has nothing left to give.
        (Rule(any=True, max_retries=0), ("any failure", "used up, 0 of 0")),
    ],
    ids=["codes", "exit codes", "pattern", "any"],
)
def test_a_rule_of_each_kind_says_what_it_looks_for_and_what_it_found(rule: Rule, expected: tuple[str, str]):
    run = parked(rule).fail("a", 42, stderr_tail="diverged")

    assert reasons(run) == [expected]


def test_a_fatal_exception_says_that_its_class_or_its_code_would_do():
    run = parked(Rule(exceptions=("OSError",)), Rule(exceptions=("KeyError",)))
    run.fail("a", None, code="EXCEPTION", exceptions=("PermissionError", "OSError"))

    assert reasons(run) == [
        ("OSError", "PERMISSION is fatal: only a rule that names its code or its class retries it"),
        ("KeyError", "it raised PermissionError"),
    ]


def test_a_rule_that_is_used_up_says_how_often_it_was_asked():
    run = parked(Rule(exit_codes=(42,), max_retries=2)).fail("a", 42).fail("a", 42).fail("a", 42)

    assert reasons(run) == [("exit code 42", "used up, 2 of 2")]


def test_a_rule_that_fits_less_well_names_the_one_that_was_asked():
    run = parked(Rule(any=True), Rule(exit_codes=(42,), max_retries=0)).fail("a", 42)

    assert reasons(run) == [("any failure", "rule 2 was used instead"), ("exit code 42", "used up, 0 of 0")]


def test_a_failure_without_an_exit_code_has_none_that_could_fit():
    run = parked(Rule(exit_codes=(42,))).fail("a", None, is_timed_out=True)

    assert reasons(run) == [("exit code 42", "there was no exit code")]


def test_a_fatal_failure_is_retried_only_by_a_rule_that_names_its_code():
    run = parked(Rule(any=True)).fail("a", None, code="HTTP_4XX")

    assert reasons(run) == [("any failure", "HTTP_4XX is fatal: only a rule that names its code retries it")]


def test_attempts_that_are_used_up_are_told_as_such():
    run = parked(Rule(any=True), max_attempts=2).fail("a", 42).fail("a", 42)

    assert reasons(run) == [("any failure", "max_attempts reached, 2 of 2")]


def test_attempts_of_a_rule_that_are_used_up_are_told_as_its_own():
    run = parked(Rule(any=True, max_attempts=2)).fail("a", 42).fail("a", 42)

    assert reasons(run) == [("any failure", "its max_attempts reached, 2 of 2")]


def test_a_deadline_that_leaves_no_time_is_told_as_such():
    run = parked(Rule(any=True), deadline=1e-9).fail("a", 42)

    assert reasons(run) == [("any failure", "the deadline leaves no time for a retry")]


def test_after_a_rerun_the_rules_are_not_asked():
    run = parked(Rule(exit_codes=(10,)), on_failure=handler("fix", rerun=1)).fail("a", 42)
    run.ok("a.on_failure@1.0").fail("a", 42)

    assert reasons(run) == [("exit code 10", "rules do not apply after a rerun")]


def test_a_step_without_rules_has_no_reasons():
    assert reasons(parked().fail("a", 42)) == []


def test_what_is_parked_knows_since_when_and_why_and_the_word_on_it_stays():
    run = parked(Rule(exit_codes=(10,))).fail("a", 42)
    climb = run["a"].climb
    assert (climb.parked_at, climb.parked_for, climb.ruling) == (run.state.run.at, "always", None)
    assert climb.parked_at is not None and climb.parked_at >= T0

    run.classify("a", "retry", memory=1 << 30).ok("a")

    climb = run["a"].climb
    assert (run["a"].status, climb.parked_at, climb.parked_for) == ("completed", None, "")
    assert climb.adjusted == Adjusted(memory=1 << 30)
    assert climb.ruling is not None
    assert climb.ruling == TriageDecision("retry", climb.ruling.by, climb.ruling.reason, "EXIT_NONZERO", 42, 1)


@pytest.mark.parametrize(
    ("rule", "looks_for"),
    [
        (Rule(codes=("EXIT_NONZERO",), max_retries=0), "EXIT_NONZERO"),
        (Rule(exit_codes=(42,), max_retries=0), "exit code 42"),
        (Rule(pattern="diverged", max_retries=0), "'diverged'"),
        (Rule(any=True, max_retries=0), "any failure"),
    ],
)
def test_of_two_rules_that_fit_alike_the_second_names_the_first(rule: Rule, looks_for: str):
    run = parked(rule, rule).fail("a", 42, stderr_tail="diverged")

    assert reasons(run) == [(looks_for, "used up, 0 of 0"), (looks_for, "rule 1 was used instead")]
