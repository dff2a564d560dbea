"""A fork keeps what cannot be touched by running a step again, matched by name."""

from __future__ import annotations

import pytest

from mulligan.core.fork import kept_results
from mulligan.core.graph import Graph
from mulligan.core.workflow import Workflow
from mulligan.errors import UnknownStep
from mulligan.testing.history import History, command, edge, step, workflow


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
