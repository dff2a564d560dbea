"""Undo: in reverse order of completion, once per completed visit, only if the run fails or is cancelled."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Action, Command, Map, Template, Triage
from mulligan.core.turn import fold
from mulligan.errors import ExpressionFailed, UndoFailed
from mulligan.testing.history import History, command, edge, expression, handler, retry, shell, step, workflow

UNDO = command("undo")


def run_of(*steps: Any, **fields: Any) -> History:
    answers = fields.pop("answers", None)
    return History(workflow(*steps, **fields), answers).start()


def undone(run: History) -> list[tuple[str, int]]:
    return [(fact.step, fact.visit) for fact in run.facts(e.UndoStarted)]


def test_nothing_is_undone_in_a_run_that_completes() -> None:
    run = run_of(step("a", undo=UNDO), step("b", continue_on_error=True, needs=["a"])).ok("a").fail("b")

    assert (run.status, undone(run)) == ("completed", [])


def test_undos_run_one_at_a_time_in_reverse_order_of_completion() -> None:
    steps = (step("a", undo=UNDO), step("b", undo=UNDO), step("c", undo=UNDO), step("bad"))
    run = run_of(*steps, end=step("end", action=shell("report"))).ok("b", "c", "a").fail("bad")
    assert run.queued == ["a.undo@1"]

    run.ok("a.undo@1", "c.undo@1", "b.undo@1")

    assert undone(run) == [("a", 1), ("c", 1), ("b", 1)]
    assert run.queued == ["end"]
    assert fold(run.state.workflow, run.log) == run.state


def test_undo_waits_until_all_is_at_rest() -> None:
    run = run_of(step("a", undo=UNDO), step("bad"), step("slow")).ok("a").fail("bad")
    assert run.queued == ["slow"]

    run.ok("slow")

    assert run.queued == ["a.undo@1"]


def test_only_what_completed_is_undone() -> None:
    steps = (step("failed", undo=UNDO), step("skipped", undo=UNDO, needs=["failed"]), step("done", undo=UNDO))
    run = run_of(*steps).ok("done").fail("failed").ok("done.undo@1")

    assert undone(run) == [("done", 1)]
    assert run.status == "failed"


def test_a_step_without_undo_is_left_as_it_is() -> None:
    run = run_of(step("a"), step("bad")).ok("a").fail("bad")

    assert (run.status, undone(run)) == ("failed", [])


def test_each_completed_visit_is_undone_with_its_own_output() -> None:
    undo = Command(action=Action("shell", {"text": "undo"}, {"OUT": Template((expression("out", "output"),))}))
    run = run_of(
        step("a", undo=undo, next=[edge("a", when="more"), edge("bad", when="done")]),
        step("bad"),
        answers={
            "more": lambda names: names["output"] == "first",
            "done": lambda names: names["output"] == "second",
            "out": lambda names: names["output"],
        },
    )

    run.ok("a", output="first").ok("a", output="second").fail("bad").ok("a.undo@2").ok("a.undo@1")

    bound = {f.place: f.bindings["OUT"] for f in run.facts(e.AttemptScheduled) if "undo" in f.place}
    assert bound == {"a.undo@2": "second", "a.undo@1": "first"}
    assert run.status == "failed"


def test_a_recovered_step_is_undone_too() -> None:
    run = run_of(step("a", undo=UNDO, on_failure=handler("fix")), step("bad", needs=["a"]))
    run.fail("a").ok("a.on_failure@1.0").fail("bad")

    assert undone(run) == [("a", 1)]


def test_an_undo_has_its_own_retries() -> None:
    run = run_of(step("a", undo=command("undo", rules=retry(1, delay=5))), step("bad")).ok("a").fail("bad")

    run.fail("a.undo@1").wait(5).ok("a.undo@1")

    assert run.facts(e.UndoFailed) == []
    assert run.facts(e.UndoCompleted) == [e.UndoCompleted("a", 1)]


def test_an_undo_keeps_its_retries_when_the_run_is_stopped() -> None:
    run = run_of(step("a", undo=command("undo", rules=retry(1, delay=5))), step("b", needs=["a"])).ok("a").cancel()

    run.fail("a.undo@1").wait(5).ok("a.undo@1")

    assert run.status == "cancelled"


def test_an_undo_has_its_own_handler() -> None:
    run = run_of(step("a", undo=command("undo", on_failure=handler("fix"))), step("bad")).ok("a").fail("bad")

    run.fail("a.undo@1").ok("a.undo@1.on_failure@1.0")

    assert run.facts(e.UndoCompleted) == [e.UndoCompleted("a", 1)]


def test_a_failed_undo_is_recorded_and_the_others_go_on() -> None:
    run = run_of(step("a", undo=UNDO), step("b", undo=UNDO), step("bad")).ok("a", "b").fail("bad")

    run.fail("b.undo@1", 4)
    assert run.queued == ["a.undo@1"]
    run.ok("a.undo@1")

    failed = run.facts(e.UndoFailed)[0].failure
    assert (failed.code, failed.message, failed.step, failed.cause[0].exit_code) == (
        "UNDO_FAILED",
        "exit code 4",
        "b",
        4,
    )
    assert run["b"].warnings == (failed,)
    assert (run.status, run.statuses["b"]) == ("failed", "completed")


def test_an_undo_whose_expression_fails_is_a_failed_undo() -> None:
    undo = Command(action=Action("shell", {"text": "undo"}, {"OUT": Template((expression("out", "output"),))}))
    run = run_of(step("a", undo=undo), step("bad"), answers={"out": ExpressionFailed("no such key")})

    run.ok("a").fail("bad")

    assert run.facts(e.UndoFailed)[0].failure.cause[0].code == "EXPRESSION_FAILED"
    assert run.status == "failed"


def test_a_lost_undo_is_tried_again() -> None:
    run = run_of(step("a", undo=UNDO), step("bad")).ok("a").fail("bad").lose("a.undo@1")
    assert run.queued == ["a.undo@1"]

    run.ok("a.undo@1")

    assert run.facts(e.UndoCompleted) == [e.UndoCompleted("a", 1)]


def test_end_does_not_undo_what_it_turns_into_failed() -> None:
    run = run_of(step("a", undo=UNDO), end=step("end", action=shell("report"))).ok("a")

    run.ok("end", output={"status": "failed"})

    assert (run.status, undone(run)) == ("failed", [])


def test_what_was_undone_by_a_stop_includes_what_ended_well_in_its_grace() -> None:
    run = run_of(step("a", undo=UNDO)).started("a").cancel()

    run.ok("a")

    assert run.queued == ["a.undo@1"]


# -- a child run that could not undo all that it did ------------------------------------------------------------------


def calling(**fields: Any) -> History:
    return run_of(step("g", action=Action("workflow", {"file": "group.yaml"}), **fields))


def test_a_child_run_is_not_tried_again_by_itself_after_a_failed_undo() -> None:
    run = calling(rules=retry(3)).child_ended("g", "failed", undo_failed=("book",))

    assert (run.status, run["g"].attempt) == ("failed", 1)
    assert ("retry", "undo_failed") in run.passed
    assert run["g"].failure is not None and run["g"].failure.details["undo_failed"] == ["book"]


def test_nor_is_it_run_again_after_its_handler() -> None:
    run = calling(on_failure=handler("fix", rerun=2)).child_ended("g", "failed", undo_failed=("book",))

    assert (run.status, run.queued) == ("failed", [])
    assert ("handle", "undo_failed") in run.passed


def test_a_person_decides_about_it_if_the_step_has_triage() -> None:
    run = calling(rules=retry(3), triage=Triage()).child_ended("g", "failed", undo_failed=("book",))
    assert run["g"].status == "pending_failed"
    assert run.facts(e.StepParked)[0].reason == "undo_failed"

    run.classify("g", "retry").child_ended("g")

    assert (run.status, run["g"].attempt) == ("completed", 2)


def test_another_round_runs_it_again_only_by_force() -> None:
    run = calling().child_ended("g", "failed", undo_failed=("book",))

    with pytest.raises(UndoFailed):
        run.retry()
    run.retry(force=True).child_ended("g")

    assert run.status == "completed"


def test_a_child_run_that_undid_all_is_tried_again() -> None:
    run = calling(rules=retry(3)).child_ended("g", "failed").child_ended("g")

    assert (run.status, run["g"].attempt) == ("completed", 2)


def test_a_refused_round_of_the_child_is_not_followed_by_a_new_child_run() -> None:
    run = calling(rules=retry(3)).child_ended("g", "failed", is_refused=True, round=2, undo_failed=("book",))

    assert (run.status, run["g"].attempt) == ("failed", 1)
    last = run["g"].last_child
    assert last is not None and (last.run_id, last.round) == (2, 1)


def test_neither_is_one_whose_time_was_up_nor_one_that_was_cancelled() -> None:
    late = calling(rules=retry(3), timeout=5.0).wait(5).child_ended("g", "cancelled", undo_failed=("book",))
    stopped = calling(rules=retry(3)).cancel().child_ended("g", "cancelled", undo_failed=("book",))

    assert (late.status, late["g"].attempt, stopped.status) == ("failed", 1, "cancelled")
    for run in (late, stopped):
        with pytest.raises(UndoFailed):
            run.retry()
        assert fold(run.state.workflow, run.log) == run.state


@pytest.mark.parametrize("when", ["always", "unmatched"])
def test_nobody_who_decides_about_it_in_time_does_not_mean_that_it_is_tried_again(when: Any) -> None:
    policy = Triage(when=when, timeout=60, default="retry")
    run = calling(triage=policy).child_ended("g", "failed", undo_failed=("book",)).wait(60)

    assert (run.status, run["g"].attempt) == ("failed", 1)


def mapping(**fields: Any) -> History:
    over = Map(expression("list", "inputs.list"))
    call = Command(action=Action("workflow", {"file": "child.yaml"}))
    run = run_of(step("m", map=over, do=(call,), **fields), step("n", needs=["m"]), answers={"list": [1, 2]})
    return run.child_ended("m[0].0").child_ended("m[1].0", "failed", child_run_id=3, undo_failed=("book",))


def test_an_item_whose_child_run_could_not_undo_all_runs_again_only_by_force() -> None:
    run = mapping(rules=retry(3))
    assert (run.status, run["m[1]"].status) == ("failed", "failed")

    for options in ({}, {"from_start": True}, {"keep_completed": True}, {"from_step": "m", "items": (1,)}):
        with pytest.raises(UndoFailed):
            run.retry(**options)

    run.retry(force=True).child_ended("m[1].0").ok("n")
    assert run.status == "completed"


def test_a_map_with_such_an_item_is_parked_if_it_has_triage() -> None:
    run = mapping(triage=Triage(when="exhausted", default="retry", timeout=60))

    assert [fact.reason for fact in run.facts(e.StepParked)] == ["undo_failed"]
    assert run.wait(60).status == "failed"
