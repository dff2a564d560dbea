"""Torc's failure handlers: rules, recovery scripts, triage. The numbers are those of docs/project/origins.md."""

from __future__ import annotations

import pytest

from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.testing.history import T0

from .writing import commands, refusal, run_of

RECOVERED = """
    retry_policies:
      simulation_recovery:
        rules:
          - {any: true, max_retries: 1}
          - {exit_codes: [10, 11], max_retries: 2, recovery_script: './mend ${error.exit_code} ${error.attempt}'}
    steps:
      - {step: my_job, shell: ./simulate, retry: simulation_recovery}
      - {step: other, shell: ./other, retry: simulation_recovery}
      - {step: plain, shell: ./plain}
"""


# -- rules -----------------------------------------------------------------------------------------------------------


def test_a_named_policy_is_shared_by_steps_and_each_has_a_budget_of_its_own() -> None:
    """T1: a failure handler is named once, referred to by jobs, and counts per job."""
    run = run_of(RECOVERED).fail("my_job").fail("my_job")

    run.fail("other")

    assert (run["my_job"].status, run["other"].status) == ("failed", "ready")
    assert run.fail("plain")["plain"].status == "failed"


def test_the_exit_code_of_the_job_chooses_the_rule_whatever_the_order_in_the_file() -> None:
    """T5: specific exit codes go before the catch-all that stands above them."""
    run = run_of(RECOVERED).fail("my_job", 11).fail("other", 12)

    assert {fact.place: (fact.rule, fact.has_script) for fact in run.facts(e.RetryScheduled)} == {
        "my_job": (1, True),
        "other": (0, False),
    }


def test_a_rule_without_a_number_grants_three_retries_and_not_three_attempts() -> None:
    """T4: max_retries is 3 unless said; it counts retries, where Torc stops when attempt_id reaches it."""
    run = run_of("steps: [{step: a, shell: x, retry: {rules: [{exit_codes: [10]}]}}]")

    for _ in range(4):
        run.fail("a", 10)

    assert ([fact.attempt for fact in run.facts(e.RetryScheduled)], run["a"].attempt) == ([2, 3, 4], 4)
    assert run.passed[0] == ("retry", "retries_exhausted")


def test_a_rule_that_names_nothing_to_match_is_refused() -> None:
    """T3: a rule says exit codes or that it takes all; one that could never match is a mistake of the file."""
    said = refusal("steps: [{step: a, shell: x, retry: {rules: [{max_retries: 2}]}}]")

    assert said == (
        "error[language.rule]: w.yaml:1:45: the rule does not say which failures it matches\n"
        "  1 | steps: [{step: a, shell: x, retry: {rules: [{max_retries: 2}]}}]\n"
        "    |                                             "
        "^ add 'codes', 'exit_codes', 'exceptions', 'pattern' or 'any: true'"
    )


def test_two_policies_of_one_name_are_refused() -> None:
    """T19: the name of a failure handler is unique in its workflow."""
    said = refusal("""
        retry_policies:
          mend: {max_retries: 1}
          mend: {max_retries: 2}
        steps: [{step: a, shell: x, retry: mend}]
    """)

    assert said == (
        "error[language.duplicate_key]: w.yaml:4:3: 'mend' appears twice: first in line 3\n"
        "  4 |   mend: {max_retries: 2}\n"
        "    |   ^^^^ remove one of them"
    )


def test_a_step_that_names_an_unknown_policy_is_refused() -> None:
    """T1: a job refers to a handler that is there; it is said at load, not when the job fails."""
    said = refusal("""
        retry_policies: {mend: {max_retries: 1}}
        steps: [{step: a, shell: x, retry: mned}]
    """)

    assert said == (
        "error[language.unknown_policy]: w.yaml:3:36: there is no retry policy 'mned'\n"
        "  3 | steps: [{step: a, shell: x, retry: mned}]\n"
        "    |                                    ^^^^ did you mean 'mend'?"
    )


# -- the recovery flow -----------------------------------------------------------------------------------------------


def test_the_first_attempt_is_number_one_and_each_retry_one_more() -> None:
    """T8: attempt_id starts at 1; the retry that is reserved is the next."""
    run = run_of(RECOVERED)
    assert run["my_job"].attempt == 1

    run.fail("my_job", 10)

    assert run.follows[1] == e.RetryScheduled("my_job", attempt=2, rule=1, number=1, due=T0, has_script=True)


def test_the_script_is_told_what_failed_and_the_job_waits_for_it() -> None:
    """T16: reserve, then the script with the return code and the attempt that failed, then the job."""
    run = run_of(RECOVERED).fail("my_job", 10)
    assert (run["my_job"].status, commands(run)[0]) == ("backing_off", "./mend 10 1")

    run.ok("my_job.script@1")

    assert (run["my_job"].status, run["my_job"].attempt) == ("ready", 2)


def test_a_script_that_fails_does_not_stop_the_retry() -> None:
    """T10: a bug in the recovery script blocks no legitimate retry."""
    run = run_of(RECOVERED).fail("my_job", 10).fail("my_job.script@1", 1)

    assert "my_job" in run.queued
    assert run.ok("my_job")["my_job"].status == "completed"


