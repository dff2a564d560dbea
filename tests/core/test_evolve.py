"""What steps keep after a fact, a loop or a round: failures routed to them, items, earlier outputs."""

from __future__ import annotations

from typing import Any

from mulligan.core.model import events as e
from mulligan.core.model.event_types import Kept
from mulligan.core.model.workflow import Backoff, Map, Need
from mulligan.testing.history import History, command, edge, expression, step, workflow

LATER = Backoff(delay=30.0)
RERUN = {"then": "rerun"}


def sent(run: History, name: str, visit: int) -> list[tuple[str, int]]:
    """The failures that a visit is to repair: whose they are, of which visits."""
    records = [run.state.failures[index] for index in run.state.routed.get((name, visit), ())]
    assert run.state.informed.get((name, visit)) == run.state.routed.get((name, visit))
    return [(record.step, record.visit) for record in records]


# -- results that a fork keeps -----------------------------------------------------------------------------------------


def test_between_results_that_a_fork_keeps_only_the_edges_that_were_taken_are_taken() -> None:
    steps = (step("a", next=["b", "c"]), step("b"), step("c"), step("d", needs=["c"]))
    kept = (Kept("a", "completed", 1, ("b",)), Kept("b", "completed", 2), Kept("c", "skipped"))

    run = History(workflow(*steps)).start(kept=kept)

    assert run.state.arcs == {"a#0": "taken", "a#1": "dead"}


# -- who is told -------------------------------------------------------------------------------------------------------


def test_who_is_reached_by_an_edge_that_is_always_taken_is_told_of_no_failure() -> None:
    steps = (step("a", next=[edge("x", "always"), edge("bell", "failure", handles=False)]), step("x"), step("bell"))
    run = History(workflow(*steps, fail_fast="never")).start()

    run.fail("a")

    assert (run.queued, run.state.informed) == (["bell", "x"], {("bell", 1): (0,)})


# -- a run that was stopped --------------------------------------------------------------------------------------------


def test_what_was_cancelled_has_ended_for_good_for_all_who_wait_for_it() -> None:
    steps = (
        step("a", next=["t"]),
        *(step("t"), step("n", needs=["a"]), step("d", needs=[Need("group", is_group=True)])),
    )
    run = History(workflow(*steps, groups={"group": ("a",)})).start()

    run.cancel(now=True)

    assert {place.key: place.settled for place in run.state.steps()} == dict.fromkeys("atnd", "cancelled")
    assert (run.state.arcs, run.state.barriers) == ({"a#0": "dead"}, {"group:success": (0, 1)})
    assert run["end"].settled == ""


def test_what_was_cancelled_runs_again_in_a_new_round_and_then_whoever_needs_it() -> None:
    steps = (step("a", next=["t"]), step("t"), step("d", needs=[Need("group", is_group=True)]))
    run = History(workflow(*steps, groups={"group": ("a",)})).start().cancel(now=True)

    run.retry()
    assert (run.queued, run.state.barriers) == (["a"], {"group:success": (1, 0)})
    run.ok("a")

    assert run.queued == ["d", "t"]


# -- maps in a new round -----------------------------------------------------------------------------------------------


def test_from_a_step_on_a_map_that_failed_has_a_new_list() -> None:
    steps = (step("a"), step("m", map=Map(over=expression("list")), do=(command("one"),), needs=["a"]))
    run = History(workflow(*steps), {"list": [1, 2]}).start().ok("a").ok("m[0].0").fail("m[1].0")
    run.evaluator.answers["list"] = ["x", "y", "z"]

    run.retry("a")
    assert run["m"].items is None
    run.ok("a")

    assert run["m"].items.values == ["x", "y", "z"]
    assert run.queued == ["m[0].0", "m[1].0", "m[2].0"]


def test_what_a_map_did_over_two_rounds_is_undone_once_also_if_it_was_the_last_to_complete() -> None:
    items = Map(over=expression("list"), on_item_failure="collect")
    steps = (step("m", map=items, do=(command("one"),), undo=command("undo")), step("c", needs=["m"]))
    run = History(workflow(*steps), {"list": [1, 2]}).start().ok("m[0].0").fail("m[1].0").ok("c")

    run.retry("m", items=()).ok("m[1].0").fail("c").ok("m.undo@2")

    assert [(fact.step, fact.visit) for fact in run.facts(e.UndoStarted)] == [("m", 2)]
    assert run.status == "failed"


def test_a_remediation_that_goes_again_is_told_once_of_a_failure_however_many_rounds_it_was_skipped_in() -> None:
    wanted = [True]
    steps = (step("a", next=[edge("fix", "failure")]), step("fix", when="wanted"), step("bad"))
    run = History(workflow(*steps, fail_fast="never"), {"wanted": lambda names: wanted[-1]}).start()
    run.fail("a").ok("fix").fail("bad")
    wanted.append(False)
    run.retry("fix").fail("bad")
    assert (run["fix"].status, run["a"].status) == ("skipped", "failed")
    wanted.append(True)

    run.retry("fix")

    assert (run["fix"].visit, sent(run, "fix", 2)) == (2, [("a", 1)])


