"""`resume --steps`: a run that goes on for some steps, and is paused after them."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model.workflow import Action, Map, Triage
from mulligan.core.turn import fold
from mulligan.errors import Refused, RunFinished
from mulligan.history.story import story
from mulligan.history.views import list_waits
from mulligan.testing.history import History, command, edge, expression, handler, retry, step, workflow

ASK = Action("approve", {"message": "go?"})


def paused(*steps: Any, answers: dict[str, Any] | None = None, **fields: Any) -> History:
    return History(workflow(*steps, **fields), answers).start().pause()


def replayed(run: History) -> None:
    """What a fold of the log gives is what the turns gave."""
    assert fold(run.state.workflow, run.log).run == run.state.run


# -- which steps run ---------------------------------------------------------------------------------------------------


def test_of_two_ready_steps_the_first_runs_and_the_run_is_paused_with_a_reason():
    run = paused(step("a"), step("b"), step("c", needs=["a"]))

    run.resume(steps=1)
    queued = run.queued
    run.ok("a")

    assert (queued, run.status, run.queued) == (["a"], "paused", [])
    assert run.state.run.reason == "1 step ran, as asked"
    assert run.statuses == {"a": "completed", "b": "ready", "c": "ready"}
    replayed(run)


def test_step_by_step_each_step_runs_once_and_the_last_one_ends_the_run():
    run = paused(step("a"), step("b"), step("c", needs=["a"]))
    order = []

    while run.status == "paused":
        [name] = run.resume(steps=1).queued
        order.append(name)
        run.started(name).ok(name)

    assert (order, run.status) == (["a", "b", "c"], "completed")
    assert all(run[name].attempt == 1 for name in order)


def test_with_more_steps_those_that_become_ready_count_too():
    run = paused(step("a"), step("b", needs=["a"]), step("c", needs=["b"])).resume(steps=2)

    run.ok("a")
    queued = run.queued
    run.ok("b")

    assert (queued, run.status, run.state.run.reason) == (["b"], "paused", "2 steps ran, as asked")


def test_a_plain_resume_afterwards_queues_everything_that_was_held():
    run = paused(step("a"), step("b"), step("c"), step("d", action=ASK)).resume(steps=1).ok("a")

    run.resume()

    assert (run.queued, run.statuses["d"]) == (["b", "c"], "running")
    assert run.ok("b", "c").approve("d").status == "completed"


def test_an_action_of_the_engine_starts_when_its_turn_comes_and_not_before():
    run = paused(step("a"), step("ask", action=ASK, needs=["a"]), step("z", needs=["ask"])).resume(steps=1).ok("a")

    held = run.statuses["ask"]
    run.resume(steps=1)
    asked = run.statuses["ask"]
    run.approve("ask")

    assert (held, asked, run.status, run.statuses["z"]) == ("ready", "running", "paused", "ready")


def test_a_step_that_had_started_counts_first():
    run = History(workflow(step("a"), step("b"), step("c"))).start().started("b").pause()

    run.resume(steps=1)
    queued = run.queued
    run.ok("b")

    assert (queued, run.status) == (["b"], "paused")


def test_a_step_that_waits_for_an_answer_does_not_count_and_its_next_attempt_is_held():
    run = History(workflow(step("ask", action=ASK), step("p", triage=Triage()), step("b"), step("c"))).start()
    run.fail("p").pause().resume(steps=1)

    queued = run.queued
    run.classify("p", "retry").approve("ask")
    still = run.queued
    run.ok("b")

    assert (queued, still, run.status) == (["b"], ["b"], "paused")
    assert run.resume(steps=1).queued == ["p"]


def test_a_run_that_nobody_paused_can_be_resumed_for_a_step_after_a_crash():
    run = History(workflow(step("a"), step("b", needs=["a"]))).start().started("a")

    run.resume(steps=1).lose("a")
    again = run.queued
    run.ok("a")

    assert (again, run.status, run.queued) == (["a"], "paused", [])


def test_a_plain_resume_of_an_interrupted_process_changes_nothing_so_no_second_step_runs():
    run = paused(step("a"), step("b", needs=["a"])).resume(steps=1).started("a")

    run.resume().lose("a").ok("a")

    assert (run.status, run.queued) == ("paused", [])


# -- what belongs to a step --------------------------------------------------------------------------------------------


def test_retries_and_handlers_belong_to_the_step():
    run = paused(
        step("a", rules=retry(1, delay=5), on_failure=handler(command("mend"), strategy="recovery")), step("b")
    ).resume(steps=1)

    run.fail("a").wait(5)
    retried = run.queued
    run.fail("a")
    handled = run.queued
    run.ok(*handled)

    assert (retried, run.status, run.statuses["a"]) == (["a"], "paused", "completed")
    assert handled == ["a.on_failure@2.0"]


def test_all_items_of_a_map_belong_to_its_step():
    policy = Map(over=expression("list"), max_parallel=1)
    run = paused(step("m", map=policy, do=(command("one"),)), step("b", needs=["m"]), answers={"list": [1, 2, 3]})

    run.resume(steps=1).ok("m[0].0").ok("m[1].0").ok("m[2].0")

    assert (run.status, run.statuses["m"], run.statuses["b"]) == ("paused", "completed", "ready")


def test_a_remediation_and_the_visit_after_it_are_steps_of_their_own():
    run = paused(step("a", next=[edge("fix", on="failure", then="rerun")]), step("fix")).resume(steps=1)

    first = run.fail("a").status
    second = run.resume(steps=1).ok("fix").status
    run.resume(steps=1).ok("a")

    assert (first, second, run.status, run["a"].visit) == ("paused", "paused", "completed", 2)


def test_a_loop_is_paused_between_two_visits():
    answers = {"again": True}
    run = paused(step("a", max_visits=5, next=[edge("a", when="again")]), answers=answers).resume(steps=1)

    run.ok("a")
    paused_once = run.status
    run.resume(steps=2).ok("a").ok("a")

    assert (paused_once, run.status, run["a"].visit) == ("paused", "paused", 3)


def test_a_skipped_step_does_not_count():
    run = paused(
        step("a"), step("b", needs=["a"], when="no"), step("c", needs=["a"]), step("d", needs=["c"]),
        answers={"no": False},
    )  # fmt: skip

    run.resume(steps=2).ok("a").ok("c")

    assert (run.statuses["b"], run.status, run.statuses["d"]) == ("skipped", "paused", "ready")


def test_slots_of_max_parallel_are_not_lost_to_held_steps():
    run = paused(step("a"), step("b"), step("c"), max_parallel=2)
    seen = []

    while run.status == "paused":
        [name] = run.resume(steps=1).queued
        seen.append(name)
        run.ok(name)

    assert (seen, run.status) == (["a", "b", "c"], "completed")


# -- other verbs -------------------------------------------------------------------------------------------------------


def test_a_paused_step_is_not_chosen_and_is_not_started_by_its_own_resume():
    run = paused(step("a"), step("b"), step("c", needs=["b"])).pause_step("a").resume(steps=1)

    queued = run.queued
    run.resume_step("a")
    still = run.queued
    run.ok("b")

    assert (queued, still, run.status) == (["b"], ["b"], "paused")
    assert run.resume(steps=1).queued == ["a"]


def test_a_cancel_ends_the_run_and_an_unhandled_failure_is_seen_after_the_pause():
    run = paused(step("a"), step("b")).resume(steps=1)
    failed = paused(step("a"), step("b", needs=["a"])).resume(steps=1).fail("a")

    assert run.cancel().status == "running" or run.status == "cancelled"
    run.ok("a") if run.status != "cancelled" else None
    assert run.status == "cancelled" and run.state.run.stepping is None
    assert failed.status == "failed"


def test_a_run_that_has_ended_or_is_stopping_is_refused():
    ended = paused(step("a")).resume().ok("a")
    stopping = History(workflow(step("a"))).start().started("a").cancel()

    with pytest.raises(RunFinished):
        ended.resume(steps=1)
    with pytest.raises(Refused):
        stopping.resume(steps=1)


def test_it_is_said_in_the_story_and_in_what_the_run_waits_for():
    run = paused(step("a"), step("b")).resume(steps=1)

    meanwhile = [wait.text for wait in list_waits(run.state)]
    run.ok("a")

    assert "a person to resume the run for more steps" not in meanwhile[:1]
    told = [line.text for line in story(iter(run.log))]
    assert "resumed for 1 step by someone" in told and "paused: 1 step ran, as asked" in told
    assert [wait.text for wait in list_waits(run.state) if wait.is_for_a_person] == [
        "a person to resume the run: 1 step ran, as asked"
    ]


def test_a_parked_step_that_is_to_be_retried_counts_as_a_step_and_does_not_wait_for_ever() -> None:
    run = History(workflow(step("a", triage=Triage("always")), step("b", needs=["a"]))).start().fail("a")

    run.pause().resume(steps=1).classify("a", "retry")
    assert run.queued == ["a"]

    assert run.ok("a").status == "paused"


def test_an_approval_whose_handler_asks_again_counts_as_a_step_and_does_not_wait_for_ever() -> None:
    asking = step("ask", action=ASK, on_failure=handler("fix", rerun=1))
    run = History(workflow(asking, step("b", needs=["ask"]))).start()

    run.pause().resume(steps=1).approve("ask", is_approved=False).ok("ask.on_failure@1.0")
    assert (run["ask"].status, run["ask"].attempt) == ("running", 2)

    assert run.approve("ask").status == "paused"
    replayed(run)