def test_two_processes_that_report_one_failure_reserve_one_retry() -> None:
    """T11: nobody can reserve a retry twice; the second report changes nothing."""
    run = run_of(RECOVERED).fail("my_job", 10)

    run.report(r.TaskEnded(run.clock, "my_job", 1, Outcome(10)))

    assert run.follows == [e.ReportRefused("my_job", 1, "already_ended")]
    assert len(run.facts(e.RetryScheduled)) == 1


def test_a_job_that_ended_well_is_not_tried_again() -> None:
    """T14: only a job that ran and failed is retried; a late failure of one that completed is refused."""
    run = run_of(RECOVERED).ok("my_job")

    run.report(r.TaskEnded(run.clock, "my_job", 1, Outcome(10)))

    assert run.follows == [e.ReportRefused("my_job", 1, "already_ended")]
    assert run["my_job"].status == "completed"


def test_a_failure_reported_by_an_earlier_round_reserves_nothing_in_this_one() -> None:
    """T13: the run_id of a retry must be that of the current run; here an attempt of an old round is refused."""
    run = run_of("steps: [{step: a, shell: x, retry: 1}]").fail("a").fail("a").retry()

    run.report(r.TaskEnded(run.clock, "a", 2, Outcome(10)))

    assert [type(fact) for fact in run.follows] == [e.ReportRefused]
    assert run["a"].attempt == 3


def test_a_failure_of_a_job_that_does_not_exist_is_refused() -> None:
    """T12: a report about nothing is nothing, and the run goes on."""
    run = run_of(RECOVERED)

    run.report(r.TaskEnded(run.clock, "no_such_job", 1, Outcome(10)))

    assert [type(fact) for fact in run.follows] == [e.ReportRefused]
    assert run.queued == ["my_job", "other", "plain"]


def test_resources_are_raised_by_the_rule_for_the_failure_in_the_same_run() -> None:
    """T23: what Torc leaves to workflow recovery (more memory after OOM, more time after a timeout) a rule does."""
    run = run_of("""
        retry_policies:
          grow:
            rules:
              - {codes: [OUT_OF_MEMORY], adjust: {memory: x1.5}}
              - {codes: [TIMEOUT], adjust: {timeout: x2}}
        steps: [{step: a, shell: x, timeout: 10m, resources: {memory: 2GiB}, retry: grow}]
    """)

    run.fail("a", is_out_of_memory=True, signal=9).fail("a", is_timed_out=True)

    adjusted = [fact.adjusted for fact in run.facts(e.RetryScheduled)]
    assert [(found.memory, found.timeout) for found in adjusted] == [(3 << 30, None), (3 << 30, 1200.0)]


# -- what becomes of a failure ---------------------------------------------------------------------------------------

TRIAGED = """
    steps:
      - step: my_job
        shell: x
        triage: true
        %s
      - {step: after, shell: x, needs: [my_job]}
"""
RULE = "retry: {rules: [{exit_codes: [10], max_retries: 1}]}"


@pytest.mark.parametrize(
    ("rules", "exit_codes", "status"),
    [
        (RULE, [10], "ready"),  # Retried
        ("env: {}", [1], "pending_failed"),  # NoHandler
        (RULE, [99], "pending_failed"),  # NoMatchingRule
        (RULE, [10, 10], "failed"),  # MaxRetriesExceeded
    ],
)
def test_the_outcome_of_recovery_says_what_becomes_of_the_job(rules: str, exit_codes: list[int], status: str) -> None:
    """T25: retried; parked if there is no handler or no rule that matches; failed if the retries are used up."""
    run = run_of(TRIAGED % rules)

    for code in exit_codes:
        run.fail("my_job", code)

    assert run["my_job"].status == status


def test_a_parked_job_ends_nothing_and_blocks_what_depends_on_it() -> None:
    """T27: pending_failed is not terminal, and downstream jobs stay blocked instead of being cancelled."""
    run = run_of(TRIAGED % RULE).fail("my_job", 99).wait(1_000_000)

    assert (run.status, run.statuses) == ("running", {"my_job": "pending_failed", "after": "waiting"})


def test_classified_as_retry_the_job_runs_again_and_the_rest_goes_on() -> None:
    """T30: an agent says retry, with a reason; it is recorded who said it."""
    run = run_of(TRIAGED % RULE).fail("my_job", 99).classify("my_job", "retry", reason="the licence server was down")

    assert run.follows[0] == e.StepClassified("my_job", 1, "retry", "the licence server was down", "someone")
    assert run.ok("my_job", "after").status == "completed"


def test_classified_as_fail_the_job_has_failed_and_what_depends_on_it_is_given_up() -> None:
    """T31: an agent says fail; downstream jobs are skipped, and the run ends."""
    run = run_of(TRIAGED % RULE).fail("my_job", 99).classify("my_job", "fail")

    assert (run.status, run.statuses) == ("failed", {"my_job": "failed", "after": "skipped"})


def test_a_parked_job_can_be_reset_with_the_failed_ones() -> None:
    """T28: reset-status --failed-only includes parked jobs: cancel the run, and retry takes them up again."""
    run = run_of(TRIAGED % RULE).fail("my_job", 99).cancel().retry()

    assert (run.queued, run["my_job"].visit) == (["my_job"], 2)
