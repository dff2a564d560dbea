"""Remediations that have their own remediation, are shared, or run in a loop."""

from __future__ import annotations

import pytest

from mulligan.core.effects.run_lists import unhandled_by_records
from mulligan.core.model import events as e
from mulligan.history.route_outcomes import describe_route_outcome
from mulligan.testing.history import History, edge, step, workflow


def repaired(then: str | None, *others, source: dict | None = None, fix: dict | None = None, **fields) -> History:
    """`a` has failed and was sent to `fix`."""
    wanted = source or {}
    edges = [*wanted.pop("next", []), edge("fix", "failure", then=then)]
    run = History(
        workflow(step("a", next=edges, **wanted), step("fix", **(fix or {})), *others, fail_fast="never"), fields
    )
    return run.start().fail("a")


# -- chains ----------------------------------------------------------------------------------------------------------


def chained(inner: str | None, outer: str | None = "rerun", *others) -> History:
    """`a` failed and was sent to `fix`, which failed and was sent to `fix2`."""
    return (
        History(
            workflow(
                step("a", next=[edge("fix", "failure", then=outer)]),
                step("fix", next=[edge("fix2", "failure", then=inner)]),
                step("fix2"),
                *others,
                step("b", needs=["a"]),
                fail_fast="never",
            )
        )
        .start()
        .fail("a")
        .fail("fix")
    )


def test_a_failure_is_handled_if_its_remediation_fails_and_is_handled_in_turn():
    run = chained(None, None).ok("fix2")

    assert run.statuses == {"a": "failed", "fix": "failed", "fix2": "completed", "b": "skipped"}
    assert (run.status, run.ended.handled_steps_count) == ("completed", 2)


def test_a_failure_is_unhandled_if_the_last_of_a_chain_fails():
    run = chained(None, None).fail("fix2")

    assert (run.status, run.ended.failed_steps_count) == ("failed", 3)


def test_the_source_waits_while_its_remediation_is_being_repaired():
    run = chained("rerun")

    assert run.statuses == {"a": "failed", "fix": "failed", "fix2": "ready", "b": "waiting"}
    assert run.facts(e.StepSettled) == []


def test_the_source_is_visited_again_when_its_remediation_completes_at_its_second_visit():
    run = chained("rerun")

    run.ok("fix2").ok("fix").ok("a").ok("b")

    assert [(f.step, f.visit) for f in run.facts(e.StepCompleted)][:3] == [("fix2", 1), ("fix", 2), ("a", 2)]
    assert run.status == "completed"


def test_the_source_is_visited_again_when_its_remediation_was_stood_in_for():
    run = chained("continue")

    run.ok("fix2").ok("a").ok("b")

    assert run["a"].visit == 2
    assert run.statuses == {"a": "completed", "fix": "failed", "fix2": "completed", "b": "completed"}
    assert run.status == "completed"


def test_what_stands_in_for_the_remediation_stands_in_for_the_source():
    run = chained("continue", "continue")

    run.ok("fix2", output=5).ok("b")

    assert (run["fix"].output, run["a"].output) == (5, 5)
    assert run.status == "completed"


def test_a_remediation_that_failed_and_led_on_elsewhere_does_not_bring_the_source_back():
    run = chained(None)

    run.ok("fix2")

    assert run.statuses == {"a": "failed", "fix": "failed", "fix2": "completed", "b": "skipped"}
    assert run.status == "completed"


def test_a_chain_that_breaks_settles_every_link():
    run = chained("rerun")

    run.fail("fix2")

    assert run.facts(e.StepSettled) == [e.StepSettled("fix", "failed"), e.StepSettled("a", "failed")]
    assert run["b"].status == "skipped"
    assert run.ended.failed_steps_count == 3


def test_the_second_visit_of_a_remediation_is_told_what_it_is_to_repair():
    run = chained("rerun").ok("fix2")

    told = [run.state.failures[index].step for index in run.state.informed[("fix", 2)]]

    assert told == ["a"]


# -- shared ----------------------------------------------------------------------------------------------------------


def shared(then: str, join: str = "any") -> History:
    edges = [edge("fix", "failure", then=then)]
    return History(
        workflow(step("a", next=edges), step("b", next=edges), step("fix", join=join), fail_fast="never")
    ).start()


