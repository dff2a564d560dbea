"""What the world is asked for: each task, timer and child run, with its time, its number, and when there is none."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mulligan.core.effects import effects as fx
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.failure import failure
from mulligan.core.model.workflow import Action, Backoff, Handler, Map, Rule, Triage
from mulligan.testing.history import T0, History, command, edge, expression, handler, retry, step, workflow

WAIT = Action("wait", {"seconds": 30})
CHILD = Action("workflow", {"file": "child.yaml"})


def run_of(*steps: Any, answers: dict[str, Any] | None = None, **fields: Any) -> History:
    return History(workflow(*steps, **fields), answers).start()


def asked(run: History) -> list[fx.Effect]:
    """What the last report has led to."""
    return [effect for entry in run.last for effect in fx.effects(run.state, entry.fact)]


def after(seconds: float) -> Any:
    return T0 + timedelta(seconds=seconds)


# -- tasks -----------------------------------------------------------------------------------------------------------


def test_an_attempt_that_is_scheduled_is_a_task_and_its_deadline_a_timer_of_its_visit() -> None:
    run = run_of(step("a", deadline=60, rules=retry(1)), step("b"))
    assert asked(run) == [fx.QueueTask("a", 1), fx.SetTimer("deadline", after(60), "a", 1), fx.QueueTask("b", 1)]

    run.wait(5).fail("a")

    # The timer of before came due for nobody, if the attempt was not there then: it is set with each.
    assert fx.QueueTask("a", 2) in asked(run)
    assert fx.SetTimer("deadline", after(60), "a", 1) in asked(run)


def test_what_the_engine_does_itself_is_no_task() -> None:
    items = step("m", map=Map(over=expression("list")), do=(command(),), deadline=9)

    run = run_of(step("w", action=WAIT), step("c", action=CHILD), items, answers={"list": []})

    assert [effect for effect in asked(run) if isinstance(effect, fx.QueueTask)] == []
    assert fx.StartChild("c", 1) in asked(run)


def test_an_attempt_whose_place_is_gone_asks_for_nothing() -> None:
    state = run_of(step("a")).state

    gone = (e.AttemptScheduled("x", 1), e.AttemptStarted("x", 1, due=T0), e.AttemptStopping("x", 1))

    assert [list(fx.effects(state, fact)) for fact in gone] == [[], [], []]


def test_a_fact_that_asks_for_nothing_has_no_row() -> None:
    run = run_of(step("a"))

    assert list(fx.effects(run.state, e.StepEntered("a", 1))) == []


def test_what_is_cancelled_is_ended_at_once() -> None:
    state = run_of(step("a")).state

    assert list(fx.effects(state, e.AttemptCancelled("a", 1))) == [fx.StopTask("a", 1, 0.0)]


@pytest.mark.parametrize(
    ("code", "usage", "expected"),
    [
        # Nobody has run it in time: it is still in the queue.
        ("TIMEOUT", {}, [fx.StopTask("a", 1, 0.0)]),
        # Somebody has, and has said what it used: it is at its end already.
        ("TIMEOUT", {"wall_seconds": 5.0}, []),
        ("EXIT_NONZERO", {}, []),
    ],
)
def test_an_attempt_that_nobody_has_run_in_time_leaves_the_queue(
    code: str, usage: dict[str, Any], expected: list[fx.Effect]
) -> None:
    state = run_of(step("a")).state

    assert list(fx.effects(state, e.AttemptFailed("a", 1, failure(code), usage))) == expected


# -- being asked to end ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("grace", "seconds"), [(10.0, 10.0), (3.0, 3.0), (0.0, 0.0)])
def test_what_is_asked_to_end_has_the_grace_of_its_workflow(grace: float, seconds: float) -> None:
    run = run_of(step("a"), cancel_grace=grace).started("a")

    run.cancel()

    assert fx.StopTask("a", 1, seconds) in asked(run)


def test_what_may_finish_when_the_run_stops_is_not_made_to() -> None:
    run = run_of(step("a"), cancel_grace=None).started("a")

    run.cancel()

    assert fx.StopTask("a", 1, None) in asked(run)


def test_what_may_finish_when_a_run_stops_may_not_when_its_own_time_is_up() -> None:
    """Nobody has stopped the run: it is its handler that takes too long, and has the usual grace."""
    late = Handler((command("fix"),), timeout=5)
    run = run_of(step("a", on_failure=late), cancel_grace=None).fail("a").started("a.on_failure@1.0")

    run.wait(5)

    stops = [effect for effect in run.effects if isinstance(effect, fx.StopTask)]
    assert stops == [fx.StopTask("a.on_failure@1.0", 1, 10.0)]


@pytest.mark.parametrize("now", [True, False])
def test_a_child_run_is_told_whether_to_stop_at_once(now: bool) -> None:
    run = run_of(step("c", action=CHILD))

    run.cancel(now=now)

    assert fx.StopChild("c", 1, now) in asked(run)
    assert not any(isinstance(effect, fx.StopTask) for effect in asked(run))


def test_a_child_run_whose_time_is_up_is_stopped_as_ever() -> None:
    run = run_of(step("c", action=CHILD, timeout=60))

    run.wait(60)

    assert fx.StopChild("c", 1, False) in run.effects


# -- timers ----------------------------------------------------------------------------------------------------------


def test_each_wait_has_a_timer_that_says_what_it_is_for() -> None:
    slow = Handler((command("fix"),), timeout=7)
    run = run_of(
        step("w", action=WAIT, timeout=None),
        step("r", rules=retry(1, delay=5)),
        step("h", on_failure=slow),
        step("t", triage=Triage(timeout=9)),
        timeout=100,
    )
    assert fx.SetTimer("run", after(100), "", 1) in asked(run)

    run.fail("r").fail("h").fail("t")

    assert fx.SetTimer("retry", after(5), "r", 2) in run.effects
    assert fx.SetTimer("handler", after(7), "h", 1) in run.effects
    assert fx.SetTimer("triage", after(9), "t", 1) in run.effects


def test_what_has_no_limit_has_no_timer() -> None:
    run = run_of(step("h", on_failure=handler()), step("t", triage=Triage()), step("c", action=CHILD))

    run.fail("h").fail("t")

    assert [effect for effect in run.effects if isinstance(effect, fx.SetTimer)] == []


def test_a_child_run_with_a_timeout_is_started_and_timed() -> None:
    run = run_of(step("c", action=CHILD, timeout=60))

    assert asked(run) == [fx.StartChild("c", 1), fx.SetTimer("attempt", after(60), "c", 1)]


def test_another_round_has_its_own_time_and_its_timer_its_number() -> None:
    run = run_of(step("a"), timeout=100).fail("a").wait(10)

    run.retry()

    assert fx.SetTimer("run", after(110), "", 2) in asked(run)


@pytest.mark.parametrize("end", [History.ok, History.fail], ids=["well", "badly"])
def test_a_retry_whose_time_came_while_its_script_ran_is_timed_again_when_the_script_ends(end: Any) -> None:
    rules = (Rule(any=True, max_retries=1, backoff=Backoff(delay=5), recovery_script=command("mend")),)
    run = run_of(step("a", rules=rules)).fail("a")

    end(run, "a.script@1")

    assert asked(run) == [fx.SetTimer("retry", after(5), "a", 2)]


def test_what_is_no_script_times_nobodys_retry() -> None:
    run = run_of(step("a", on_failure=handler("one", "two"), rules=(Rule(exit_codes=(9,)),))).fail("a")

    run.ok("a.on_failure@1.0")

    assert asked(run) == [fx.QueueTask("a.on_failure@1.1", 1)]


# -- loops -----------------------------------------------------------------------------------------------------------


def looping(**fields: Any) -> History:
    """A run in which `b` has gone back to `a` and waits a minute, for `a`'s other followers too."""
    back = edge("a", when="more", backoff=Backoff(delay=60))
    steps = (step("a", next=["b", "c"]), step("b", next=[back]), step("c"), step("z"))
    return run_of(*steps, answers={"more": True}, **fields).ok("a")


