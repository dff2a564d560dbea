"""`continue_on_error`: a failure that is allowed, and all its consequences."""

from __future__ import annotations

from mulligan.core.model.workflow import Need
from mulligan.errors import ExpressionFailed
from mulligan.testing.history import History, edge, retry, step, workflow


def test_an_allowed_failure_takes_the_success_edges_and_meets_needs_and_the_run_completes_degraded():
    run = History(workflow(step("a", continue_on_error=True, next=["b"]), step("b"), step("c", needs=["a"]))).start()

    run.fail("a").ok("b").ok("c")

    assert run.statuses == {"a": "failed", "b": "completed", "c": "completed"}
    assert (run.status, run.ended.degraded) == ("completed", True)
    assert run["a"].output is None
    assert (run.ended.failed_steps_count, run.ended.handled_steps_count) == (0, 0)


def test_the_edges_of_an_allowed_failure_see_a_null_output():
    seen = []
    run = History(
        workflow(step("a", continue_on_error=True, next=[edge("b", when="look")]), step("b")),
        {"look": lambda names: seen.append(names["output"]) or True},
    ).start()

    run.fail("a")

    assert seen == [None]
    assert run.queued == ["b"]


def test_a_condition_that_cannot_read_the_null_output_of_an_allowed_failure_does_not_hold():
    run = History(
        workflow(step("a", continue_on_error=True, next=[edge("b", when="bad")]), step("b")),
        {"bad": ExpressionFailed("no such key: 'x'")},
    ).start()

    run.fail("a")

    assert run.statuses == {"a": "failed", "b": "skipped"}
    assert run.status == "completed"


def test_an_allowed_failure_with_a_chosen_failure_edge_takes_no_success_edge_and_meets_no_need():
    run = History(
        workflow(
            step("a", continue_on_error=True, next=["b", edge("fix", "failure")]),
            step("b"),
            step("c", needs=["a"]),
            step("fix"),
        )
    ).start()

    run.fail("a")

    assert run.statuses == {"a": "failed", "b": "skipped", "c": "skipped", "fix": "ready"}


def test_an_allowed_failure_stays_allowed_when_its_remediation_comes_to_nothing():
    run = History(
        workflow(step("a", continue_on_error=True, next=[edge("fix", "failure")]), step("fix", when="no")),
        {"no": False},
    ).start()

    run.fail("a")

    assert run.status == "completed"


def test_an_allowed_failure_beside_an_alert_still_takes_its_success_edges():
    run = History(
        workflow(
            step("a", continue_on_error=True, next=["b", edge("alert", "failure", handles=False)]),
            step("b"),
            step("alert"),
        )
    ).start()

    run.fail("a")

    assert run.queued == ["alert", "b"]


def test_an_allowed_failure_is_retried_and_handled_first():
    run = History(workflow(step("a", continue_on_error=True, rules=retry(1), next=["b"]), step("b"))).start()

    run.fail("a")
    again = run.statuses
    run.fail("a")

    assert again == {"a": "ready", "b": "waiting"}
    assert run.queued == ["b"]


def test_an_allowed_failure_counts_as_ended_but_not_as_skipped():
    run = History(
        workflow(
            step("a", continue_on_error=True),
            step("b", needs=[Need("a", "always")]),
            step("c", needs=[Need("a", "success_or_skipped")]),
        )
    ).start()

    run.fail("a")

    assert run.queued == ["b", "c"]


def test_an_edge_to_end_does_not_keep_an_allowed_failure_from_its_success_edges():
    run = History(
        workflow(
            step("a", continue_on_error=True, next=["b", edge("end", "failure")]), step("b"), step("c", needs=["a"])
        )
    ).start()

    run.fail("a")

    assert run.queued == ["b", "c"]
