"""NL2SQL's failures and recovery, and the gaps that its own document names (numbers: docs/project/origins.md)."""

from __future__ import annotations

import pytest

from mulligan.core.model import events as e
from mulligan.core.turn import fold
from mulligan.testing.history import History

from .writing import commands, run_of


def reported(code: str, **fields: object) -> dict[str, object]:
    """What a step writes to $MULLIGAN_ERROR, as the worker hands it on."""
    return {"reported": ({"code": code, **fields},)}


# -- failures as values ----------------------------------------------------------------------------------------------


def test_an_error_is_a_record_with_a_code_of_the_steps_own() -> None:
    """S1: SCHEMA_RETRIEVAL_FAILED, SQL_GEN_FAILED and the like: structured, and edges choose by them."""
    run = run_of("""
        steps:
          - step: resolve
            shell: x
            next: [{to: ask, on: failure, codes: [SCHEMA_RETRIEVAL_FAILED]}, {to: page, on: failure}]
          - {step: ask, shell: 'ask ${failure.code} ${failure.details.candidates}'}
          - {step: page, shell: x}
    """)

    run.fail("resolve", 0, **reported("SCHEMA_RETRIEVAL_FAILED", message="no datasource", details={"candidates": 0}))

    assert commands(run) == ["ask SCHEMA_RETRIEVAL_FAILED 0"]
    found = run["resolve"].failure
    assert (found.message, found.severity, found.retryable, found.step) == ("no datasource", "error", True, "resolve")


def test_an_exception_of_a_step_is_a_failure_with_its_trace_and_the_other_branch_goes_on() -> None:
    """S2: UNKNOWN_ERROR with a stack trace ends the whole graph there; here it ends one step."""
    run = run_of("steps: [{step: a, shell: x}, {step: b, shell: x}]")

    run.fail("a", code="EXCEPTION", message="KeyError: 'tables'", trace="Traceback …\nKeyError: 'tables'")

    assert (run["a"].failure.code, run["a"].failure.trace) == ("EXCEPTION", "Traceback …\nKeyError: 'tables'")
    assert (run.queued, run.status) == (["b"], "running")


def test_every_error_of_the_run_is_in_the_final_state_in_order() -> None:
    """S20: errors accumulate; end reads all of them."""
    run = run_of("""
        steps: [{step: a, shell: x}, {step: b, shell: x}]
        end: {shell: 'report ${run.failures.map(f, f.code)}'}
    """)

    run.fail("b", **reported("SQL_GEN_FAILED")).fail("a", **reported("EXECUTION_FAILED"))

    assert commands(run) == ['report ["SQL_GEN_FAILED","EXECUTION_FAILED"]']


def test_a_run_that_reached_its_end_with_an_error_has_not_succeeded() -> None:
    """S32: completion does not imply success; the runner there says success=True whatever is in errors."""
    run = run_of("steps: [{step: sql, shell: x}, {step: answer, shell: x, needs: [{step: sql, on: always}]}]")

    run.fail("sql", **reported("EXECUTION_FAILED")).ok("answer", output="sorry")

    assert (run.statuses, run.status) == ({"sql": "failed", "answer": "completed"}, "failed")
    assert run.ended.failed_steps_count == 1


# -- what is not there -----------------------------------------------------------------------------------------------


def test_a_plan_that_was_not_made_is_not_handed_on_as_none() -> None:
    """S10: who needs the planner is skipped, where there the executor is called with an empty plan."""
    run = run_of("""
        steps:
          - {step: plan, shell: x}
          - {step: execute, shell: 'run ${steps.plan.output}', needs: [plan]}
    """)

    run.fail("plan", **reported("PLANNING_FAILURE"))

    assert run.statuses == {"plan": "failed", "execute": "skipped"}


