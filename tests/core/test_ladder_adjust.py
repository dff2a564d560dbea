"""Rung 1: what the next attempt gets more of: memory, time, cpus, with their caps."""

from __future__ import annotations

import pytest

from mulligan.core.deciding.classify import exceeded_limit
from mulligan.core.deciding.workers.resource_usage import proposals, ran_short
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import Adjust, Resources, Rule
from mulligan.history.phrases import describe_failure
from mulligan.history.retry_reasons import why_not
from mulligan.history.story import story
from mulligan.testing.history import History, edge, step, workflow

MIB = 2**20


def run_of(*rules: Rule, **fields: object) -> History:
    """A run of one step `a` with these rules."""
    return History(workflow(step("a", rules=rules, **fields))).start()


def adjusted(run: History) -> Adjusted | None:
    return run.facts(e.AttemptScheduled)[-1].adjusted


def out_of_memory(run: History, peak: int | None = None) -> History:
    usage = {} if peak is None else {"peak_memory": peak}
    outcome = Outcome(None, signal=9, is_out_of_memory=True)
    return run.report(r.TaskEnded(run.clock, "a", run["a"].attempt, outcome, usage=usage))


MORE_MEMORY = Rule(codes=("OUT_OF_MEMORY",), adjust=Adjust(memory=1.5, max_memory=1000 * MIB))


def test_memory_is_raised_from_what_was_asked_if_the_peak_was_lower():
    run = out_of_memory(run_of(MORE_MEMORY, resources=Resources(memory=200 * MIB)), peak=100 * MIB)

    assert adjusted(run) == Adjusted(memory=300 * MIB)


def test_memory_is_raised_from_the_peak_if_that_was_higher():
    run = out_of_memory(run_of(MORE_MEMORY, resources=Resources(memory=200 * MIB)), peak=400 * MIB)

    assert adjusted(run) == Adjusted(memory=600 * MIB)


def test_memory_is_raised_from_the_peak_if_nothing_was_asked():
    run = out_of_memory(run_of(MORE_MEMORY), peak=400 * MIB)

    assert adjusted(run) == Adjusted(memory=600 * MIB)


def test_without_a_figure_to_start_from_nothing_is_raised():
    run = out_of_memory(run_of(Rule(any=True, adjust=Adjust(memory=1.5, cpus=2.0, timeout=2.0))))

    assert adjusted(run) == Adjusted()


@pytest.mark.parametrize("said", ["lots", None, [], float("nan"), -1])
def test_a_peak_that_is_no_figure_is_not_counted_with(said):
    rule = Rule(any=True, adjust=Adjust(memory=1.5))
    report = {"code": "MINE", "details": {"peak_memory": said}}

    run = run_of(rule, resources=Resources(memory=200 * MIB)).fail("a", 1, reported=(report,))

    assert adjusted(run) == Adjusted(memory=300 * MIB)


def test_adjustments_add_up_from_retry_to_retry_until_their_cap():
    run = run_of(MORE_MEMORY, resources=Resources(memory=400 * MIB))

    found = [adjusted(out_of_memory(run)) for _ in range(3)]

    assert found == [Adjusted(memory=600 * MIB), Adjusted(memory=900 * MIB), Adjusted(memory=1000 * MIB)]


def test_a_cap_never_takes_away_what_was_asked_for():
    rule = Rule(any=True, adjust=Adjust(memory=1.5, max_memory=1000 * MIB))
    run = run_of(rule, resources=Resources(memory=2000 * MIB)).fail("a")

    assert adjusted(run) == Adjusted(memory=2000 * MIB)


