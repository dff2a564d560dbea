"""After a remediation: `then: rerun`, `then: continue`, and what is handled meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.event_types import Passed
from mulligan.core.model.workflow import Need
from mulligan.core.state.verdict import is_handled
from mulligan.errors import ExpressionFailed
from mulligan.testing.history import History, edge, handler, retry, step, workflow


def repaired(then: str | None, *others, source: dict | None = None, fix: dict | None = None, **fields) -> History:
    """`a` has failed and was sent to `fix`."""
    wanted = source or {}
    edges = [*wanted.pop("next", []), edge("fix", "failure", then=then)]
    run = History(
        workflow(step("a", next=edges, **wanted), step("fix", **(fix or {})), *others, fail_fast="never"), fields
    )
    return run.start().fail("a")


# -- rerun -----------------------------------------------------------------------------------------------------------


def test_rerun_visits_the_source_again_when_the_remediation_completes():
    run = repaired("rerun", step("b", needs=["a"]))
    waiting = run["b"].status

    run.ok("fix")
    again = (run["a"].status, run["a"].visit)
    run.ok("a").ok("b")

    assert (waiting, again) == ("waiting", ("ready", 2))
    assert run.facts(e.StepPutBack) == [e.StepPutBack("a", "rerun", "fix")]
    assert run.statuses == {"a": "completed", "fix": "completed", "b": "completed"}
    assert (run.status, run.ended.degraded) == ("completed", True)


def test_rerun_gives_the_new_visit_a_fresh_budget_of_retries():
    run = repaired("rerun", source={"rules": retry(1)}).fail("a").ok("fix")

    run.fail("a")
    retried = run["a"].status
    run.ok("a")

    assert retried == "ready"
    assert (run["a"].visit, run["a"].attempt) == (2, 4)
    assert run.status == "completed"


def test_rerun_goes_round_again_when_the_new_visit_fails_too():
    run = repaired("rerun")

    run.ok("fix").fail("a").ok("fix").ok("a")

    assert (run["a"].visit, run["fix"].visit) == (3, 2)
    assert run.status == "completed"
    assert run.ended.handled_steps_count == 1


def test_rerun_ends_at_max_visits_with_a_failure_that_another_edge_may_take():
    run = History(
        workflow(
            step("a", max_visits=2, next=[edge("fix", "failure", then="rerun"), edge("give_up", "failure")]),
            step("fix"),
            step("give_up"),
        )
    ).start()

    run.fail("a").ok("fix").fail("a").ok("fix")
    last = run.facts(e.StepFailed)[-1]
    run.ok("give_up")

    assert (last.visit, last.failure.code, last.failure.message) == (
        3,
        "LOOP_LIMIT",
        "the step was already visited 2 times (max_visits); last 'a' failed with EXIT_NONZERO 1",
    )
    assert last.route.passed == (Passed(0, "fix", "loop_limit"),)
    assert run.status == "completed"


def test_rerun_asks_the_sources_when_again_and_one_that_no_longer_holds_leaves_it_failed():
    answers = iter([True, False])
    run = History(
        workflow(step("a", when="maybe", next=[edge("fix", "failure", then="rerun")]), step("fix")),
        {"maybe": lambda names: next(answers)},
    ).start()

    run.fail("a").ok("fix")

    assert run.statuses == {"a": "failed", "fix": "completed"}
    assert run.facts(e.StepRestored) == [e.StepRestored("a", "when")]
    assert run.status == "completed"


def test_who_needs_the_source_is_skipped_when_the_remediation_fails():
    run = repaired("rerun", step("b", needs=["a"]), step("c", needs=[Need("a", "always")]))
    before = run.statuses

    run.fail("fix").ok("c")

    assert (before["b"], before["c"]) == ("waiting", "waiting")
    assert run.statuses == {"a": "failed", "fix": "failed", "b": "skipped", "c": "completed"}
    assert run.facts(e.StepSettled) == [e.StepSettled("a", "failed")]
    assert run.status == "failed"
    assert run.ended.failed_steps_count == 2


def test_a_success_edge_stays_open_while_the_remediation_runs_and_dies_when_it_fails():
    run = repaired("rerun", step("b"), source={"next": ["b"]})
    before = run["b"].status

    run.fail("fix")

    assert (before, run["b"].status) == ("waiting", "skipped")


def test_an_alert_rings_at_every_visit_that_fails():
    run = repaired("rerun", step("alert"), source={"next": [edge("alert", "failure", handles=False)]})

    run.ok("alert").ok("fix").fail("a")

    assert run.queued == ["alert", "fix"]
    assert run["alert"].visit == 2


# -- continue --------------------------------------------------------------------------------------------------------


def test_continue_stands_in_for_the_source_with_the_remediations_output():
    run = repaired("continue", step("b"), step("c", needs=["a"]), source={"next": ["b"]})

    run.ok("fix", output={"x": 1})
    entered = run.queued
    run.ok("b").ok("c")

    assert entered == ["b", "c"]
    assert run["a"].status == "failed"
    assert run["a"].output == {"x": 1}
    assert run.facts(e.StepReplaced) == [e.StepReplaced("a", "fix", {"x": 1}, (0,))]
    assert (run.status, run.ended.degraded, run.ended.handled_steps_count) == ("completed", True, 1)


def test_the_conditions_of_the_sources_edges_see_the_output_that_stands_in():
    run = repaired(
        "continue",
        step("b"),
        step("c"),
        source={"next": [edge("b", when="small"), edge("c", when="large")]},
        small=lambda names: names["output"] < 5,
        large=lambda names: names["output"] >= 5,
    )

    run.ok("fix", output=7)

    assert run.statuses == {"a": "failed", "fix": "completed", "b": "skipped", "c": "ready"}


def test_an_always_edge_taken_by_the_failure_is_not_taken_again_by_the_stand_in():
    run = repaired("continue", step("log", join="each"), source={"next": [edge("log", "always")]})

    run.ok("log").ok("fix")

    assert run["log"].visit == 1
    assert run.status == "completed"


def test_a_stand_in_whose_edges_cannot_be_chosen_fails_the_source_after_all():
    run = repaired(
        "continue", step("b"), source={"next": [edge("b", when="bad")]}, bad=ExpressionFailed("no such key: 'x'")
    )

    run.ok("fix")

    (record,) = run.state.failures
    assert (record.failure.code, record.failure.message, record.target) == ("EXPRESSION_FAILED", "no such key: 'x'", "")
    assert record.failure.cause[0].code == "EXIT_NONZERO"
    assert (run["b"].status, run.status) == ("skipped", "failed")


def test_a_stand_in_without_a_route_is_a_failure_where_the_source_says_so():
    source = {"next": [edge("b", when="no")], "no_match": "fail"}
    run = repaired("continue", step("b"), source=source, no=False)

    run.ok("fix")

    assert run.state.failures[0].failure.code == "NO_ROUTE"
    assert run.status == "failed"


def test_a_stand_in_without_a_route_is_recorded():
    run = repaired("continue", step("b"), source={"next": [edge("b", when="no")]}, no=False)

    run.ok("fix")

    assert run["a"].no_route
    assert run.status == "completed"


@pytest.mark.parametrize("end", ["fail", "skip"])
def test_a_remediation_that_does_not_complete_stands_in_for_nothing(end):
    fix = {"when": "no"} if end == "skip" else {}
    run = repaired("continue", step("b"), step("c", needs=["a"]), source={"next": ["b"]}, fix=fix, no=False)
    if end == "fail":
        run.fail("fix")

    assert (run["b"].status, run["c"].status) == ("skipped", "skipped")
    assert run["a"].output is None
    assert run.status == "failed"


def test_a_loop_edge_of_the_source_is_taken_by_the_stand_in():
    run = History(
        workflow(
            step("a", next=["b"]),
            step("b", next=[edge("a", when="again"), edge("fix", "failure", then="continue")]),
            step("fix"),
        ),
        {"again": lambda names: names["output"] == "again"},
    ).start()

    run.ok("a").fail("b").ok("fix", output="again")
    visits = (run["a"].visit, run["a"].status)
    run.ok("a").ok("b", output="enough")

    assert visits == (2, "ready")
    assert run.status == "completed"


# -- without `then` --------------------------------------------------------------------------------------------------


def test_without_then_the_remediations_own_edges_lead_on():
    run = repaired(None, step("b", needs=["a"]), step("c"), fix={"next": ["c"]})
    before = run["b"].status

    run.ok("fix").ok("c")

    assert before == "skipped"
    assert run.statuses == {"a": "failed", "fix": "completed", "b": "skipped", "c": "completed"}
    assert run.status == "completed"


def test_the_remediations_own_edges_lead_on_also_beside_a_rerun():
    run = repaired("rerun", step("c"), fix={"next": ["c"]})

    run.ok("fix")

    assert run.queued == ["a", "c"]


# -- a remediation is a step like any other --------------------------------------------------------------------------


def test_a_remediation_is_retried():
    run = repaired("rerun", fix={"rules": retry(1)})

    run.fail("fix").ok("fix").ok("a")

    assert (run.status, run["fix"].attempt) == ("completed", 2)


def test_a_remediation_has_its_own_handler():
    run = repaired("rerun", fix={"on_failure": handler()})

    run.fail("fix").ok("fix.on_failure@1.0").ok("a")

    assert run.status == "completed"


def test_a_remediation_waits_for_its_needs():
    run = repaired("rerun", step("n"), fix={"needs": ["n"]})
    before = run["fix"].status

    run.ok("n").ok("fix").ok("a")

    assert (before, run.status) == ("waiting", "completed")


def test_a_remediation_whose_need_cannot_be_met_leaves_the_failure_unhandled():
    run = repaired("rerun", step("n"), step("b", needs=["a"]), fix={"needs": ["n"]})

    run.fail("n")

    assert run.statuses == {"a": "failed", "fix": "skipped", "n": "failed", "b": "skipped"}
    assert run.ended.failed_steps_count == 2


def test_a_remediation_that_is_allowed_to_fail_leaves_the_failure_unhandled():
    run = repaired(None, fix={"continue_on_error": True})

    run.fail("fix")

    assert run.status == "failed"
    assert run.ended.failed_steps_count == 1


def test_a_remediation_that_is_skipped_leaves_the_failure_unhandled():
    run = repaired(None, fix={"when": "no"}, no=False)

    assert run.statuses == {"a": "failed", "fix": "skipped"}
    assert run.status == "failed"


def test_a_remediation_that_is_cancelled_leaves_the_failure_unhandled():
    run = repaired(None)

    run.cancel()

    assert run.status == "cancelled"
    assert run.ended.failed_steps_count == 1


def test_whether_a_failure_is_handled_is_open_until_its_remediation_has_ended():
    run = repaired(None)
    record = run.state.failures[0]
    before = is_handled(run.state, record)

    run.ok("fix")

    assert (before, is_handled(run.state, record)) == (None, True)


def test_a_step_with_a_visit_per_arrival_is_visited_again_after_its_remediation():
    flow = workflow(
        step("s", next=["x"]),
        step("x", join="each", next=[edge("fix", on="failure", then="rerun")]),
        step("fix"),
    )

    run = History(flow).start().ok("s").fail("x").ok("fix")

    assert (run["x"].visit, run.queued) == (2, ["x"])


def test_a_failure_whose_remediation_is_cancelled_is_settled():
    flow = workflow(step("a", next=[edge("fix", on="failure", then="rerun")]), step("fix"))
    run = History(flow).start().fail("a").started("fix").cancel()

    run.fail("fix", None, signal=15)

    assert run.facts(e.StepSettled) == [e.StepSettled("a", "failed")]
    assert (run.statuses, run["a"].settled) == ({"a": "failed", "fix": "cancelled"}, "failed")


def standing_in(**fields: Any) -> History:
    """A run in which `fix` is to stand in for `a`: its edges lead to `log` whatever happens and, if `good`, to `b`."""
    edges = [edge("fix", on="failure", then="continue"), edge("log", on="always"), edge("b", when="good")]
    flow = workflow(step("a", next=edges, **fields), step("fix"), step("log"), step("b"))
    return History(flow, {"good": fields.get("no_match") != "fail"}).start().fail("a")


def test_who_stands_in_takes_the_success_edges_and_no_edge_that_was_taken_before():
    run = standing_in()
    assert run.facts(e.StepFailed)[0].taken == (0, 1)

    run.ok("fix")

    assert run.facts(e.StepReplaced) == [e.StepReplaced("a", "fix", None, (2,))]
    assert run.queued == ["b", "log"]


def test_who_would_stand_in_and_finds_no_edge_that_holds_leaves_the_source_failed():
    run = standing_in(no_match="fail").ok("fix")

    (settled,) = run.facts(e.StepSettled)
    assert (settled.step, settled.outcome) == ("a", "failed")
    assert (settled.failure.code, settled.failure.message) == (
        "NO_ROUTE",
        "the condition of none of its success edges holds",
    )
    assert [cause.code for cause in settled.failure.cause] == ["EXIT_NONZERO"]
    assert run["a"].failure == settled.failure
    assert (run.state.failures[0].failure, run.state.failures[0].target, run.state.failures[0].then) == (
        settled.failure,
        "",
        "",
    )


def test_with_an_edge_that_holds_it_may_stand_in_though_none_would_be_a_failure():
    edges = [edge("fix", on="failure", then="continue"), "b"]
    flow = workflow(step("a", next=edges, no_match="fail"), step("fix"), step("b"))

    run = History(flow).start().fail("a").ok("fix")

    assert run.queued == ["b"]