def test_a_wrapper_that_reads_the_output_of_a_step_that_has_none_reads_null() -> None:
    """S28: the wrapper there assumes that the executor answered; here an early failure leaves a null to look at."""
    run = run_of("""
        steps:
          - {step: plan, shell: x}
          - {step: execute, shell: x, needs: [plan]}
          - step: wrap
            needs: [{step: execute, on: always}]
            shell: 'wrap ${steps.execute.output == null} ${steps.execute.status}'
    """)

    run.fail("plan")

    assert commands(run) == ["wrap true skipped"]


def test_an_empty_result_is_found_and_a_fallback_takes_its_place() -> None:
    """S9: no tables from the vector store: fall back to the whole schema, and say so instead of going on silently."""
    run = run_of("""
        steps:
          - step: retrieve
            shell: search
            capture: json
            validate: size(output) > 0
            on_failure: {strategy: fallback, shell: whole-schema}
          - {step: plan, shell: 'plan ${steps.retrieve.output}', needs: [retrieve]}
    """)

    run.ok("retrieve", output=[])
    assert run.facts(e.ResultRejected)[0].failure.code == "VALIDATION_FAILED"
    run.ok("retrieve.on_failure@1.0", output=["orders", "customers"])

    assert (run["retrieve"].recovered_by, commands(run)) == ("fallback", ['plan ["orders","customers"]'])


def test_only_an_attempt_that_ended_well_has_a_result() -> None:
    """S35: an ArtifactRef is returned on success only; what a failed attempt printed is nobody's input."""
    run = run_of("""
        steps: [{step: sql, shell: x, continue_on_error: true}]
        outputs: {rows: '${steps.sql.output}'}
    """)

    run.fail("sql")

    assert run.ended.outputs == {"rows": None}


# -- the SQL agent ---------------------------------------------------------------------------------------------------

AGENT = """
    inputs: {question: {type: string}}
    steps:
      - step: plan
        agent: 'plan ${inputs.question}'
        next: [validate, {to: refine, on: failure, codes: [PLANNING_FAILURE], then: rerun}]
        max_visits: 3
      - step: refine
        agent: 'refine ${failure.context}'
      - step: validate
        shell: check
        retry: {rules: [{codes: [COLUMN_NOT_FOUND], max_retries: 3, delay: 1s, factor: 2, max_delay: 3s}]}
        next: execute
      - {step: execute, shell: x}
"""


def agent() -> History:
    return run_of(AGENT, question="how many orders?")


def test_a_retryable_error_goes_through_the_refiner_back_to_the_planner() -> None:
    """S27: retry_handler, refiner, planner: the refiner gets what went wrong, then the planner is visited again."""
    run = agent().fail("plan", **reported("PLANNING_FAILURE", message="ambiguous column"))
    assert run.queued == ["refine"]
    assert "ambiguous column" in next(iter(run["refine"].bindings.values()))

    run.ok("refine").ok("plan", "validate", "execute")

    assert (run.status, run["plan"].visit, run.ended.handled_steps_count) == ("completed", 2, 1)


def test_an_error_that_is_not_retryable_ends_the_subgraph() -> None:
    """S24: no plan and a non-retryable error: routed to the end, without a retry and without a refiner."""
    run = agent().fail("plan", **reported("INVALID_STATE", retryable=False))

    assert (run.status, run.statuses["refine"]) == ("failed", "skipped")
    assert ("retry", "no_rule") in run.passed


def test_the_loop_ends_when_its_budget_is_used_up() -> None:
    """S25: the retry count reaches sql_agent_max_retries."""
    run = agent()

    for _ in range(3):
        run.fail("plan", **reported("PLANNING_FAILURE")).ok("refine")

    assert (run.status, run["plan"].visit, run["plan"].failure.code) == ("failed", 4, "LOOP_LIMIT")


def test_the_loop_ends_when_the_run_is_cancelled() -> None:
    """S26: cancellation is detected between planner and refiner, and nothing starts any more."""
    run = agent().fail("plan", **reported("PLANNING_FAILURE")).cancel()

    assert (run.status, run.queued) == ("cancelled", [])