def test_one_that_ran_out_of_all_that_max_memory_allows_is_not_tried_with_the_same_again():
    run = run_of(MORE_MEMORY, resources=Resources(memory=800 * MIB))

    out_of_memory(out_of_memory(run), peak=1000 * MIB)

    assert [fact.adjusted for fact in run.facts(e.RetryScheduled)] == [Adjusted(memory=1000 * MIB)]
    assert run.passed == [("retry", "max_memory_reached"), ("route", "no_route")]
    assert (run.status, run["a"].failure.details["cap"]) == ("failed", "max_memory")
    assert describe_failure(run["a"].failure) == "OUT_OF_MEMORY at 1000MiB of 1000MiB, the limit of max_memory"


@pytest.mark.parametrize(("peak", "retries"), [(999 * MIB, 1), (1000 * MIB, 0)])
def test_without_a_limit_of_its_own_it_is_what_it_used_that_reaches_max_memory(peak: int, retries: int):
    run = out_of_memory(run_of(MORE_MEMORY), peak)

    assert len(run.facts(e.RetryScheduled)) == retries


def test_one_that_was_not_done_in_max_timeout_is_not_given_the_same_time_again():
    rule = Rule(codes=("TIMEOUT",), adjust=Adjust(timeout=2.0, max_timeout=30.0))

    run = run_of(rule, timeout=30.0).fail("a", None, is_timed_out=True)

    assert run.passed[0] == ("retry", "max_timeout_reached")
    assert describe_failure(run["a"].failure) == "TIMEOUT after 30s, the limit of max_timeout"


def test_at_its_max_timeout_it_is_tried_again_as_long_as_it_gets_more_processors():
    adjust = Adjust(timeout=2.0, max_timeout=30.0, cpus=2.0, max_cpus=4.0)
    run = run_of(Rule(codes=("TIMEOUT",), adjust=adjust), timeout=30.0, resources=Resources(cpus=2.0))

    late = [run.fail("a", None, is_timed_out=True).passed[:1] for _ in range(2)]

    assert late == [[], [("retry", "max_timeout_reached")]]


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(exit_code=1),
        # Another limit struck, of which the rule gives no more anyway: it may pass.
        Outcome(reported=({"code": "TIMEOUT", "details": {"limit": "read_timeout"}},)),
        # The rule for it raises the timeout alone.
        Outcome(is_out_of_memory=True),
    ],
)
def test_a_cap_keeps_nobody_from_a_retry_who_did_not_run_out_of_what_it_is_for(outcome: Outcome):
    rule = Rule(codes=("TIMEOUT", "EXIT_NONZERO", "OUT_OF_MEMORY"), adjust=Adjust(timeout=2.0, max_timeout=30.0))
    run = run_of(rule, timeout=30.0)

    run.report(r.TaskEnded(run.clock, "a", 1, outcome))

    assert len(run.facts(e.RetryScheduled)) == 1


def test_a_rule_that_raises_nothing_retries_what_ran_out_with_the_same():
    run = out_of_memory(run_of(Rule(codes=("OUT_OF_MEMORY",)), resources=Resources(memory=200 * MIB)))

    assert (len(run.facts(e.RetryScheduled)), adjusted(run)) == (1, None)


def test_one_that_has_all_the_processors_that_its_rule_may_give_is_not_tried_again():
    rule = Rule(codes=("TIMEOUT",), adjust=Adjust(cpus=2.0, max_cpus=4.0))

    run = run_of(rule, timeout=30.0, resources=Resources(cpus=4.0)).fail("a", None, is_timed_out=True)

    assert run.passed[0] == ("retry", "max_cpus_reached")
    assert describe_failure(run["a"].failure) == "TIMEOUT after 30s, the limit of max_cpus"


def test_one_that_asked_for_no_processors_has_not_reached_max_cpus():
    rule = Rule(codes=("TIMEOUT",), adjust=Adjust(cpus=2.0, max_cpus=1.0))

    run = run_of(rule, timeout=30.0).fail("a", None, is_timed_out=True)

    assert (len(run.facts(e.RetryScheduled)), adjusted(run)) == (1, Adjusted())