def test_two_sources_share_one_visit_of_a_remediation_and_both_run_again():
    run = shared("rerun")

    run.fail("a")
    waiting = run["fix"].status
    run.fail("b").ok("fix")

    assert waiting == "waiting"
    assert run["fix"].visit == 1
    assert run.queued == ["a", "b"]


def test_one_visit_stands_in_for_two_sources():
    run = shared("continue").fail("a").fail("b").ok("fix", output=3)

    assert (run["a"].output, run["b"].output) == (3, 3)
    assert (run.status, run.ended.handled_steps_count) == ("completed", 2)


def test_a_remediation_of_one_source_waits_until_the_other_has_ended():
    run = shared("rerun").fail("a").ok("b")

    assert run["fix"].status == "ready"
    assert run.ok("fix").ok("a").status == "completed"


def test_a_source_that_fails_again_waits_for_the_other_before_the_remediation_is_visited_again():
    run = shared("rerun").fail("a").fail("b").ok("fix")

    run.fail("a")
    waiting = run["fix"].status
    run.ok("b")

    assert (waiting, run["fix"].status, run["fix"].visit) == ("waiting", "ready", 2)
    assert run.ok("fix").ok("a").status == "completed"


def test_with_join_each_every_source_has_a_visit_of_its_own():
    run = shared("rerun", "each").fail("a").fail("b")
    first = (run["fix"].visit, run["fix"].arrival)

    run.ok("fix")
    between = run.queued
    run.ok("fix")

    assert first == (1, "a#0")
    assert between == ["a", "fix"]
    assert run.queued == ["a", "b"]


def test_a_shared_remediation_does_not_wait_for_a_source_that_waits_for_it():
    edges = [edge("fix", "failure", then="rerun")]
    run = History(workflow(step("a", next=edges), step("b", needs=["a"], next=edges), step("fix"))).start()

    run.fail("a")
    first = run.queued
    run.ok("fix").ok("a").fail("b").ok("fix").ok("b")

    assert first == ["fix"]
    assert run.statuses == {"a": "completed", "b": "completed", "fix": "completed"}
    assert run.status == "completed"


def test_a_rerun_of_a_join_each_is_for_the_arrival_that_failed_and_loses_none():
    run = History(
        workflow(
            *(step(s, next=["j"]) for s in "xy"),
            step("j", join="each", next=[edge("fix", "failure", then="rerun")]),
            step("fix"),
        )
    ).start()

    run.ok("x").ok("y").fail("j")
    during = run["j"].status
    run.ok("fix")
    again = run["j"].arrival
    run.ok("j")
    last = run["j"].arrival
    run.ok("j")

    assert during == "failed"
    assert (again, last) == ("x#0", "y#0")
    assert run["j"].visit == 3
    assert run.status == "completed"


# -- in vain --------------------------------------------------------------------------------------------------------


def test_a_stopped_run_reruns_nothing():
    run = repaired("rerun").started("fix").cancel()

    run.ok("fix")

    assert run.statuses == {"a": "failed", "fix": "completed"}
    assert run["a"].visit == 1
    assert run.status == "cancelled"


def test_all_failures_that_wait_at_a_join_each_come_to_nothing_when_it_is_skipped():
    edges = [edge("fix", "failure", then="rerun")]
    run = History(
        workflow(
            step("n"),
            *(step(name, next=edges) for name in "abc"),
            step("fix", join="each", needs=["n"]),
            *(step(f"after_{name}", needs=[name]) for name in "abc"),
            step("other"),
        )
    ).start()

    run.fail("a").fail("b").fail("c").fail("n")

    assert {run[f"after_{name}"].status for name in "abc"} == {"skipped"}
    assert {run[name].settled for name in "abc"} == {"failed"}
    assert run.queued == ["other"]


def test_a_remediation_that_goes_round_in_a_loop_brings_the_source_back_when_it_stays():
    run = repaired("rerun", fix={"next": [edge("fix", when="again")]}, again=lambda names: names["output"] == "again")

    run.ok("fix", output="again").ok("fix", output="again")
    waiting = (run["a"].visit, run["fix"].visit)
    told = run.state.informed[("fix", 3)]
    run.ok("fix").ok("a")

    assert waiting == (1, 3)
    assert told == (0,)
    assert run["a"].visit == 2
    assert run.status == "completed"


