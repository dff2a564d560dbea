"""Rung 2: the commands of a handler have their own timeout, retries and failures."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mulligan.core.effects import effects as fx
from mulligan.core.model import events as e
from mulligan.core.model.failure import Failure
from mulligan.core.model.workflow import Action, Command, Handler, Step, Triage
from mulligan.testing.history import (
    T0,
    History,
    command,
    edge,
    expression,
    handler,
    retry,
    step,
    workflow,
)


def run_of(on_failure: Handler | None, answers: dict[str, Any] | None = None, **fields: Any) -> History:
    """A run of `a`, which has this handler, and of `b`, which needs it."""
    return History(workflow(step("a", on_failure=on_failure, **fields), step("b", needs=["a"])), answers).start()


def own(run: History, key: str = "a") -> Failure:
    found = run[key].failure
    assert found is not None
    return found


# -- commands live like steps ----------------------------------------------------------------------------------------


def test_a_command_that_is_best_effort_may_fail():
    """Prodigy: continue to the next command even if this one fails."""
    run = run_of(Handler((command("try", continue_on_error=True), command("fix")))).fail("a")

    run.fail("a.on_failure@1.0", 5).ok("a.on_failure@1.1", output="fixed")

    assert (run["a"].status, run["a"].output) == ("completed", "fixed")
    (failed,) = run.facts(e.CommandFailed)
    assert (failed.failure.exit_code, failed.is_allowed) == (5, True)


def test_a_last_command_that_is_best_effort_leaves_the_output_of_the_one_before():
    run = run_of(Handler((command("fix"), command("tell", continue_on_error=True)))).fail("a")

    run.ok("a.on_failure@1.0", output="fixed").fail("a.on_failure@1.1")

    assert (run["a"].status, run["a"].output) == ("completed", "fixed")


def test_a_command_that_fails_ends_the_handler():
    run = run_of(handler("one", "two")).fail("a").fail("a.on_failure@1.0")

    assert run["a"].status == "failed"
    assert [fact.place for fact in run.facts(e.CommandEntered)] == ["a.on_failure@1.0"]


def test_a_command_has_its_own_retries():
    run = run_of(Handler((command("fix", rules=retry(1, delay=10)),))).fail("a").fail("a.on_failure@1.0")

    assert (run["a"].status, run.queued) == ("handling", [])
    run.wait(10)
    assert (run.queued, run["a.on_failure@1.0"].attempt) == (["a.on_failure@1.0"], 2)
    assert run.ok("a.on_failure@1.0")["a"].status == "completed"
    assert run["a"].attempt == 1


def nested(depth: int) -> Handler:
    return Handler((command(f"fix{depth}", on_failure=nested(depth - 1) if depth > 1 else None),))


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_handlers_nest_and_the_first_that_helps_ends_the_climb(failing):
    """Prodigy: nested handlers work."""
    run = run_of(nested(4)).fail("a")
    key = "a.on_failure@1.0"
    for _ in range(failing):
        run.fail(key)
        key += ".on_failure@1.0"

    run.ok(key, output="at last")

    assert (run["a"].status, run["a"].output, run["a"].recovered_by) == ("completed", "at last", "recovery")


def test_when_handlers_fail_to_depth_four_the_failures_stand_in_each_other():
    run = run_of(nested(4)).fail("a", 10)
    key = "a"
    for exit_code in (11, 12, 13, 14):
        key += ".on_failure@1.0"
        run.fail(key, exit_code)

    chain, found = [], own(run)
    while found is not None:
        chain.append(found.exit_code)
        found = found.handler_failure.cause[0] if found.handler_failure else None
    assert run["a"].status == "failed"
    assert chain == [10, 11, 12, 13, 14]


def test_a_command_may_have_a_check_of_its_own():
    fix = command("fix", validate=expression("v", "output"))
    run = run_of(Handler((fix,)), {"v": False}).fail("a").ok("a.on_failure@1.0", output="?")

    assert own(run).handler_failure is not None
    assert own(run).handler_failure.cause[0].code == "VALIDATION_FAILED"


def test_a_handler_may_wait():
    pause = Command(action=Action("wait", {"seconds": 30}))
    run = run_of(Handler((pause, command("fix")))).fail("a")

    assert run.queued == []
    assert run.wait(30).queued == ["a.on_failure@1.1"]


def test_best_effort_does_not_reach_to_the_files_that_the_step_has_to_write():
    last = command("tell", continue_on_error=True)

    owed = run_of(Handler((last,)), writes=("mesh",)).fail("a")
    owed.fail("a.on_failure@1.0", 0, missing_outputs=("mesh",))
    other = run_of(Handler((last,)), writes=("mesh",)).fail("a").fail("a.on_failure@1.0")
    own_file = run_of(Handler((last,))).fail("a").fail("a.on_failure@1.0", 0, missing_outputs=("note",))

    assert (owed["a"].status, own(owed).handler_failure.code) == ("failed", "HANDLER_FAILED")
    assert (other["a"].status, own_file["a"].status) == ("completed", "completed")


# -- time ------------------------------------------------------------------------------------------------------------


def test_a_handler_that_takes_too_long_is_stopped_and_has_failed_with_a_timeout():
    run = run_of(handler("fix", "more", timeout=60.0)).fail("a", 3).started("a.on_failure@1.0")

    run.wait(60)
    assert fx.StopTask("a.on_failure@1.0", 1, 10.0) in run.effects
    assert run["a"].status == "handling"

    run.fail("a.on_failure@1.0", None, signal=15)
    found = own(run).handler_failure
    assert (run["a"].status, own(run).exit_code) == ("failed", 3)
    assert found is not None
    assert (found.code, found.message) == ("HANDLER_FAILED", "the handler took longer than 60s")
    assert found.cause[0].code == "TIMEOUT"


def test_a_cleanup_of_a_cancelled_step_has_five_minutes_if_nothing_is_said():
    run = run_of(handler("tidy", strategy="cleanup")).started("a").cancel().fail("a", None, signal=15)
    run.started("a.on_failure@1.0")

    run.wait(299)
    assert run.facts(e.AttemptStopping)[1:] == []

    run.wait(1).fail("a.on_failure@1.0", None, signal=15)
    (late,) = run.facts(e.HandlerFailed)
    assert late.failure.message == "the handler took longer than 300s"
    assert run.statuses == {"a": "cancelled", "b": "cancelled"}


def test_the_time_limit_is_for_the_whole_handler_and_not_for_a_command():
    run = run_of(handler("one", "two", timeout=60.0)).fail("a").wait(40).ok("a.on_failure@1.0")

    run.started("a.on_failure@1.1").wait(20).fail("a.on_failure@1.1", None, signal=15)

    assert own(run).handler_failure is not None
    assert own(run).handler_failure.cause[0].code == "TIMEOUT"


def test_a_command_that_never_started_is_taken_back_when_time_is_up():
    run = run_of(handler("fix", timeout=60.0)).fail("a").wait(60)

    assert (run["a"].status, run.queued) == ("failed", [])


def test_a_command_that_ends_well_when_time_is_up_comes_too_late():
    run = run_of(handler("fix", timeout=60.0)).fail("a").started("a.on_failure@1.0").wait(60)

    run.ok("a.on_failure@1.0", output="fixed")

    assert (run["a"].status, run["a"].output) == ("failed", None)
    assert own(run).handler_failure is not None


def test_no_command_runs_after_time_was_up():
    """Also where the command itself is best effort, has retries, or a handler of its own."""
    fix = command("fix", continue_on_error=True, rules=retry(3), on_failure=handler("mend"))
    run = run_of(Handler((fix, command("more")), timeout=60.0)).fail("a").started("a.on_failure@1.0").wait(60)

    run.fail("a.on_failure@1.0", None, signal=15)

    assert (run["a"].status, run.queued) == ("failed", [])


def test_a_command_that_waits_for_its_retry_is_given_up_when_time_is_up():
    run = run_of(Handler((command("fix", rules=retry(3, delay=100)),), timeout=60.0)).fail("a").fail("a.on_failure@1.0")

    run.wait(200)

    assert (run["a"].status, run.queued) == ("failed", [])


def test_a_nested_handler_does_not_go_on_when_the_time_of_the_outer_one_is_up():
    fix = command("fix", on_failure=handler("one", "two"))
    run = run_of(Handler((fix,), timeout=60.0)).fail("a").fail("a.on_failure@1.0")
    inner = "a.on_failure@1.0.on_failure@1.0"

    run.started(inner).wait(60).ok(inner)

    assert (run["a"].status, run.queued) == ("failed", [])
    assert own(run).handler_failure is not None
    assert own(run).handler_failure.cause[0].code == "TIMEOUT"


def test_a_worker_that_is_lost_after_time_was_up_is_not_waited_for():
    run = run_of(handler("fix", timeout=60.0)).fail("a").started("a.on_failure@1.0").wait(60)

    run.lose("a.on_failure@1.0")

    assert (run["a"].status, run.queued) == ("failed", [])


def test_a_handler_that_ended_in_time_is_not_late_afterwards():
    run = run_of(handler("fix", timeout=60.0)).fail("a").ok("a.on_failure@1.0").wait(100)

    assert run["a"].status == "completed"
    assert run.follows == []


def test_each_rerun_gives_the_handler_its_whole_time_again():
    run = run_of(handler("fix", rerun=2, timeout=60.0)).fail("a").wait(50).ok("a.on_failure@1.0").fail("a").wait(50)

    assert run.queued == ["a.on_failure@2.0"]
    assert [fact.due for fact in run.facts(e.HandlerStarted)] == [T0 + timedelta(seconds=s) for s in (60, 110)]


def test_after_a_handler_ran_out_of_time_the_climb_goes_on_as_ever():
    flow = workflow(
        step("a", on_failure=handler("fix", timeout=9.0), next=[edge("m", on="failure", then="rerun")]), step("m")
    )
    run = History(flow).start().fail("a").wait(9).ok("m")

    run.fail("a")

    assert run.queued == ["a.on_failure@2.0"]


# -- a handler that fails --------------------------------------------------------------------------------------------


def test_a_handler_that_fails_is_added_to_the_failure_of_the_step():
    """Prodigy: handler failure marks the step as failed."""
    run = run_of(handler("fix")).fail("a", 3, stderr_tail="disk full")

    run.fail("a.on_failure@1.0", 4, stderr_tail="no fix")

    found = own(run)
    assert (found.code, found.exit_code, found.message, found.severity) == ("EXIT_NONZERO", 3, "disk full", "error")
    assert found.handler_failure is not None
    assert (found.handler_failure.code, found.handler_failure.message) == ("HANDLER_FAILED", "no fix")
    assert found.handler_failure.cause[0].exit_code == 4
    assert run.statuses == {"a": "failed", "b": "skipped"}


@pytest.mark.parametrize("code", ["EXIT_NONZERO", "HANDLER_FAILED"])
def test_edge_filters_match_the_steps_own_code_and_that_of_its_handler(code):
    flow = workflow(step("a", on_failure=handler("x"), next=[edge("fix", on="failure", codes=(code,))]), step("fix"))

    run = History(flow).start().fail("a").fail("a.on_failure@1.0")

    assert run.queued == ["fix"]


def test_an_edge_for_failed_handlers_is_not_taken_when_there_is_none():
    edges = [edge("fix", on="failure", codes=("HANDLER_FAILED",))]

    run = History(workflow(step("a", next=edges), step("fix"))).start().fail("a")

    assert run.statuses == {"a": "failed", "fix": "skipped"}


def doomed(**fields: Any) -> Step:
    edges = [edge("fix", on="failure"), edge("alert", on="failure", handles=False), edge("sweep", on="always")]
    return step("a", on_failure=handler("x"), handler_failure_fatal=True, next=edges, **fields)


def test_with_handler_failure_fatal_the_failure_becomes_critical_and_skips_triage_and_routes():
    flow = workflow(doomed(triage=Triage("always")), step("fix"), step("alert"), step("sweep"), fail_fast="never")

    run = History(flow).start().fail("a").fail("a.on_failure@1.0")

    assert (own(run).severity, own(run).code, own(run).is_fatal) == ("critical", "EXIT_NONZERO", True)
    assert run.passed[-2:] == [("triage", "handler_failure_fatal"), ("route", "handler_failure_fatal")]
    # It is sent nowhere; a bell may ring.
    assert (run.statuses["fix"], run.statuses["alert"]) == ("skipped", "ready")


def test_continue_on_error_does_not_cover_a_failed_handler_that_is_fatal():
    run, works = (
        History(workflow(doomed(continue_on_error=True), step("fix"), step("alert"), step("sweep"))) for _ in "ab"
    )

    run.start().fail("a").fail("a.on_failure@1.0")
    works.start().fail("a").ok("a.on_failure@1.0")

    assert (run.status, run.facts(e.StepFailed)[0].is_allowed) == ("failed", False)
    assert works.statuses["a"] == "completed"


def test_with_handler_failure_fatal_a_handler_that_worked_leaves_the_failure_to_the_other_rungs():
    flow = workflow(
        step(
            "a",
            on_failure=handler("tidy", strategy="cleanup"),
            handler_failure_fatal=True,
            next=[edge("m", on="failure")],
        ),
        step("m"),
    )

    run = History(flow).start().fail("a").ok("a.on_failure@1.0")

    assert run.queued == ["m"]
    assert (own(run).severity, own(run).handler_failure) == ("error", None)


def test_a_failed_handler_has_the_exit_code_of_the_command_that_failed_it():
    run = run_of(handler("fix")).fail("a", 3).fail("a.on_failure@1.0", 5)

    found = own(run).handler_failure
    assert found is not None
    assert (own(run).exit_code, found.exit_code) == (3, 5)


def test_an_always_edge_is_taken_also_after_a_fatal_failure_of_a_handler():
    flow = workflow(doomed(), step("fix"), step("alert"), step("sweep"), fail_fast="never")

    run = History(flow).start().fail("a").fail("a.on_failure@1.0")

    assert run.queued == ["alert", "sweep"]


def test_a_fatal_failure_of_a_handler_stops_the_run_by_default():
    run = History(workflow(doomed(), step("fix"), step("alert"), step("sweep"), step("other"))).start()

    run.fail("a").fail("a.on_failure@1.0")

    assert [fact.cause for fact in run.facts(e.RunStopping)] == ["failed_fast"]
    assert run.status == "failed"


def test_handler_failure_fatal_changes_nothing_while_the_handler_works():
    flow = workflow(doomed(), step("fix"), step("alert"), step("sweep"))

    run = History(flow).start().fail("a").ok("a.on_failure@1.0")

    assert run["a"].status == "completed"


def test_a_failed_handler_of_a_step_that_may_fail_lets_the_run_complete():
    run = run_of(handler("x"), continue_on_error=True).fail("a").fail("a.on_failure@1.0").ok("b")

    assert (run.status, run["a"].status, run["a"].output) == ("completed", "failed", None)