@pytest.mark.parametrize(("max_timeout", "retries"), [(601.0, 1), (600.0, 0)])
def test_without_a_timeout_it_is_the_life_of_its_workers_that_reaches_max_timeout(max_timeout: float, retries: int):
    run = run_of(Rule(codes=("TIMEOUT",), adjust=Adjust(timeout=2.0, max_timeout=max_timeout)))

    run.interrupt("a", 600.0, 600.0).interrupt("a", 600.0, 600.0)

    assert [fact.adjusted for fact in run.facts(e.RetryScheduled)] == [Adjusted(timeout=601.0)] * retries


def test_the_time_that_a_request_waited_is_not_where_a_longer_timeout_begins():
    silent = {"code": "TIMEOUT", "details": {"limit": "read_timeout", "limit_seconds": 500.0}}
    run = run_of(Rule(codes=("TIMEOUT",), adjust=Adjust(timeout=2.0)), timeout=30.0)

    run.fail("a", reported=(silent,))

    assert adjusted(run) == Adjusted(timeout=60.0)


def test_the_story_and_the_grounds_say_which_cap_to_raise():
    run = out_of_memory(run_of(MORE_MEMORY, resources=Resources(memory=1000 * MIB)))

    said = [line.text for line in story(run.log, run.state.workflow)]

    reached = "max_memory of 1000MiB reached; raise it, or make the step need less"
    assert f"no retry: {reached} (the rule for OUT_OF_MEMORY)" in said
    place = run["a"]
    assert [one.reason for one in why_not(place.spec, place.climb, place.failure)] == [reached]


def test_a_cap_on_time_and_cpus_never_takes_away_what_was_asked_for():
    adjust = Adjust(timeout=2.0, max_timeout=20.0, cpus=2.0, max_cpus=1.0)
    run = run_of(Rule(any=True, adjust=adjust), timeout=30.0, resources=Resources(cpus=4.0)).fail("a")

    assert adjusted(run) == Adjusted(cpus=4.0, timeout=30.0)


def test_timeout_and_cpus_are_raised_from_what_was_asked_with_their_caps():
    adjust = Adjust(timeout=2.0, max_timeout=90.0, cpus=2.0, max_cpus=3.0)
    run = run_of(Rule(codes=("TIMEOUT",), adjust=adjust), timeout=30.0, resources=Resources(cpus=1.0))

    found = [adjusted(run.fail("a", None, is_timed_out=True)) for _ in range(2)]

    assert found == [Adjusted(cpus=2.0, timeout=60.0), Adjusted(cpus=3.0, timeout=90.0)]


def test_what_one_rule_raised_stays_when_another_grants_the_next_retry():
    more_time = Rule(codes=("TIMEOUT",), adjust=Adjust(timeout=2.0))
    run = run_of(MORE_MEMORY, more_time, Rule(any=True), timeout=30.0, resources=Resources(memory=200 * MIB))

    out_of_memory(run).fail("a", None, is_timed_out=True).fail("a")

    assert adjusted(run) == Adjusted(memory=300 * MIB, timeout=60.0)


def test_cpus_and_time_stay_raised_when_another_rule_raises_the_memory():
    more_of_all = Rule(codes=("TIMEOUT",), adjust=Adjust(timeout=2.0, cpus=2.0))
    run = run_of(MORE_MEMORY, more_of_all, timeout=30.0, resources=Resources(memory=200 * MIB, cpus=1.0))

    out_of_memory(run.fail("a", None, is_timed_out=True))

    assert adjusted(run) == Adjusted(memory=300 * MIB, cpus=2.0, timeout=60.0)


def test_a_new_visit_starts_with_what_the_workflow_says():
    flow = workflow(
        step("a", rules=(MORE_MEMORY,), resources=Resources(memory=200 * MIB), next=[edge("a2", on="failure")]),
        step("a2", next=[edge("a", when="again")]),
    )
    run = out_of_memory(History(flow).start()).fail("a").ok("a2")

    assert (run["a"].visit, adjusted(run)) == (2, None)


