"""What a fork keeps of steps that others stood in for, that were undone, or that moved in the graph."""

from __future__ import annotations

import pytest

from mulligan.core.deciding.rounds.fork import kept_results, plan_fork
from mulligan.core.model.event_types import Kept
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Need, Step, Workflow
from mulligan.errors import UnknownStep
from mulligan.testing.history import History, command, edge, step, workflow


def kept(old: History, definition: Workflow, from_step: str, *, keep_completed: bool = False) -> list[str]:
    found = kept_results(old.state, Graph(definition), from_step, keep_completed=keep_completed)
    return [one.step for one in found]


def standing_in(then: str | None = "continue") -> tuple[Workflow, History]:
    """`a` has failed, `fix` has dealt with it, and `b` was built on that; `z` has failed and is nobody's concern."""
    flow = workflow(
        step("a", next=["b", edge("fix", "failure", then=then)]),
        step("fix"),
        step("b"),
        step("side"),
        step("z"),
        fail_fast="never",
    )
    run = History(flow).start().fail("a").ok("fix").ok("side")
    return flow, (run.ok("b") if then == "continue" else run).fail("z")


def test_what_was_built_on_a_stand_in_runs_again_with_it() -> None:
    flow, old = standing_in()

    assert kept(old, flow, "fix") == ["side"]


def test_what_a_step_stood_in_for_is_kept_where_the_fork_begins_elsewhere() -> None:
    flow, old = standing_in()

    found = kept_results(old.state, Graph(flow), "z")

    assert [one.step for one in found] == ["a", "fix", "b", "side"]
    assert (found[0].status, found[0].taken) == ("completed", ("b", "fix"))


def test_a_step_whose_failure_was_only_handled_was_stood_in_for_by_nobody() -> None:
    flow, old = standing_in(None)

    assert kept(old, flow, "fix") == ["side"]
    # A fork cannot keep a failure: `a` runs again, and with it what was done about that failure.
    assert kept(old, flow, "z") == ["side"]
    assert kept(old, flow, "z", keep_completed=True) == ["fix", "side"]


def test_what_completed_after_all_was_stood_in_for_by_nobody() -> None:
    flow, _ = standing_in()
    old = History(flow).start().fail("a").fail("fix").ok("side", "z").retry()

    old.ok("a", "b")

    assert (old.status, old.statuses["fix"]) == ("completed", "skipped")
    assert kept(old, flow, "fix") == ["a", "b", "side", "z"]


def test_a_stand_in_for_a_step_that_the_file_no_longer_has_touches_nothing_else() -> None:
    _, old = standing_in()
    corrected = workflow(step("fix"), step("b"), step("side"), step("z"), fail_fast="never")

    assert kept(old, corrected, "fix") == ["b", "side"]


def test_what_was_undone_and_is_not_in_the_file_any_more_is_nobodys_concern() -> None:
    flow = workflow(step("made", undo=command("unmake")), step("side"), step("z", needs=["made", "side"]))
    old = History(flow).start().ok("made", "side").fail("z").ok("made.undo@1")
    assert old.status == "failed"

    assert kept(old, workflow(step("side"), step("z", needs=["side"])), "z") == ["side"]
    assert kept(old, flow, "z") == ["side"]


def test_an_edge_to_end_was_taken_and_one_that_was_not_is_not_kept() -> None:
    edges = [edge("no", when="never"), edge("end"), edge("yes")]
    flow = workflow(step("a", next=edges), step("no"), step("yes"), step("also"), step("z"))
    old = History(flow, {"never": False}).start().ok("a", "yes", "also").fail("z")

    found = {one.step: one for one in kept_results(old.state, Graph(flow), "z")}

    assert found["a"] == Kept("a", "completed", None, ("end", "yes"))
    assert found["no"] == Kept("no", "skipped", None, ())


def test_edges_are_kept_in_the_order_of_their_names() -> None:
    flow = workflow(step("a", next=["d", "c", "b"]), step("b"), step("c"), step("d"), step("z"))
    old = History(flow).start().ok("a", "b", "c", "d").fail("z")

    assert kept_results(old.state, Graph(flow), "z")[0].taken == ("b", "c", "d")


def test_what_now_lies_behind_a_step_that_runs_only_because_of_another_runs_too() -> None:
    """`c` runs for `b`'s sake, and `b` for that of `a`: one new link after the other, against the file's order."""
    old_flow = workflow(step("c"), step("b"), step("a"), step("z"))
    old = History(old_flow).start().ok("a", "b", "c").fail("z")
    corrected = workflow(step("c", needs=["b"]), step("b", needs=["a"]), step("a", needs=["z"]), step("z"))

    assert kept(old, corrected, "z") == []


def test_a_plan_says_what_is_kept_what_runs_what_differs_and_what_is_dropped() -> None:
    old_flow = workflow(step("a"), step("b"), step("gone"), step("z", needs=["a"]))
    old = History(old_flow).start().ok("a", output=1).ok("b", "gone").fail("z")
    corrected = workflow(step("a", timeout=5), step("b"), step("new"), step("z", needs=["a"], timeout=9))

    plan = plan_fork(old.state, Graph(corrected), "z")

    assert [one.step for one in plan.kept] == ["a", "b"]
    assert (plan.runs, plan.changed, plan.dropped) == (("new", "z"), ("a",), ("gone",))
    assert plan.kept[0].output == 1


def test_a_step_that_is_not_there_is_named_in_the_refusal() -> None:
    flow, old = standing_in()

    with pytest.raises(UnknownStep) as refused:
        kept_results(old.state, Graph(flow), "x")

    assert refused.value.message == "'x' is not a step of the workflow to run"
    assert refused.value.data == {"step": "x"}


@pytest.mark.parametrize(
    "behind",
    [step("b", needs=["a"]), step("b", needs=[Need("ab", is_group=True)])],
    ids=["needs", "group"],
)
def test_what_was_skipped_for_a_failure_is_asked_again_when_the_failed_step_runs_again(behind: Step) -> None:
    flow = workflow(step("a"), behind, step("c", needs=["b"]), step("z"), fail_fast="never", groups={"ab": ("a",)})
    old = History(flow).start().fail("a").fail("z")
    assert old.statuses == {"a": "failed", "b": "skipped", "c": "skipped", "z": "failed"}

    run = History(flow).start(forked_from=1, kept=kept_results(old.state, Graph(flow), "z"))
    run.ok("a", "b", "c", "z")

    assert (run.status, set(run.statuses.values())) == ("completed", {"completed"})


def test_what_was_skipped_is_skipped_again_where_the_failed_step_fails_again() -> None:
    flow = workflow(step("a"), step("b", needs=["a"]), step("z"), fail_fast="never")
    old = History(flow).start().fail("a").fail("z")

    run = History(flow).start(forked_from=1, kept=kept_results(old.state, Graph(flow), "z"))
    run.fail("a").ok("z")

    assert run.statuses == {"a": "failed", "b": "skipped", "z": "completed"}


def test_what_was_skipped_by_its_own_condition_stays_so_where_nothing_before_it_runs() -> None:
    flow = workflow(step("a"), step("b", needs=["a"], when="never"), step("z"))
    old = History(flow, {"never": False}).start().ok("a").fail("z")

    assert kept(old, flow, "z") == ["a", "b"]
