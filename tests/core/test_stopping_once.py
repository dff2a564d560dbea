"""What is asked to end when a run stops, how often, and how that is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.effects import effects as fx
from mulligan.core.model import events as e
from mulligan.core.model.workflow import Action, Command, Handler, Map, Triage
from mulligan.testing.history import History, command, expression, handler, retry, step, workflow

CHILD = Action("workflow", {"file": "child.yaml"})
CLEANUP = handler("sweep", strategy="cleanup")


def run_of(*steps: Any, **fields: Any) -> History:
    answers = fields.pop("answers", None)
    return History(workflow(*steps, **fields), answers).start()


def asked(run: History) -> list[tuple[str, str]]:
    """Who was asked to end, and why."""
    return [(fact.place, fact.reason) for fact in run.facts(e.AttemptStopping)]


def mapped(**fields: Any) -> Any:
    return step("m", map=Map(over=expression("list"), **fields), do=(command("one"),))


# -- once ------------------------------------------------------------------------------------------------------------


def test_a_task_is_asked_to_end_once_however_often_the_run_is_told_to_stop() -> None:
    run = run_of(step("a")).started("a")

    run.cancel().cancel(now=True)

    assert asked(run) == [("a", "stopping")]


def test_what_a_stop_found_ended_is_asked_nothing() -> None:
    run = run_of(step("a"), step("b")).ok("a").started("b")

    run.cancel()

    assert asked(run) == [("b", "stopping")]


def test_a_child_run_that_a_failure_has_stopped_is_not_asked_again_by_an_operator() -> None:
    run = run_of(step("c", action=CHILD), step("bad"), fail_fast="always").fail("bad")
    assert run.effects[-1] == fx.StopChild("c", 1)

    run.cancel()

    assert asked(run) == [("c", "stopping")]


def test_a_child_run_whose_time_is_up_hears_of_now_and_has_timed_out_all_the_same() -> None:
    """It may be cleaning up for long: whoever says `now` does not wait for that."""
    run = run_of(step("c", action=CHILD, timeout=60)).wait(60)
    assert run.effects[-1] == fx.StopChild("c", 1)

    run.cancel(now=True)
    assert run.effects[-1] == fx.StopChild("c", 1, now=True)
    run.child_ended("c", "cancelled")

    assert run["c"].failure.code == "TIMEOUT"
    assert (run.status, run.statuses) == ("cancelled", {"c": "failed"})


def test_a_child_run_whose_time_is_up_is_not_asked_again_by_a_plain_cancel() -> None:
    run = run_of(step("c", action=CHILD, timeout=60)).wait(60)

    run.cancel()

    assert asked(run) == [("c", "timeout")]


def test_a_child_run_that_a_handler_has_no_more_time_for_is_asked_once_though_the_handler_above_runs_out_too() -> None:
    inner = Command(action=Action("shell", {"text": "try"}), on_failure=Handler((Command(action=CHILD),), timeout=5))
    run = run_of(step("a", on_failure=Handler((inner,), timeout=9))).fail("a").fail("a.on_failure@1.0")

    run.wait(5).wait(5)

    assert asked(run) == [
        ("a.on_failure@1.0", "handler_timeout"),
        ("a.on_failure@1.0.on_failure@1.0", "stopping"),
        ("a", "handler_timeout"),
    ]


# -- cleanup ---------------------------------------------------------------------------------------------------------


def test_nobody_asks_a_cleanup_command_that_runs_to_end() -> None:
    run = run_of(step("a", on_failure=CLEANUP)).fail("a").started("a.on_failure@1.0")

    run.cancel()

    assert asked(run) == []
    assert run["a.on_failure@1.0"].phase == ""


def test_the_command_of_any_other_handler_is_asked_to_end() -> None:
    run = run_of(step("a", on_failure=handler("fix"))).fail("a").started("a.on_failure@1.0")

    run.cancel()

    assert asked(run) == [("a.on_failure@1.0", "stopping")]


# -- items -----------------------------------------------------------------------------------------------------------


def test_of_a_map_only_the_items_that_run_are_asked_to_end() -> None:
    run = run_of(mapped(max_parallel=2), answers={"list": [1, 2, 3, 4]})
    run.ok("m[0].0").started("m[1].0").started("m[2].0")

    run.cancel()
    assert asked(run) == [("m[1].0", "stopping"), ("m[2].0", "stopping")]
    run.fail("m[1].0", signal=15).fail("m[2].0", signal=15)

    assert (run.status, run.statuses) == ("cancelled", {"m": "cancelled"})
    assert "m[3].0" not in run.state.places


# -- how it is written down ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run",
    [
        run_of(step("b", needs=["a"]), step("a", action=Action("approve", {"message": "go on?"}))),
        run_of(step("a", triage=Triage()), step("b", needs=["a"])).fail("a"),
        run_of(step("a"), step("b", needs=["a"])),
    ],
    ids=["asks somebody", "parked", "queued"],
)
def test_a_step_that_a_stop_cancels_says_so(run: History) -> None:
    run.cancel()

    reasons = {fact.step: fact.reason for fact in run.facts(e.StepCancelled)}
    assert reasons == {"a": "stopping", "b": "stopping"}


@pytest.mark.parametrize("may_fail", [True, False])
def test_a_step_that_may_fail_and_was_climbing_has_failed_as_it_may(may_fail: bool) -> None:
    run = run_of(step("a", continue_on_error=may_fail, rules=retry(3, delay=30))).fail("a")

    run.cancel()

    assert run.facts(e.StepFailed)[-1].is_allowed is may_fail
    assert run.ended.failed_steps_count == (0 if may_fail else 1)


def test_a_map_that_was_to_run_again_and_could_not_since_the_run_was_paused_is_cancelled() -> None:
    m = step("m", map=Map(over=expression("list")), do=(command("one"),), triage=Triage())
    run = run_of(m, answers={"list": [1, 2]}).ok("m[0].0").fail("m[1].0").pause().classify("m", "retry")
    assert run["m"].status == "ready"

    run.cancel()

    assert (run.status, run.statuses) == ("cancelled", {"m": "cancelled"})
