"""Loops: which edges are loops, when they fire, what they put back, and where they end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mulligan.core.deciding.ladder import delay_seconds
from mulligan.core.effects import effects as fx
from mulligan.core.model import events as e
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Backoff
from mulligan.testing.history import T0, History, edge, retry, step, workflow


def says(word: str):
    """An answer: whether the output is this word."""
    return lambda names: names["output"] == word


AGAIN = {"again": says("again")}


def back(to: str, **fields):
    """An edge that is taken when the output is "again"."""
    return edge(to, when="again", **fields)


# -- which edges are loops, and where a run starts -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "loops", "starts"),
    [
        # forward only
        ([step("a", next=["b"]), step("b")], [], ["a"]),
        # back to the start
        ([step("a", next=["b"]), step("b", next=["a"])], ["b#0"], ["a"]),
        # to itself
        ([step("a", next=["a"])], ["a#0"], ["a"]),
        # over a need on the way
        ([step("a"), step("b", needs=["a"], next=["a"])], ["b#0"], ["a"]),
        # the need decides where it starts, not the file
        ([step("b", needs=["a"], next=["a"]), step("a")], ["b#0"], ["a"]),
        # an edge between branches is no loop, although it points up the file
        ([step("a", next=["c", "b"]), step("b"), step("c", next=["b"])], [], ["a"]),
        # to an ancestor in the middle
        ([step("a", next=["b"]), step("b", next=["c"]), step("c", next=["b"])], ["c#0"], ["a"]),
        # a failure edge may be a loop
        ([step("s", next=["a"]), step("a", next=["b"]), step("b", next=[edge("a", "failure")])], ["b#0"], ["s"]),
        # a closed loop starts at its first step
        ([step("x"), step("a", next=["b"]), step("b", next=["a"])], ["b#0"], ["x", "a"]),
        # … that is not the target of a failure edge
        ([step("fix", next=["a"]), step("a", next=[edge("fix", "failure")])], ["fix#0"], ["a"]),
        # … or at the one that says so
        ([step("a", next=["b"]), step("b", next=["a"], is_start=True)], ["a#0"], ["b"]),
        # nested
        (
            [step("a", next=["b"]), step("b", next=["c"]), step("c", next=["b", "d"]), step("d", next=["a"])],
            ["c#0", "d#0"],
            ["a"],
        ),
        # what hangs on a closed loop does not start
        ([step("a", next=["b"]), step("b", next=["a"]), step("c", needs=["b"])], ["b#0"], ["a"]),
    ],
)
def test_an_edge_to_an_ancestor_is_a_loop_edge(steps, loops, starts):
    graph = Graph(workflow(*steps))

    found = [arc.key for node in graph.nodes.values() for arc in node.arcs if arc.is_loop]

    assert (found, graph.starts) == (loops, starts)


def test_a_loop_edge_does_not_count_for_the_join_of_its_target():
    run = History(
        workflow(step("a", next=["b"]), step("b", join="all", next=["c"]), step("c", next=[back("b")])), AGAIN
    )

    run.start().ok("a")

    assert run.queued == ["b"]


def test_what_lies_ahead_of_a_step_does_not_lead_back_over_loops():
    steps = [step("a", next=["b"]), step("b", next=["c"]), step("c", next=["b", "d"]), step("d", next=["a"])]
    graph = Graph(workflow(*steps))

    assert graph.region("b") == {"b", "c", "d"}
    assert graph.region("a") == {"a", "b", "c", "d"}
    assert graph.region("d") == {"d"}


# -- taking one ------------------------------------------------------------------------------------------------------


def test_a_loop_visits_its_steps_again_until_its_condition_no_longer_holds():
    run = History(workflow(step("a", next=["b"]), step("b", next=[back("a"), "c"]), step("c")), AGAIN).start()

    run.ok("a").ok("b", output="again").ok("a").ok("b", output="again").ok("a").ok("b").ok("c")

    assert [run[name].visit for name in "abc"] == [3, 3, 1]
    assert run.status == "completed"
    assert run.ended.degraded is False


def test_a_taken_loop_edge_is_the_only_edge_taken():
    run = History(
        workflow(step("a", next=["b"]), step("b", next=["c", back("a"), edge("d", "always")]), step("c"), step("d")),
        AGAIN,
    ).start()

    run.ok("a").ok("b", output="again")

    assert run.facts(e.StepCompleted)[-1].taken == (1,)
    assert run.statuses == {"a": "ready", "b": "waiting", "c": "waiting", "d": "waiting"}
    assert run.facts(e.StepSkipped) == []


def test_only_one_of_two_loop_edges_is_taken():
    run = History(
        workflow(step("a", next=["b"]), step("b", next=["c"]), step("c", next=[back("b"), back("a")])), AGAIN
    ).start()

    run.ok("a").ok("b").ok("c", output="again")

    assert run.facts(e.StepCompleted)[-1].taken == (0,)
    assert run.statuses == {"a": "completed", "b": "ready", "c": "waiting"}


def test_an_allowed_failure_takes_a_loop_edge_alone_too():
    run = History(
        workflow(
            step("a", next=["b"]),
            step("b", continue_on_error=True, next=["c", "a", edge("d", "always")]),
            step("c"),
            step("d"),
        )
    ).start()

    run.ok("a").fail("b")

    assert run.facts(e.StepFailed)[-1].taken == (1,)
    assert run["a"].visit == 2


def test_who_needs_a_step_that_goes_back_waits_until_it_stays():
    run = History(
        workflow(
            step("draft", next=["review"]), step("review", next=[back("draft")]), step("publish", needs=["review"])
        ),
        AGAIN,
    ).start()

    run.ok("draft").ok("review", output="again")
    between = run["publish"].status
    run.ok("draft").ok("review").ok("publish")

    assert between == "waiting"
    assert run["publish"].visit == 1
    assert run.status == "completed"


def test_a_self_loop_repeats_one_step():
    run = History(workflow(step("a", next=[back("a"), "b"]), step("b")), AGAIN).start()

    run.ok("a", output="again").ok("a", output="again").ok("a").ok("b")

    assert (run["a"].visit, run["b"].visit) == (3, 1)
    assert run.status == "completed"


def test_an_always_loop_edge_is_taken_by_a_failure_that_nobody_else_takes():
    answers = iter([True, False])
    run = History(
        workflow(step("a", next=[edge("a", "always", when="once")])), {"once": lambda names: next(answers)}
    ).start()

    run.fail("a")
    again = (run["a"].visit, run["a"].status)
    run.ok("a")

    assert again == (2, "ready")
    assert run.status == "failed"


def test_a_failure_edge_that_was_chosen_goes_before_an_always_loop_edge():
    run = History(
        workflow(step("a", next=["b"]), step("b", next=[edge("a", "always"), edge("fix", "failure")]), step("fix"))
    ).start()

    run.ok("a").fail("b")

    assert run.queued == ["fix"]


# -- firing ----------------------------------------------------------------------------------------------------------


def test_a_loop_waits_until_everything_reachable_from_its_target_is_at_rest():
    run = History(workflow(step("a", next=["b", "slow"]), step("b", next=[back("a")]), step("slow")), AGAIN).start()

    run.ok("a").ok("b", output="again")
    before = (run.facts(e.LoopFired), run["a"].visit)
    run.ok("slow")

    assert before == ([], 1)
    assert run.facts(e.LoopFired) == [e.LoopFired("b", 0, "a")]
    assert run["a"].visit == 2


def test_a_loop_does_not_wait_for_what_is_not_reachable_from_its_target():
    run = History(workflow(step("other"), step("a", next=["b"]), step("b", next=[back("a")])), AGAIN).start()

    run.ok("a").ok("b", output="again")

    assert run.queued == ["a", "other"]
    assert run["a"].visit == 2


def test_a_loop_waits_for_a_retry_inside_it():
    run = History(
        workflow(step("a", next=["b", "c"]), step("b", next=[back("a")]), step("c", rules=retry(1, delay=30))), AGAIN
    ).start()

    run.ok("a").fail("c").ok("b", output="again")
    before = run["a"].visit
    run.wait(30).ok("c")

    assert (before, run["a"].visit) == (1, 2)


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        # no delay
        (Backoff(), [0, 0, 0]),
        # the same each time
        (Backoff(delay=5), [5, 5, 5]),
        # growing
        (Backoff(delay=5, factor=2), [5, 10, 20]),
        # up to a limit
        (Backoff(delay=5, factor=2, max_delay=12), [5, 10, 12]),
    ],
)
def test_a_loop_waits_its_delay(backoff, delays):
    run = History(workflow(step("a", next=[back("a", backoff=backoff)])), AGAIN).start()
    waited = []

    for _ in delays:
        run.ok("a", output="again")
        waited.append((run.facts(e.LoopTaken)[-1].due - run.clock).total_seconds())
        run.wait(waited[-1])

    assert waited == delays
    assert run["a"].visit == 4


def test_a_loop_does_not_fire_before_its_time():
    run = History(workflow(step("a", next=[back("a", backoff=Backoff(delay=10))])), AGAIN).start()

    run.ok("a", output="again").wait(9.9)
    before = (run["a"].visit, run.status)
    run.wait(0.1)

    assert before == (1, "running")
    assert run["a"].visit == 2
    assert fx.SetTimer("loop", T0 + timedelta(seconds=10), "a", 0) in run.effects


def test_jitter_spreads_the_delay_within_its_share_and_the_same_way_every_time():
    def dues() -> list[float]:
        run = History(workflow(step("a", next=[back("a", backoff=Backoff(delay=10, jitter=0.2))])), AGAIN).start()
        found = []
        for _ in range(8):
            run.ok("a", output="again")
            found.append((run.facts(e.LoopTaken)[-1].due - run.clock).total_seconds())
            run.wait(found[-1])
        return found

    first = dues()

    assert first == dues()
    assert all(8 <= due <= 12 for due in first)
    assert len(set(first)) == 8


def test_jitter_does_not_exceed_the_longest_delay():
    run = History(
        workflow(step("a", next=[back("a", backoff=Backoff(delay=10, max_delay=10, jitter=0.5))])), AGAIN
    ).start()

    for _ in range(8):
        run.ok("a", output="again").wait(10)

    assert run["a"].visit == 9


def test_a_loop_does_not_fire_in_a_pause_and_does_when_it_is_over():
    run = History(workflow(step("a", next=[back("a", backoff=Backoff(delay=10))])), AGAIN).start()

    run.ok("a", output="again").pause().wait(60)
    before = run["a"].visit
    run.resume()

    assert (before, run["a"].visit) == (1, 2)


def test_a_stopped_run_fires_no_loop():
    run = History(workflow(step("a", next=[back("a", backoff=Backoff(delay=10))])), AGAIN).start()

    run.ok("a", output="again").cancel().wait(60)

    assert run["a"].visit == 1
    assert run.status == "cancelled"


# -- what is put back ------------------------------------------------------------------------------------------------


def test_a_new_visit_has_a_fresh_budget_of_retries():
    run = History(workflow(step("a", rules=retry(1), next=[back("a")])), AGAIN).start()

    run.fail("a").ok("a", output="again").fail("a")
    retried = run["a"].status
    run.ok("a")

    assert retried == "ready"
    assert (run["a"].visit, run["a"].attempt) == (2, 4)
    assert run.status == "completed"


def test_needs_met_from_outside_stay_met():
    run = History(
        workflow(
            step("s", next=["a"]), step("setup"), step("a", next=["b"]), step("b", needs=["setup"], next=[back("a")])
        ),
        AGAIN,
    ).start()

    run.ok("s").ok("setup").ok("a").ok("b", output="again").ok("a")

    assert run.queued == ["b"]
    assert run["setup"].visit == 1


def test_a_need_from_outside_on_a_step_above_an_inner_loop_stays_met():
    run = History(
        workflow(
            step("a", next=["b"]),
            step("b", next=["c"]),
            step("c", needs=["a"], next=[edge("b", when="inner"), edge("a", when="outer")]),
        ),
        {"inner": says("inner"), "outer": says("outer")},
    ).start()

    run.ok("a").ok("b").ok("c", output="inner")
    after_inner = run.statuses
    run.ok("b").ok("c", output="outer")
    after_outer = run.statuses
    run.ok("a").ok("b").ok("c")

    assert after_inner == {"a": "completed", "b": "ready", "c": "waiting"}
    assert after_outer == {"a": "ready", "b": "waiting", "c": "waiting"}
    assert [run[name].visit for name in "abc"] == [2, 3, 3]
    assert run.status == "completed"


def test_join_all_keeps_the_arrival_from_outside():
    run = History(
        workflow(
            step("s", next=["a"]),
            step("x", next=["j"]),
            step("a", next=["j"]),
            step("j", join="all", next=["k"]),
            step("k", next=[back("a")]),
        ),
        AGAIN,
    ).start()

    run.ok("s").ok("x").ok("a").ok("j").ok("k", output="again").ok("a")

    assert run.queued == ["j"]
    assert run["j"].visit == 2


def test_join_any_uses_up_the_arrival_from_outside():
    run = History(
        workflow(
            step("s", next=["a"]),
            step("x", next=["j"]),
            step("a", next=[edge("j", when="lead")]),
            step("j", next=["k"]),
            step("k", next=[back("a")]),
        ),
        {**AGAIN, "lead": lambda names: names["output"] != "aside"},
    ).start()

    run.ok("s").ok("x").ok("a").ok("j").ok("k", output="again").ok("a", output="aside")

    assert run["j"].visit == 1
    assert run.facts(e.StepRestored)[0] == e.StepRestored("j", "no_arrival")


def test_an_arrival_from_outside_that_no_visit_was_for_is_not_lost():
    run = History(
        workflow(
            step("x", next=["j"]), step("a", next=["b"]), step("b", next=[back("a"), edge("j", when="lead")]), step("j")
        ),
        {**AGAIN, "lead": lambda names: False},
    ).start()

    run.ok("x").ok("a").ok("b", output="again").ok("a").ok("b", output="again").ok("a").ok("b").ok("j")

    assert run["j"].visit == 1
    assert run.status == "completed"


def test_a_step_put_back_and_not_entered_again_keeps_its_last_visits_status():
    run = History(
        workflow(
            step("a", next=[edge("once", when="first"), "b"]),
            step("once", next=["after"]),
            step("after"),
            step("b", next=[back("a")]),
        ),
        {**AGAIN, "first": says("first")},
    ).start()

    run.ok("a", output="first").ok("once", output=1).ok("after").ok("b", output="again").ok("a").ok("b")

    assert run.statuses == {"a": "completed", "once": "completed", "after": "completed", "b": "completed"}
    assert (run["once"].visit, run["once"].output) == (1, 1)
    assert [f.step for f in run.facts(e.StepRestored)] == ["once", "after"]
    assert run.ended.skipped_steps_count == 0


def test_a_failed_step_put_back_and_not_entered_again_stays_failed_and_fails_the_run():
    run = History(
        workflow(step("a", next=[edge("once", when="first"), "b"]), step("once"), step("b", next=[back("a")])),
        {**AGAIN, "first": says("first")},
    ).start()

    run.ok("a", output="first").fail("once").ok("b", output="again").ok("a").ok("b")

    assert run.statuses == {"a": "completed", "once": "failed", "b": "completed"}
    assert run.status == "failed"


def test_a_step_skipped_in_one_turn_of_the_loop_may_run_in_the_next():
    run = History(
        workflow(step("a", next=[edge("late", when="second"), "b"]), step("late"), step("b", next=[back("a")])),
        {**AGAIN, "second": says("second")},
    ).start()

    run.ok("a").ok("b", output="again")
    run.ok("a", output="second").ok("late").ok("b")

    assert run["late"].status == "completed"
    assert run.status == "completed"


def test_a_step_behind_the_loop_that_ran_already_runs_again():
    run = History(workflow(step("a", next=["b", "c"]), step("b", next=[back("a")]), step("c")), AGAIN).start()

    run.ok("a").ok("c").ok("b", output="again").ok("a").ok("b").ok("c")

    assert run["c"].visit == 2
    assert run.status == "completed"


def test_a_failure_of_an_earlier_visit_counts_although_the_loop_went_on():
    run = History(workflow(step("a", next=["b", "c"]), step("b", next=[back("a")]), step("c")), AGAIN).start()

    run.ok("a").fail("c").ok("b", output="again").ok("a").ok("b").ok("c")

    assert run.statuses == {"a": "completed", "b": "completed", "c": "completed"}
    assert (run.status, run.ended.failed_steps_count) == ("failed", 1)


def test_what_goes_back_with_a_loop_and_cannot_be_entered_is_target_skipped_in_the_order_of_the_file():
    names = ["z", "m", "b", "q", "a"]
    flow = workflow(
        step("gone"),
        step("top", next=["again"]),
        *(step(name, needs=["gone", "top"]) for name in names),
        step("again", next=[edge("top", when="more")]),
    )
    run = History(flow, {"more": True}).start().fail("gone").ok("top")

    run.ok("again")

    assert [fact.step for fact in run.follows if isinstance(fact, e.StepSkipped | e.StepRestored)] == names


def test_what_is_not_entered_again_lets_go_of_what_needs_it():
    flow = workflow(
        step("top", next=[edge("m", when="first"), "again"]),
        step("m"),
        step("n", needs=["m"]),
        step("again", next=[edge("top", when="more")]),
    )
    answers = {"first": iter([True, False]).__next__, "more": iter([True, False]).__next__}
    run = History(flow, {text: lambda _, says=says: says() for text, says in answers.items()}).start()

    run.ok("top").ok("m").ok("n").ok("again").ok("top")
    assert [fact.step for fact in run.facts(e.StepRestored)] == ["m", "n"]

    assert run.ok("again").status == "completed"
    assert {name: run[name].visit for name in ("top", "m", "n", "again")} == {"top": 2, "m": 1, "n": 1, "again": 2}


def test_a_step_that_ends_well_while_the_run_stops_goes_back_no_more():
    flow = workflow(step("top", next=["again"]), step("again", next=[edge("top", when="more")]))
    run = History(flow, {"more": True}).start().ok("top").started("again").cancel()

    run.ok("again")

    assert (run.status, run.facts(e.LoopTaken)) == ("cancelled", [])


def test_the_jitter_of_a_loop_is_a_digest_of_run_edge_and_number():
    backoff = Backoff(delay=100, jitter=0.5)
    flow = workflow(step("top", next=["again"]), step("again", next=[edge("top", when="more", backoff=backoff)]))
    run = History(flow, {"more": True}).start().ok("top").ok("again")

    (taken,) = run.facts(e.LoopTaken)

    key = run.state.graph.arc("again", 0).key
    expected = timedelta(seconds=delay_seconds(backoff, 1, f"1:{key}:1", {}))
    assert taken.due - T0 == expected


def test_a_step_that_has_had_all_its_visits_is_target_skipped_by_further_rounds_of_a_loop():
    flow = workflow(
        step("top", next=["again"]),
        step("r", needs=["top"], max_visits=1, continue_on_error=True),
        step("again", next=[edge("top", when="more")]),
    )
    more = iter([True, True, False])
    run = History(flow, {"more": lambda _: next(more)}).start()

    run.ok("top").ok("r").ok("again").ok("top").ok("again").ok("top")

    assert [fact.failure.code for fact in run.facts(e.StepFailed)] == ["LOOP_LIMIT"]
    assert run.facts(e.StepRestored)[-1] == e.StepRestored("r", "loop_limit")


def test_a_step_that_failed_goes_back_along_a_loop_that_is_always_taken() -> None:
    run = History(workflow(step("a", next=["b"]), step("b", next=[edge("a", "always")]))).start().ok("a")

    run.fail("b")

    assert (run.state.places["a"].visit, run.state.places["a"].status) == (2, "ready")
