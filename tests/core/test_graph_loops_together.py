"""Loops: several at once, loops on failure edges, and where a loop ends."""

from __future__ import annotations

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Need
from mulligan.testing.history import History, edge, step, workflow


def says(word: str):
    """An answer: whether the output is this word."""
    return lambda names: names["output"] == word


AGAIN = {"again": says("again")}


def back(to: str, **fields):
    """An edge that is taken when the output is "again"."""
    return edge(to, when="again", **fields)


# -- several loops ---------------------------------------------------------------------------------------------------


def test_two_branches_that_go_back_to_the_same_step_do_so_together_once():
    run = History(
        workflow(step("a", next=["b", "c"]), step("b", next=[back("a")]), step("c", next=[back("a")])), AGAIN
    ).start()

    run.ok("a").ok("b", output="again").ok("c", output="again")
    visits = [run[name].visit for name in "abc"]
    run.ok("a").ok("b").ok("c")

    assert visits == [2, 1, 1]
    assert len(run.facts(e.LoopFired)) == 1
    assert run.status == "completed"


def test_a_loop_that_was_void_is_not_taken_again_by_a_step_that_is_only_restored():
    run = History(
        workflow(
            step("a", next=["b", edge("c", when="both")]), step("b", next=[back("a")]), step("c", next=[back("a")])
        ),
        {**AGAIN, "both": says("both")},
    ).start()

    run.ok("a", output="both").ok("b", output="again").ok("c", output="again").ok("a").ok("b")

    assert [run[name].visit for name in "abc"] == [2, 2, 1]
    assert run.status == "completed"


def test_overlapping_loops_each_put_back_what_lies_ahead_of_their_own_target():
    run = History(
        workflow(
            step("a", next=["b"]),
            step("b", next=["c"]),
            step("c", next=[edge("a", when="to_a"), "d"]),
            step("d", next=[edge("b", when="to_b")]),
        ),
        {"to_a": says("to_a"), "to_b": says("to_b")},
    ).start()

    run.ok("a").ok("b").ok("c").ok("d", output="to_b")
    first = run.statuses
    run.ok("b").ok("c", output="to_a")
    second = run.statuses
    run.ok("a").ok("b").ok("c").ok("d")

    assert first == {"a": "completed", "b": "ready", "c": "waiting", "d": "waiting"}
    assert second == {"a": "ready", "b": "waiting", "c": "waiting", "d": "waiting"}
    assert [run[name].visit for name in "abcd"] == [2, 3, 3, 2]
    assert run.status == "completed"


# -- failure edges ---------------------------------------------------------------------------------------------------


def test_a_failure_edge_may_be_a_loop_and_the_failure_is_handled_when_that_visit_completes():
    run = History(workflow(step("a", is_start=True, next=["b"]), step("b", next=[edge("a", "failure")]))).start()

    run.ok("a").fail("b").ok("a").ok("b")

    assert run.facts(e.StepFailed)[0].route.visit == 2
    assert (run.status, run.ended.degraded) == ("completed", True)


def test_a_failure_sent_back_to_a_visit_that_fails_is_unhandled():
    run = History(
        workflow(step("a", is_start=True, next=["b"]), step("b", next=[edge("a", "failure")]), fail_fast="never")
    ).start()

    run.ok("a").fail("b").fail("a")

    assert run.statuses == {"a": "failed", "b": "failed"}
    assert (run.status, run.ended.failed_steps_count) == ("failed", 2)


def test_a_failure_may_go_back_to_its_own_step():
    run = History(workflow(step("a", max_visits=2, next=[edge("a", "failure")]))).start()

    run.fail("a").fail("a")

    assert run.facts(e.StepFailed)[-1].failure.code == "LOOP_LIMIT"
    assert run["a"].visit == 3
    assert run.status == "failed"


