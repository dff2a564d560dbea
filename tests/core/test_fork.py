"""A fork keeps the results that running a step again cannot affect, matched by name."""

from __future__ import annotations

import pytest

from mulligan.core.deciding.rounds.fork import kept_results, plan_fork
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Need, Step, Workflow
from mulligan.errors import UnknownStep
from mulligan.testing.history import History, command, edge, shell, step, workflow


def forked(old: History, definition: Workflow, from_step: str) -> History:
    kept = kept_results(old.state, Graph(definition), from_step)
    return History(definition).start(forked_from=1, kept=kept)


def test_results_not_reachable_from_the_step_are_kept_and_the_rest_runs_again():
    flow = workflow(step("a"), step("b", needs=["a"]), step("c", needs=["b"]), step("side"))
    old = History(flow).start().ok("a", output=1).ok("side", output=2).fail("b")

    run = forked(old, flow, "b")

    assert run.queued == ["b"]
    assert (run["a"].output, run["side"].output) == (1, 2)
    run.ok("b", "c")
    assert run.status == "completed"


def test_a_corrected_workflow_may_have_new_steps_and_drop_old_ones():
    old = History(workflow(step("a"), step("b", needs=["a"]), step("gone"))).start().ok("a", "gone").fail("b")
    corrected = workflow(step("a"), step("between", needs=["a"]), step("b", needs=["between"]))

    run = forked(old, corrected, "b")

    assert run.queued == ["between"]
    run.ok("between", "b")
    assert run.status == "completed"


def test_edges_taken_by_a_kept_step_are_taken_in_the_fork_too():
    flow = workflow(
        step("choose", next=[edge("left", when="l"), edge("right", when="r")]),
        step("left"),
        step("right"),
        step("last", needs=["right"]),
    )
    old = History(flow, {"l": False, "r": True}).start().ok("choose", "right").fail("last")

    run = forked(old, flow, "last")

    assert run.queued == ["last"]
    assert run.statuses == {"choose": "completed", "left": "skipped", "right": "completed", "last": "ready"}


@pytest.mark.parametrize("join", ["any", "all", "first", "each"])
@pytest.mark.parametrize("order", [("a", "b", "met", "last"), ("last", "met", "b", "a")])
def test_kept_steps_do_not_visit_each_other_again_whatever_the_join_and_the_order_in_the_file(join, order):
    steps = {
        "a": step("a", next=["met"]),
        "b": step("b", next=["met"]),
        "met": step("met", join=join, next=["last"]),
        "last": step("last"),
    }
    flow = workflow(*(steps[name] for name in order))
    old = History(flow).start().ok("a", "b")
    while "met" in old.queued:
        old.ok("met")
    old.fail("last")

    run = forked(old, flow, "last")

    assert run.queued == ["last"]
    assert run.ok("last").status == "completed"


def test_what_failed_before_the_step_runs_again():
    flow = workflow(step("a"), step("b"), step("c", needs=["a", "b"]))
    old = History(flow).start().fail("a").ok("b")

    run = forked(old, flow, "c")

    assert run.queued == ["a"]


def test_forking_from_a_step_that_is_not_there_is_refused():
    old = History(workflow(step("a"))).start().ok("a")

    with pytest.raises(UnknownStep) as refused:
        kept_results(old.state, Graph(workflow(step("a"))), "b")

    assert refused.value.message == "'b' is not a step of the workflow to run"


def test_what_was_undone_is_not_kept_and_neither_is_what_was_built_on_it():
    flow = workflow(
        step("reserve", undo=command("release")), step("count", needs=["reserve"]), step("charge", needs=["count"])
    )
    old = History(flow).start().ok("reserve", "count").fail("charge").ok("reserve.undo@1")

    run = forked(old, flow, "charge")

    assert run.queued == ["reserve"]


# -- a corrected file --------------------------------------------------------------------------------------------------


