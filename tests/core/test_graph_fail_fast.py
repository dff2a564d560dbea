"""`fail_fast` stops the run when a failure reaches rung 5 unhandled, and not before."""

from __future__ import annotations

import pytest

from mulligan.core.model import events as e
from mulligan.testing.history import History, edge, handler, retry, step, workflow

CRITICAL = {"reported": ({"code": "SECURITY_VIOLATION", "message": "no"},)}
PLAIN: dict = {}


def failed(policy: str, outcome: dict, *others, **fields) -> History:
    """`a` has failed so, while `b` runs and `c` waits for `b`."""
    run = History(workflow(step("a", **fields), step("b"), step("c", needs=["b"]), *others, fail_fast=policy))
    return run.start().started("b").fail("a", **outcome)


def struck(run: History) -> list[tuple[str, str]]:
    return [(fact.cause, fact.reason) for fact in run.facts(e.RunStopping)]


@pytest.mark.parametrize(
    ("policy", "outcome", "strikes"),
    [
        # on_critical, the default: only a critical failure
        ("on_critical", PLAIN, False),
        ("on_critical", CRITICAL, True),
        # always: any
        ("always", PLAIN, True),
        ("always", CRITICAL, True),
        # never: none
        ("never", PLAIN, False),
        ("never", CRITICAL, False),
    ],
)
def test_the_policy_says_which_unhandled_failures_stop_the_run(policy, outcome, strikes):
    run = failed(policy, outcome)

    assert (run.state.run.stop is not None) is strikes
    assert run["c"].status == ("cancelled" if strikes else "waiting")


@pytest.mark.parametrize(
    ("of_run", "of_step", "outcome", "strikes"),
    [
        ("never", "always", PLAIN, True),
        ("on_critical", "always", PLAIN, True),
        ("never", "on_critical", CRITICAL, True),
        ("always", "never", CRITICAL, False),
        ("always", "on_critical", PLAIN, False),
    ],
)
def test_the_policy_of_a_step_is_for_its_own_failures(of_run, of_step, outcome, strikes):
    run = failed(of_run, outcome, fail_fast=of_step)
    other = History(workflow(step("a"), step("b", fail_fast=of_step), step("c"), fail_fast="never")).start()

    other.fail("a", **outcome)

    assert (run.state.run.stop is not None) is strikes
    assert other.state.run.stop is None


def test_a_failure_that_its_remediation_did_not_handle_stops_the_run_as_its_own_step_says():
    steps = step("a", next=[edge("fix", "failure")], fail_fast="always"), step("fix"), step("b")
    run = History(workflow(*steps, fail_fast="never")).start().fail("a")
    assert run.state.run.stop is None

    run.fail("fix")

    assert struck(run) == [("failed_fast", "EXIT_NONZERO in 'a'")]


def test_on_critical_is_the_default():
    run = History(workflow(step("a"), step("b"))).start().fail("a", **CRITICAL)

    assert struck(run) == [("failed_fast", "SECURITY_VIOLATION in 'a'")]
    assert run.status == "failed"


def test_what_runs_is_asked_to_end_and_the_run_fails():
    run = failed("always", PLAIN)
    stopping = run.facts(e.AttemptStopping)

    run.fail("b", exit_code=143)

    assert stopping == [e.AttemptStopping("b", 1)]
    assert run.statuses == {"a": "failed", "b": "cancelled", "c": "cancelled"}
    assert run.status == "failed"


def test_it_does_not_strike_while_a_retry_is_reserved():
    run = failed("always", PLAIN, rules=retry(1, delay=10))

    assert run.state.run.stop is None


def test_it_does_not_strike_while_the_handler_runs_nor_after_it_recovered():
    run = failed("always", PLAIN, on_failure=handler())
    during = run.state.run.stop

    run.ok("a.on_failure@1.0")

    assert (during, run.state.run.stop) == (None, None)


def test_it_does_not_strike_for_a_failure_that_may_happen():
    run = failed("always", CRITICAL, continue_on_error=True)

    assert run.state.run.stop is None


