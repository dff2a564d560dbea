"""A paused step: nothing of it starts, running attempts may finish, the rest of the run goes on."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.run_json import run_json

from mulligan.core.effects.snapshot import changes
from mulligan.core.model import reports as r
from mulligan.core.model.workflow import Action, Map, Triage
from mulligan.core.turn import fold, turn
from mulligan.errors import MulliganError, Refused, RunFinished, UnknownStep
from mulligan.history.views import list_waits, waits_for_outside
from mulligan.testing.history import T0, History, command, edge, expression, handler, retry, step, workflow

ASK = Action("approve", {"message": "go?"})
CALL = Action("workflow", {"file": "child.yaml"})


def run_of(*steps: Any, answers: dict[str, Any] | None = None, **fields: Any) -> History:
    return History(workflow(*steps, **fields), answers).start()


def mapped(count: int = 2, **fields: Any) -> History:
    policy = Map(over=expression("list"), **fields)
    return run_of(step("m", map=policy, do=(command("one"), command("two"))), answers={"list": list(range(count))})


# -- what does not start -----------------------------------------------------------------------------------------------


def test_a_step_that_is_queued_leaves_the_queue_and_is_queued_again_as_the_same_attempt():
    run = run_of(step("a"), step("b"))

    assert run.pause_step("a").queued == ["b"]
    assert run.resume_step("a").queued == ["a", "b"]

    assert run["a"].attempt == 1
    assert run.ok("a", "b").status == "completed"


def test_a_step_that_waits_for_others_is_entered_when_they_are_done_and_does_not_start():
    run = run_of(step("a"), step("b", needs=["a"]), step("c", needs=["a"])).pause_step("b")

    run.ok("a")

    assert (run.queued, run.statuses["b"]) == (["c"], "ready")
    assert run.resume_step("b").ok("b", "c").status == "completed"


def test_the_run_does_not_come_to_its_end_while_a_step_is_held():
    run = run_of(step("a"), step("b")).pause_step("b").ok("a")

    assert (run.status, run["end"].status) == ("running", "waiting")
    assert run.resume_step("b").ok("b").status == "completed"


def test_an_attempt_that_runs_may_end_and_its_result_counts():
    run = run_of(step("a"), step("b", needs=["a"])).started("a").pause_step("a").ok("a")

    assert (run.statuses["a"], run.queued) == ("completed", ["b"])


def test_a_failed_attempt_is_not_tried_again_before_the_step_is_resumed():
    run = run_of(step("a", rules=retry(1, delay=5))).started("a").pause_step("a")

    run.fail("a").wait(60)

    assert (run.statuses["a"], run.queued, run["a"].attempt) == ("ready", [], 2)
    assert run.resume_step("a").queued == ["a"]


def test_a_lost_attempt_is_not_run_again_before_the_step_is_resumed():
    run = run_of(step("a")).started("a").pause_step("a").lose("a")

    assert run.queued == []
    assert run.resume_step("a").queued == ["a"]


def test_the_handler_of_an_attempt_that_was_running_runs():
    run = run_of(step("a", on_failure=handler("fix"))).started("a").pause_step("a").fail("a")

    assert run.queued == ["a.on_failure@1.0"]
    assert run.ok("a.on_failure@1.0").status == "completed"


@pytest.mark.parametrize("action", [ASK, CALL, Action("wait", {"seconds": 5})], ids=lambda action: action.kind)
def test_what_needs_no_worker_does_not_start_either(action: Action):
    run = run_of(step("z"), step("a", needs=["z"], action=action)).pause_step("a").ok("z")

    assert run.statuses["a"] == "ready"
    assert run.resume_step("a").statuses["a"] == "running"


def test_of_a_map_what_runs_may_end_and_no_other_command_starts():
    run = mapped().started("m[0].0").pause_step("m").ok("m[0].0")

    assert run.queued == []
    assert run.resume_step("m").queued == ["m[0].1", "m[1].0"]
    assert run.ok("m[0].1", "m[1].0", "m[1].1").status == "completed"


def test_a_map_that_runs_a_few_items_at_a_time_goes_on_with_them_when_it_is_resumed():
    run = mapped(3, max_parallel=1).pause_step("m")

    assert run.queued == []
    run.resume_step("m").ok("m[0].0", "m[0].1", "m[1].0", "m[1].1", "m[2].0", "m[2].1")
    assert run.status == "completed"


def test_a_step_that_a_loop_enters_again_is_held_then():
    run = run_of(step("a", next=["b"]), step("b", next=[edge("a", when="more")]), answers={"more": True})

    run.started("a").pause_step("a").ok("a").ok("b").fire_all()

    assert (run["a"].visit, run.statuses["a"], run.queued) == (2, "ready", [])


def test_a_parked_step_that_somebody_retries_waits_until_it_is_resumed():
    run = run_of(step("a", triage=Triage())).fail("a").pause_step("a").classify("a", "retry")

    assert (run.statuses["a"], run.queued) == ("ready", [])


# -- with other pauses and limits --------------------------------------------------------------------------------------


def test_a_run_that_is_paused_and_resumed_keeps_its_held_steps_held():
    run = run_of(step("z"), step("a", needs=["z"], action=ASK), step("b", needs=["z"])).pause_step("a").ok("z")

    run.pause().resume()

    assert (run.statuses["a"], run.queued) == ("ready", ["b"])


def test_a_step_that_is_resumed_in_a_paused_run_starts_when_the_run_goes_on():
    run = run_of(step("z"), step("a", needs=["z"], action=ASK)).pause_step("a").ok("z").pause().resume_step("a")

    assert run.statuses["a"] == "ready"
    assert run.resume().statuses["a"] == "running"


def test_with_max_parallel_a_held_step_takes_nobodys_place():
    run = run_of(step("a"), step("b"), step("c"), max_parallel=1).started("a").pause_step("b").ok("a")

    assert (run.queued, run.statuses["b"]) == (["c"], "waiting")
    run.ok("c")
    assert (run.status, run.queued) == ("running", [])
    assert run.resume_step("b").ok("b").status == "completed"


def test_a_cancel_ends_a_run_with_a_held_step():
    run = run_of(step("a"), step("b", needs=["a"])).pause_step("a").pause_step("b").cancel()

    assert (run.status, run.statuses["a"], run.statuses["b"]) == ("cancelled", "cancelled", "cancelled")
    assert run.state.run.paused_steps == ()


def test_a_pause_ends_with_its_round():
    run = run_of(step("a"), step("b", needs=["a"])).started("a").pause_step("a").fail("a")

    assert run.status == "failed"
    assert run.retry().queued == ["a"]


def test_a_deadline_runs_on_while_a_step_is_held():
    run = run_of(step("a", deadline=30)).pause_step("a").wait(31)

    assert (run.statuses["a"], run["a"].failure.code if run["a"].failure else "") == ("failed", "TIMEOUT")


def test_a_matrix_is_held_as_a_whole_by_its_name():
    run = run_of(step("sim-1", sweep="sim"), step("sim-2", sweep="sim"), step("sim-3", sweep="sim"), step("b"))

    run.ok("sim-1").pause_step("sim")

    assert (run.queued, run.state.run.paused_steps) == (["b"], ("sim-2", "sim-3"))
    assert run.resume_step("sim").queued == ["b", "sim-2", "sim-3"]


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "step_name", "error"),
    [
        ("pause_step", "nothing", UnknownStep),
        ("resume_step", "nothing", UnknownStep),
        ("pause_step", "end", Refused),
        ("resume_step", "a", Refused),
        ("pause_step", "done", Refused),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(verb: str, step_name: str, error: type[MulliganError]):
    run = run_of(step("a"), step("done")).ok("done")
    before = run.state.run.seq

    with pytest.raises(error) as refused:
        getattr(run, verb)(step_name)

    assert (refused.value.data["step"], run.state.run.seq) == (step_name, before)


def test_a_second_pause_is_refused_and_names_who_holds_the_step():
    run = run_of(step("a")).pause_step("a", by="ann")

    with pytest.raises(Refused) as refused:
        run.pause_step("a", by="bob")

    assert refused.value.message == "step 'a' is already paused by ann"
    assert refused.value.hint == "to resume it: mulligan resume 1 a"


@pytest.mark.parametrize("verb", ["pause_step", "resume_step"])
def test_a_run_that_is_over_has_no_step_to_hold(verb: str):
    run = run_of(step("a")).ok("a")

    with pytest.raises(RunFinished):
        getattr(run, verb)("a")


def test_a_run_that_is_stopping_holds_no_step():
    run = run_of(step("a")).started("a").cancel()

    with pytest.raises(Refused):
        run.pause_step("a")


# -- what is said ------------------------------------------------------------------------------------------------------


def test_a_held_step_says_who_holds_it_and_the_run_waits_for_a_person():
    run = run_of(step("a"), step("b")).pause_step("a", by="ann", reason="the mirror is down").ok("b")

    [wait] = list_waits(run.state)
    assert (wait.kind, wait.place, wait.steps) == ("step_pause", "a", ["a"])
    assert wait.text == "a person to resume it (paused by ann: the mirror is down)"
    assert waits_for_outside(run.state)
    shown = run_json(run.state)["steps"]
    assert shown["a"]["paused"] == {"by": "ann", "reason": "the mirror is down", "at": "2026-01-01T00:00:00Z"}
    assert shown["b"]["paused"] is None


def test_while_something_else_runs_the_run_does_not_wait_for_a_person():
    run = run_of(step("a"), step("b")).pause_step("a")

    assert not waits_for_outside(run.state)


def test_of_a_held_map_one_line_says_it_for_all_its_items():
    run = mapped(30).pause_step("m")

    assert [wait.kind for wait in list_waits(run.state)] == ["items", "step_pause"]


def test_the_row_of_a_held_step_says_so_for_whoever_looks_over_all_runs():
    run = run_of(step("a"), step("b")).started("b")

    assert tags_after(run, r.PauseRequested(T0, step="a")) == {"a": "paused"}
    assert tags_after(run, r.PauseRequested(T0, step="b")) == {"b": "paused"}
    assert tags_after(run, r.TaskEnded(T0, "b", 1)) == {"b": ""}
    assert tags_after(run, r.ResumeRequested(T0, step="a")) == {"a": ""}


def tags_after(run: History, report: r.Report) -> dict[str, str]:
    """How the rows are tagged that a turn writes of the steps."""
    turn(run.state, report, run.evaluator)
    rows = changes(run.state)
    run.state.commit()
    return {key: tag for kind, key, tag, _ in rows if kind == "places"}


def test_the_log_folds_to_the_same_state():
    run = run_of(step("a", rules=retry(1, delay=5)), step("b", needs=["a"])).pause_step("b").started("a")
    run.pause_step("a", by="ann", reason="why").fail("a").wait(5).resume_step("a")

    assert fold(run.state.workflow, run.log, run.state.graph) == run.state