def test_retries_back_off_exponentially_up_to_a_limit() -> None:
    """S33: base delay, factor and longest delay are written per rule; jitter has tests of its own."""
    run = agent().ok("plan")

    for delay in (1, 2, 3):
        assert run.fail("validate", **reported("COLUMN_NOT_FOUND")).wait(delay - 0.5).queued == []
        run.wait(0.5)

    reserved = [entry for entry in run.log if isinstance(entry.fact, e.RetryScheduled)]
    assert [(entry.fact.due - entry.at).total_seconds() for entry in reserved] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("code", ["SECURITY_VIOLATION", "MISSING_DATASOURCE_ID"])
def test_a_critical_error_is_not_retried_and_stops_the_graph(code: str) -> None:
    """S38: fatal codes and critical severity end the graph; unlike there a handler may still clean up first."""
    run = run_of("""
        steps:
          - {step: a, shell: x, retry: 3, on_failure: {strategy: cleanup, shell: revoke}}
          - {step: b, shell: x}
    """)

    run.fail("a", **reported(code, severity="critical"))
    assert (run.facts(e.RetryScheduled), commands(run)) == ([], ["revoke", "x"])
    run.ok("a.on_failure@1.0")

    assert (run.statuses, run.status) == ({"a": "failed", "b": "cancelled"}, "failed")


def test_any_step_is_retried_where_only_one_subgraph_was() -> None:
    """S3: resolver, generator, executor and aggregator have retries as soon as they ask for them."""
    run = run_of("""
        defaults: {retry: 1}
        order: sequential
        steps: [{step: resolve, shell: x}, {step: generate, shell: x}, {step: execute, shell: x}]
    """)

    for name in ("resolve", "generate", "execute"):
        run.fail(name).ok(name)

    assert (run.status, [fact.place for fact in run.facts(e.RetryScheduled)]) == (
        "completed",
        ["resolve", "generate", "execute"],
    )


# -- the graph -------------------------------------------------------------------------------------------------------


def test_the_global_timeout_ends_the_run_and_cleans_up() -> None:
    """S30: PIPELINE_TIMEOUT ends the request; what had been done is cleaned up and undone, then end."""
    run = run_of("""
        timeout: 10s
        steps:
          - {step: stage, shell: x, undo: {shell: drop-staging}}
          - {step: load, shell: x, needs: [stage], on_failure: {strategy: cleanup, shell: close-cursor}}
    """)
    run.ok("stage").started("load").wait(10)
    cleaned = [commands(run.fail("load", signal=15)), commands(run.ok("load.on_failure@1.0"))]

    run.ok(*run.queued)

    assert (cleaned, run.status) == ([["close-cursor"], ["drop-staging"]], "failed")


@pytest.mark.parametrize("ending", ["timeout", "cancel", "exception"])
def test_what_had_to_be_started_anew_goes_on_from_where_it_was(ending: str) -> None:
    """S37: after a timeout, a cancel or an unknown exception a new round keeps what is done."""
    run = run_of("timeout: 10s\nsteps: [{step: a, shell: x}, {step: b, shell: x, needs: [a]}]").ok("a")
    {
        "timeout": lambda: run.wait(10),
        "cancel": run.cancel,
        "exception": lambda: run.fail("b", code="EXCEPTION"),
    }[ending]()
    assert run.status in ("failed", "cancelled")

    run.retry().ok("b")

    assert (run.status, run["a"].attempt) == ("completed", 1)


def test_a_run_is_replayed_from_its_log_alone() -> None:
    """S39: there state is in memory and lost; here the log alone gives the same state again."""
    run = agent().fail("plan", **reported("PLANNING_FAILURE")).ok("refine").ok("plan")

    again = fold(run.state.workflow, run.log)

    assert [(place.key, place.status, place.attempt) for place in again.steps()] == [
        (place.key, place.status, place.attempt) for place in run.state.steps()
    ]
