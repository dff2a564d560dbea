"""Rung 1: a rule that matches and has budget left grants a retry."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.core.deciding.conditions import matching_rule
from mulligan.core.deciding.ladder import delay_seconds
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.failure import Failure, failure
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import Action, Backoff, Rule, Template
from mulligan.errors import ExpressionFailed
from mulligan.testing.history import T0, History, edge, expression, retry, step, workflow


def run_of(*rules: Rule, **fields: object) -> History:
    """A run of one step `a` with these rules."""
    return History(workflow(step("a", rules=rules, **fields))).start()


def granted(run: History) -> list[tuple[int, int]]:
    """Which rule granted a retry, and its how many-th it was."""
    return [(fact.rule, fact.number) for fact in run.facts(e.RetryScheduled)]


def waited(run: History) -> list[float]:
    """The delays of the retries, in seconds, in a run whose clock stands still."""
    return [(fact.due - T0).total_seconds() for fact in run.facts(e.RetryScheduled)]


# -- which rule ------------------------------------------------------------------------------------------------------

CODES = Rule(codes=("EXIT_NONZERO",))
EXIT_CODES = Rule(exit_codes=(10, 11))
PATTERN = Rule(pattern=r"disk (full|gone)")
ANY = Rule(any=True)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ((ANY, PATTERN, EXIT_CODES, CODES), CODES),
        ((ANY, PATTERN, EXIT_CODES), EXIT_CODES),
        ((ANY, PATTERN), PATTERN),
        ((ANY,), ANY),
        # The same from the most specific on.
        ((CODES, EXIT_CODES, PATTERN, ANY), CODES),
        ((EXIT_CODES, PATTERN, ANY), EXIT_CODES),
        ((PATTERN, ANY), PATTERN),
    ],
)
def test_the_more_specific_kind_of_rule_wins_whatever_the_order_in_the_file(rules, expected):
    """Torc: specific exit codes win over the catch-all, whatever the order."""
    found = matching_rule(rules, failure("EXIT_NONZERO", "the disk full", exit_code=11))

    assert found == rules.index(expected)


@pytest.mark.parametrize(
    "rules",
    [
        (Rule(codes=("A", "EXIT_NONZERO")), Rule(codes=("EXIT_NONZERO",))),
        (Rule(exit_codes=(1, 2)), Rule(exit_codes=(1,))),
        (Rule(pattern="x"), Rule(pattern="xx")),
        (Rule(any=True, max_retries=1), Rule(any=True, max_retries=2)),
    ],
)
def test_among_rules_of_the_same_kind_the_first_wins(rules):
    assert matching_rule(rules, failure("EXIT_NONZERO", "xx", exit_code=1)) == 0


@pytest.mark.parametrize(
    "rule",
    [Rule(codes=("TIMEOUT",)), Rule(exit_codes=(2, 3)), Rule(pattern="^full"), Rule(codes=("exit_nonzero",))],
)
def test_a_rule_that_names_something_else_does_not_match(rule):
    assert matching_rule((rule,), failure("EXIT_NONZERO", "disk full", exit_code=1)) is None


def test_a_failure_without_an_exit_code_matches_no_list_of_exit_codes():
    assert matching_rule((Rule(exit_codes=(0, 1)),), failure("TIMEOUT")) is None


def test_a_rule_for_128_and_more_matches_death_by_signal():
    run = run_of(Rule(exit_codes=(137,)))

    run.fail("a", None, signal=9)

    assert granted(run) == [(0, 1)]


def test_a_pattern_is_looked_for_in_the_whole_message():
    assert matching_rule((Rule(pattern="line 2$"),), failure("EXIT_NONZERO", "line 1\nline 2")) == 0


@pytest.mark.parametrize("code", ["HTTP_4XX", "SECURITY_VIOLATION", "INPUT_INVALID"])
def test_a_fatal_failure_is_not_retried_by_exit_code_pattern_or_catch_all(code):
    """NL2SQL: fatal errors are not retried."""
    rules = (Rule(exit_codes=(1,)), Rule(pattern="."), Rule(any=True), Rule(codes=("EXIT_NONZERO",)))

    assert matching_rule(rules, failure(code, "no", exit_code=1)) is None


@pytest.mark.parametrize("code", ["HTTP_4XX", "SECURITY_VIOLATION"])
def test_a_fatal_failure_is_retried_by_a_rule_that_names_its_code(code):
    assert matching_rule((Rule(any=True), Rule(codes=(code,))), failure(code, "no")) == 1


def test_an_error_that_the_step_calls_not_retryable_is_fatal_too():
    run = run_of(*retry(3)).fail("a", 1, reported=({"code": "NO_MESH", "retryable": False},))

    assert run.passed == [("retry", "no_rule"), ("route", "no_route")]
    assert run.status == "failed"


# -- how often -------------------------------------------------------------------------------------------------------


def test_max_retries_are_retries_after_the_first_attempt():
    run = run_of(*retry(2)).fail("a").fail("a").fail("a")

    assert granted(run) == [(0, 1), (0, 2)]
    assert run["a"].attempt == 3
    assert run.status == "failed"
    assert run.passed == [("retry", "retries_exhausted"), ("route", "no_route")]


def test_a_rule_without_a_number_grants_three_retries():
    run = run_of(Rule(any=True)).fail("a").fail("a").fail("a").fail("a")

    assert len(granted(run)) == 3
    assert run.status == "failed"


def test_a_rule_with_no_retries_grants_none_and_says_so():
    run = run_of(*retry(0)).fail("a")

    assert run.passed[0] == ("retry", "retries_exhausted")


def test_a_step_without_rules_is_tried_once_and_that_is_said():
    run = run_of().fail("a")

    assert run["a"].attempt == 1
    assert run.passed == [("retry", "no_rule"), ("route", "no_route")]


def test_a_retry_that_succeeds_ends_the_climb():
    run = run_of(*retry(2)).fail("a").ok("a", output="x")

    assert (run.status, run["a"].output, run["a"].attempt) == ("completed", "x", 2)


def test_each_rule_has_a_budget_of_its_own():
    rules = (Rule(exit_codes=(10,), max_retries=2), Rule(exit_codes=(11,), max_retries=1))

    run = run_of(*rules).fail("a", 10).fail("a", 11).fail("a", 10).fail("a", 11)

    assert granted(run) == [(0, 1), (1, 1), (0, 2)]
    assert run.passed[0] == ("retry", "retries_exhausted")


def test_a_specific_rule_that_is_used_up_does_not_fall_back_to_the_catch_all():
    run = run_of(Rule(any=True, max_retries=5), Rule(exit_codes=(10,), max_retries=1)).fail("a", 10).fail("a", 10)

    assert granted(run) == [(1, 1)]
    assert run.status == "failed"


def test_max_attempts_of_a_rule_counts_the_attempts_that_other_rules_granted():
    """Torc: the attempts of a job are counted once, whichever rule is asked."""
    rules = (Rule(exit_codes=(10,), max_retries=9, max_attempts=3), Rule(exit_codes=(11,), max_retries=9))

    run = run_of(*rules).fail("a", 11).fail("a", 10).fail("a", 10)

    assert granted(run) == [(1, 1), (0, 1)]
    assert run.passed[0] == ("retry", "rule_attempts_exhausted")


def test_a_rule_whose_attempts_are_used_up_does_not_stop_another():
    rules = (Rule(exit_codes=(10,), max_retries=9, max_attempts=1), Rule(exit_codes=(11,), max_retries=9))

    run = run_of(*rules).fail("a", 11).fail("a", 11).fail("a", 10)

    assert granted(run) == [(1, 1), (1, 2)]
    assert run.passed[0] == ("retry", "rule_attempts_exhausted")


def test_one_attempt_of_a_rule_is_no_retry():
    run = run_of(Rule(any=True, max_attempts=1)).fail("a", 1)

    assert granted(run) == []
    assert run.passed[0] == ("retry", "rule_attempts_exhausted")


def test_a_new_visit_has_new_attempts_of_a_rule():
    rules = (Rule(any=True, max_retries=9, max_attempts=2),)
    flow = workflow(step("a", rules=rules, next=[edge("fix", on="failure", then="rerun")]), step("fix"))

    run = History(flow).start().fail("a").fail("a").ok("fix").fail("a").ok("a")

    assert granted(run) == [(0, 1), (0, 1)]
    assert run.status == "completed"


def test_max_attempts_bounds_all_rules_together():
    rules = (Rule(exit_codes=(10,), max_retries=5), Rule(any=True, max_retries=5))

    run = run_of(*rules, max_attempts=3).fail("a", 10).fail("a", 11).fail("a", 10)

    assert granted(run) == [(0, 1), (1, 1)]
    assert run.passed[0] == ("retry", "attempts_exhausted")


RETRIES_MAX = [
    ((), None, 0),
    ((Rule(exit_codes=(10,), max_retries=2), Rule(any=True, max_retries=3)), None, 5),
    # all rules together
    ((Rule(exit_codes=(10,), max_retries=2), Rule(any=True, max_retries=3)), 4, 3),
    ((Rule(any=True, max_retries=3),), 1, 0),
    # a rule counts the attempts of the others, and those count not its
    ((Rule(any=True, max_retries=9, max_attempts=3),), None, 2),
    ((Rule(exit_codes=(10,), max_retries=2, max_attempts=3), Rule(any=True, max_retries=2, max_attempts=3)), None, 2),
    ((Rule(any=True, max_retries=3), Rule(exit_codes=(10,), max_retries=9, max_attempts=3)), None, 5),
    ((Rule(exit_codes=(10,), max_retries=9, max_attempts=5), Rule(any=True, max_retries=9, max_attempts=1)), None, 4),
    ((Rule(exit_codes=(10,), max_retries=9, max_attempts=3), Rule(any=True, max_retries=9)), 6, 5),
]


@pytest.mark.parametrize(("rules", "max_attempts", "most"), RETRIES_MAX)
def test_the_most_retries_that_rules_can_grant(rules: tuple[Rule, ...], max_attempts: int | None, most: int):
    assert step("a", rules=rules, max_attempts=max_attempts).retries_max == most


def test_a_failure_is_told_how_many_retries_there_could_have_been():
    rules = (Rule(exit_codes=(10,), max_retries=2, max_attempts=3), Rule(any=True, max_retries=1, max_attempts=2))
    flow = workflow(step("a", rules=rules, next=(edge("fix", on="failure"),)), step("fix"))

    run = History(flow).start().fail("a", 10).fail("a", 10).fail("a", 10)

    [record] = run.state.failures
    assert (record.max_retries, record.retries_used) == (2, 2)


def test_the_deadline_of_a_visit_grants_no_retry_that_would_start_too_late():
    run = run_of(*retry(5, delay=40), deadline=100.0)

    run.fail("a").wait(40).fail("a").wait(40).fail("a")

    assert len(granted(run)) == 2
    assert run.passed[0] == ("retry", "deadline_passed")


def test_a_new_visit_has_fresh_budgets():
    flow = workflow(step("a", rules=retry(1), next=[edge("fix", on="failure", then="rerun")]), step("fix"))

    run = History(flow).start().fail("a").fail("a").ok("fix").fail("a").ok("a")

    assert run.status == "completed"
    assert granted(run) == [(0, 1), (0, 1)]
    assert (run["a"].visit, run["a"].attempt) == (2, 4)


def test_attempts_are_numbered_over_all_visits():
    flow = workflow(step("a", rules=retry(1), next=[edge("fix", on="failure", then="rerun")]), step("fix"))

    run = History(flow).start().fail("a").fail("a").ok("fix").fail("a").ok("a")

    assert [fact.attempt for fact in run.facts(e.AttemptScheduled) if fact.place == "a"] == [1, 2, 3, 4]


# -- when ------------------------------------------------------------------------------------------------------------


def test_a_retry_waits_for_its_delay():
    run = run_of(*retry(1, delay=30)).fail("a")

    assert (run["a"].status, run.queued) == ("backing_off", [])

    run.wait(29)
    assert run.queued == []

    run.wait(1)
    assert run.queued == ["a"]


def test_a_retry_without_a_delay_is_ready_in_the_same_turn():
    run = run_of(*retry(1)).fail("a")

    assert run.follows[1:] == [
        e.RetryScheduled("a", attempt=2, rule=0, number=1, due=T0),
        e.AttemptScheduled("a", 2, "retry"),
    ]


def test_the_delay_grows_by_its_factor_up_to_its_limit():
    """NL2SQL: exponential backoff with a base, a limit and jitter."""
    backoff = Backoff(delay=2, factor=3, max_delay=20)

    assert [delay_seconds(backoff, n, "", {}) for n in (1, 2, 3, 4)] == [2, 6, 18, 20]


def test_each_retry_has_the_delay_of_its_number_and_the_last_delay_is_for_all_that_follow():
    backoff = Backoff(delays=(1, 5, 30))

    assert [delay_seconds(backoff, n, "", {}) for n in (1, 2, 3, 4, 5)] == [1, 5, 30, 30, 30]


def test_named_delays_keep_to_their_limit_and_are_spread_by_jitter():
    backoff = Backoff(delays=(10, 40), max_delay=20, jitter=0.5)

    waits = [delay_seconds(backoff, 1, seed, {}) for seed in "abcdefgh"]

    assert all(5 <= wait <= 15 for wait in waits) and len(set(waits)) > 1
    assert all(delay_seconds(backoff, 2, seed, {}) <= 20 for seed in "abcdefgh")


def test_the_delay_is_counted_by_retries_of_the_rule():
    first = Rule(exit_codes=(10,), backoff=Backoff(delay=1, factor=10))
    second = Rule(exit_codes=(11,), backoff=Backoff(delay=3, factor=10))

    run = run_of(first, second).fail("a", 10)
    due = [run.facts(e.RetryScheduled)[-1].due - run.clock]
    run.wait(1).fail("a", 11)
    due.append(run.facts(e.RetryScheduled)[-1].due - run.clock)
    run.wait(3).fail("a", 10)
    due.append(run.facts(e.RetryScheduled)[-1].due - run.clock)

    assert [d.total_seconds() for d in due] == [1, 3, 10]


@pytest.mark.parametrize("number", [1, 2, 65, 10_000])
@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 2.0, 1e6, 1e300])
def test_no_factor_and_no_number_is_too_large_to_wait_for(factor, number):
    delay = delay_seconds(Backoff(delay=1, factor=factor), number, "", {})

    assert delay >= 0 and T0 + timedelta(seconds=delay) > T0 - timedelta(seconds=1)


@pytest.mark.parametrize(
    ("delay", "waits"),
    [
        # A year is waited for; a millennium is cut to a century, so that dates stay dates.
        (365 * 86400.0, 365 * 86400.0),
        (1000 * 365 * 86400.0, 100 * 365 * 86400.0),
    ],
)
def test_no_retry_waits_longer_than_a_century(delay, waits):
    assert delay_seconds(Backoff(delay=delay), 1, "", {}) == waits


@given(
    st.text(max_size=20),
    st.floats(0, 1000),
    st.floats(0, 1),
    st.floats(1, 4),
    st.integers(1, 20),
    st.none() | st.floats(0, 500),
)
def test_jitter_stays_within_its_share_and_below_the_limit(seed, delay, jitter, factor, number, max_delay):
    plain = delay_seconds(Backoff(delay, factor, max_delay), number, seed, {})

    spread = delay_seconds(Backoff(delay, factor, max_delay, jitter), number, seed, {})

    assert plain * (1 - jitter) - 1e-6 <= spread <= plain * (1 + jitter) + 1e-6
    assert max_delay is None or spread <= max_delay


def test_jitter_is_the_same_for_the_same_place_and_differs_between_places_attempts_and_runs():
    rules = (Rule(any=True, backoff=Backoff(delay=100, jitter=0.5)),)
    flow = workflow(step("a", rules=rules), step("b", rules=rules))

    first = History(flow).start().fail("a").fail("b")
    second = History(flow).start().fail("a").fail("b")
    other = History(flow)
    other.report(r.RunRequested(T0, run_id=2)).fail("a")
    later = History(flow).start().lose("a").fail("a")

    assert waited(first) == waited(second)
    assert len({waited(first)[0], waited(first)[1], waited(other)[0], waited(later)[0]}) == 4
    assert all(50 <= delay <= 150 for delay in waited(first))


@pytest.mark.parametrize(
    ("asked", "waits"),
    [
        (60, 60),
        # No sooner than the rule says, no later than it allows.
        (1, 5),
        (3600, 120),
        (-4, 5),
        # What is no time is not honoured.
        ("soon", 5),
        (None, 5),
        (float("nan"), 5),
        (float("inf"), 5),
    ],
)
def test_retry_after_is_honoured_up_to_the_longest_delay(asked, waits):
    run = run_of(Rule(any=True, backoff=Backoff(delay=5, max_delay=120)))

    run.fail("a", None, code="HTTP_429", details={"retry_after": asked})

    assert waited(run) == [waits]


def test_a_retry_that_waited_is_an_attempt_because_of_the_retry():
    run = run_of(*retry(1, delay=30)).fail("a").wait(30)

    assert run.follows[-1] == e.AttemptScheduled("a", 2, "retry")


def test_jitter_is_a_digest_of_run_place_visit_and_attempt():
    run = run_of(Rule(any=True, backoff=Backoff(delay=100, jitter=0.5))).fail("a")

    assert waited(run) == [pytest.approx(delay_seconds(Backoff(100, jitter=0.5), 1, "1:a:1:1", {}), abs=1e-5)]
    # The first eight bytes of the digest, as a share of all that they could be.
    assert delay_seconds(Backoff(100, jitter=0.5), 1, "1:a:1:1", {}) == pytest.approx(82.072039944)


@pytest.mark.parametrize(
    ("code", "said", "waits"),
    [
        ("CIRCUIT_OPEN", "2026-01-01T00:01:00Z", 60),
        # No sooner than the rule says.
        ("CIRCUIT_OPEN", "2026-01-01T00:00:01Z", 5),
        # What is no moment is not waited for; a moment without a zone is none.
        ("CIRCUIT_OPEN", "soon", 5),
        ("CIRCUIT_OPEN", 1767225660, 5),
        ("CIRCUIT_OPEN", "2026-01-01T00:01:00", 5),
        ("CIRCUIT_OPEN", None, 5),
        # Only a breaker is believed.
        ("CONNECTION", "2026-01-01T00:01:00Z", 5),
    ],
)
def test_no_retry_is_due_before_the_breaker_that_refused_it_may_be_asked_again(code, said, waits):
    run = run_of(Rule(codes=(code,), backoff=Backoff(delay=5)))

    run.fail("a", None, code=code, details={} if said is None else {"retry_at": said})

    assert waited(run) == [waits]


# -- a retry that cannot even start ----------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0, 10])
def test_a_retry_whose_expressions_fail_is_a_failed_attempt_that_climbs(delay):
    gives = iter(["x", ExpressionFailed("no such key: 'y'")])
    action = Action("shell", {"text": "cat $V"}, {"V": Template((expression("v", "inputs"),))})

    run = History(workflow(step("a", rules=retry(3, delay=delay), action=action)), {"v": lambda _: next(gives)})
    run.start().fail("a").wait(delay)

    assert run.status == "failed"
    assert run["a"].failure is not None
    assert (run["a"].failure.code, run["a"].failure.attempt) == ("EXPRESSION_FAILED", 2)


# -- who may reserve it ----------------------------------------------------------------------------------------------


def test_a_result_that_is_reported_twice_reserves_one_retry():
    """Torc: the reservation is one transaction, so nobody can reserve the same retry twice."""
    run = run_of(*retry(3, delay=10)).fail("a")

    run.report(r.TaskEnded(run.clock, "a", 1, Outcome(1)))

    assert run.follows == [e.ReportRefused("a", 1, "already_ended")]
    assert granted(run) == [(0, 1)]


def test_a_timer_that_fires_twice_starts_one_attempt():
    run = run_of(*retry(3, delay=10)).fail("a").wait(10)

    run.report(r.TimerFired(run.clock, "retry", "a", 2))

    assert run.follows == []


def test_a_timer_that_fires_early_starts_nothing():
    run = run_of(*retry(3, delay=10)).fail("a")

    run.report(r.TimerFired(run.clock + timedelta(seconds=9), "retry", "a", 2))

    assert (run.follows, run["a"].status) == ([], "backing_off")


# -- laws ------------------------------------------------------------------------------------------------------------

OUTCOMES = st.sampled_from(
    [
        Outcome(10),
        Outcome(11, stderr_tail="disk full"),
        Outcome(None, signal=9),
        Outcome(None, is_timed_out=True),
        Outcome(None, code="HTTP_4XX"),
        Outcome(1, reported=({"code": "MINE", "severity": "critical"},)),
    ]
)
KINDS = st.sampled_from(
    [
        {"codes": ("EXIT_NONZERO",)},
        {"codes": ("HTTP_4XX", "MINE")},
        {"exit_codes": (10, 137)},
        {"pattern": "disk"},
        {"any": True},
    ]
)
RULES = st.builds(
    lambda kind, max_retries, delay, max_attempts: Rule(
        **kind, max_retries=max_retries, backoff=Backoff(delay=delay), max_attempts=max_attempts
    ),
    KINDS,
    st.integers(0, 3),
    st.sampled_from([0.0, 5.0]),
    st.none() | st.integers(1, 3),
)


@settings(max_examples=examples(40, 100))
@given(
    rules=st.lists(RULES, max_size=4).map(tuple),
    outcomes=st.lists(OUTCOMES | st.just("lost"), min_size=1, max_size=20),
    max_attempts=st.none() | st.integers(1, 5),
)
@example(rules=(ANY,), outcomes=[Outcome(1)] * 5, max_attempts=None)
def test_retries_never_exceed_the_budget_of_the_rule_that_matched(rules, outcomes, max_attempts):
    run = run_of(*rules, max_attempts=max_attempts)

    for outcome in outcomes:
        run.wait(5)
        if run["a"].status == "ready":
            _report(run, outcome)

    used = granted(run)
    for index, rule in enumerate(rules):
        numbers = [number for used_rule, number in used if used_rule == index]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) <= rule.max_retries
    assert max_attempts is None or len(used) < max_attempts
    # The first retry is granted after the first attempt, and so on; what was lost was no attempt.
    for attempts, (index, _) in enumerate(used, 1):
        assert rules[index].max_attempts is None or attempts < rules[index].max_attempts
    attempts = [fact.attempt for fact in run.facts(e.AttemptScheduled)]
    assert attempts == list(range(1, len(attempts) + 1))


def _report(run: History, outcome: Outcome | str) -> None:
    if isinstance(outcome, str):
        run.lose("a")
    else:
        run.report(r.TaskEnded(run.clock, "a", run["a"].attempt, outcome))


@settings(max_examples=examples(40, 100))
@given(st.lists(RULES, max_size=6).map(tuple), OUTCOMES)
def test_a_rule_that_matches_is_never_of_a_less_specific_kind_than_another_that_would(rules, outcome):
    found: Failure = run_of().report(r.TaskEnded(T0, "a", 1, outcome)).facts(e.AttemptFailed)[0].failure
    kinds = [next(i for i, k in enumerate((x.codes, x.exit_codes, x.pattern, x.any)) if k) for x in rules]
    alone = [index for index, rule in enumerate(rules) if matching_rule((rule,), found) is not None]

    chosen = matching_rule(rules, found)

    assert chosen == min(alone, key=lambda index: (kinds[index], index), default=None)
