"""`join`, which is about arrivals, and needs together with arrivals."""

from __future__ import annotations

from itertools import permutations

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.event_types import Passed
from mulligan.testing.history import History, edge, step, workflow


def joined(join: str, *ends: str, **fields) -> History:
    """`a`, `b`, … lead to `j`, which joins them so; they end in this order: taken or dead."""
    sources = "abc"[: len(ends)] if ends else "ab"
    run = History(workflow(*(step(s, next=["j"]) for s in sources), step("j", join=join, **fields), fail_fast="never"))
    run.start()
    for source, end in zip(sources, ends, strict=False):
        if end == "taken":
            run.ok(source)
        elif end == "dead":
            run.fail(source)
    return run


@pytest.mark.parametrize(
    ("join", "ends", "status"),
    [
        # any: waits until every edge is decided, runs if one was taken
        ("any", ["taken", "taken"], "ready"),
        ("any", ["taken", "dead"], "ready"),
        ("any", ["dead", "taken"], "ready"),
        ("any", ["dead", "dead"], "skipped"),
        ("any", ["taken", "open"], "waiting"),
        ("any", ["dead", "open"], "waiting"),
        ("any", ["dead", "taken", "dead"], "ready"),
        # all: the first dead edge is enough to skip
        ("all", ["taken", "taken"], "ready"),
        ("all", ["taken", "dead"], "skipped"),
        ("all", ["dead", "taken"], "skipped"),
        ("all", ["dead", "dead"], "skipped"),
        ("all", ["taken", "open"], "waiting"),
        ("all", ["dead", "open"], "skipped"),
        ("all", ["taken", "taken", "taken"], "ready"),
        # first: does not wait for the others
        ("first", ["taken", "open"], "ready"),
        ("first", ["taken", "dead"], "ready"),
        ("first", ["dead", "taken"], "ready"),
        ("first", ["dead", "open"], "waiting"),
        ("first", ["dead", "dead"], "skipped"),
        # each: a visit for the first arrival at once
        ("each", ["taken", "open"], "ready"),
        ("each", ["taken", "dead"], "ready"),
        ("each", ["dead", "taken"], "ready"),
        ("each", ["dead", "open"], "waiting"),
        ("each", ["dead", "dead"], "skipped"),
    ],
)
def test_a_join_holds_or_waits_or_never_will(join, ends, status):
    run = joined(join, *ends)

    assert run["j"].status == status


@pytest.mark.parametrize("order", list(permutations("abc")))
@pytest.mark.parametrize(("join", "visits"), [("any", 1), ("all", 1), ("first", 1), ("each", 3)])
def test_the_order_of_arrivals_does_not_change_how_often_a_join_is_visited(join, visits, order):
    run = History(workflow(*(step(s, next=["j"]) for s in "abc"), step("j", join=join))).start()

    run.ok(*order)
    while run.queued:
        run.ok(*run.queued)

    assert run["j"].visit == visits
    assert run.status == "completed"


# -- first -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_over", [False, True])
def test_a_late_arrival_at_join_first_is_recorded_and_ignored(is_over):
    run = joined("first", "taken", "open")
    if is_over:
        run.ok("j")

    run.ok("b")

    assert [f.taken for f in run.facts(e.StepCompleted) if f.step == "b"] == [(0,)]
    assert run["j"].visit == 1
    assert run["j"].queue == ()


def test_a_failure_sent_to_a_join_first_that_was_entered_already_is_not_routed_there():
    run = History(
        workflow(*(step(s, next=[edge("fix", "failure")]) for s in "ab"), step("fix", join="first"), fail_fast="never")
    ).start()

    run.fail("a").fail("b").ok("fix")
    second = run.facts(e.StepFailed)[1]

    assert second.route.passed == (Passed(0, "fix", "already_entered"),)
    assert (run.status, run.ended.handled_steps_count, run.ended.failed_steps_count) == ("failed", 1, 1)


# -- each ------------------------------------------------------------------------------------------------------------


def test_visits_of_join_each_come_one_after_the_other():
    run = joined("each", "taken", "taken", "taken")
    seen = []

    while run.queued:
        seen.append((run["j"].visit, run["j"].arrival, len(run["j"].queue)))
        run.ok("j")

    assert seen == [(1, "a#0", 2), (2, "b#0", 1), (3, "c#0", 0)]
    assert [f.visit for f in run.facts(e.StepCompleted) if f.step == "j"] == [1, 2, 3]
    assert run.status == "completed"


def test_an_arrival_during_a_visit_of_join_each_waits_for_its_own():
    run = joined("each", "taken", "open")

    run.ok("b")
    during = run["j"].visit
    run.ok("j")

    assert (during, run["j"].visit, run["j"].status) == (1, 2, "ready")
    assert run.facts(e.StepPutBack) == [e.StepPutBack("j", "arrival", "b")]


def test_an_arrival_after_a_visit_of_join_each_brings_another():
    run = joined("each", "taken", "open").ok("j")
    between = (run["j"].status, run.status)

    run.ok("b").ok("j")

    assert between == ("completed", "running")
    assert run["j"].visit == 2
    assert run.status == "completed"


