"""What expressions see of failures and steps: every field is there, whether or not there is anything in it."""

from __future__ import annotations

from typing import Any

from mulligan.core.model.workflow import Action, Command, Edge, Handler, Map, Rule, Step, Template
from mulligan.testing.history import History, command, edge, expression, handler, step, workflow

FIELDS = {
    *("code", "message", "severity", "retryable", "exit_code", "signal", "step", "item", "visit", "attempt", "at"),
    *("timestamp", "details", "trace", "cause", "handler_failure", "exceptions", "traceback"),
}


def asking(name: str, *reads: str) -> Action:
    return Action("shell", {"text": name}, {"seen": Template((expression(name, *reads),))})


def test_an_error_has_every_field_in_a_handler():
    seen: dict[str, Any] = {}
    fixing = Handler((Command(action=asking("look", "error")),))
    run = History(workflow(step("a", on_failure=fixing)), {"look": lambda names: seen.update(names) or "x"})

    run.start().fail("a", exit_code=3)

    assert set(seen["error"]) == FIELDS
    assert (seen["error"]["retryable"], seen["error"]["details"], seen["error"]["item"]) == (True, {}, None)
    assert seen["error"]["timestamp"] == seen["error"]["at"] == "2026-01-01T00:00:00Z"


def test_failure_is_null_field_by_field_where_no_failure_edge_led():
    seen: dict[str, Any] = {}
    run = History(
        workflow(Step(name="a", action=asking("look", "failure"))), {"look": lambda names: seen.update(names) or "x"}
    )

    run.start()

    assert set(seen["failure"]) == FIELDS | {"context"}
    assert seen["failure"]["message"] is None
    assert seen["failure"]["context"] == ""


def test_a_step_tells_whether_it_was_recovered_or_handled_and_of_its_warnings():
    seen: dict[str, Any] = {}
    looking = Step(name="end", action=asking("look", "run"))
    flow = workflow(
        step("fixed", on_failure=handler()),
        step("sent", next=[edge("repair", "failure")]),
        step("repair"),
        step("warned"),
        end=looking,
    )
    run = History(flow, {"look": lambda names: seen.update(names) or "x"}).start()

    run.fail("fixed").ok("fixed.on_failure@1.0").fail("sent").ok("repair")
    run.fail("warned", exit_code=0, reported=({"code": "SLOW", "severity": "warning", "message": "slow"},))

    steps = seen["run"]["steps"]
    assert (steps["fixed"]["recovered"], steps["fixed"]["handled"]) == (True, False)
    assert (steps["sent"]["recovered"], steps["sent"]["handled"]) == (False, True)
    assert [warning["code"] for warning in steps["warned"]["warnings"]] == ["SLOW"]


def test_end_sees_one_failure_per_failed_or_recovered_visit_in_order():
    seen: dict[str, Any] = {}
    flow = workflow(
        step("a", on_failure=handler()),
        step("b", next=[Edge("c", 0, "failure")]),
        step("c"),
        step("d", continue_on_error=True),
        end=Step(name="end", action=asking("look", "run")),
    )
    run = History(flow, {"look": lambda names: seen.update(names) or "x"}).start()

    run.fail("a").ok("a.on_failure@1.0").fail("b").ok("c").fail("d")

    told = [(f["step"], f["handled"], f["recovered"], f["allowed"]) for f in seen["run"]["failures"]]
    assert told == [("a", False, True, False), ("b", True, False, False), ("d", False, False, True)]


def test_a_run_whose_items_were_allowed_to_fail_is_degraded():
    policy = Map(over=expression("list"), on_item_failure="collect")
    run = History(workflow(step("m", map=policy, do=(command("c"),))), {"list": [1, 2]})

    run.start().ok("m[0].0").fail("m[1].0")

    assert (run.status, run.ended.degraded) == ("completed", True)


def test_an_open_breaker_is_not_asked_again_before_it_says():
    rules = (Rule(codes=("CIRCUIT_OPEN",), max_retries=1),)
    run = History(workflow(step("a", rules=rules))).start()

    run.fail("a", exit_code=None, code="CIRCUIT_OPEN", details={"retry_at": "2026-01-01T00:01:00Z"})

    assert run["a"].status == "backing_off"
    run.wait(59)
    assert run.queued == []
    run.wait(1)
    assert run.queued == ["a"]


def test_a_breaker_that_says_nonsense_does_not_stop_the_retry():
    rules = (Rule(codes=("CIRCUIT_OPEN",), max_retries=1),)
    run = History(workflow(step("a", rules=rules))).start()

    run.fail("a", exit_code=None, code="CIRCUIT_OPEN", details={"retry_at": "soon"})

    assert run.queued == ["a"]