def test_a_remediation_that_fails_in_its_loop_lets_the_source_be():
    run = repaired(
        "rerun",
        step("b", needs=["a"]),
        fix={"next": [edge("fix", when="again")]},
        again=lambda names: names["output"] == "again",
    )

    run.ok("fix", output="again").fail("fix")

    assert run.statuses == {"a": "failed", "fix": "failed", "b": "skipped"}
    assert run["a"].settled == "failed"
    assert run.status == "failed"


def test_a_remediation_that_is_allowed_to_fail_handles_nothing_although_its_own_failure_is_handled():
    run = History(
        workflow(
            step("a", next=[edge("fix", "failure")]),
            step("fix", continue_on_error=True, next=[edge("fix2", "failure")]),
            step("fix2"),
            fail_fast="never",
        )
    ).start()

    run.fail("a").fail("fix").ok("fix2")

    assert (run.status, run.ended.failed_steps_count, run.ended.handled_steps_count) == ("failed", 1, 1)


# -- visits that do not happen ---------------------------------------------------------------------------------------


def test_a_failure_sent_to_a_visit_that_is_target_skipped_is_not_repaired_by_the_visit_before():
    flow = workflow(
        *(step(name, next=[edge("fix", on="failure", then="rerun")]) for name in ("a", "b")),
        step("fix", join="each", when="usable"),
        fail_fast="never",
    )
    usable = iter([True, False])
    run = History(flow, {"usable": lambda _: next(usable)}).start().fail("a").ok("fix").ok("a")
    assert run.statuses == {"a": "completed", "b": "ready", "fix": "completed"}

    run.fail("b")

    assert run.facts(e.StepSettled) == [e.StepSettled("b", "failed")]
    assert (run.status, run.statuses) == ("failed", {"a": "completed", "b": "failed", "fix": "completed"})


@pytest.mark.parametrize("then", [None, "rerun", "continue"])
def test_a_failure_sent_to_a_visit_that_is_target_skipped_is_not_handled_by_a_later_one_with_its_number(then):
    flow = workflow(
        step("a", next=[edge("fix", on="failure", then=then)]),
        step("b", next=["fix"]),
        step("fix", join="each", when="usable"),
        fail_fast="never",
    )
    usable = iter([False, True])
    run = History(flow, {"usable": lambda _: next(usable)}).start().fail("a").ok("b")
    assert run["fix"].visit == 1

    run.ok("fix")

    assert (run.status, run.ended.failed_steps_count, run.ended.handled_steps_count) == ("failed", 1, 0)
    [record] = run.state.failures
    assert describe_route_outcome(run.state, record)[0] == "routed to 'fix', which was skipped: not handled"
    assert unhandled_by_records([record]) == [record]


def test_fail_fast_strikes_for_each_failure_that_waited_for_a_visit_that_is_target_skipped():
    flow = workflow(
        *(step(name, next=[edge("fix", on="failure")]) for name in ("a", "b")),
        step("fix", join="each", needs=["gone"]),
        step("gone"),
        step("other"),
    )
    run = History(flow).start().fail("a").fail("b", reported=({"code": "SECURITY_VIOLATION", "severity": "critical"},))
    assert run.facts(e.RunStopping) == []

    run.fail("gone")

    assert [(fact.cause, fact.reason) for fact in run.facts(e.RunStopping)] == [
        ("failed_fast", "SECURITY_VIOLATION in 'b'")
    ]


def test_a_step_that_is_repaired_at_once_is_visited_again_once_though_more_arrivals_wait():
    flow = workflow(
        *(step(name, next=["x"]) for name in ("a", "b")),
        step("x", join="each", next=[edge("fix", on="failure", then="rerun")]),
        step("fix", action=None),
    )
    run = History(flow).start().ok("a").ok("b")

    run.fail("x")
    assert (run["x"].visit, run["x"].status, run["fix"].status) == (2, "ready", "completed")

    assert (run.ok("x")["x"].visit, run.ok("x").status) == (3, "completed")