def test_who_needs_a_join_each_waits_for_its_last_visit():
    run = History(
        workflow(step("a", next=["j"]), step("b", next=["j"]), step("j", join="each"), step("after", needs=["j"]))
    ).start()

    run.ok("a").ok("j")
    between = run["after"].status
    run.ok("b").ok("j")

    assert (between, run["after"].status) == ("waiting", "ready")


def test_who_needs_a_join_each_goes_on_when_the_last_arrival_dies():
    run = History(
        workflow(
            *(step(s, next=["j"]) for s in "ab"), step("j", join="each"), step("after", needs=["j"]), fail_fast="never"
        )
    ).start()

    run.ok("a").ok("j").fail("b")

    assert run.facts(e.StepSettled) == [e.StepSettled("j", "completed")]
    assert run["after"].status == "ready"


def test_an_allowed_failure_of_the_last_visit_of_join_each_meets_needs_also_when_that_is_known_later():
    run = History(
        workflow(
            *(step(s, next=["j"]) for s in "ab"),
            step("j", join="each", continue_on_error=True),
            step("after", needs=["j"]),
            fail_fast="never",
        )
    ).start()

    run.ok("a").fail("j").fail("b")

    assert run["after"].status == "ready"


def test_each_visit_of_join_each_takes_its_edges_to_another_join_each():
    run = History(
        workflow(*(step(s, next=["j"]) for s in "ab"), step("j", join="each", next=["k"]), step("k", join="each"))
    ).start()

    run.ok("a").ok("b")
    while run.queued:
        run.ok(*run.queued)

    assert (run["j"].visit, run["k"].visit) == (2, 2)
    assert run.status == "completed"


def test_a_join_any_after_a_join_each_waits_for_its_last_visit_and_runs_once():
    run = History(workflow(*(step(s, next=["j"]) for s in "ab"), step("j", join="each", next=["k"]), step("k"))).start()

    run.ok("a").ok("j")
    between = run["k"].status
    run.ok("b").ok("j").ok("k")

    assert between == "waiting"
    assert run["k"].visit == 1
    assert run.status == "completed"


def test_a_failure_of_one_visit_of_join_each_does_not_keep_the_next_from_coming():
    run = joined("each", "taken", "taken")

    run.fail("j").ok("j")

    assert (run["j"].visit, run["j"].status) == (2, "completed")
    assert run.status == "failed"
    assert run.ended.failed_steps_count == 1


def test_attempts_go_on_over_the_visits_of_join_each():
    run = joined("each", "taken", "taken")

    run.ok("j").ok("j")

    assert run["j"].attempt == 2


# -- needs together with arrivals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("join", ["any", "all", "first", "each"])
@pytest.mark.parametrize("need_first", [True, False])
def test_a_step_with_needs_and_arrivals_runs_when_both_hold(join, need_first):
    run = History(workflow(step("n"), step("a", next=["j"]), step("j", join=join, needs=["n"]))).start()
    first, second = ("n", "a") if need_first else ("a", "n")

    run.ok(first)
    between = run["j"].status
    run.ok(second)

    assert (between, run["j"].status) == ("waiting", "ready")


@pytest.mark.parametrize("join", ["any", "all", "first", "each"])
def test_an_unmet_need_skips_although_the_join_holds(join):
    run = History(workflow(step("n"), step("a", next=["j"]), step("j", join=join, needs=["n"]))).start()

    run.ok("a").fail("n")

    assert run.facts(e.StepSkipped) == [e.StepSkipped("j", "need_unmet")]


@pytest.mark.parametrize("join", ["any", "all", "first", "each"])
def test_no_arrival_skips_although_the_needs_are_met(join):
    run = History(workflow(step("n"), step("a", next=["j"]), step("j", join=join, needs=["n"]))).start()

    run.ok("n").fail("a")

    assert run.facts(e.StepSkipped) == [e.StepSkipped("j", "no_arrival")]


def test_a_step_may_need_the_step_that_leads_to_it():
    run = History(workflow(step("a", next=["j"]), step("j", needs=["a"]))).start()

    run.ok("a").ok("j")

    assert run.status == "completed"
    assert run["j"].visit == 1


def test_all_arrivals_of_join_each_wait_for_its_needs_and_none_is_lost():
    run = History(
        workflow(step("n"), *(step(s, next=["j"]) for s in "ab"), step("j", join="each", needs=["n"]))
    ).start()

    run.ok("a").ok("b").ok("n")
    while run.queued:
        run.ok(*run.queued)

    assert run["j"].visit == 2


# -- two edges between the same steps --------------------------------------------------------------------------------


def test_two_edges_between_the_same_steps_are_two_arrivals():
    run = History(workflow(step("a", next=[edge("j"), edge("j", "always")]), step("j", join="each"))).start()

    run.ok("a")
    while run.queued:
        run.ok(*run.queued)

    assert run["j"].visit == 2


def test_one_of_two_edges_between_the_same_steps_is_enough_for_join_any_and_not_for_join_all():
    def visited(join: str) -> int:
        run = History(workflow(step("a", next=[edge("j"), edge("j", "failure")]), step("j", join=join))).start()
        return run.ok("a")["j"].visit

    assert (visited("any"), visited("all")) == (1, 0)


