"""Rung 2: the `on_failure` commands of a step."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.failure import Failure
from mulligan.core.model.workflow import Action, Command, Handler, Map, Rule, Template, Triage
from mulligan.errors import ExpressionFailed
from mulligan.testing.history import (
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

    run.report(r.TaskEnded(run.clock, "a", 1))

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


def test_what_was_recovered_is_recorded_once_and_a_success_is_not():
    run = run_of(handler("fix"), rules=retry(1)).fail("a", 3).fail("a", 4).ok("a.on_failure@2.0").ok("b")

    (record,) = run.state.recoveries

    entered = next(entry.seq for entry in run.log if entry.fact == e.StepEntered("a", 1))
    assert (record.step, record.visit, record.attempt, record.entered_seq) == ("a", 1, 2, entered)
    assert (record.failure.exit_code, record.recovered_by) == (4, "recovery")


def test_a_retry_that_made_up_for_a_failure_is_no_recovery():
    run = run_of(None, rules=retry(1)).fail("a").ok("a").ok("b")

    assert run.state.recoveries == []


def test_a_handler_that_runs_again_has_no_output_of_the_last_time():
    tidy = Handler((command("tidy", continue_on_error=True),), strategy="cleanup")
    run = run_of(tidy, triage=Triage(when="always")).fail("a").ok("a.on_failure@1.0", output="old")

    run.classify("a", "retry").fail("a").fail("a.on_failure@2.0")

    assert [fact.output for fact in run.facts(e.HandlerSucceeded)] == ["old", None]


def test_a_handler_without_rerun_leaves_the_rules_to_a_later_attempt():
    run = run_of(handler(strategy="cleanup"), rules=(Rule(exit_codes=(7,)),), triage=Triage(when="always"))

    run.fail("a").ok("a.on_failure@1.0").classify("a", "retry").fail("a", 7)

    assert [fact.attempt for fact in run.facts(e.RetryScheduled)] == [3]


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
        'a custom handler must write {"status": "completed" or "failed", "output": …} to $MULLIGAN_OUTPUT'
    )


def test_a_custom_handler_may_decide_at_such_length_that_its_decision_is_kept_beside_the_log():
    kept = {"$artifact": {"name": "1/a/output.json", "size": 81920, "sha256": "9f2c", "format": "json"}}
    decided = {"output": {"status": "completed", "output": "what was in it"}}

    custom = run_of(handler("decide", strategy="custom"), decided).fail("a").ok("a.on_failure@1.0", output=kept)
    recovery = run_of(handler("fix"), decided).fail("a").ok("a.on_failure@1.0", output=kept)

    assert (custom["a"].status, custom["a"].output) == ("completed", "what was in it")
    # Nobody has to look into what a recovery gives.
    assert (recovery["a"].status, recovery["a"].output) == ("completed", kept)


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


def test_a_rerun_says_that_it_is_one():
    run = run_of(handler("fix", rerun=1)).fail("a").ok("a.on_failure@1.0")

    assert run.follows[-1] == e.AttemptScheduled("a", 2, "rerun")


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
