"""Where a run starts, and `needs`: conditions on other steps."""

from __future__ import annotations

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Need
from mulligan.errors import ExpressionFailed
from mulligan.testing.history import History, edge, retry, step, workflow

# -- starts ----------------------------------------------------------------------------------------------------------


def test_steps_without_needs_and_without_incoming_edges_start_at_once():
    run = History(workflow(step("a"), step("b"), step("c", needs=["a"]), step("d", next=["e"]), step("e")))

    run.start()

    assert run.queued == ["a", "b", "d"]


def test_a_workflow_without_steps_completes_at_once():
    run = History(workflow())

    run.start()

    assert run.status == "completed"
    assert run.ended.total_steps == 0


def test_steps_are_entered_in_the_order_of_the_file():
    run = History(workflow(step("z"), step("a"), step("m")))

    run.start()

    assert [fact.step for fact in run.facts(e.StepEntered)] == ["z", "a", "m"]


# -- conditions ------------------------------------------------------------------------------------------------------

MET = {
    # condition: by how its step ended, whether it is met
    "success": {"completed": True, "failed": False, "skipped": False, "stood_in": True, "allowed": True},
    "success_or_skipped": {"completed": True, "failed": False, "skipped": True, "stood_in": True, "allowed": True},
    "always": {"completed": True, "failed": True, "skipped": True, "stood_in": True, "allowed": True},
}


def ended(outcome: str, *others) -> History:
    """A run in which step `a` has ended so, and `b` (among `others`) has a condition on it."""
    fields = {
        "skipped": {"when": "no"},
        "stood_in": {"next": [edge("fix", "failure", then="continue")]},
        "allowed": {"continue_on_error": True},
    }.get(outcome, {})
    remediation = (step("fix"),) if outcome == "stood_in" else ()
    run = History(workflow(step("a", **fields), *others, *remediation, fail_fast="never"), {"no": False}).start()
    if outcome == "completed":
        run.ok("a")
    elif outcome != "skipped":
        run.fail("a")
    return run.ok("fix") if outcome == "stood_in" else run


@pytest.mark.parametrize(("on", "outcome"), [(on, outcome) for on, row in MET.items() for outcome in row])
def test_a_need_is_met_by_the_ends_its_condition_names_and_by_no_other(on, outcome):
    run = ended(outcome, step("b", needs=[Need("a", on)]))

    expected = "ready" if MET[on][outcome] else "skipped"

    assert run["b"].status == expected


def test_all_needs_must_be_met():
    run = History(workflow(step("a"), step("b"), step("c", needs=["a", "b"]))).start()

    run.ok("a")
    waiting = run["c"].status
    run.ok("b")

    assert (waiting, run["c"].status) == ("waiting", "ready")


def test_a_step_is_skipped_as_soon_as_one_need_cannot_be_met_although_others_are_open():
    run = History(workflow(step("a"), step("slow"), step("c", needs=["slow", "a"]))).start()

    run.fail("a")

    assert run.statuses == {"a": "failed", "slow": "ready", "c": "skipped"}
    assert run.facts(e.StepSkipped) == [e.StepSkipped("c", "need_unmet")]


def test_a_skip_goes_down_the_whole_chain_in_the_same_turn():
    run = History(workflow(step("a"), step("b", needs=["a"]), step("c", needs=["b"]), step("d", needs=["c"]))).start()

    run.fail("a")

    assert run.statuses == {"a": "failed", "b": "skipped", "c": "skipped", "d": "skipped"}
    assert run.status == "failed"
    assert run.ended.skipped_steps_count == 3


def test_a_skip_does_not_disturb_a_need_that_allows_it():
    run = History(
        workflow(step("a"), step("b", needs=["a"]), step("c", needs=[Need("b", "success_or_skipped")])),
    ).start()

    run.fail("a").ok("c")

    assert run.statuses == {"a": "failed", "b": "skipped", "c": "completed"}


def test_a_second_unmet_need_says_nothing_more():
    run = History(workflow(step("a"), step("b"), step("c", needs=["a", "b"]), fail_fast="never")).start()

    run.fail("a").fail("b")

    assert len(run.facts(e.StepSkipped)) == 1


def test_mixed_conditions_are_met_together():
    run = History(
        workflow(
            step("a"),
            step("b", when="no"),
            step("c"),
            step("d", needs=["a", Need("b", "success_or_skipped"), Need("c", "always")]),
        ),
        {"no": False},
    ).start()

    run.ok("a").fail("c")

    assert run["d"].status == "ready"


def test_a_step_that_is_retried_keeps_its_dependents_waiting():
    run = History(workflow(step("a", rules=retry(1, delay=5)), step("b", needs=[Need("a", "always")]))).start()

    run.fail("a")

    assert run.statuses == {"a": "backing_off", "b": "waiting"}


def test_the_same_need_twice_is_met_once():
    run = History(workflow(step("a"), step("b", needs=["a", Need("a", "always")]))).start()

    run.ok("a").ok("b")

    assert run.status == "completed"
    assert run["b"].visit == 1


# -- `when` ----------------------------------------------------------------------------------------------------------


def test_a_step_whose_when_is_false_is_skipped_and_the_run_completes():
    run = History(workflow(step("a", when="no"), step("b", needs=["a"])), {"no": False})

    run.start()

    assert run.statuses == {"a": "skipped", "b": "skipped"}
    assert run.facts(e.StepSkipped) == [e.StepSkipped("a", "when"), e.StepSkipped("b", "need_unmet")]
    assert run.status == "completed"
    assert run["a"].visit == 0


def test_when_is_asked_only_once_the_needs_are_met():
    asked = []
    run = History(
        workflow(step("a"), step("b", needs=["a"], when="ask")), {"ask": lambda names: asked.append(1) or True}
    ).start()
    before = list(asked)

    run.ok("a")

    assert (before, asked) == ([], [1])


def test_a_when_that_cannot_be_evaluated_is_a_failure_of_the_step_that_climbs():
    run = History(
        workflow(step("a", when="bad", next=[edge("fix", "failure", codes=("EXPRESSION_FAILED",))]), step("fix")),
        {"bad": ExpressionFailed("no such key: 'x'")},
    ).start()

    failed = run.facts(e.StepFailed)[0]

    assert (failed.failure.code, failed.failure.message) == ("EXPRESSION_FAILED", "no such key: 'x'")
    assert (failed.visit, failed.failure.visit, failed.failure.attempt) == (1, 1, 1)
    assert run.statuses == {"a": "failed", "fix": "ready"}


def test_a_when_that_cannot_be_evaluated_is_not_retried_by_a_rule_for_anything():
    run = History(
        workflow(step("a", when="bad", rules=retry(5)), fail_fast="never"),
        {"bad": ExpressionFailed("no such key: 'x'")},
    ).start()

    assert run.statuses == {"a": "failed"}
    assert run.facts(e.RungPassed)[0] == e.RungPassed("a", "retry", "no_rule")
    assert run.status == "failed"


# -- branches --------------------------------------------------------------------------------------------------------


def test_a_failure_does_not_disturb_independent_branches():
    run = History(workflow(step("a"), step("a2", needs=["a"]), step("b"), step("b2", needs=["b"]))).start()

    run.fail("a").ok("b").ok("b2")

    assert run.statuses == {"a": "failed", "a2": "skipped", "b": "completed", "b2": "completed"}
    assert run.status == "failed"
