"""`end` runs exactly once in every case and decides the status; and the counts of the final event."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Action, Step, Template
from mulligan.errors import ExpressionFailed
from mulligan.testing.history import History, command, edge, expression, handler, retry, shell, step, workflow


def end(*reads: str, **fields: Any) -> Step:
    """An `end` whose command is given what it reads, so that a test can look at it."""
    bindings = {"SEEN": Template((expression("seen", *reads),))} if reads else {}
    return Step(name="end", action=Action("shell", {"text": "report"}, bindings), **fields)


def run_of(*steps: Any, **fields: Any) -> History:
    answers = fields.pop("answers", None)
    return History(workflow(*steps, **fields), answers).start()


# -- it runs, once, in every case ------------------------------------------------------------------------------------


def _completed() -> History:
    return run_of(step("a"), end=end()).ok("a")


def _failed() -> History:
    return run_of(step("a"), end=end()).fail("a")


def _allowed() -> History:
    return run_of(step("a", continue_on_error=True), end=end()).fail("a")


def _skipped() -> History:
    return run_of(step("a", when="no"), answers={"no": False}, end=end())


def _cancelled() -> History:
    return run_of(step("a"), end=end()).cancel()


def _timed_out() -> History:
    return run_of(step("a"), timeout=5, end=end()).wait(5)


def _failed_fast() -> History:
    return run_of(step("a"), step("b"), fail_fast="always", end=end()).fail("a")


def _lost() -> History:
    return run_of(step("a", on_lost="fail"), end=end()).lose("a")


def _child_failed() -> History:
    return run_of(step("a", action=Action("workflow", {"file": "c.yaml"})), end=end()).child_ended("a", "failed")


@pytest.mark.parametrize(
    ("run", "status"),
    [
        (_completed(), "completed"),
        (_failed(), "failed"),
        (_allowed(), "completed"),
        (_skipped(), "completed"),
        (_cancelled(), "cancelled"),
        (_timed_out(), "failed"),
        (_failed_fast(), "failed"),
        (_lost(), "failed"),
        (_child_failed(), "failed"),
    ],
    ids=["completed", "failed", "allowed", "skipped", "cancelled", "timed out", "failed fast", "lost", "child failed"],
)
def test_every_path_leads_to_one_end_and_then_to_one_last_event(run: History, status: str) -> None:
    assert (run.queued, run.status) == (["end"], "running")

    run.ok("end")

    assert run.status == status
    assert [fact.visit for fact in run.facts(e.StepEntered) if fact.step == "end"] == [1]
    assert len(run.facts(e.RunCompleted, e.RunFailed, e.RunCancelled)) == 1
    assert isinstance(run.log[-1].fact, e.RunCompleted | e.RunFailed | e.RunCancelled)
    assert run.ended.evaluated_by_end_step


def test_a_workflow_without_an_end_has_a_silent_one() -> None:
    run = run_of(step("a")).ok("a")

    assert [type(fact) for fact in run.follows[-3:]] == [e.StepEntered, e.StepCompleted, e.RunCompleted]


def test_an_empty_workflow_completes_at_once() -> None:
    run = run_of()

    assert (run.status, run.ended.total_steps) == ("completed", 0)


def test_end_waits_for_what_still_runs() -> None:
    run = run_of(step("a"), step("b"), end=end()).fail("a")
    assert run.queued == ["b"]

    run.ok("b")

    assert run.queued == ["end"]


# -- what it sees ----------------------------------------------------------------------------------------------------


def test_end_sees_every_step_and_every_failure_in_order() -> None:
    seen: list[Any] = []
    run = run_of(
        step("a", next=[edge("fix", "failure")]),
        step("fix"),
        step("b"),
        step("c", needs=["b"]),
        end=end("run"),
        answers={"seen": lambda names: seen.append(names["run"])},
    )

    run.fail("a", 3).ok("fix", output="mended").fail("b", 4)

    view = seen[0]
    assert {name: step["status"] for name, step in view["steps"].items()} == {
        "a": "failed",
        "fix": "completed",
        "b": "failed",
        "c": "skipped",
    }
    assert view["steps"]["fix"]["output"] == "mended"
    assert view["steps"]["a"]["failure"]["exit_code"] == 3
    assert [(f["step"], f["visit"], f["exit_code"], f["handled"]) for f in view["failures"]] == [
        ("a", 1, 3, True),
        ("b", 1, 4, False),
    ]
    assert view["stopping"] is None


def test_every_failed_visit_is_told() -> None:
    seen: list[Any] = []
    run = run_of(
        step("a", next=[edge("fix", "failure", then="rerun")]),
        step("fix"),
        end=end("run"),
        answers={"seen": lambda names: seen.append(names["run"]["failures"])},
    )

    run.fail("a").ok("fix").fail("a").ok("fix").ok("a")

    assert [(f["step"], f["visit"], f["handled"]) for f in seen[0]] == [("a", 1, True), ("a", 2, True)]


def test_end_sees_why_the_run_stops() -> None:
    seen: list[Any] = []
    run = run_of(step("a"), end=end("run"), answers={"seen": lambda names: seen.append(names["run"]["stopping"])})

    run.cancel()

    assert seen == ["cancelled"]


def test_other_steps_do_not_see_the_whole_run() -> None:
    seen: list[Any] = []
    action = Action("shell", {"text": "x"}, {"SEEN": Template((expression("seen", "run"),))})

    run_of(step("a", action=action), answers={"seen": lambda names: seen.append(names["run"])})

    assert seen == [{"id": 1, "workflow": "test", "round": 1, "data": {}, "workspace": None}]


# -- its word --------------------------------------------------------------------------------------------------------


def test_end_can_turn_completed_into_failed() -> None:
    run = run_of(step("a"), end=end()).ok("a")

    run.ok("end", output={"status": "failed", "reason": "too few rows"})

    assert (run.status, run.ended.reason, run.ended.failed_steps_count) == ("failed", "too few rows", 0)


@pytest.mark.parametrize("said", [{"status": "failed"}, {"status": "failed", "reason": ""}])
def test_an_end_that_gives_no_reason_is_named_as_what_failed_the_run(said: Any) -> None:
    run = History(workflow(step("a"), end=step("end"))).start().ok("a")

    run.ok("end", output=said)

    assert (run.status, run.ended.reason) == ("failed", "end returned the status failed")


def test_end_can_turn_failed_into_completed() -> None:
    run = run_of(step("a"), end=end()).fail("a")

    run.ok("end", output={"status": "completed", "reason": "good enough"})

    assert (run.status, run.ended.reason) == ("completed", "good enough")
    assert (run.ended.degraded, run.ended.failed_steps_count) == (True, 1)


def test_end_cannot_turn_failed_into_completed_once_work_was_undone() -> None:
    run = run_of(step("a", undo=command("undo")), step("b", needs=["a"]), end=end()).ok("a").fail("b").ok("a.undo@1")

    run.ok("end", output={"status": "completed"})

    assert run.status == "failed"


@pytest.mark.parametrize("said", ["completed", "failed"])
def test_end_cannot_talk_an_operator_out_of_a_cancel(said: str) -> None:
    run = run_of(step("a"), end=end()).cancel(reason="enough")

    run.ok("end", output={"status": said, "reason": "no"})

    assert (run.status, run.ended.reason) == ("cancelled", "enough")


@pytest.mark.parametrize("said", [None, "failed", 7, [], {}, {"status": None}, {"reason": None}])
def test_what_is_no_verdict_changes_nothing(said: Any) -> None:
    run = run_of(step("a"), end=end()).ok("a")

    run.ok("end", output=said)

    assert run.status == "completed"


@pytest.mark.parametrize(
    "said",
    [
        {"status": "done"},
        '{"status": "done"}',
        {"status": "cancelled"},
        {"status": ""},
        {"status": 7},
        {"status": True},
        {"status": ["failed"]},
        {"status": {"code": "failed"}},
    ],
)
def test_an_end_that_returns_a_status_no_run_can_have_has_failed(said: Any) -> None:
    run = run_of(step("a"), end=end()).ok("a")

    run.ok("end", output=said)

    assert (run.status, run.ended.reason) == ("failed", "end failed: OUTPUT_INVALID")
    assert run["end"].failure.code == "OUTPUT_INVALID"


def test_the_failure_of_an_end_names_the_statuses_that_it_may_return() -> None:
    run = run_of(step("a"), end=end()).ok("a").ok("end", output={"status": "done"})

    expected = 'end returned the status "done": it may return "completed" or "failed", or no status'
    assert run["end"].failure.message == expected


def test_a_long_status_is_cut_in_the_message() -> None:
    run = run_of(step("a"), end=end()).ok("a").ok("end", output={"status": "x" * 1_000_000})

    assert len(run["end"].failure.message) < 300


def test_an_end_that_returns_an_unknown_status_is_retried_by_its_rules() -> None:
    run = run_of(step("a"), end=end(rules=retry(1, delay=5))).ok("a").ok("end", output={"status": "done"})
    assert run["end"].status == "backing_off"

    run.wait(5).ok("end", output={"status": "failed", "reason": "too few rows"})

    assert (run.status, run.ended.reason) == ("failed", "too few rows")


def test_a_handler_recovers_an_end_that_returned_an_unknown_status() -> None:
    run = run_of(step("a"), end=end(on_failure=handler("fix"))).ok("a").ok("end", output={"status": "done"})

    run.ok("end.on_failure@1.0", output={"status": "completed", "reason": "fixed"})

    assert (run.status, run.ended.reason, run.ended.degraded) == ("completed", "fixed", True)


def test_an_end_whose_handler_returns_an_unknown_status_has_failed() -> None:
    run = run_of(step("a"), end=end(on_failure=handler("fix"))).ok("a").fail("end")

    run.ok("end.on_failure@1.0", output={"status": "fixed"})

    assert (run.status, run["end"].failure.code) == ("failed", "OUTPUT_INVALID")


def test_an_unknown_status_after_a_cancel_leaves_the_run_cancelled() -> None:
    run = run_of(step("a"), end=end()).cancel().ok("end", output={"status": "done"})

    assert run.status == "cancelled"


@pytest.mark.parametrize(
    "output",
    [
        {"status": 200, "headers": {}, "body": "ok"},
        {"result": None, "ctx": {}, "next": [], "status": "ok"},
    ],
    ids=["http", "noetl"],
)
def test_the_status_of_a_response_says_nothing_about_the_run(output: Any) -> None:
    run = run_of(step("a"), end=end()).ok("a").ok("end", output=output)

    assert run.status == "completed"


# -- it lives like a step --------------------------------------------------------------------------------------------


def test_an_end_that_fails_fails_the_run() -> None:
    run = run_of(step("a"), end=end()).ok("a")

    run.fail("end", 5)

    assert (run.status, run.ended.reason) == ("failed", "end failed: EXIT_NONZERO")
    assert run.ended.failed_steps_count == 0
    assert run.passed == [("retry", "no_rule"), ("route", "no_route")]


def test_an_end_that_fails_after_a_cancel_leaves_it_cancelled() -> None:
    run = run_of(step("a"), end=end()).cancel().fail("end")

    assert run.status == "cancelled"


def test_end_is_retried_by_its_rules_even_when_stopping() -> None:
    run = run_of(step("a"), end=end(rules=retry(1, delay=5))).cancel().fail("end")
    assert run["end"].status == "backing_off"

    run.wait(5).ok("end")

    assert run.status == "cancelled"


def test_a_handler_can_recover_end() -> None:
    run = run_of(step("a"), end=end(on_failure=handler("fix"))).ok("a").fail("end")

    run.ok("end.on_failure@1.0")

    assert (run.status, run.ended.degraded) == ("completed", True)


def test_an_end_whose_result_is_found_wanting_fails_the_run() -> None:
    run = run_of(step("a"), end=end(validate=expression("fine", "output")), answers={"fine": False}).ok("a")

    run.ok("end", output={"status": "completed"})

    assert (run.status, run.ended.reason) == ("failed", "end failed: VALIDATION_FAILED")


def test_a_lost_worker_does_not_cost_the_run_its_end() -> None:
    run = run_of(step("a"), end=end()).ok("a").lose("end")
    assert run.queued == ["end"]

    run.ok("end")

    assert run.status == "completed"


def test_an_end_whose_expression_fails_fails_the_run() -> None:
    run = run_of(step("a"), end=end("run"), answers={"seen": ExpressionFailed("no such key")}).ok("a")

    assert (run.status, run.ended.reason) == ("failed", "end failed: EXPRESSION_FAILED")


# -- the last event --------------------------------------------------------------------------------------------------


def test_the_last_event_counts_steps_not_visits() -> None:
    run = run_of(
        step("plain"),
        step("recovered", on_failure=handler("fix")),
        step("routed", next=[edge("fix", "failure")]),
        step("fix"),
        step("bad"),
        step("after", needs=["bad"]),
        step("later", needs=["after"]),
        step("allowed", continue_on_error=True),
    )

    run.ok("plain").fail("recovered").ok("recovered.on_failure@1.0").fail("routed").ok("fix").fail("allowed")
    run.fail("bad")

    assert run.ended == e.RunFailed(
        round=1,
        total_steps=8,
        failed_steps_count=1,
        handled_steps_count=1,
        recovered_steps_count=1,
        skipped_steps_count=2,
    )


def test_a_step_that_failed_once_handled_and_once_not_counts_as_failed() -> None:
    run = run_of(step("a", next=[edge("fix", "failure", then="rerun")]), step("fix"))

    run.fail("a").ok("fix").fail("a").fail("fix")

    assert (run.ended.failed_steps_count, run.ended.handled_steps_count) == (2, 0)


@pytest.mark.parametrize(
    ("run", "degraded"),
    [
        (run_of(step("a")).ok("a"), False),
        (run_of(step("a", rules=retry(1))).fail("a").ok("a"), False),
        (run_of(step("a", continue_on_error=True)).fail("a"), True),
        (run_of(step("a", on_failure=handler("fix"))).fail("a").ok("a.on_failure@1.0"), True),
        (run_of(step("a", next=[edge("b", "failure")]), step("b")).fail("a").ok("b"), True),
    ],
    ids=["as written", "retried", "allowed to fail", "recovered", "handled"],
)
def test_a_completed_run_is_degraded_if_it_did_not_go_as_written(run: History, degraded: bool) -> None:
    assert (run.status, run.ended.degraded) == ("completed", degraded)


def test_a_step_that_failed_without_a_route_was_routed_to_end() -> None:
    run = run_of(step("a")).fail("a")

    failed = run.facts(e.StepFailed)[0]
    assert (failed.routed_to_end, failed.original_failed_step) == (True, "a")


def test_a_step_whose_failure_was_routed_was_not_routed_to_end() -> None:
    run = run_of(step("a", next=[edge("fix", "failure")]), step("fix")).fail("a")

    failed = run.facts(e.StepFailed)[0]
    assert (failed.routed_to_end, failed.original_failed_step) == (False, "")


def test_an_edge_to_end_handles_nothing() -> None:
    run = run_of(step("a", next=[edge("end", "failure")])).fail("a")

    assert (run.status, run.ended.failed_steps_count) == ("failed", 1)
    assert run.facts(e.StepFailed)[0].routed_to_end


# -- outputs ---------------------------------------------------------------------------------------------------------


def test_outputs_are_evaluated_at_the_end() -> None:
    outputs = {"rows": Template((expression("rows", "steps.a"),))}
    run = run_of(step("a"), outputs=outputs, answers={"rows": lambda names: names["steps"]["a"]["output"]})

    run.ok("a", output=[1, 2])

    assert run.ended.outputs == {"rows": [1, 2]}


def test_an_output_that_cannot_be_evaluated_is_null_and_fails_a_run_that_would_have_completed() -> None:
    outputs = {"bad": Template((expression("bad"),)), "good": Template((expression("good"),))}
    run = run_of(step("a"), outputs=outputs, answers={"bad": ExpressionFailed("no such key"), "good": 1}).ok("a")

    assert (run.status, run.ended.reason) == ("failed", "output 'bad': no such key")
    assert run.ended.outputs == {"bad": None, "good": 1}


def test_an_output_that_cannot_be_evaluated_does_not_hide_why_a_run_failed() -> None:
    outputs = {"bad": Template((expression("bad"),))}
    run = run_of(step("a"), outputs=outputs, end=end(), answers={"bad": ExpressionFailed("no such key")}).fail("a")

    run.ok("end", output={"status": "failed", "reason": "a is down"})

    assert (run.status, run.ended.reason) == ("failed", "a is down")


def test_outputs_can_be_read_by_end_steps_that_failed() -> None:
    outputs = {"why": Template((expression("why", "steps.a"),))}
    run = run_of(step("a"), outputs=outputs, answers={"why": lambda names: names["steps"]["a"]["failure"]["code"]})

    run.fail("a")

    assert run.ended.outputs == {"why": "EXIT_NONZERO"}


def test_the_action_of_a_silent_end_is_never_queued() -> None:
    run = run_of(step("a", action=shell("x"))).ok("a")

    assert all(fact.place != "end" for fact in run.facts(e.AttemptScheduled))


@pytest.mark.parametrize("said", [{"status": "failed", "reason": "so"}, '{"status": "failed", "reason": "so"}\n'])
def test_end_may_print_its_verdict_as_text(said: object) -> None:
    flow = workflow(step("a"), end=step("end", action=shell("report")))

    run = History(flow).start().ok("a").ok("end", output=said)

    assert (run.status, run.ended.reason) == ("failed", "so")


@pytest.mark.parametrize("said", ["{nonsense", "{}", "all is well", ["failed"], None])
def test_what_end_says_otherwise_changes_nothing(said: object) -> None:
    flow = workflow(step("a"), end=step("end", action=shell("report")))

    run = History(flow).start().ok("a").ok("end", output=said)

    assert run.status == "completed"


def test_a_reason_alone_is_kept() -> None:
    flow = workflow(step("a"), end=step("end", action=shell("report")))

    run = History(flow).start().ok("a").ok("end", output={"reason": "as planned"})

    assert (run.status, run.ended.reason) == ("completed", "as planned")


@pytest.mark.parametrize(
    "said", ['{"status": "failed", "reason": "\\ud800"}', '{"status": "failed", "a": ' + "[" * 5000]
)
def test_an_end_that_says_what_no_log_can_hold_has_said_nothing(said: str) -> None:
    run = History(workflow(step("a"), end=step("end", action=shell()))).start().ok("a")

    run.ok("end", output=said)

    assert run.status == "completed"