def done(*steps: Step) -> History:
    """A run of these steps in which the last one failed and the others completed, each with its name for output."""
    run = History(workflow(*steps)).start()
    for one in steps[:-1]:
        run.ok(one.name, output=one.name)
    return run.fail(steps[-1].name)


def test_a_step_that_the_file_no_longer_has_is_dropped_with_its_result():
    old = done(step("a"), step("gone", needs=["a"]), step("b", needs=["gone"]))
    corrected = workflow(step("a"), step("b", needs=["a"]))

    plan = plan_fork(old.state, Graph(corrected), "b")
    run = forked(old, corrected, "b")

    assert (plan.dropped, plan.runs, run.queued) == (("gone",), ("b",), ["b"])


def test_what_lies_behind_a_new_step_was_made_without_it_and_runs_again():
    old = done(step("a"), step("side", needs=["a"]), step("later", needs=["side"]), step("b"))
    corrected = workflow(
        step("a"), step("new", needs=["a"]), step("side", needs=["a", "new"]), step("later", needs=["side"]), step("b")
    )

    run = forked(old, corrected, "b")

    assert (run.queued, run.statuses["a"]) == (["b", "new"], "completed")
    run.ok("b", "new", "side", "later")
    assert run.status == "completed"


def test_a_new_step_that_nothing_lies_behind_runs_alone():
    old = done(step("a"), step("b", needs=["a"]))
    corrected = workflow(step("a"), step("b", needs=["a"]), step("new", needs=["a"]))

    run = forked(old, corrected, "b")

    assert run.queued == ["b", "new"]


def test_a_step_that_now_also_needs_one_that_runs_again_runs_again():
    old = done(step("a"), step("side"), step("b"))
    corrected = workflow(step("a"), step("side", needs=["b"]), step("b"))

    run = forked(old, corrected, "b")

    assert (run.queued, run.statuses["side"]) == (["b"], "waiting")


def test_a_step_that_now_needs_one_that_had_failed_runs_again_after_it():
    flow = workflow(step("bad"), step("side"), step("b", needs=["side"]))
    old = History(flow).start().fail("bad").ok("side").fail("b")
    corrected = workflow(step("bad"), step("side", needs=["bad"]), step("b", needs=["side"]))

    run = forked(old, corrected, "b")

    assert run.queued == ["bad"]
    run.ok("bad", "side", "b")
    assert run.status == "completed"


def test_a_step_that_needs_less_or_others_that_are_done_keeps_its_result_and_the_plan_says_that_it_differs():
    old = done(step("a"), step("c"), step("side", needs=["a", "c"]), step("other", needs=["a"]), step("b"))
    corrected = workflow(step("a"), step("c"), step("side", needs=["a"]), step("other", needs=["c"]), step("b"))

    plan = plan_fork(old.state, Graph(corrected), "b")

    assert (plan.runs, plan.changed) == (("b",), ("side", "other"))


def test_a_step_before_that_the_file_says_differently_is_kept_and_the_plan_says_so():
    old = done(step("a"), step("b", needs=["a"]))
    corrected = workflow(step("a", action=shell("another")), step("b", needs=["a"]))

    plan = plan_fork(old.state, Graph(corrected), "b")

    assert ([one.step for one in plan.kept], plan.changed) == (["a"], ("a",))


def test_a_chain_of_new_needs_is_followed_against_the_order_of_the_file():
    old = done(step("z"), step("y"), step("x"), step("b"))
    corrected = workflow(step("z", needs=["y"]), step("y", needs=["x"]), step("x", needs=["b"]), step("b"))

    plan = plan_fork(old.state, Graph(corrected), "b")

    assert (plan.kept, plan.runs) == ((), ("z", "y", "x", "b"))


def test_a_group_that_has_a_new_member_is_waited_for_again():
    old = done(step("a"), step("last", needs=["a"]), step("b"))
    corrected = workflow(
        step("a"), step("n"), step("last", needs=[Need("all", is_group=True)]), step("b"), groups={"all": ("a", "n")}
    )

    run = forked(old, corrected, "b")

    assert run.queued == ["b", "n"]