# -- late ------------------------------------------------------------------------------------------------------------


def test_an_arrival_at_a_join_all_that_missed_another_changes_nothing():
    run = joined("all", "dead", "taken", "taken")

    assert run.facts(e.StepPutBack) == []
    assert run.facts(e.StepSkipped) == [e.StepSkipped("j", "no_arrival")]


@pytest.mark.parametrize("join", ["any", "all", "first", "each"])
def test_an_arrival_at_a_step_whose_need_was_not_met_changes_nothing(join):
    run = History(workflow(step("n"), step("a", next=["j"]), step("j", join=join, needs=["n"]))).start()

    run.fail("n").ok("a")

    assert run.facts(e.StepPutBack) == []
    assert run.facts(e.StepSkipped) == [e.StepSkipped("j", "need_unmet")]


@pytest.mark.parametrize("then", ["rerun", "continue"])
def test_a_failure_sent_to_a_remediation_that_was_skipped_before_is_settled_at_once(then):
    run = History(
        workflow(
            step("n"),
            step("a", next=[edge("fix", "failure", then=then)]),
            step("fix", needs=["n"]),
            step("b", needs=["a"]),
            step("other"),
        )
    ).start()

    run.fail("n").fail("a")

    assert run["b"].status == "skipped"
    assert run.ok("other").status == "failed"


def test_an_edge_that_was_dead_is_taken_after_all_when_its_source_is_visited_again() -> None:
    flow = workflow(
        step("a", next=[edge("fix", "failure", then="rerun"), edge("bell", "failure", handles=False)]),
        step("fix"),
        step("bell", next=[edge("t", when="loud")]),
        step("slow", next=[edge("t", when="never")]),
        step("t"),
    )
    run = History(flow, {"loud": False, "never": False}).start()
    run.fail("a").ok("bell").ok("fix")
    before = run["t"].status

    run.evaluator.answers["loud"] = True
    run.fail("a").ok("bell").ok("fix").ok("a")
    still = run["t"].status
    run.ok("slow")

    # It waits until the other edge is decided too.
    assert (before, still) == ("waiting", "waiting")
    assert run.queued == ["t"]
    run.ok("t")
    assert run.status == "completed"


def test_a_visit_that_fails_while_another_arrival_waits_is_not_the_last():
    flow = workflow(
        step("a", next=["x"]), step("b", next=["x"]), step("x", join="each"), step("y", needs=["x"]), fail_fast="never"
    )
    run = History(flow).start().ok("a").ok("b")

    run.fail("x")
    assert [fact.is_final for fact in run.facts(e.StepFailed)] == [False]
    assert run.queued == ["x"]

    assert run.ok("x").queued == ["y"]


def test_a_step_with_a_visit_per_arrival_that_goes_back_is_not_settled_before_it_has():
    flow = workflow(
        step("top", next=["x", "slow"]),
        step("x", join="each", next=[edge("top", when="more")]),
        step("slow"),
        step("y", needs=["x"]),
    )

    run = History(flow, {"more": True}).start().ok("top").ok("x")

    assert (run["x"].status, run["x"].settled, run.queued) == ("completed", "", ["slow"])


@pytest.mark.parametrize(
    ("edges", "outcome"),
    [
        # It may fail, and nobody is asked to repair it: as good as done.
        ([], "allowed"),
        # Somebody is: whoever needs it cannot count on it.
        ([edge("fix", on="failure")], "failed"),
    ],
)
def test_a_step_with_a_visit_per_arrival_is_settled_by_its_last_visit_once_nobody_else_can_come(edges, outcome):
    flow = workflow(
        step("a", next=["x"]),
        step("b", next=[edge("x", when="never")]),
        step("x", join="each", continue_on_error=True, next=edges),
        step("fix"),
    )
    run = History(flow, {"never": False}).start().ok("a").fail("x")
    assert run["x"].settled == ""

    run.ok("b")

    assert (run["x"].visit, run["x"].settled) == (1, outcome)


def test_an_edge_that_one_of_several_visits_took_counts_once():
    flow = workflow(
        *(step(name, next=["x"]) for name in ("a", "b")),
        step("x", join="each", next=[edge("fix", on="failure")]),
        step("slow", next=["fix"]),
        step("fix"),
    )
    run = History(flow).start().ok("a").ok("b").fail("x")

    run.ok("x")
    assert (run["fix"].open_arrivals, run["fix"].taken_arrivals, run.queued) == (1, 1, ["slow"])

    assert run.ok("slow").queued == ["fix"]


def test_a_visit_after_which_nobody_can_come_any_more_is_the_last():
    flow = workflow(step("a", next=["x"]), step("b", next=[edge("x", when="never")]), step("x", join="each"))
    run = History(flow, {"never": False}).start().ok("b").ok("a").ok("x")

    assert [fact.is_final for fact in run.facts(e.StepCompleted) if fact.step == "x"] == [True]
    assert run.facts(e.StepSettled) == []
