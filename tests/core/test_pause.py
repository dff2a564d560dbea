"""Pause: running commands finish and count; nothing new starts; timers wait; paused time is not run time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mulligan.core.effects import effects as fx
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.workflow import END, Action, Command, Handler, Map, Triage
from mulligan.core.turn import fold, turn
from mulligan.errors import RunFinished
from mulligan.testing.history import History, command, edge, expression, handler, retry, shell, step, workflow

WAIT = Action("wait", {"seconds": 60})
APPROVE = Action("approve", {"message": "go on?", "timeout": 60})
CHILD = Action("workflow", {"file": "child.yaml"})


def run_of(*steps: Any, **fields: Any) -> History:
    answers = fields.pop("answers", None)
    return History(workflow(*steps, **fields), answers).start()


def test_what_runs_ends_and_what_comes_next_is_queued_for_later() -> None:
    run = run_of(step("a"), step("b", needs=["a"])).started("a").pause()

    run.ok("a", output=1)

    assert (run.status, run.statuses) == ("paused", {"a": "completed", "b": "ready"})
    # A task is for a worker to start, also when the pause is over.
    assert run.resume().statuses == {"a": "completed", "b": "ready"}


def test_a_failure_route_is_chosen_while_paused() -> None:
    run = run_of(step("a", next=[edge("fix", "failure", then="rerun")]), step("fix")).started("a").pause()

    run.fail("a")
    assert run.statuses == {"a": "failed", "fix": "ready"}
    run.resume().ok("fix").ok("a")

    assert run.status == "completed"


@pytest.mark.parametrize("action", [WAIT, APPROVE, CHILD], ids=lambda action: action.kind)
def test_the_engines_own_actions_do_not_start_while_paused(action: Action) -> None:
    run = run_of(step("a"), step("b", needs=["a"], action=action)).pause().ok("a")
    assert run.statuses["b"] == "ready"
    assert not any(isinstance(effect, fx.StartChild | fx.SetTimer) for effect in run.effects)

    run.wait(500).resume()

    assert run.statuses["b"] == "running"
    assert run.facts(e.AttemptStarted)[-1].place == "b"


def test_a_wait_that_begins_after_the_pause_takes_its_full_time() -> None:
    run = run_of(step("a"), step("b", needs=["a"], action=WAIT)).pause().ok("a").wait(500).resume()

    run.wait(59)
    assert run.statuses["b"] == "running"
    run.wait(1)

    assert run.status == "completed"


def test_a_map_lists_its_items_after_the_pause() -> None:
    run = run_of(
        step("a"),
        step("b", needs=["a"], map=Map(over=expression("list")), do=(command("one"),)),
        answers={"list": [1]},
    )

    run.pause().ok("a")
    assert run.facts(e.MapExpanded) == []
    run.resume().ok("b[0].0")

    assert run.status == "completed"


def test_end_does_not_start_while_paused() -> None:
    run = run_of(step("a"), end=step("end", action=shell("report"))).pause().ok("a")
    assert run["end"].status == "waiting"

    run.resume()

    assert run.queued == ["end"]


def test_even_the_silent_end_waits_for_resume() -> None:
    run = run_of(step("a")).pause().ok("a")
    assert run.status == "paused"

    run.resume()

    assert run.status == "completed"


def test_an_end_that_was_running_may_end_the_run_while_it_is_paused() -> None:
    run = run_of(step("a"), end=step("end", action=shell("report"))).ok("a").started("end").pause()

    run.ok("end")

    assert run.status == "completed"
    assert fold(run.state.workflow, run.log) == run.state


def test_undo_does_not_start_while_paused() -> None:
    run = run_of(step("a", undo=command("undo")), step("b", needs=["a"])).ok("a").pause().fail("b")
    assert run.facts(e.UndoStarted) == []

    run.resume().ok("a.undo@1")

    assert run.status == "failed"


def test_steps_that_nothing_can_reach_are_given_up_after_the_pause() -> None:
    run = run_of(step("a", take="first", next=[edge("b", when="no")]), step("b"), answers={"no": False}).pause()

    run.ok("a").resume()

    assert run.statuses == {"a": "completed", "b": "skipped"}


# -- timers ----------------------------------------------------------------------------------------------------------


def test_a_retry_whose_delay_ends_in_the_pause_starts_at_resume() -> None:
    run = run_of(step("a", rules=retry(1, delay=30))).fail("a").pause()

    run.wait(100)
    assert run.statuses == {"a": "backing_off"}
    assert run.facts(e.TimerHeld) == [e.TimerHeld("retry", "a", 2)]
    run.resume()

    assert run.statuses == {"a": "ready"}


def test_a_retry_whose_delay_outlasts_the_pause_waits_for_its_time() -> None:
    run = run_of(step("a", rules=retry(1, delay=30))).fail("a").pause().wait(10).resume()
    assert run.statuses == {"a": "backing_off"}

    run.wait(20)

    assert run.statuses == {"a": "ready"}


def test_a_timer_that_fires_twice_in_a_pause_is_held_once() -> None:
    run = run_of(step("a", rules=retry(1, delay=30))).fail("a").pause()

    run.wait(100).fire_all()

    assert len(run.facts(e.TimerHeld)) == 1


def test_a_timer_that_nobody_waits_for_is_not_held() -> None:
    run = run_of(step("a", rules=retry(1, delay=30)), step("b")).fail("a").wait(30).pause()

    run.fire_all()

    assert run.facts(e.TimerHeld) == []


@pytest.mark.parametrize(
    ("action", "after"), [(WAIT, "completed"), (APPROVE, "failed")], ids=["a wait is over", "an approval expires"]
)
def test_what_was_due_in_the_pause_takes_effect_at_resume(action: Action, after: str) -> None:
    run = run_of(step("a", action=action)).pause().wait(100)
    assert run.statuses == {"a": "running"}

    run.resume()

    assert run.statuses == {"a": after}


def test_a_parked_step_whose_time_ran_out_in_the_pause_gets_its_default_at_resume() -> None:
    run = run_of(step("a", triage=Triage(timeout=60, default="fail"))).fail("a").pause().wait(100)
    assert run.statuses == {"a": "pending_failed"}

    run.resume()

    assert run.statuses == {"a": "failed"}


def test_a_handler_whose_time_ran_out_in_the_pause_is_stopped_at_resume() -> None:
    run = run_of(step("a", on_failure=handler("fix", timeout=5))).fail("a").started("a.on_failure@1.0").pause().wait(9)
    assert run["a.on_failure@1.0"].phase == ""

    run.resume()

    assert run["a.on_failure@1.0"].phase == "stopping"


def test_a_loop_that_came_due_in_the_pause_fires_at_resume() -> None:
    run = run_of(step("a", next=[edge("a", when="more")]), answers={"more": True}).pause().ok("a")
    run.wait(50)
    assert run.facts(e.LoopFired) == []

    run.resume()

    assert run["a"].visit == 2


def test_a_deadline_that_passes_before_a_map_may_start_cuts_it_short_at_resume() -> None:
    mapped = step("b", needs=["a"], map=Map(over=expression("list")), do=(command("one"),), deadline=30)
    run = run_of(step("a"), mapped, answers={"list": [1]}).pause().ok("a").wait(100)

    run.resume()

    assert (run.statuses["b"], run["b"].failure.code) == ("failed", "TIMEOUT")


# -- the run's own time ----------------------------------------------------------------------------------------------


def test_paused_time_does_not_count_against_the_runs_timeout() -> None:
    run = run_of(step("a"), timeout=100).started("a").wait(60).pause().wait(1000).resume()

    run.wait(39)
    assert run.facts(e.RunStopping) == []
    run.wait(1)

    (stopping,) = run.facts(e.RunStopping)
    assert (stopping.cause, stopping.failure.code, stopping.failure.severity) == (
        "timed_out",
        "RUN_TIMEOUT",
        "critical",
    )


def test_two_pauses_add_up() -> None:
    run = run_of(step("a"), timeout=100).started("a")

    run.wait(10).pause().wait(50).resume().wait(10).pause().wait(500).resume().wait(79)
    assert run.state.run.stop is None
    run.wait(1)

    assert run.state.run.stop is not None


# -- verbs -----------------------------------------------------------------------------------------------------------


def test_pausing_twice_and_resuming_twice_say_nothing_new() -> None:
    run = run_of(step("a")).pause()

    assert run.pause().follows == []
    assert run.resume().follows != []
    assert run.resume().follows == []


def test_pause_and_resume_go_down_the_tree() -> None:
    run = run_of(step("a", action=CHILD))

    run.pause()
    assert run.effects[-1] == fx.PauseChildren()
    run.resume()

    assert run.effects[-1] == fx.ResumeChildren()


def test_a_paused_run_can_be_cancelled_and_reaches_end() -> None:
    run = run_of(
        step("done", undo=command("undo")),
        step("a", needs=["done"], action=WAIT),
        step("b", rules=retry(1, delay=30)),
        end=step("end", action=shell("report")),
    )
    run.fail("b").pause().ok("done").wait(100)

    run.cancel()
    assert run.statuses == {"done": "completed", "a": "cancelled", "b": "failed"}
    run.ok("done.undo@1").ok("end")

    assert run.status == "cancelled"
    before = len(run.log)
    assert len(run.fire_all().log) == before


def test_a_cancel_lets_go_on_what_the_pause_held_back_of_end() -> None:
    reported = step("end", action=WAIT, rules=retry(1, delay=5), validator=command("check"))
    run = run_of(step("a"), end=reported).ok("a").wait(60).fail("end.validator@1").pause().wait(10)
    assert run["end"].status == "backing_off"

    run.cancel()
    assert run["end"].status == "running"
    run.wait(60).ok("end.validator@2")

    assert run.status == "cancelled"


def test_a_cancel_starts_the_undo_whose_turn_came_in_the_pause() -> None:
    undo = Command(action=WAIT, rules=retry(1, delay=5), validator=command("check"))
    run = run_of(step("a", undo=undo), step("b", needs=["a"])).ok("a").fail("b").wait(60).fail("a.undo@1.validator@1")
    run.pause().wait(10)

    run.cancel().wait(60).ok("a.undo@1.validator@2")

    assert run.status == "cancelled"


def test_an_engines_own_command_of_ends_handler_that_the_pause_held_back_starts_with_a_cancel() -> None:
    reported = step("end", action=shell("report"), on_failure=Handler((Command(action=WAIT),)))
    run = run_of(step("a"), end=reported).ok("a").pause().fail("end")
    assert run["end.on_failure@1.0"].status == "ready"

    run.cancel().wait(60)

    assert run.status == "cancelled"


def test_a_queued_task_of_a_paused_run_is_taken_back_when_it_is_cancelled() -> None:
    run = run_of(step("a"), step("b", needs=["a"])).pause().ok("a")
    assert run.queued == ["b"]

    run.cancel()

    assert (run.queued, run.status) == ([], "cancelled")


def test_fail_fast_strikes_at_resume_since_nothing_starts_while_paused() -> None:
    steps = (step("a"), step("b", on_failure=handler("sweep", strategy="cleanup")))
    run = run_of(*steps, fail_fast="always").started("b").pause()

    run.fail("a")
    assert (run.status, run.facts(e.RunStopping)) == ("paused", [])
    run.resume()

    assert run.facts(e.RunStopping) == [e.RunStopping("failed_fast", reason="EXIT_NONZERO in 'a'")]


@pytest.mark.parametrize(
    ("verb", "text"),
    [
        ("pause", "error[run.finished]: run 1 completed, so there is nothing to pause"),
        (
            "resume",
            "error[run.finished]: run 1 completed, so there is nothing to resume\n"
            "  to run it again from a step: mulligan fork 1 --from STEP",
        ),
    ],
)
def test_a_run_that_has_ended_can_be_neither_paused_nor_resumed(verb: str, text: str) -> None:
    run = run_of(step("a")).ok("a")

    with pytest.raises(RunFinished) as refused:
        getattr(run, verb)()

    assert refused.value.render() == text


def test_at_resume_fail_fast_strikes_once_however_many_have_failed() -> None:
    run = run_of(step("a"), step("b"), step("c"), fail_fast="always").started("a").started("b").pause()

    run.fail("a").fail("b").resume()

    assert run.facts(e.RunStopping) == [e.RunStopping("failed_fast", reason="EXIT_NONZERO in 'a'")]


def test_at_resume_fail_fast_passes_over_what_may_fail_and_what_may_still_be_handled() -> None:
    run = run_of(
        step("a", continue_on_error=True),
        step("b", next=[edge("fix", "failure")]),
        step("fix"),
        step("c"),
        fail_fast="always",
    )

    run.started("a").started("b").pause().fail("a").fail("b").resume()

    assert run.facts(e.RunStopping) == []
    assert run.queued == ["c", "fix"]


@pytest.mark.parametrize("how", ["resume", "cancel"])
def test_why_a_run_was_paused_is_forgotten_when_the_pause_is_over(how: str) -> None:
    run = History(workflow(step("a"))).start().started("a")
    run.report(r.PauseRequested(run.clock, by="someone", reason="the disk is full"))
    assert run.state.run.reason == "the disk is full"

    getattr(run, how)()

    assert (run.status, run.state.run.reason) == ("running", "")


def test_what_was_held_does_not_fire_in_a_run_that_ended_as_it_was_resumed() -> None:
    end = step(END, action=Action("approve", {"message": "well?", "timeout": 5, "default": "refuse"}))
    run = History(workflow(step("a"), end=end, timeout=30)).start().ok("a")
    # The timers are late. Earlier releases paused a run whose time was up; now it is stopped first.
    run.clock += timedelta(seconds=60)
    run.log += turn(run.state, r.PauseRequested(run.clock, by="someone"), run.evaluator)
    run.wait(0)
    assert [fact.kind for fact in run.facts(e.TimerHeld)] == ["attempt", "run"]

    run.resume().wait(60)

    assert (run.status, run.facts(e.RunStopping)) == ("failed", [])