def test_it_does_not_strike_while_a_remediation_runs_nor_after_it_completed():
    run = failed("always", CRITICAL, step("fix"), next=[edge("fix", "failure")])
    during = run.state.run.stop

    run.ok("fix").ok("b").ok("c")

    assert during is None
    assert run.status == "completed"


@pytest.mark.parametrize("then", [None, "rerun", "continue"])
def test_a_critical_failure_becomes_unhandled_when_its_remediation_fails_however_harmless_that_is(then):
    run = failed("on_critical", CRITICAL, step("fix"), next=[edge("fix", "failure", then=then)])

    run.fail("fix")

    assert struck(run) == [("failed_fast", "SECURITY_VIOLATION in 'a'")]


def test_a_critical_failure_becomes_unhandled_when_its_remediation_is_skipped():
    run = History(
        workflow(step("a", next=[edge("fix", "failure")]), step("n"), step("fix", needs=["n"]), step("b"))
    ).start()

    run.fail("a", **CRITICAL)
    during = run.state.run.stop
    run.fail("n")

    assert during is None
    assert struck(run) == [("failed_fast", "SECURITY_VIOLATION in 'a'")]


def test_a_critical_failure_becomes_unhandled_when_its_remediation_fails_as_it_may():
    run = failed("on_critical", CRITICAL, step("fix", continue_on_error=True), next=[edge("fix", "failure")])

    run.fail("fix")

    assert run.state.run.stop is not None


def test_a_chain_of_remediations_is_followed_up_to_the_critical_failure():
    run = failed(
        "on_critical",
        CRITICAL,
        step("fix", next=[edge("fix2", "failure")]),
        step("fix2"),
        next=[edge("fix", "failure")],
    )

    run.fail("fix")
    during = run.state.run.stop
    run.fail("fix2")

    assert during is None
    assert struck(run) == [("failed_fast", "SECURITY_VIOLATION in 'a'")]


@pytest.mark.parametrize(
    "route",
    [
        # handles nothing
        edge("x", "failure", handles=False),
        edge("x", "always"),
        edge("end", "failure"),
    ],
)
def test_it_strikes_at_once_where_an_edge_was_taken_that_handles_nothing(route):
    others = () if route.to == "end" else (step("x"),)

    run = failed("always", PLAIN, *others, next=[route])

    assert run.state.run.stop is not None
    assert run.statuses.get("x", "cancelled") == "cancelled"


def test_a_second_failure_of_a_rerun_strikes_when_its_remediation_fails():
    run = failed("always", PLAIN, step("fix"), next=[edge("fix", "failure", then="rerun")])

    run.ok("fix").fail("a")
    during = run.state.run.stop
    run.fail("fix")

    assert during is None
    assert run.state.run.stop is not None


def test_it_strikes_once():
    run = History(workflow(step("a"), step("b"), fail_fast="always", cancel_grace=None)).start().started("b")

    run.fail("a").fail("b")

    assert len(run.facts(e.RunStopping)) == 1
    assert run.statuses == {"a": "failed", "b": "failed"}


def test_a_failure_does_not_disturb_independent_branches_unless_it_strikes():
    run = failed("on_critical", PLAIN)

    run.ok("b").ok("c")

    assert run.statuses == {"a": "failed", "b": "completed", "c": "completed"}
    assert run.status == "failed"


def test_no_step_starts_after_it_struck_whatever_timer_fires():
    run = History(
        workflow(step("a"), step("b", rules=retry(3, delay=5)), step("c", needs=["b"]), fail_fast="always")
    ).start()

    run.fail("b").fail("a").wait(60)

    assert run.statuses == {"a": "failed", "b": "failed", "c": "cancelled"}
    assert run.status == "failed"
    assert run.queued == []


def test_a_failure_that_is_allowed_does_not_strike_though_its_remediation_fails():
    flow = workflow(
        step("a", continue_on_error=True, next=[edge("fix", on="failure")]),
        step("fix", continue_on_error=True),
        step("b"),
        fail_fast="always",
    )

    run = History(flow).start().fail("a").fail("fix")

    assert (run.facts(e.RunStopping), run.queued) == ([], ["b"])