def test_a_loop_that_is_taken_has_a_timer_by_its_edge() -> None:
    run = looping()

    run.ok("b")

    assert fx.SetTimer("loop", after(60), "b", 0) in asked(run)


def test_a_loop_that_waited_for_the_last_step_behind_it_is_timed_again() -> None:
    run = looping().ok("b")

    run.ok("z")
    elsewhere = asked(run)
    run.ok("c")

    assert elsewhere == []
    assert fx.SetTimer("loop", after(60), "b", 0) in asked(run)


def test_a_loop_that_still_waits_for_a_step_is_not_timed_again() -> None:
    back = edge("a", when="more", backoff=Backoff(delay=60))
    steps = (step("a", next=["b", "c", "d"]), step("b", next=[back]), step("c"), step("d"))
    run = run_of(*steps, answers={"more": True}).ok("a", "b")

    run.ok("c")

    assert asked(run) == []


def test_where_only_so_many_steps_may_be_under_way_any_end_may_be_what_a_loop_waited_for() -> None:
    run = looping(max_parallel=4).ok("b").ok("c")

    run.ok("z")

    assert fx.SetTimer("loop", after(60), "b", 0) in asked(run)


def test_a_step_that_fails_behind_a_loop_lets_it_go_on_as_well() -> None:
    run = looping(fail_fast="never").ok("b")

    run.fail("c")

    assert fx.SetTimer("loop", after(60), "b", 0) in asked(run)