# -- visits ------------------------------------------------------------------------------------------------------------


def test_a_visit_knows_what_the_last_one_gave_that_gave_anything() -> None:
    run = History(workflow(step("a", next=[edge("a", when="more")])), {"more": lambda names: run["a"].visit < 3})

    run.start().ok("a", output="first")
    assert (run["a"].output, run["a"].before) == (None, "first")
    run.ok("a")

    assert (run["a"].visit, run["a"].output, run["a"].before) == (3, None, "first")


# -- a remediation that goes back in a loop ----------------------------------------------------------------------------


def looping(*others: Any, then: str | None = "rerun", **answers: Any) -> History:
    """`a` has failed and was sent to `fix`, which is asked afterwards whether to go `again`, after 30 seconds."""
    steps = (
        step("a", next=[edge("fix", "failure", then=then)]),
        step("fix", next=[edge("fix", when="again", backoff=LATER)]),
    )
    answers.setdefault("again", lambda names: run["fix"].visit == 1)
    run = History(workflow(*steps, *others, fail_fast="never"), answers)
    return run.start().fail("a")


def test_who_waits_for_a_remediation_that_goes_back_in_a_loop_waits_for_its_next_visit() -> None:
    run = looping().ok("fix").wait(30)
    assert (sent(run, "fix", 2), run["a"].status, run["a"].settled) == ([("a", 1)], "failed", "")

    run.ok("fix")

    assert (run["a"].visit, run.queued) == (2, ["a"])


def test_who_waits_for_a_remediation_that_is_to_go_back_waits_for_the_visit_that_comes_before_that() -> None:
    """`fix` was about to go back when `b` failed, too: it is visited for that, and repairs both."""
    sources = [step(name, next=[edge("fix", "failure", **RERUN)]) for name in "ab"]
    fix = step("fix", join="each", next=[edge("fix", when="again", backoff=LATER)])
    run = History(workflow(*sources, fix, fail_fast="never"), {"again": lambda names: run["fix"].visit == 1})
    run.start().fail("a").ok("fix")

    run.fail("b")
    assert sent(run, "fix", 2) == [("b", 1), ("a", 1)]
    run.ok("fix")

    assert run.queued == ["a", "b"]


def test_who_waits_for_nothing_of_a_remediation_that_goes_back_is_no_business_of_its_next_visit() -> None:
    run = looping(then=None).ok("fix").wait(30)

    assert (run["fix"].visit, sent(run, "fix", 1), sent(run, "fix", 2)) == (2, [("a", 1)], [])


def test_a_failure_of_one_of_many_visits_is_no_business_of_the_next_visit_unless_that_is_to_bring_it_back() -> None:
    """`a` has not ended for good, since it is to be visited for `y`, too; and yet nobody waits for `fix`."""
    sources = [step(name, next=["a"]) for name in "xy"]
    steps = (
        *sources,
        step("a", join="each", next=[edge("fix", "failure")]),
        step("fix", next=[edge("fix", when="on")]),
    )
    run = History(workflow(*steps, fail_fast="never"), {"on": lambda names: run["fix"].visit == 1})
    run.start().ok("x").fail("a").ok("fix")

    assert (run["a"].settled, run["fix"].visit, sent(run, "fix", 2)) == ("", 2, [])


def test_a_failure_of_a_step_that_goes_back_as_well_is_no_business_of_the_next_visit() -> None:
    """The loop leads back to `a` itself: it runs again whatever becomes of what it was."""
    steps = (step("a", next=[edge("fix", "failure", **RERUN)]), step("fix", next=[edge("a", when="again")]))
    run = History(workflow(*steps, fail_fast="never"), {"again": lambda names: run["fix"].visit == 1})
    run.start().fail("a").ok("fix")
    assert (run["a"].visit, sent(run, "fix", 2)) == (2, [])

    run.fail("a")

    assert sent(run, "fix", 2) == [("a", 2)]


def test_a_failure_that_was_stood_in_for_is_no_business_of_the_next_visit() -> None:
    steps = (
        *(step("a", next=[edge("fix", "failure", then="continue")]), step("b", next=["fix"])),
        step("fix", next=["c"]),
        step("c", next=[edge("fix", when="again")]),
    )
    run = History(workflow(*steps, fail_fast="never"), {"again": lambda names: run["c"].visit == 1})
    run.start().fail("a").ok("b").ok("fix")
    assert run["a"].settled == "stood_in"

    run.ok("c")

    assert (run["fix"].visit, sent(run, "fix", 2)) == (2, [])


def test_a_failure_of_an_earlier_round_is_no_business_of_a_remediation_that_goes_back_in_this_one() -> None:
    run = looping(again=lambda names: run["fix"].visit == 2).fail("fix")
    assert run.status == "failed"
    run.retry().fail("a")
    assert sent(run, "fix", 2) == [("a", 1), ("a", 2)]

    run.ok("fix").wait(30)

    assert (run["fix"].visit, sent(run, "fix", 3)) == (3, [("a", 2)])
