"""Rung 2: the `on_failure` commands of a step (DESIGN 5)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mulligan.core import effects as fx
from mulligan.core import events as e
from mulligan.core import reports as r
from mulligan.core.failure import Failure
from mulligan.core.workflow import Action, Command, Handler, Map, Rule, Step, Template, Triage
from mulligan.errors import ExpressionFailed
from mulligan.testing.history import (
    T0,
    Answers,
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


def run_of(on_failure: Handler | None, answers: dict[str, Any] | None = None, **fields: Any) -> History:
    """A run of `a`, which has this handler, and of `b`, which needs it."""
    return History(workflow(step("a", on_failure=on_failure, **fields), step("b", needs=["a"])), answers).start()


def own(run: History, key: str = "a") -> Failure:
    found = run[key].failure
    assert found is not None
    return found


def reading(name: str, source: str = "v") -> Command:
    """A shell command that reads one name."""
    return Command(action=Action("shell", {"text": "echo $V"}, {"V": Template((expression(source, name),))}))


# -- when it runs ----------------------------------------------------------------------------------------------------


def test_a_handler_runs_when_the_step_fails_and_its_success_lets_the_run_go_on():
    """Prodigy: a handler runs on failure; its success marks the step as recovered."""
    run = run_of(handler("fix")).fail("a")

    assert (run["a"].status, run.queued) == ("handling", ["a.on_failure@1.0"])

    run.ok("a.on_failure@1.0", output="fixed")
    assert (run["a"].status, run["a"].output, run["a"].recovered_by) == ("completed", "fixed", "recovery")
    assert run.queued == ["b"]
    assert run.ok("b").ended.degraded is True
    assert run.ended.recovered_steps_count == 1


def test_a_handler_costs_nothing_while_nothing_fails():
    """Prodigy: minimal overhead when no failure occurs."""
    with_handler = run_of(handler("fix", timeout=5.0)).ok("a", "b")
    without = run_of(None).ok("a", "b")

    assert with_handler.facts() == without.facts()


def test_a_step_without_a_handler_writes_nothing_about_handlers():
    run = run_of(None).fail("a")

    assert run.facts(e.HandlerStarted, e.HandlerFailed, e.HandlerSucceeded, e.CommandEntered) == []
    assert [rung for rung, _ in run.passed] == ["retry", "route"]


def test_a_handler_runs_only_after_the_rules_are_used_up():
    """Prodigy: handlers go together with the retry logic."""
    run = run_of(handler("fix"), rules=retry(1)).fail("a")

    assert run.queued == ["a"]
    assert run.fail("a").queued == ["a.on_failure@2.0"]
    assert run.passed == [("retry", "retries_exhausted")]


@pytest.mark.parametrize("code", ["HTTP_4XX", "SECURITY_VIOLATION"])
def test_fatal_failures_reach_the_handler_too(code):
    run = run_of(handler("fix"), rules=retry(5)).fail("a", None, code=code)

    assert run.queued == ["a.on_failure@1.0"]
    assert run.ok("a.on_failure@1.0")["a"].status == "completed"


@pytest.mark.parametrize(
    "seen",
    [
        {"exit_code": None, "signal": 9},
        {"exit_code": None, "is_timed_out": True},
        {"exit_code": None, "signal": 9, "is_out_of_memory": True},
    ],
)
def test_a_handler_runs_after_kill_timeout_and_lack_of_memory_as_after_a_plain_exit(seen):
    run = run_of(handler("fix")).fail("a", **seen)

    assert run.queued == ["a.on_failure@1.0"]


def test_the_commands_of_a_handler_run_one_after_the_other():
    """Prodigy: several commands run in order."""
    run = run_of(handler("clean", "install", "build")).fail("a")
    order = []
    while run["a"].status == "handling":
        (key,) = run.queued
        order.append((key, run[key].spec.action))
        run.ok(key, output=len(order))

    assert order == [
        ("a.on_failure@1.0", shell("clean")),
        ("a.on_failure@1.1", shell("install")),
        ("a.on_failure@1.2", shell("build")),
    ]
    assert run["a"].output == 3


def test_a_handler_starts_once_for_a_failure_that_is_reported_twice():
    run = run_of(handler("fix")).fail("a")

    run.tell(r.TaskEnded(run.clock, "a", 1))

    assert len(run.facts(e.HandlerStarted)) == 1


def test_a_step_whose_expressions_fail_is_handled_too():
    action = Action("shell", {"text": "echo $V"}, {"V": Template((expression("v", "inputs"),))})

    run = run_of(handler("fix"), {"v": ExpressionFailed("no such key: 'x'")}, action=action)

    assert run.queued == ["a.on_failure@1.0"]
    assert own(run).code == "EXPRESSION_FAILED"


def test_a_handler_runs_again_for_a_new_visit():
    flow = workflow(step("a", on_failure=handler("fix"), next=[edge("mend", on="failure", then="rerun")]), step("mend"))
    run = History(flow).start().fail("a").fail("a.on_failure@1.0").ok("mend")

    assert run.fail("a").queued == ["a.on_failure@2.0"]


def test_a_handler_runs_again_for_an_attempt_that_a_person_asked_for():
    run = run_of(handler("fix"), triage=Triage()).fail("a").fail("a.on_failure@1.0").classify("a", "retry")

    run.fail("a")

    assert run.queued == ["a.on_failure@2.0"]


def test_a_recovery_that_leads_nowhere_is_not_recovered_again():
    """The handler succeeds, but no edge holds: that failure is of the same attempt, and the handler had its turn."""
    flow = workflow(step("a", on_failure=handler("fix"), no_match="fail", next=[edge("b", when="w")]), step("b"))

    run = History(flow, {"w": False}).start().fail("a").ok("a.on_failure@1.0")

    assert (run.status, own(run).code) == ("failed", "NO_ROUTE")
    assert ("handle", "handled_once") in run.passed


def test_a_handler_runs_per_item_of_a_map():
    """Prodigy: on_failure works per item."""
    do = (command("check", on_failure=handler("fix")),)
    run = History(workflow(step("m", map=Map(over=expression("list")), do=do)), {"list": ["x", "y"]}).start()

    run.fail("m[1].0").ok("m[0].0", output="ok")

    assert run.queued == ["m[1].0.on_failure@1.0"]
    run.ok("m[1].0.on_failure@1.0", output="fixed")
    assert run["m"].output["results"] == ["ok", "fixed"]
    assert run.ended.recovered_steps_count == 1


# -- what it sees ----------------------------------------------------------------------------------------------------


def test_a_handler_reads_the_failure():
    """Prodigy: ${error.message}, ${error.exit_code}, error.step and error.timestamp are there."""
    seen: list[dict[str, Any]] = []
    run = run_of(Handler((reading("error"),)), {"v": lambda names: seen.append(names["error"])}, rules=retry(1))

    run.fail("a").wait(5).fail("a", 3, stderr_tail="disk full")

    (error,) = seen
    assert (error["message"], error["exit_code"], error["step"]) == ("disk full", 3, "a")
    assert (error["code"], error["severity"], error["attempt"]) == ("EXIT_NONZERO", "error", 2)
    assert error["timestamp"] == "2026-01-01T00:00:05Z"
    assert error["signal"] is None


def test_a_command_of_a_handler_gets_the_values_of_its_expressions():
    run = run_of(Handler((reading("error"),)), {"v": lambda names: names["error"]["message"]})

    run.fail("a", stderr_tail="disk full")

    assert run.facts(e.AttemptScheduled)[-1].bindings == {"V": "disk full"}


def test_a_nested_handler_reads_the_failure_of_its_own_command():
    seen: list[str] = []
    inner = Handler((reading("error"),), capture={"c": expression("w", "error")})
    outer = Handler((command("fix", on_failure=inner),))
    said = {"v": lambda names: seen.append(names["error"]["message"]), "w": lambda names: names["error"]["message"]}

    run = run_of(outer, said).fail("a", stderr_tail="disk full").fail("a.on_failure@1.0", stderr_tail="no fix")

    assert seen == ["no fix"]
    run.ok("a.on_failure@1.0.on_failure@1.0")
    assert run["a"].output == {"c": "no fix"}


def test_a_command_that_is_tried_again_reads_the_steps_failure_and_not_its_own():
    seen: list[str] = []
    fix = Command(action=reading("error").action, rules=retry(1))

    run = run_of(Handler((fix,)), {"v": lambda names: seen.append(names["error"]["message"])})
    run.fail("a", stderr_tail="disk full").fail("a.on_failure@1.0", stderr_tail="no fix")

    assert seen == ["disk full", "disk full"]


def test_a_command_whose_expressions_fail_fails_the_handler():
    run = run_of(Handler((reading("error"),)), {"v": ExpressionFailed("no such key: 'v'")}).fail("a")

    assert own(run).handler_failure is not None
    assert own(run).handler_failure.message == "no such key: 'v'"
    assert own(run).handler_failure.cause[0].code == "EXPRESSION_FAILED"


# -- strategies ------------------------------------------------------------------------------------------------------


def test_a_fallback_completes_the_step_with_its_output_and_is_named():
    """Prodigy: a deployment falls back to staging."""
    run = run_of(handler("stage", "notify", strategy="fallback")).fail("a")

    run.ok("a.on_failure@1.0", output="staged").ok("a.on_failure@1.1", output="told")

    assert (run["a"].status, run["a"].recovered_by, run["a"].output) == ("completed", "fallback", "told")


def test_a_cleanup_runs_for_its_effect_and_the_failure_climbs_on_unchanged():
    flow = workflow(
        step("a", on_failure=handler("sweep", strategy="cleanup"), next=[edge("fix", on="failure")]), step("fix")
    )
    run = History(flow).start().fail("a", 3, stderr_tail="disk full")
    before = own(run)

    run.ok("a.on_failure@1.0", output="swept")

    assert (run["a"].status, run["a"].output, run["a"].recovered_by) == ("failed", None, "")
    assert own(run) == before
    assert run.queued == ["fix"]


def test_a_cleanup_that_fails_is_noted_and_the_failure_climbs_on():
    run = run_of(handler("sweep", strategy="cleanup")).fail("a", 3).fail("a.on_failure@1.0", 4)

    assert (own(run).code, own(run).exit_code) == ("EXIT_NONZERO", 3)
    assert own(run).codes == ("EXIT_NONZERO", "HANDLER_FAILED")


def test_a_custom_handler_may_complete_the_step():
    run = run_of(handler("decide", strategy="custom")).fail("a")

    run.ok("a.on_failure@1.0", output={"status": "completed", "output": [1, 2]})

    assert (run["a"].status, run["a"].output, run["a"].recovered_by) == ("completed", [1, 2], "custom")


def test_a_custom_handler_may_complete_the_step_without_an_output():
    run = run_of(handler("decide", strategy="custom")).fail("a")

    run.ok("a.on_failure@1.0", output={"status": "completed"})

    assert (run["a"].status, run["a"].output) == ("completed", None)


def test_a_custom_handler_may_let_the_failure_climb_on():
    run = run_of(handler("decide", strategy="custom")).fail("a", 3)

    run.ok("a.on_failure@1.0", output={"status": "failed"})

    assert (run["a"].status, own(run).exit_code, own(run).handler_failure) == ("failed", 3, None)


@pytest.mark.parametrize("said", [None, "completed", {}, {"status": "maybe"}, {"status": None}, ["completed"], 1])
def test_a_custom_handler_that_decides_nothing_has_failed(said):
    run = run_of(handler("decide", strategy="custom")).fail("a").ok("a.on_failure@1.0", output=said)

    found = own(run).handler_failure
    assert run["a"].status == "failed"
    assert found is not None
    assert found.cause[0].code == "OUTPUT_INVALID"
    assert found.message == (
        'a custom handler writes {"status": "completed" or "failed", "output": …} to $MULLIGAN_OUTPUT'
    )


# -- output and capture ----------------------------------------------------------------------------------------------


def test_what_the_handler_captured_is_the_output_of_the_step():
    """Prodigy: variables are captured from the handler."""
    capture = {"size": expression("s", "output"), "why": expression("w", "error")}
    said = {"s": lambda names: len(names["output"]), "w": lambda names: names["error"]["message"]}
    run = run_of(handler("fix", capture=capture), said).fail("a", stderr_tail="disk full")

    run.ok("a.on_failure@1.0", output="four")

    assert run["a"].output == {"size": 4, "why": "disk full"}


def test_a_capture_that_cannot_be_evaluated_fails_the_handler():
    run = run_of(handler("fix", capture={"x": expression("x", "output")}), {"x": ExpressionFailed("no such key: 'x'")})

    run.fail("a").ok("a.on_failure@1.0")

    assert own(run).handler_failure is not None
    assert own(run).handler_failure.cause[0].code == "EXPRESSION_FAILED"


def test_the_result_of_a_step_that_was_found_wanting_is_not_the_output_of_its_recovery():
    run = run_of(handler("fix"), {"v": False}, validate=expression("v", "output")).ok("a", output="bad")

    run.ok("a.on_failure@1.0")

    assert (run["a"].status, run["a"].output) == ("completed", None)


# -- rerun -----------------------------------------------------------------------------------------------------------


def test_with_rerun_the_steps_own_action_runs_again_after_the_handler():
    run = run_of(handler("fix", rerun=1)).fail("a").ok("a.on_failure@1.0", output="fixed")

    assert (run.queued, run["a"].visit, run["a"].attempt) == (["a"], 1, 2)

    run.ok("a", output="built")
    assert (run["a"].status, run["a"].output, run["a"].recovered_by) == ("completed", "built", "rerun")


def test_the_handler_runs_before_each_rerun_and_no_oftener_than_asked():
    run = run_of(handler("fix", rerun=2)).fail("a")

    run.ok("a.on_failure@1.0").fail("a").ok("a.on_failure@2.0").fail("a", 9)

    assert (run["a"].status, own(run).exit_code, run["a"].attempt) == ("failed", 9, 3)
    assert len(run.facts(e.HandlerStarted)) == 2
    assert ("handle", "reruns_exhausted") in run.passed


def test_rules_are_not_asked_again_once_the_step_was_rerun():
    rules = (Rule(exit_codes=(10,), max_retries=1), Rule(exit_codes=(11,), max_retries=5))
    run = run_of(handler("fix", rerun=1), rules=rules).fail("a", 10).fail("a", 10).ok("a.on_failure@2.0")

    run.fail("a", 11)

    assert run["a"].status == "failed"
    assert run.passed == [
        ("retry", "retries_exhausted"),
        ("retry", "rules_not_asked"),
        ("handle", "reruns_exhausted"),
        ("route", "no_route"),
    ]


def test_a_handler_that_fails_is_followed_by_no_rerun():
    run = run_of(handler("fix", rerun=3)).fail("a").fail("a.on_failure@1.0")

    assert (run["a"].status, run["a"].attempt) == ("failed", 1)


def test_a_lost_worker_during_a_rerun_is_no_failure_of_it():
    run = run_of(handler("fix", rerun=1)).fail("a").ok("a.on_failure@1.0").lose("a")

    assert run.queued == ["a"]
    assert run.ok("a")["a"].recovered_by == "rerun"


def test_a_rerun_whose_expressions_fail_is_a_failed_attempt():
    gives = iter(["x", ExpressionFailed("no such key: 'y'")])
    action = Action("shell", {"text": "cat $V"}, {"V": Template((expression("v", "inputs"),))})

    run = run_of(handler("fix", rerun=1), {"v": lambda _: next(gives)}, action=action).fail("a").ok("a.on_failure@1.0")

    assert (run["a"].status, own(run).code, own(run).attempt) == ("failed", "EXPRESSION_FAILED", 2)


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
    assert (run.statuses["fix"], run.statuses["alert"]) == ("skipped", "skipped")


def test_an_always_edge_is_taken_also_after_a_fatal_failure_of_a_handler():
    flow = workflow(doomed(), step("fix"), step("alert"), step("sweep"), fail_fast="never")

    run = History(flow).start().fail("a").fail("a.on_failure@1.0")

    assert run.queued == ["sweep"]


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


# -- the log ---------------------------------------------------------------------------------------------------------


def test_the_log_tells_what_the_handler_did_and_why():
    """Prodigy: clear logs show handler execution."""
    run = run_of(handler("fix")).fail("a").ok("a.on_failure@1.0", output="x").ok("b")

    kinds = [type(fact).__name__ for fact in run.facts() if not isinstance(fact, e.RunStarted)]
    assert kinds[:12] == [
        "StepEntered",
        "AttemptScheduled",
        "AttemptFailed",
        "RungPassed",
        "HandlerStarted",
        "CommandEntered",
        "AttemptScheduled",
        "AttemptSucceeded",
        "CommandCompleted",
        "HandlerSucceeded",
        "StepCompleted",
        "StepEntered",
    ]


def test_everything_in_the_log_has_a_cause_before_it():
    run = (
        run_of(handler("one", "two"), rules=retry(1))
        .fail("a")
        .fail("a")
        .ok("a.on_failure@2.0")
        .fail("a.on_failure@2.1")
    )

    assert all(entry.caused_by < entry.seq for entry in run.log)
    assert [entry.seq for entry in run.log] == list(range(1, len(run.log) + 1))


def test_an_evaluator_is_handed_only_the_names_that_are_read():
    class Recorder(Answers):
        def __init__(self) -> None:
            super().__init__()
            self.handed: list[list[str]] = []

        def evaluate(self, expression, names):
            self.handed.append(sorted(names))
            return super().evaluate(expression, names)

    recorder = Recorder()
    flow = workflow(step("a", on_failure=Handler((reading("error"),))))

    History(flow, evaluator=recorder).start({"x": 1}).fail("a")

    assert recorder.handed == [["error"]]