# -- pauses ----------------------------------------------------------------------------------------------------------


def test_a_pause_goes_down_to_the_child_runs_and_so_does_its_end() -> None:
    run = run_of(step("c", action=CHILD))

    assert asked(run.pause()) == [fx.PauseChildren()]
    assert asked(run.resume()) == [fx.ResumeChildren()]


def test_a_run_that_goes_on_times_its_loops_again_and_has_the_time_that_was_left() -> None:
    run = looping(timeout=100).ok("b", "c").pause().wait(20)

    run.resume()

    assert fx.SetTimer("loop", after(60), "b", 0) in asked(run)
    assert [effect for effect in asked(run) if isinstance(effect, fx.SetTimer) and effect.kind == "run"] != []


def test_a_run_that_goes_on_leaves_a_loop_alone_that_waits_for_a_step() -> None:
    run = looping().ok("b").pause()

    run.resume()

    assert asked(run) == [fx.ResumeChildren()]


def test_a_run_that_stops_lifts_the_pause_of_its_child_runs() -> None:
    """What cleans up or undoes may wait for one."""
    run = run_of(step("a")).started("a").pause()

    run.cancel()

    assert fx.ResumeChildren() in asked(run)


# -- first steps -----------------------------------------------------------------------------------------------------


def test_a_run_with_more_first_steps_than_are_entered_at_once_is_told_where_the_others_begin() -> None:
    run = History(workflow(*(step(name) for name in "abcde")))
    run.state.graph.starts_at_once = 2

    run.report_once(r.RunRequested(T0, run_id=1))

    assert [effect for effect in asked(run) if isinstance(effect, fx.EnterMore)] == [fx.EnterMore(2), fx.EnterMore(4)]


def test_a_run_whose_first_steps_are_entered_at_once_is_told_of_no_others() -> None:
    run = History(workflow(*(step(name) for name in "ab")))
    run.state.graph.starts_at_once = 2

    run.report_once(r.RunRequested(T0, run_id=1))

    assert [type(effect) for effect in asked(run)] == [fx.QueueTask, fx.QueueTask]
