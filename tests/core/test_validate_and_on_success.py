"""What happens between a good result and a completed step: the check, and the `on_success` commands."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.failure import Failure, failure
from mulligan.core.model.workflow import Action, Command, Rule, Template
from mulligan.errors import ExpressionFailed
from mulligan.history.phrases import describe_failure
from mulligan.testing.history import History, command, edge, expression, handler, retry, shell, step, workflow

CONDITION = expression("output.size() > 0", "output")


def run_of(answers: dict[str, Any] | None = None, **fields: Any) -> History:
    return History(workflow(step("a", **fields), step("b", needs=["a"])), answers).start()


def checked(answer: Any, **fields: Any) -> History:
    return run_of({CONDITION.source: answer}, validate=CONDITION, **fields)


def own(run: History) -> Failure:
    found = run["a"].failure
    assert found is not None
    return found


def reading(name: str) -> Command:
    return Command(action=Action("shell", {"text": "echo $V"}, {"V": Template((expression("v", name),))}))


# -- a condition over the output -------------------------------------------------------------------------------------


def test_a_result_that_passes_its_condition_completes_the_step():
    run = checked(lambda names: names["output"] == "good").ok("a", output="good")

    assert (run["a"].status, run["a"].output) == ("completed", "good")


def test_a_condition_sees_the_result_that_it_is_asked_about():
    run = checked(lambda names: names["output"] == "good").ok("a", output="bad")

    assert own(run).code == "VALIDATION_FAILED"


def test_a_result_that_does_not_pass_is_a_failure_that_names_the_condition():
    run = checked(False).ok("a", output="bad")

    assert (own(run).code, own(run).message) == ("VALIDATION_FAILED", "'output.size() > 0' does not hold")
    assert (own(run).severity, own(run).retryable, own(run).attempt) == ("error", True, 1)
    assert run.statuses == {"a": "failed", "b": "skipped"}


def test_the_failure_carries_the_output_that_was_refused():
    run = checked(False).ok("a", output={"rows": 0})

    assert own(run).details == {"output": {"rows": 0}}
    assert describe_failure(own(run)) == "VALIDATION_FAILED: 'output.size() > 0' does not hold; it gave {\"rows\":0}"


def test_of_a_long_output_that_was_refused_the_failure_carries_head_and_tail():
    run = checked(False).ok("a", output={"text": "ab" * 5000})

    details = own(run).details
    assert details.keys() == {"output_excerpt", "output_size"}
    assert (len(details["output_excerpt"]) < 2100, details["output_size"]) == (True, 10_011)
    assert details["output_excerpt"].startswith('{"text":"abab') and details["output_excerpt"].endswith('abab"}')
    assert len(describe_failure(own(run))) < 300


def test_a_large_output_that_was_refused_stays_a_reference():
    reference = {"$artifact": {"name": "1/a/1/1/output.json", "size": 81920, "sha256": "0" * 64, "format": "json"}}

    run = checked(False).ok("a", output=reference)

    assert own(run).details == {"output": reference}
    assert describe_failure(own(run)).endswith("; it gave an output of 81,920 bytes")


def test_without_an_output_there_is_none_to_show():
    assert own(checked(False).ok("a")).details == {}


@pytest.mark.parametrize("given", ["ok\x1b[31m\nrun 2 completed", "\u202eevil"])
def test_an_output_that_was_refused_is_shown_as_one_harmless_line(given: str):
    said = describe_failure(own(checked(False).ok("a", output=given)))

    assert said.isprintable()


def test_a_condition_that_cannot_be_evaluated_is_never_taken_for_true():
    run = checked(ExpressionFailed("no such overload")).ok("a")

    assert (own(run).code, own(run).message) == ("EXPRESSION_FAILED", "no such overload")


def test_a_rejected_result_is_not_the_output_of_the_step():
    run = checked(False, continue_on_error=True).ok("a", output="bad")

    assert (run["a"].status, run["a"].output) == ("failed", None)
    assert run.queued == ["b"]


def test_a_rejected_result_is_retried():
    answers = iter([False, True])

    run = checked(lambda _: next(answers), rules=retry(1)).ok("a", output="bad").ok("a", output="good")

    assert (run["a"].status, run["a"].output, run["a"].attempt) == ("completed", "good", 2)


def test_a_rejected_result_spends_the_budget_of_the_rule_that_names_it():
    rules = (Rule(codes=("VALIDATION_FAILED",), max_retries=1), Rule(any=True, max_retries=9))

    run = checked(False, rules=rules).ok("a").ok("a")

    assert run["a"].status == "failed"
    assert [(fact.rule, fact.number) for fact in run.facts(e.RetryScheduled)] == [(0, 1)]


def test_a_rejected_result_reaches_the_handler():
    """Prodigy: handlers go together with validation failures."""
    run = checked(False, on_failure=handler("fix")).ok("a", output="bad")

    assert run.queued == ["a.on_failure@1.0"]
    run.ok("a.on_failure@1.0", output="fixed")
    assert (run["a"].status, run["a"].output) == ("completed", "fixed")


def test_a_rejected_result_is_routed_by_its_code():
    edges = [edge("fix", on="failure", codes=("VALIDATION_FAILED",))]
    flow = workflow(step("a", validate=CONDITION, next=edges), step("fix"))

    run = History(flow, {CONDITION.source: False}).start().ok("a")

    assert run.queued == ["fix"]


def test_a_failed_attempt_is_not_checked():
    run = checked(ExpressionFailed("never asked")).fail("a", 3)

    assert own(run).code == "EXIT_NONZERO"


def test_a_result_of_a_rerun_is_checked_too():
    run = checked(False, on_failure=handler("fix", rerun=1)).ok("a").ok("a.on_failure@1.0").ok("a")

    assert (run["a"].status, own(run).code) == ("failed", "VALIDATION_FAILED")


# -- a command that checks -------------------------------------------------------------------------------------------


def test_a_command_that_checks_runs_before_the_step_completes():
    run = run_of(validator=command("check")).ok("a", output="x")

    assert (run["a"].status, run.queued) == ("running", ["a.validator@1"])

    run.ok("a.validator@1", output="said fine")
    assert (run["a"].status, run["a"].output) == ("completed", "x")


def test_a_command_that_checks_and_fails_rejects_the_result():
    run = run_of(validator=command("check")).ok("a").fail("a.validator@1", 4, stderr_tail="three cells are empty")

    assert (own(run).code, own(run).message, own(run).exit_code) == ("VALIDATION_FAILED", "three cells are empty", 4)
    assert [cause.code for cause in own(run).cause] == ["EXIT_NONZERO"]


def test_a_check_that_says_nothing_is_told_by_its_code():
    run = run_of(validator=command("check")).ok("a")
    assert e.CommandEntered("a.validator@1", "a", "validator", 0) in run.follows

    run.fail("a.validator@1", said=failure("DIRTY", ""))

    assert (own(run).code, own(run).message) == ("VALIDATION_FAILED", "the validator ended with DIRTY")


def test_a_command_that_checks_reads_the_output():
    seen: list[object] = []

    run_of({"v": lambda names: seen.append(names["output"])}, validator=reading("output")).ok("a", output=[1])

    assert seen == [[1]]


def test_a_command_that_checks_may_be_tried_again():
    run = run_of(validator=command("check", rules=retry(1))).ok("a").fail("a.validator@1")

    assert run.queued == ["a.validator@1"]
    assert run.ok("a.validator@1")["a"].status == "completed"


def test_after_a_rejection_each_attempt_is_checked_anew():
    run = run_of(validator=command("check"), rules=retry(1)).ok("a").fail("a.validator@1").ok("a")

    assert run.queued == ["a.validator@2"]


def test_a_check_whose_worker_is_lost_runs_again():
    run = run_of(validator=command("check")).ok("a").lose("a.validator@1")

    assert run.queued == ["a.validator@1"]


def test_a_best_effort_check_rejects_nothing():
    run = run_of(validator=command("check", continue_on_error=True)).ok("a").fail("a.validator@1")

    assert run["a"].status == "completed"


# -- on_success ------------------------------------------------------------------------------------------------------


def test_on_success_commands_run_in_order_before_the_edges_are_looked_at():
    """Prodigy: on_success for symmetry."""
    run = run_of(on_success=(command("one"), command("two"))).ok("a", output="x")

    assert (run.queued, run["a.on_success@1.0"].spec.action) == (["a.on_success@1.0"], shell("one"))
    assert run.ok("a.on_success@1.0", output="ignored").queued == ["a.on_success@1.1"]
    assert run.statuses["b"] == "waiting"
    run.ok("a.on_success@1.1")
    assert (run["a"].status, run["a"].output, run.queued) == ("completed", "x", ["b"])


def test_on_success_runs_after_the_check():
    run = run_of(validator=command("check"), on_success=(command("tell"),)).ok("a")

    assert run.queued == ["a.validator@1"]
    assert run.ok("a.validator@1").queued == ["a.on_success@1.0"]


def test_on_success_runs_after_a_success_that_a_retry_brought():
    run = run_of(on_success=(command("tell"),), rules=retry(1)).fail("a").ok("a")

    assert run.queued == ["a.on_success@2.0"]


def test_on_success_does_not_run_after_a_failure():
    run = run_of(on_success=(command("tell"),)).fail("a")

    assert run.facts(e.CommandEntered) == []


def test_on_success_does_not_run_after_a_recovery():
    run = run_of(on_success=(command("tell"),), on_failure=handler("fix")).fail("a").ok("a.on_failure@1.0")

    assert run["a"].status == "completed"
    assert [fact.role for fact in run.facts(e.CommandEntered)] == ["handler"]


def test_on_success_does_not_run_after_a_rerun():
    run = run_of(on_success=(command("tell"),), on_failure=handler("fix", rerun=1))

    run.fail("a").ok("a.on_failure@1.0").ok("a")

    assert (run["a"].status, run["a"].recovered_by) == ("completed", "rerun")
    assert [fact.role for fact in run.facts(e.CommandEntered)] == ["handler"]


def test_on_success_reads_the_output():
    seen: list[object] = []

    run_of({"v": lambda names: seen.append(names["output"])}, on_success=(reading("output"),)).ok("a", output=[1])

    assert seen == [[1]]


def test_a_failure_of_on_success_is_a_warning_and_ends_it():
    run = run_of(on_success=(command("one"), command("two"))).ok("a", output="x").fail("a.on_success@1.0", 5)

    assert (run["a"].status, run["a"].output, run["a"].recovered_by) == ("completed", "x", "")
    assert [warning.exit_code for warning in run["a"].warnings] == [5]
    assert run.queued == ["b"]


def test_a_check_that_misses_the_declared_files_says_so_by_its_code():
    run = run_of(validator=command("look", writes=("mesh",))).ok("a")

    run.fail("a.validator@1", 0, missing_outputs=("mesh",))

    assert (own(run).code, own(run).message) == ("OUTPUT_MISSING", "declared files missing after exit code 0: mesh")


def test_a_best_effort_command_of_on_success_is_followed_by_the_next():
    on_success = (command("one", continue_on_error=True), command("two"))

    run = run_of(on_success=on_success).ok("a").fail("a.on_success@1.0")

    assert run.queued == ["a.on_success@1.1"]


def test_with_handler_failure_fatal_a_failure_of_on_success_fails_the_step():
    flow = workflow(
        step("a", on_success=(command("tell"),), handler_failure_fatal=True, next=[edge("fix", on="failure")]),
        step("fix"),
        fail_fast="never",
    )

    run = History(flow).start().ok("a", output="x").fail("a.on_success@1.0", 5, stderr_tail="nobody listens")

    assert (own(run).code, own(run).severity, own(run).message) == ("HANDLER_FAILED", "critical", "nobody listens")
    assert own(run).cause[0].exit_code == 5
    assert (run.statuses, run["a"].output) == ({"a": "failed", "fix": "skipped"}, None)


def test_a_command_of_on_success_has_its_own_retries_and_handler():
    run = run_of(on_success=(command("tell", rules=retry(1), on_failure=handler("mail")),)).ok("a")

    run.fail("a.on_success@1.0").fail("a.on_success@1.0").ok("a.on_success@1.0.on_failure@2.0")

    assert (run["a"].status, run["a"].warnings) == ("completed", ())


def test_nothing_runs_after_a_success_where_nothing_is_asked_for():
    run = run_of().ok("a")

    assert [type(fact) for fact in run.follows][:2] == [e.AttemptSucceeded, e.StepCompleted]


def test_a_failure_of_on_success_that_is_fatal_is_not_retried_by_a_catch_all():
    run = run_of(on_success=(command("tell"),), handler_failure_fatal=True, rules=retry(1)).ok("a")

    run.fail("a.on_success@1.0")

    assert (run["a"].status, own(run).code, own(run).severity) == ("failed", "HANDLER_FAILED", "critical")
    assert run.facts(e.RetryScheduled) == []


def test_what_ends_well_while_the_run_stops_is_followed_by_no_on_success():
    run = run_of(on_success=(command("tell"),)).started("a").cancel().ok("a")

    assert (run["a"].status, run.status) == ("completed", "cancelled")
    assert run.facts(e.CommandEntered) == []


def test_on_success_does_not_go_on_when_the_run_stops():
    ended = run_of(on_success=(command("one"), command("two"))).ok("a").started("a.on_success@1.0").cancel()
    cut_off = run_of(on_success=(command("one"), command("two"))).ok("a").started("a.on_success@1.0").cancel()

    ended.ok("a.on_success@1.0")
    cut_off.fail("a.on_success@1.0", None, signal=15, is_stopped=True)

    for run in (ended, cut_off):
        assert (run["a"].status, run.status) == ("completed", "cancelled")
        assert [fact.place for fact in run.facts(e.CommandEntered)] == ["a.on_success@1.0"]