def test_an_alert_rings_beside_a_failure_that_goes_back():
    run = History(
        workflow(
            step("a", is_start=True, next=["b"]),
            step("b", next=[edge("a", "failure"), edge("alert", "failure", handles=False)]),
            step("alert"),
        )
    ).start()

    run.ok("a").fail("b")
    first = run.queued
    run.ok("alert")

    assert first == ["alert"]
    assert run.queued == ["a"]


def test_who_needs_a_step_that_failed_and_goes_back_is_not_skipped():
    run = History(
        workflow(step("a", is_start=True, next=["b"]), step("b", next=[edge("a", "failure")]), step("c", needs=["b"]))
    ).start()

    run.ok("a").fail("b")
    between = run["c"].status
    run.ok("a").ok("b").ok("c")

    assert between == "waiting"
    assert run.facts(e.StepSkipped) == []
    assert run.status == "completed"


def test_who_waits_for_the_end_of_a_step_that_failed_and_goes_back_does_not_run_in_between():
    run = History(
        workflow(
            step("a", is_start=True, next=["b"]),
            step("b", next=[edge("a", "failure")]),
            step("c", needs=[Need("b", "always")]),
        )
    ).start()

    run.ok("a").fail("b")

    assert run.queued == ["a"]


# -- max_visits ------------------------------------------------------------------------------------------------------


def test_the_visit_beyond_max_visits_fails_at_once_and_starts_nothing():
    run = History(workflow(step("a", max_visits=3, next=["a"]))).start()

    run.ok("a").ok("a").ok("a")
    failed = run.facts(e.StepFailed)[0]

    assert (failed.visit, failed.failure.code) == (4, "LOOP_LIMIT")
    assert failed.failure.message == "the step was already visited 3 times (max_visits)"
    assert run.queued == []
    assert run.status == "failed"


def test_ten_visits_are_allowed_unless_the_step_says_otherwise():
    run = History(workflow(step("a", next=["a"]))).start()

    for _ in range(10):
        run.ok("a")

    assert run["a"].visit == 11
    assert run["a"].failure.code == "LOOP_LIMIT"


def test_the_loop_limit_can_be_routed():
    run = History(
        workflow(step("a", max_visits=1, next=["a", edge("fix", "failure", codes=("LOOP_LIMIT",))]), step("fix"))
    ).start()

    run.ok("a").ok("fix")

    assert run.statuses == {"a": "failed", "fix": "completed"}
    assert run.status == "completed"


def test_the_loop_limit_of_a_target_leaves_the_steps_behind_it_as_they_were():
    run = History(workflow(step("a", max_visits=1, next=["b"]), step("b", next=["a"]), step("c", needs=["b"]))).start()

    run.ok("a").ok("b")

    assert run.statuses == {"a": "failed", "b": "completed", "c": "skipped"}
    assert run.status == "failed"


def test_a_closed_target_is_not_looped_to_any_more_and_the_rest_goes_on():
    run = History(
        workflow(step("a", max_visits=1, next=[edge("b", "always")]), step("b", next=["a", "c"]), step("c"))
    ).start()

    run.ok("a").ok("b").ok("b").ok("c")

    assert [run[name].visit for name in "abc"] == [2, 2, 1]
    assert run["c"].status == "completed"
    assert run.status == "failed"


def test_max_visits_bounds_join_each_too():
    run = History(
        workflow(*(step(s, next=["j"]) for s in "abc"), step("j", join="each", max_visits=1), fail_fast="never")
    ).start()

    run.ok("a").ok("b").ok("c").ok("j")

    assert run["j"].visit == 2
    assert run["j"].failure.code == "LOOP_LIMIT"
    assert run.status == "failed"


def test_arrivals_that_wait_together_at_a_join_each_do_not_close_it():
    run = History(
        workflow(step("n"), *(step(s, next=["j"]) for s in "abc"), step("j", needs=["n"], join="each", max_visits=2))
    ).start()

    run.ok("a").ok("b").ok("c").ok("n").ok("j").ok("j")

    assert run["j"].visit == 3
    assert run["j"].failure.code == "LOOP_LIMIT"
    assert run.status == "failed"
