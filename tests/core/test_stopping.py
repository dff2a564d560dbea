"""Stopping: nothing starts, running attempts are asked to end, then cleanup, undo and `end`, in this order."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.effects import effects as fx
from mulligan.core.effects.tasks import make_task
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.event_types import Route
from mulligan.core.model.workflow import Action, Command, Handler, Map, Triage, Workflow
from mulligan.core.state.state import Stop
from mulligan.core.turn import fold
from mulligan.errors import Refused, RunFinished
from mulligan.testing.history import (
    History,
    command,
    edge,
    expression,
    handler,
    retry,
    shell,
    step,
    workflow,
)

END_SHELL = step("end", action=shell("report"))
WAIT = Action("wait", {"seconds": 60})
APPROVE = Action("approve", {"message": "go on?", "timeout": 60})
CHILD = Action("workflow", {"file": "child.yaml"})
CLEANUP = handler("sweep", strategy="cleanup")


def run_of(*steps: Any, **fields: Any) -> History:
    answers = fields.pop("answers", None)
    return History(workflow(*steps, **fields), answers).start()


def nothing_starts_afterwards(run: History) -> bool:
    """Every timer that was ever set fires late, and twice: the log does not grow by a single start."""
    before = len(run.log)
    run.fire_all().fire_all()
    starts = (e.AttemptScheduled, e.AttemptStarted, e.StepEntered, e.CommandEntered, e.HandlerStarted, e.UndoStarted)
    return not any(isinstance(entry.fact, starts) for entry in run.log[before:])


# -- a step in every status ------------------------------------------------------------------------------------------


def _waiting() -> History:
    return run_of(step("first"), step("a", needs=["first"]))


def _ready() -> History:
    return run_of(step("a"))


def _running() -> History:
    return run_of(step("a")).started("a")


def _backing_off() -> History:
    return run_of(step("a", rules=retry(1, delay=30))).fail("a")


def _backing_off_with_script() -> History:
    return run_of(step("a", rules=retry(1, recovery_script=command("prepare")))).fail("a").started("a.script@1")


def _handling(strategy: str) -> History:
    return run_of(step("a", on_failure=handler("fix", strategy=strategy))).fail("a").started("a.on_failure@1.0")


def _pending_failed() -> History:
    return run_of(step("a", triage=Triage(timeout=60, default="retry"))).fail("a")


def _validating() -> History:
    return run_of(step("a", validator=command("check"))).ok("a").started("a.validator@1")


def _finishing() -> History:
    return run_of(step("a", on_success=(command("tell"),))).ok("a").started("a.on_success@1.0")


def _map() -> History:
    mapped = step("a", map=Map(over=expression("list")), do=(command("one"),))
    return run_of(mapped, answers={"list": [1, 2]}).started("a[0].0")


def _lister() -> History:
    return run_of(step("a", map=Map(lister=command("ls")), do=(command("one"),))).started("a.lister@1")


def _engine(action: Action) -> History:
    return run_of(step("a", action=action))


def _in_grace(run: History) -> History:
    """Whatever is still asked to end has ended, by the signal."""
    while run.tasks:
        run.fail(run.queued[0], signal=15)
    if run.state.places["a"].phase == "stopping":
        run.child_ended("a", "cancelled")
    return run


@pytest.mark.parametrize(
    ("run", "status"),
    [
        (_waiting(), "cancelled"),
        (_ready(), "cancelled"),
        (_running(), "cancelled"),
        # It had failed and was climbing: its reserved retry is void, its failure stands.
        (_backing_off(), "failed"),
        (_backing_off_with_script(), "failed"),
        (_handling("recovery"), "failed"),
        (_handling("fallback"), "failed"),
        (_handling("cleanup"), "failed"),
        (_handling("custom"), "failed"),
        # Parked: nobody decided, so nothing is decided.
        (_pending_failed(), "cancelled"),
        (_validating(), "cancelled"),
        # Its work was done and checked: only what belongs to success was cut short.
        (_finishing(), "completed"),
        (_map(), "cancelled"),
        (_lister(), "cancelled"),
        (_engine(WAIT), "cancelled"),
        (_engine(APPROVE), "cancelled"),
        (_engine(CHILD), "cancelled"),
    ],
    ids=[
        *("waiting", "ready", "running", "backing_off", "script", "recovery", "fallback", "cleanup", "custom"),
        *("pending_failed", "validating", "finishing", "map", "lister", "wait", "approve", "child"),
    ],
)
def test_a_cancelled_step_ends_by_what_it_had_come_to(run: History, status: str) -> None:
    _in_grace(run.cancel())

    assert run.statuses["a"] == status
    assert run.status == "cancelled"
    assert nothing_starts_afterwards(run)
    assert fold(run.state.workflow, run.log) == run.state


def test_a_step_that_was_climbing_says_that_no_route_was_looked_for() -> None:
    run = run_of(step("a", rules=retry(1, delay=30), next=[edge("fix", "failure")]), step("fix")).fail("a", 7)

    run.cancel()

    failed = run.facts(e.StepFailed)[0]
    assert (failed.failure.exit_code, failed.route, failed.taken) == (
        7,
        Route("skipped_terminal", reason="stopping"),
        (),
    )
    assert (failed.routed_to_end, failed.original_failed_step) == (True, "a")
    assert run.statuses == {"a": "failed", "fix": "cancelled"}


def test_a_retry_that_runs_has_not_failed_and_ends_cancelled() -> None:
    run = run_of(step("a", rules=retry(1))).fail("a").started("a")

    run.cancel().fail("a", signal=15)

    assert run.statuses == {"a": "cancelled"}


def test_a_remediation_that_had_not_come_to_its_turn_is_cancelled_and_the_failure_stays_unhandled() -> None:
    run = run_of(step("a", next=[edge("fix", "failure")]), step("fix")).fail("a")

    run.cancel()

    assert run.statuses == {"a": "failed", "fix": "cancelled"}
    assert run.ended.failed_steps_count == 1


def test_a_success_after_the_order_to_stop_leads_nowhere() -> None:
    run = run_of(step("a", next=["b"]), step("b"), step("c", needs=["a"])).started("a")

    run.cancel().ok("a", output="done")

    assert run.statuses == {"a": "completed", "b": "cancelled", "c": "cancelled"}
    assert run["a"].output == "done"
    assert run.status == "cancelled"


# -- what is asked of the world --------------------------------------------------------------------------------------


def test_what_runs_is_asked_to_end_with_the_grace_of_the_workflow() -> None:
    run = run_of(step("a"), cancel_grace=3.0).started("a")

    run.cancel()

    assert run.effects[-1] == fx.StopTask("a", 1, 3.0)
    assert run.statuses == {"a": "running"}


def test_what_no_worker_has_begun_is_taken_out_of_the_queue_without_grace() -> None:
    run = run_of(step("a"))

    run.cancel()

    assert fx.StopTask("a", 1, 0.0) in run.effects
    assert run.queued == []


def test_a_child_run_is_stopped_and_waited_for() -> None:
    run = run_of(step("a", action=CHILD))

    run.cancel()

    assert run.effects[-1] == fx.StopChild("a", 1)
    assert run.status == "running"


def test_every_running_item_is_asked_to_end() -> None:
    run = _map().started("a[1].0")

    run.cancel()

    stops = [x for x in run.effects if isinstance(x, fx.StopTask)]
    assert stops == [fx.StopTask("a[0].0", 1, 10.0), fx.StopTask("a[1].0", 1, 10.0)]


# -- grace -----------------------------------------------------------------------------------------------------------


def test_what_ends_well_in_its_grace_counts_as_completed() -> None:
    run = run_of(step("a"), step("b")).started("a").started("b")

    run.cancel().ok("a").fail("b", signal=15)

    assert run.statuses == {"a": "completed", "b": "cancelled"}


def test_a_handler_that_ends_well_in_its_grace_has_recovered_the_step() -> None:
    run = _handling("recovery")

    run.cancel().ok("a.on_failure@1.0", output="repaired")

    assert (run["a"].status, run["a"].output, run["a"].recovered_by) == ("completed", "repaired", "recovery")


def test_a_handler_that_is_to_rerun_the_step_does_not_when_the_run_stops() -> None:
    run = run_of(step("a", on_failure=handler("fix", rerun=2))).fail("a").started("a.on_failure@1.0")

    run.cancel().ok("a.on_failure@1.0")

    assert run.statuses == {"a": "failed"}


def test_the_later_commands_of_a_handler_do_not_start() -> None:
    run = run_of(step("a", on_failure=handler("one", "two"))).fail("a").started("a.on_failure@1.0")

    run.cancel().ok("a.on_failure@1.0")

    assert run.statuses == {"a": "failed"}
    assert [fact.index for fact in run.facts(e.CommandEntered)] == [0]


def test_left_to_finish_a_failure_that_is_reported_counts() -> None:
    run = run_of(step("a", rules=retry(3), next=[edge("fix", "failure")]), step("fix"), cancel_grace=None).started("a")

    run.cancel().fail("a", exit_code=9)

    assert run.effects[-1] == fx.StopTask("a", 1, None)
    assert run.statuses == {"a": "failed", "fix": "cancelled"}
    assert run["a"].failure.exit_code == 9
    assert run.ended.failed_steps_count == 1


def test_left_to_finish_a_success_that_is_reported_counts() -> None:
    run = run_of(step("a"), cancel_grace=None).started("a")

    run.cancel().ok("a")

    assert run.statuses == {"a": "completed"}
    assert run.status == "cancelled"


def test_with_grace_a_failure_after_the_signal_is_no_news() -> None:
    run = run_of(step("a")).started("a")

    run.cancel().fail("a", exit_code=9)

    assert run.statuses == {"a": "cancelled"}
    assert run.state.failures == []


def test_a_worker_lost_while_stopping_is_not_replaced() -> None:
    run = run_of(step("a")).started("a")

    run.cancel().lose("a")

    assert run.statuses == {"a": "cancelled"}
    assert len(run.facts(e.AttemptScheduled)) == 1


def test_a_task_interrupted_while_stopping_is_not_taken_up_again() -> None:
    run = run_of(step("a")).started("a")

    run.cancel().interrupt("a")

    assert run.statuses == {"a": "cancelled"}


# -- cleanup, undo, end ----------------------------------------------------------------------------------------------


def test_cleanup_then_undo_then_end_in_this_order() -> None:
    run = run_of(
        step("made", undo=command("unmake")),
        step("a", needs=["made"], on_failure=CLEANUP),
        step("b", needs=["made"], rules=retry(1, delay=30), on_failure=CLEANUP),
        end=END_SHELL,
    )
    run.ok("made").started("a").fail("b")

    run.cancel()
    assert run.queued == ["a", "b.on_failure@1.0"]
    run.fail("a", signal=15)
    assert run.queued == ["a.on_failure@1.0", "b.on_failure@1.0"]
    run.ok("a.on_failure@1.0", "b.on_failure@1.0")
    assert run.queued == ["made.undo@1"]
    run.ok("made.undo@1")
    assert run.queued == ["end"]
    run.ok("end")

    assert run.statuses == {"made": "completed", "a": "cancelled", "b": "failed"}
    assert run.status == "cancelled"


def test_now_skips_cleanup_and_undo_and_still_runs_end() -> None:
    run = run_of(step("made", undo=command("unmake")), step("a", needs=["made"], on_failure=CLEANUP), end=END_SHELL)
    run.ok("made").started("a")

    run.cancel(now=True).fail("a", signal=15)
    assert run.queued == ["end"]
    run.ok("end")

    assert run.facts(e.HandlerStarted, e.UndoStarted) == []
    assert run.status == "cancelled"


def test_a_cleanup_handler_has_its_own_time_limit() -> None:
    run = run_of(step("a", on_failure=handler("sweep", strategy="cleanup", timeout=20))).started("a")
    run.cancel().fail("a", signal=15).started("a.on_failure@1.0")

    run.wait(20)
    assert run.effects[-1] == fx.StopTask("a.on_failure@1.0", 1, 10.0)
    run.fail("a.on_failure@1.0", signal=9)

    assert run.statuses == {"a": "cancelled"}
    assert run.status == "cancelled"


def test_a_cleanup_handler_without_a_limit_has_five_minutes_when_stopping() -> None:
    run = run_of(step("a", on_failure=CLEANUP)).started("a").cancel().fail("a", signal=15).started("a.on_failure@1.0")

    run.wait(299)
    assert run["a.on_failure@1.0"].phase == ""
    run.wait(1)

    assert run["a.on_failure@1.0"].phase == "stopping"


def test_left_to_finish_does_not_lift_the_time_limit_of_a_cleanup_handler() -> None:
    sweep = command("sweep", rules=retry(3))
    run = run_of(step("a", on_failure=Handler((sweep,), "cleanup", timeout=20)), cancel_grace=None).started("a")
    run.cancel().fail("a").started("a.on_failure@1.0")

    run.wait(20)
    assert run.effects[-1] == fx.StopTask("a.on_failure@1.0", 1, 10.0)
    run.fail("a.on_failure@1.0", signal=9)

    assert (run.status, run.statuses) == ("cancelled", {"a": "failed"})


@pytest.mark.parametrize(("grace", "asked"), [(0.0, 0.0), (3.0, 3.0), (None, 10.0)])
def test_a_time_limit_outside_a_stop_grants_the_grace_of_the_workflow(grace: float | None, asked: float) -> None:
    run = run_of(step("a", on_failure=handler("fix", timeout=5)), cancel_grace=grace).fail("a")

    run.started("a.on_failure@1.0").wait(5)

    assert run.effects[-1] == fx.StopTask("a.on_failure@1.0", 1, asked)


def test_a_cleanup_handler_that_was_running_runs_on() -> None:
    run = run_of(step("a", on_failure=handler("one", "two", strategy="cleanup"))).fail("a").started("a.on_failure@1.0")

    run.cancel().ok("a.on_failure@1.0")
    assert run.queued == ["a.on_failure@1.1"]
    run.ok("a.on_failure@1.1")

    assert run.statuses == {"a": "failed"}


def test_a_cleanup_handler_runs_once_though_its_step_failed_before_the_stop() -> None:
    run = run_of(step("a", on_failure=CLEANUP, triage=Triage())).fail("a").ok("a.on_failure@1.0")
    assert run.statuses == {"a": "pending_failed"}

    run.cancel()

    assert len(run.facts(e.HandlerStarted)) == 1
    assert run.statuses == {"a": "cancelled"}


def test_a_cleanup_handler_that_fails_changes_nothing_about_a_cancelled_step() -> None:
    run = run_of(step("a", on_failure=CLEANUP)).started("a")

    run.cancel().fail("a", signal=15).fail("a.on_failure@1.0")

    assert run.statuses == {"a": "cancelled"}
    assert run.status == "cancelled"


def test_a_cleanup_handler_is_told_that_its_step_was_cancelled_whatever_an_attempt_before_came_to() -> None:
    run = run_of(step("a", rules=retry(1), on_failure=CLEANUP)).fail("a").started("a")

    run.cancel().fail("a", signal=15)

    told = make_task(run.state, "a.on_failure@2.0")
    assert (told.error_code, told.return_code) == ("CANCELLED", None)


def test_commands_of_a_cleanup_handler_keep_their_retries() -> None:
    sweep = command("sweep", rules=retry(1))
    run = run_of(step("a", on_failure=Handler((sweep,), "cleanup"))).started("a")

    run.cancel().fail("a", signal=15).fail("a.on_failure@1.0")
    assert run.queued == ["a.on_failure@1.0"]
    run.ok("a.on_failure@1.0")

    assert run.statuses == {"a": "cancelled"}


def test_cleanup_handlers_of_the_commands_of_items_run_too() -> None:
    mapped = step("a", map=Map(over=expression("list")), do=(command("one", on_failure=CLEANUP), command("two")))
    run = run_of(mapped, answers={"list": [1, 2]}).started("a[0].0").ok("a[1].0")

    run.cancel().fail("a[0].0", signal=15)
    assert run.queued == ["a[0].0.on_failure@1.0"]
    run.ok("a[0].0.on_failure@1.0")

    assert [fact.place for fact in run.facts(e.ItemCancelled)] == ["a[1]", "a[0]"]
    assert run.status == "cancelled"


def test_arrivals_that_wait_for_their_visit_are_not_visited_when_the_run_stops() -> None:
    flow = workflow(step("a", next=["x"]), step("b", next=["x"]), step("x", join="each"))
    run = History(flow).start().ok("a").ok("b").started("x").cancel()

    run.fail("x", None, signal=15)

    assert (run.status, run["x"].visit, run.statuses["x"]) == ("cancelled", 1, "cancelled")
    assert run.facts(e.StepPutBack) == []


def test_in_a_run_that_stops_every_visit_is_the_last() -> None:
    flow = workflow(step("a", next=["x"]), step("b", next=["x"]), step("x", join="each"))
    run = History(flow).start().ok("a").ok("b").started("x").cancel()

    run.ok("x")

    assert [fact.is_final for fact in run.facts(e.StepCompleted) if fact.step == "x"] == [True]
    assert (run["x"].status, run["x"].settled, run.status) == ("completed", "completed", "cancelled")


# -- a second order --------------------------------------------------------------------------------------------------


def test_a_second_cancel_says_nothing_new() -> None:
    run = run_of(step("a")).started("a").cancel()

    run.cancel()

    assert run.follows == []


def test_an_operators_word_outweighs_the_reasons_of_the_engine_and_the_first_word_stands() -> None:
    run = run_of(step("a"), step("b"), fail_fast="always", timeout=60.0).started("a").started("b").fail("a")
    assert run.state.run.stop == Stop("failed_fast", reason="EXIT_NONZERO in 'a'")

    run.cancel(reason="enough")
    assert run.state.run.stop == Stop("cancelled", by="someone", reason="enough")

    run.report(r.CancelRequested(run.clock, by="another", now=True))
    assert run.state.run.stop == Stop("cancelled", now=True, by="someone", reason="enough")

    run.wait(60)
    assert run.state.run.stop == Stop("cancelled", now=True, by="someone", reason="enough")


def test_that_time_was_up_is_not_forgotten_when_an_operator_cancels() -> None:
    run = run_of(step("a"), timeout=60.0).started("a").wait(60)

    run.cancel()

    assert (run.state.run.stop.cause, run.state.run.is_time_up) == ("cancelled", True)


def test_now_after_cancel_stops_the_cleanup_that_runs_and_skips_undo() -> None:
    run = run_of(
        step("made", undo=command("unmake")),
        step("a", needs=["made"], on_failure=handler("one", "two", strategy="cleanup")),
    )
    run.ok("made").started("a").cancel().fail("a", signal=15).started("a.on_failure@1.0")

    run.cancel(now=True)
    assert fx.StopTask("a.on_failure@1.0", 1, 10.0) in run.effects
    run.fail("a.on_failure@1.0", signal=15)

    assert run.statuses == {"made": "completed", "a": "cancelled"}
    assert run.facts(e.UndoStarted) == []
    assert run.status == "cancelled"


def test_now_after_cancel_starts_no_further_command_of_a_cleanup_that_ends_well() -> None:
    run = run_of(step("a", on_failure=handler("one", "two", strategy="cleanup"))).started("a")
    run.cancel().fail("a", signal=15).started("a.on_failure@1.0")

    run.cancel(now=True).ok("a.on_failure@1.0")

    assert [fact.index for fact in run.facts(e.CommandEntered)] == [0]
    assert run.status == "cancelled"


def test_now_after_cancel_grants_no_retry_to_a_cleanup_command() -> None:
    sweep = command("sweep", rules=retry(1, delay=5))
    run = run_of(step("a", on_failure=Handler((sweep,), "cleanup"))).started("a")
    run.cancel().fail("a", signal=15).fail("a.on_failure@1.0")

    run.cancel(now=True)

    assert run.status == "cancelled"
    assert nothing_starts_afterwards(run)


def test_now_while_an_undo_runs_stops_it_and_starts_no_other() -> None:
    run = run_of(
        step("one", undo=command("undo one")), step("two", needs=["one"], undo=command("undo two")), end=END_SHELL
    )
    run.ok("one").started("two").cancel().ok("two").started("two.undo@1")

    run.cancel(now=True).fail("two.undo@1", signal=15)

    assert run.facts(e.UndoFailed)[0].failure.message == "the undo was stopped"
    assert run.queued == ["end"]


def test_now_starts_no_further_command_of_the_handler_of_an_undo() -> None:
    undo = command("undo", on_failure=handler("one", "two"))
    run = run_of(step("a", undo=undo), step("b", needs=["a"])).ok("a").cancel().fail("a.undo@1")
    run.started("a.undo@1.on_failure@1.0")

    run.cancel(now=True).ok("a.undo@1.on_failure@1.0")

    assert (run.queued, run.status) == ([], "cancelled")
    assert len(run.facts(e.UndoFailed)) == 1


def test_cancel_while_an_undo_runs_lets_it_go_on() -> None:
    run = run_of(step("made", undo=command("unmake")), step("bad", needs=["made"]), end=END_SHELL)
    run.ok("made").fail("bad").started("made.undo@1")

    run.cancel().ok("made.undo@1").ok("end")

    assert len(run.facts(e.UndoCompleted)) == 1
    assert run.status == "cancelled"


@pytest.mark.parametrize("now", [False, True])
def test_cancel_while_end_runs_lets_it_end_and_the_run_is_cancelled(now: bool) -> None:
    run = run_of(step("a"), end=END_SHELL).ok("a").started("end")

    run.cancel(now=now)
    assert run["end"].status == "running"
    run.ok("end")

    assert run.status == "cancelled"
    assert len(run.facts(e.RunCancelled)) == 1


def test_a_run_that_has_ended_cannot_be_cancelled() -> None:
    run = run_of(step("a")).ok("a")

    with pytest.raises(RunFinished) as refused:
        run.cancel()

    assert refused.value.render() == (
        "error[run.finished]: run 1 completed on 2026-01-01 at 00:00 UTC, so there is nothing to cancel\n"
        "  to run it again from a step: mulligan fork 1 --from STEP"
    )


def test_a_run_that_was_cancelled_cannot_be_cancelled_again_and_is_offered_another_round() -> None:
    run = run_of(step("a")).cancel(now=True).fail("a", signal=15)

    with pytest.raises(RunFinished) as refused:
        run.cancel()

    assert refused.value.render() == (
        "error[run.finished]: run 1 was cancelled on 2026-01-01 at 00:00 UTC, so there is nothing to cancel\n"
        "  to run what failed again: mulligan retry 1"
    )


def test_a_run_that_has_not_started_cannot_be_cancelled() -> None:
    run = History(workflow(step("a")))

    with pytest.raises(Refused) as refused:
        run.cancel()

    assert refused.value.render() == "error[refused]: the run has not started"


def test_a_run_that_stops_cannot_be_paused() -> None:
    run = run_of(step("a")).started("a").cancel()

    with pytest.raises(Refused) as refused:
        run.pause()

    assert refused.value.render() == "error[refused]: run 1 is stopping and cannot be paused"


# -- the run's own timeout -------------------------------------------------------------------------------------------


def test_a_run_whose_time_is_up_fails_and_undoes_its_work() -> None:
    run = run_of(step("made", undo=command("unmake")), step("a", needs=["made"]), timeout=100)
    run.ok("made").started("a")

    run.wait(100).fail("a", signal=15).ok("made.undo@1")

    assert run.statuses == {"made": "completed", "a": "cancelled"}
    assert (run.status, run.ended.reason) == ("failed", "the run took longer than its timeout")
    assert nothing_starts_afterwards(run)


def test_a_run_that_ends_in_time_hears_nothing_of_its_timer() -> None:
    run = run_of(step("a"), timeout=100).wait(99).ok("a")

    run.wait(10)

    assert run.status == "completed"
    assert run.facts(e.RunStopping) == []


def test_an_operator_outweighs_the_clock() -> None:
    run = run_of(step("a"), timeout=100).started("a").wait(100)

    run.cancel(reason="enough").fail("a", signal=15)

    assert (run.status, run.ended.reason) == ("cancelled", "enough")


def test_the_clock_does_not_talk_over_an_operator() -> None:
    run = run_of(step("a"), timeout=100).started("a").cancel(reason="enough")

    run.wait(100).fail("a", signal=15)

    assert (run.status, run.ended.reason) == ("cancelled", "enough")


# -- fail-fast -------------------------------------------------------------------------------------------------------


def test_fail_fast_always_stops_the_others_at_the_first_unhandled_failure() -> None:
    run = run_of(step("a"), step("b"), step("c", needs=["b"]), fail_fast="always").started("b")

    run.fail("a").fail("b", signal=15)

    assert run.statuses == {"a": "failed", "b": "cancelled", "c": "cancelled"}
    assert run.facts(e.RunStopping) == [e.RunStopping("failed_fast", reason="EXIT_NONZERO in 'a'")]
    assert run.status == "failed"


@pytest.mark.parametrize(
    ("policy", "severity", "strikes"),
    [
        ("never", "critical", False),
        ("on_critical", "error", False),
        ("on_critical", "critical", True),
        ("always", "error", True),
    ],
)
def test_fail_fast_strikes_by_policy_and_severity(policy: Any, severity: str, strikes: bool) -> None:
    run = run_of(step("a"), step("b"), fail_fast=policy)

    run.fail("a", reported=({"code": "MINE", "severity": severity},))

    assert bool(run.facts(e.RunStopping)) is strikes
    assert run.statuses["b"] == ("cancelled" if strikes else "ready")


def test_fail_fast_waits_for_the_remediation() -> None:
    steps = (step("a", next=[edge("fix", "failure")]), step("fix"), step("b"))
    run = run_of(*steps, fail_fast="always").fail("a")
    assert run.facts(e.RunStopping) == []

    run.fail("fix")

    assert run.statuses == {"a": "failed", "fix": "failed", "b": "cancelled"}


def test_an_allowed_failure_does_not_strike() -> None:
    run = run_of(step("a", continue_on_error=True), step("b"), fail_fast="always").fail("a").ok("b")

    assert run.status == "completed"


# -- nothing comes back ----------------------------------------------------------------------------------------------


def _everything() -> Workflow:
    return workflow(
        step("delayed", rules=retry(3, delay=30)),
        step("parked", triage=Triage(timeout=60, default="retry")),
        step("waits", action=WAIT),
        step("asks", action=APPROVE),
        step("again", next=[edge("again", "success", when="more")]),
        step("handled", on_failure=handler("fix", timeout=20)),
        step("mapped", map=Map(over=expression("list")), do=(command("one", rules=retry(1, delay=5)),), deadline=50),
        timeout=1000,
    )


def test_no_timer_revives_a_stopped_run() -> None:
    run = History(_everything(), {"list": [1, 2]}).start()
    run.fail("delayed").fail("parked").ok("again").fail("handled").fail("mapped[0].0").started("mapped[1].0")

    run.cancel()
    while run.tasks:
        run.fail(run.queued[0], signal=15)

    assert run.status == "cancelled"
    assert nothing_starts_afterwards(run)
    assert len(run.facts(e.RunCancelled)) == 1


def test_no_timer_revives_a_run_while_it_stops() -> None:
    run = History(_everything(), {"list": [1, 2]}).start().started("handled")
    run.fail("delayed").fail("parked").ok("again").fail("mapped[0].0").started("mapped[1].0")

    run.cancel()

    assert nothing_starts_afterwards(run)
    assert run.queued == ["handled", "mapped[1].0"]
    assert run.status == "running"


# -- limits of the engine's own actions ------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [WAIT, Action("approve", {"message": "go on?"})], ids=lambda action: action.kind)
def test_a_wait_or_an_approval_that_misses_its_deadline_fails_with_timeout(action: Action) -> None:
    run = run_of(step("a", action=action, deadline=30)).wait(30)

    found = run["a"].failure
    assert (found.code, found.message, run.status) == ("TIMEOUT", "it took longer than its deadline", "failed")


def test_a_task_that_nobody_has_taken_by_its_deadline_fails_with_timeout_and_leaves_the_queue() -> None:
    run = run_of(step("a", deadline=30)).wait(30)

    found = run["a"].failure
    assert (found.code, found.message, run.status) == ("TIMEOUT", "it took longer than its deadline", "failed")
    assert run.queued == []


def test_a_task_that_runs_past_its_deadline_is_its_workers_to_end() -> None:
    run = run_of(step("a", deadline=30)).started("a").wait(30)

    assert (run["a"].status, run.status) == ("running", "running")


def test_a_wait_in_a_handler_whose_time_is_up_is_cut_short_at_once() -> None:
    fix = Handler((Command(action=WAIT),), timeout=5)
    mapped = step("m", map=Map(over=expression("list")), do=(command("one", on_failure=fix),))
    run = run_of(mapped, answers={"list": [1]}).fail("m[0].0")

    run.wait(5)

    failed = run.facts(e.ItemFailed)[0].failure
    assert (failed.code, failed.handler_failure.message) == ("EXIT_NONZERO", "the handler took longer than 5s")
    # Nothing is asked of the attempt that failed long ago.
    assert [x.place for x in run.effects if isinstance(x, fx.StopTask)] == ["m[0].0.on_failure@1.0"]


def test_an_attempt_that_triage_granted_is_cleaned_up_after_too() -> None:
    run = run_of(step("a", on_failure=CLEANUP, triage=Triage())).fail("a").ok("a.on_failure@1.0")
    run.classify("a", "retry").started("a")

    run.cancel().fail("a", signal=15)

    assert run.queued == ["a.on_failure@2.0"]


def test_a_step_that_was_made_to_end_has_not_done_its_part_whatever_its_exit_code():
    run = run_of(step("a"), step("b", needs=["a"])).started("a").cancel().fail("a", exit_code=0, is_stopped=True)

    assert run.status == "cancelled"
    assert run.statuses == {"a": "cancelled", "b": "cancelled"}


def test_a_step_that_had_ended_before_it_could_be_made_to_has_done_its_part():
    run = run_of(step("a"), step("b", needs=["a"])).started("a").cancel().ok("a")

    assert run.statuses == {"a": "completed", "b": "cancelled"}
