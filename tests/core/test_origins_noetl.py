"""NoETL's failure handling: every path converges at `end`. The numbers are those of docs/project/origins.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.core.model import events as e
from mulligan.language import load
from mulligan.testing.history import History

from .writing import commands, refusal, run_of, story, written

STEPS = ("step1", "step2", "step3", "step2a", "step2b")


# -- one end, for every path -----------------------------------------------------------------------------------------


def test_only_the_end_of_end_brings_the_last_event() -> None:
    """N2: end is the single terminal leaf, and nothing else can report that the run is over."""
    run = run_of("""
        steps: [{step: a, shell: x}, {step: b, shell: x, needs: [a]}]
        end: {shell: aggregate}
    """)

    run.ok("a", "b").ok("end")

    last, reported = run.log[-1], run.last[0]
    assert (reported.fact, type(last.fact)) == (e.AttemptSucceeded("end", 1), e.RunCompleted)
    assert last.caused_by in {entry.seq for entry in run.last}


def test_a_workflow_without_an_end_is_given_one_that_runs_no_command() -> None:
    """N4: a workflow without end gets one, and the default evaluates without doing anything."""
    workflow = written("steps: [{step: a, shell: x}]")

    assert (workflow.end.name, workflow.end.action) == ("end", None)
    assert story(History(workflow).start().fail("a"), "a")[-3:] == ["end entered", "end completed", "run failed"]


def test_branches_that_lead_nowhere_meet_at_end_which_runs_once() -> None:
    """N7: a step without next leads to end, so that no branch is orphaned; end waits for the last of them."""
    run = run_of("""
        steps: [{step: left, shell: x}, {step: right, shell: x}, {step: lower, shell: x, needs: [right]}]
        end: {shell: aggregate}
    """)
    run.ok("left").ok("right")
    assert run.queued == ["lower"]

    run.ok("lower").ok("end")

    assert story(run).count("end entered") == 1


def test_end_leads_nowhere_not_even_to_itself() -> None:
    """N8: end has no route of its own, so that convergence cannot loop."""
    said = refusal("""
        steps: [{step: a, shell: x}]
        end: {shell: x, next: end}
    """)

    assert said == (
        "error[language.unknown_key]: w.yaml:3:17: 'next' is not a key of 'end'\n"
        "  3 | end: {shell: x, next: end}\n"
        "    |                 ^^^^ every path leads to 'end', and it runs last"
    )


# -- failures --------------------------------------------------------------------------------------------------------


def test_a_step_that_failed_for_good_fails_the_run_only_after_end() -> None:
    """N9: the failed step is reported as failed, and the run is not, until end has looked at it."""
    run = run_of("""
        steps: [{step: a, shell: x, retry: 1}]
        end: {shell: aggregate}
    """)

    run.fail("a").fail("a")

    assert story(run, "a") == ["a entered", "a failed", "end entered"]
    assert run.status == "running"
    run.ok("end")
    assert story(run)[-2:] == ["end completed", "run failed"]


def test_a_run_fails_by_its_unhandled_failures_and_counts_them() -> None:
    """N14: one failed step fails the run; unlike in NoETL one that a remediation handled does not."""
    text = """
        steps:
          - {step: a, shell: x, next: {to: fix, on: failure}}
          - {step: fix, shell: x}
          - {step: b, shell: x}
    """

    handled, unhandled = run_of(text).fail("a").ok("fix", "b"), run_of(text).fail("a").ok("fix").fail("b")

    counts = [(run.status, run.ended.failed_steps_count, run.ended.handled_steps_count) for run in (handled, unhandled)]
    assert counts == [("completed", 0, 1), ("failed", 1, 1)]
    assert unhandled.ended.evaluated_by_end_step and unhandled.ended.total_steps == 3


@pytest.mark.parametrize(("verdict", "status"), [("completed", "completed"), ("failed", "failed")])
def test_an_end_of_ones_own_decides_about_partial_success(verdict: str, status: str) -> None:
    """N3: an explicit end has an action, reads all results and has the last word."""
    run = run_of("""
        steps: [{step: one, shell: x}, {step: two, shell: x}]
        end: {shell: 'judge ${size(run.failures)} ${run.steps.one.status} ${run.steps.two.output}', capture: json}
    """)

    run.fail("one", 3).ok("two", output="rows")
    assert commands(run) == ["judge 1 failed rows"]
    run.ok("end", output={"status": verdict, "reason": "half is enough"})

    assert (run.status, run.ended.reason) == (status, "half is enough")


# -- the event flows -------------------------------------------------------------------------------------------------


def test_the_success_path() -> None:
    """N19: step1, step2, step3, end, completed."""
    run = run_of("""
        steps:
          - {step: step1, shell: x, next: step2}
          - {step: step2, shell: x, next: step3}
          - {step: step3, shell: x, next: end}
        end: {shell: aggregate}
    """).ok("step1", "step2", "step3", "end")

    assert story(run, *STEPS) == [
        *("step1 entered", "step1 completed", "step2 entered", "step2 completed"),
        *("step3 entered", "step3 completed", "end entered", "end completed", "run completed"),
    ]


def test_the_failure_path_of_a_single_step() -> None:
    """N20: step2 fails after its retries, what follows it is skipped, end evaluates, the run fails."""
    run = (
        run_of("""
        steps:
          - {step: step1, shell: x, next: step2}
          - {step: step2, shell: divide by zero, retry: 2, next: step3}
          - {step: step3, shell: x}
        end: {shell: aggregate}
    """)
        .ok("step1")
        .fail("step2")
        .fail("step2")
        .fail("step2")
        .ok("end")
    )

    failed = run.facts(e.StepFailed)[0]
    assert (failed.attempt, failed.routed_to_end, failed.original_failed_step) == (3, True, "step2")
    assert story(run, *STEPS)[2:] == [
        *("step2 entered", "step2 failed", "step3 skipped", "end entered", "end completed", "run failed"),
    ]


def test_the_implicit_routing_path() -> None:
    """N21: a step that names no next and a workflow that has no end: both are led to the same place."""
    run = run_of("steps: [{step: step1, shell: x}]").ok("step1")

    assert story(run, *STEPS) == [
        *("step1 entered", "step1 completed", "end entered", "end completed", "run completed"),
    ]


def test_the_parallel_failure_path() -> None:
    """N22: a critical failure has the step beside it cancelled; end waits for both, and the run fails."""
    run = run_of("""
        steps:
          - {step: step1, shell: x, next: [step2a, step2b]}
          - {step: step2a, shell: x, next: step3}
          - {step: step2b, shell: x, next: step3}
          - {step: step3, shell: x}
        end: {shell: aggregate}
    """).ok("step1")

    run.started("step2a").fail("step2b", reported=({"code": "DISK_GONE", "severity": "critical"},))
    assert "end entered" not in story(run)
    run.fail("step2a", signal=15).ok("end")

    assert run.statuses == {"step1": "completed", "step2a": "cancelled", "step2b": "failed", "step3": "cancelled"}
    assert [told for told in story(run, *STEPS) if told.partition(" ")[0] in ("step2a", "step2b", "end", "run")] == [
        *("step2a entered", "step2b entered", "step2b failed", "run stopping", "step2a cancelled"),
        *("end entered", "end completed", "run failed"),
    ]


def test_a_cancelled_step_may_be_left_to_complete_what_it_does() -> None:
    """N13: cancelled steps complete their current operation, then go to end; what they did counts."""
    run = run_of("""
        fail_fast: always
        cancel_grace: finish
        steps: [{step: slow, shell: x}, {step: bad, shell: x}]
        end: {shell: aggregate}
    """)

    run.started("slow").fail("bad").ok("slow", output="rows").ok("end")

    assert (run.statuses, run["slow"].output) == ({"slow": "completed", "bad": "failed"}, "rows")
    assert run.status == "failed"


def test_the_sub_workflow_failure_path(tmp_path: Path) -> None:
    """N23: the child's failure is the parent step's, and both runs reach an end of their own."""
    (tmp_path / "child.yaml").write_text("steps: [{step: step1, shell: x}, {step: step2, shell: x, needs: [step1]}]\n")
    (tmp_path / "parent.yaml").write_text("steps: [{step: step1, workflow: {file: child.yaml}}]\nend: {shell: x}\n")
    parent = History(load(tmp_path / "parent.yaml")).start()
    child = History(parent.state.workflow.children["child.yaml"]).start()

    child.ok("step1").fail("step2", 7)
    found = child.facts(e.StepFailed)[0].failure
    parent.child_ended("step1", child.status, failures=(found,)).ok("end")

    assert story(child, "step2")[-4:] == ["step2 failed", "end entered", "end completed", "run failed"]
    assert story(parent, "step1") == ["step1 entered", "step1 failed", "end entered", "end completed", "run failed"]
    inherited = parent["step1"].failure
    assert (inherited.code, inherited.cause) == ("CHILD_FAILED", (found,))