def test_a_success_that_had_more_memory_than_it_asks_for_carries_a_warning():
    run = run_of(resources=Resources(memory=60 * MIB))

    run.report(r.TaskEnded(run.clock, "a", 1, usage={"peak_memory": 128 * MIB}))

    [warning] = run["a"].warnings
    assert (warning.code, warning.severity) == ("OUT_OF_MEMORY", "warning")
    assert (warning.step, warning.message) == ("a", "used 128MiB of memory, more than the 60MiB it asks for")
    assert run.status == "completed"


@pytest.mark.parametrize("usage", [{}, {"peak_memory": 60 * MIB}, {"peak_memory": "much"}])
def test_one_that_kept_to_it_carries_none(usage: dict[str, object]):
    run = run_of(resources=Resources(memory=60 * MIB))

    run.report(r.TaskEnded(run.clock, "a", 1, usage=usage))

    assert run["a"].warnings == ()


# -- what a step raises itself -----------------------------------------------------------------------------------------


def raised(run: History, name: str, peak: int | None = None) -> History:
    usage = {} if peak is None else {"peak_memory": peak}
    outcome = Outcome(code="EXCEPTION", exit_code=None, message=f"{name}: no", exceptions=(name, "Exception"))
    return run.report(r.TaskEnded(run.clock, "a", run["a"].attempt, outcome, usage=usage))


def test_a_memory_error_gets_more_than_the_limit_that_it_had():
    run = raised(run_of(MORE_MEMORY, resources=Resources(memory=200 * MIB)), "MemoryError", peak=100 * MIB)

    assert adjusted(run) == Adjusted(memory=300 * MIB)


def test_a_memory_error_without_a_limit_gets_none_from_a_peak_that_says_nothing():
    """A step that asks for 100 TiB at once has used 40 MiB: a limit of 60 MiB would kill the next attempt."""
    run = raised(run_of(MORE_MEMORY), "MemoryError", peak=40 * MIB)

    assert adjusted(run) == Adjusted()
    assert run.facts(e.RetryScheduled) != []


def test_a_memory_error_without_a_limit_has_reached_no_cap_whatever_it_used():
    run = raised(run_of(MORE_MEMORY), "MemoryError", peak=2000 * MIB)

    assert run.facts(e.RetryScheduled) != []


def test_a_memory_error_is_no_kill_in_what_is_said_and_proposed():
    run = raised(run_of(), "MemoryError", peak=40 * MIB)
    found = run["a"].failure
    assert found is not None

    assert describe_failure(found) == "OUT_OF_MEMORY: MemoryError: no"
    assert not ran_short(found)
    assert proposals(run.state, ["a"], {"a": 40 * MIB}) == ()


def test_a_timeout_error_is_no_limit_of_the_step():
    rule = Rule(codes=("TIMEOUT",), adjust=Adjust(timeout=2.0, max_timeout=10.0))

    run = raised(run_of(rule, timeout=10.0), "TimeoutError")

    found = run.facts(e.AttemptFailed)[-1].failure
    assert (exceeded_limit(found), found.details, describe_failure(found)) == (
        "own",
        {"limit": "own"},
        "TIMEOUT: TimeoutError: no",
    )
    assert not ran_short(found)
    # The cap is reached, and is not why it failed.
    assert run.facts(e.RetryScheduled) != []


@pytest.mark.parametrize("code", ["TIMEOUT", "OUT_OF_MEMORY"])
def test_what_a_worker_says_before_the_step_has_begun_is_no_limit_of_the_step(code: str):
    """Such as the command of a secret, which has a time limit of its own."""
    run = run_of(timeout=10.0).fail("a", None, code=code, message="its command took longer than 10s")

    assert run.facts(e.AttemptFailed)[-1].failure.details == {"limit": "own"}
