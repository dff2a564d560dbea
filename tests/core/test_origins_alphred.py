"""Alphred's failure routes to remediation steps. The numbers are those of docs/project/origins.md."""

from __future__ import annotations

import re

from mulligan.core.model import events as e
from mulligan.core.model.event_types import Passed, Route
from mulligan.testing.history import History

from .writing import commands, refusal, run_of, written

ROUTED = """
    steps:
      - {step: source, shell: x, retry: %d, next: [{to: onward}, {to: remediation, on: failure}]}
      - {step: onward, shell: x}
      - {step: remediation, shell: 'repair ${failure.context}'}
"""


def routed(max_retries: int = 0) -> History:
    return run_of(ROUTED % max_retries)


def route(run: History) -> Route:
    return run.facts(e.StepFailed)[0].route


# -- declaring routes ------------------------------------------------------------------------------------------------


def test_an_edge_without_a_word_about_its_outcome_is_for_success() -> None:
    """A6: the outcome of an edge is explicit, and success where nothing is said."""
    source = written("""
        steps:
          - {step: source, shell: x, next: [onward, {to: also}, {to: fix, on: failure}]}
          - {step: onward, shell: x}
          - {step: also, shell: x}
          - {step: fix, shell: x}
    """).steps[0]

    assert [(edge.to, edge.on) for edge in source.edges] == [
        ("onward", "success"),
        ("also", "success"),
        ("fix", "failure"),
    ]


def test_a_failure_edge_with_a_condition_is_refused() -> None:
    """A7: failure edges are unconditional; a static filter is what may be said."""
    said = refusal("""
        steps:
          - {step: a, shell: x, next: [{to: fix, on: failure, when: "true"}]}
          - {step: fix, shell: x}
    """)

    assert said == (
        "error[language.edge]: w.yaml:3:55: "
        "'when' is not allowed on failure edges: they are chosen by the failure alone\n"
        '  3 |   - {step: a, shell: x, next: [{to: fix, on: failure, when: "true"}]}\n'
        "    |                                                       ^^^^ "
        "filter by 'codes' or 'exit_codes', or decide in the step it leads to"
    )


def test_two_failure_edges_of_one_priority_are_refused() -> None:
    """A8: a priority is unique per source and outcome, so that no choice is ambiguous."""
    said = refusal("""
        steps:
          - {step: a, shell: x, next: [{to: b, on: failure, priority: 1}, {to: c, on: failure, priority: 1}]}
          - {step: b, shell: x}
          - {step: c, shell: x}
    """)

    assert said == (
        "error[language.edge]: w.yaml:3:88: the failure edges to 'b' and 'c' have the same priority, 1\n"
        "  3 |   - {step: a, shell: x, next: [{to: b, on: failure, priority: 1}, {to: c, on: failure, priority: 1}]}\n"
        "    |                                                                                        "
        "^^^^^^^^ give them different priorities: the lowest is tried first"
    )


# -- taking them -----------------------------------------------------------------------------------------------------


def test_without_retries_a_failure_schedules_the_remediation_and_the_run_goes_on() -> None:
    """A1: a failure that cannot be retried is routed; the source stays failed, the run goes on and completes."""
    run = routed().fail("source")
    assert (run.queued, run.status, run["source"].status) == (["remediation"], "running", "failed")

    run.ok("remediation")

    assert (run.status, run.ended.degraded) == ("completed", True)
    assert run.statuses == {"source": "failed", "onward": "skipped", "remediation": "completed"}


def test_after_its_last_retry_a_failure_schedules_the_remediation() -> None:
    """A2: retries come first, and the route is looked for when they are used up."""
    run = routed(2).fail("source").fail("source")
    assert run.queued == ["source"]

    run.fail("source")

    assert (run.queued, route(run)) == (["remediation"], Route("selected", 1, "remediation", 1))


def test_a_source_that_completed_takes_success_edges_only() -> None:
    """A9: of a completed source only success edges count, and the remediation is skipped."""
    run = routed().ok("source")

    assert (run.queued, run.statuses["remediation"]) == (["onward"], "skipped")
    assert run.facts(e.StepCompleted)[0].taken == (0,)


def test_a_source_that_was_skipped_selects_no_edge() -> None:
    """A11: sources that wait, run or were skipped select nothing, neither for success nor for failure."""
    run = run_of("""
        steps:
          - {step: source, shell: x, when: "false", next: [onward, {to: remediation, on: failure}]}
          - {step: onward, shell: x}
          - {step: remediation, shell: x}
    """)

    assert set(run.statuses.values()) == {"skipped"}
    assert run.status == "completed"


def test_among_several_failure_edges_the_lowest_priority_is_chosen_whatever_the_order_in_the_file() -> None:
    """A12: the choice is static: by priority, then by the order in the file, the same in every run."""
    run = run_of("""
        steps:
          - step: source
            shell: x
            next: [{to: c, on: failure}, {to: b, on: failure, priority: 2}, {to: a, on: failure, priority: 1}]
          - {step: a, shell: x}
          - {step: b, shell: x}
          - {step: c, shell: x}
    """).fail("source")

    assert run.queued == ["a"]
    passed = (Passed(1, "b", "not_first"), Passed(0, "c", "not_first"))
    assert route(run) == Route("selected", 2, "a", 1, passed=passed)


def test_no_two_remediations_run_for_one_failure() -> None:
    """A4: one failure is sent to one remediation; what is taken beside it is an alert and handles nothing."""
    run = run_of("""
        steps:
          - step: source
            shell: x
            next: [{to: fix, on: failure}, {to: other, on: failure}, {to: page, on: failure, handles: false}]
          - {step: fix, shell: x}
          - {step: other, shell: x}
          - {step: page, shell: x}
    """).fail("source")

    assert run.queued == ["fix", "page"]
    assert run.ok("page").fail("fix").status == "failed"


# -- the states of a run ---------------------------------------------------------------------------------------------


def test_a_paused_run_chooses_the_route_and_starts_it_after_resume() -> None:
    """A18: the target is chosen while the run is paused, the run stays paused, and nothing starts before resume."""
    run = routed().started("source").pause().fail("source")
    assert (run.status, route(run).status) == ("paused", "selected")

    run.resume().ok("remediation")

    assert run.status == "completed"


def test_a_cancelled_run_schedules_no_remediation_and_says_so() -> None:
    """A19: a run that is being cancelled keeps its end; the route is noted as not looked for."""
    run = run_of("    cancel_grace: finish" + ROUTED % 0).started("source").cancel().fail("source", 3)

    assert (run.status, run.statuses["remediation"]) == ("cancelled", "cancelled")
    assert route(run) == Route("skipped_terminal", reason="stopping")


def test_without_a_failure_edge_the_run_fails() -> None:
    """A3: nodes without a failure route keep ending the run as failed, after what else can run has run."""
    run = run_of("steps: [{step: source, shell: x}, {step: other, shell: x}]").fail("source")
    assert run.queued == ["other"]

    run.ok("other")

    assert (run.status, route(run)) == ("failed", Route("no_route", reason="no_edge"))


def test_an_operators_retry_may_end_in_a_failure_route() -> None:
    """A21: a retried step that fails again for good is routed like any other."""
    run = routed().fail("source").fail("remediation")
    assert run.status == "failed"

    run.retry().fail("source").ok("remediation")

    assert (run.status, run.state.run.round) == ("completed", 2)
    assert [fact.route.to for fact in run.facts(e.StepFailed) if fact.step == "source"] == ["remediation"] * 2


def test_everybody_who_asks_whether_a_failure_is_handled_gets_the_same_answer() -> None:
    """A15: end, the counts of the last event and the run's status come from one function."""
    text = (ROUTED % 0) + "    end: {shell: 'judge ${run.failures[0].handled}'}\n"

    mended, broken = run_of(text).fail("source").ok("remediation"), run_of(text).fail("source").fail("remediation")

    assert commands(mended) + commands(broken) == ["judge true", "judge false"]
    ends = [run.ok("end").ended for run in (mended, broken)]
    assert [(type(end), end.handled_steps_count, end.failed_steps_count) for end in ends] == [
        (e.RunCompleted, 1, 0),
        (e.RunFailed, 0, 2),
    ]


# -- the context -----------------------------------------------------------------------------------------------------


def test_the_remediation_is_given_the_envelope_of_the_failure() -> None:
    """A22: who failed, at which attempt and after how many retries, what it said, marked as not to be trusted."""
    run = routed(1).fail("source", 3).fail("source", 4, stderr_tail="no space left")

    assert commands(run)[0].splitlines() == [
        "repair MULLIGAN_FAILURE_ROUTE_CONTEXT v1",
        "policy_version: 1",
        "untrusted_data: true",
        "workflow_run_id: 1",
        "target_node_key: remediation",
        "source_node_key: source",
        "source_run_node_id: 2",
        "source_attempt: 2",
        "failure_artifact_id: 9",
        "retry_summary_artifact_id: null",
        "created_at: 2026-01-01T00:00:00.000Z",
        "truncation:",
        "  applied: false",
        "  method: none",
        "  original_chars: 249",
        "  included_chars: 249",
        "  dropped_chars: 0",
        "content:",
        "<<<BEGIN>>>",
        "attempt_metadata:",
        "  attempt: 2",
        "  max_retries: 1",
        "  retries_exhausted: true",
        "  retries_used: 1",
        "  failure_reason: retries_exhausted",
        "failure_artifact:",
        "  id: 9",
        "  created_at: 2026-01-01T00:00:00.000Z",
        "  content:",
        "no space left",
        "code: EXIT_NONZERO",
        "exit_code: 4",
        "<<<END>>>",
    ]


def test_a_step_that_was_reached_by_success_is_given_no_failure_context() -> None:
    """A23: the envelope is for who runs because of a failure route, and for nobody else."""
    run = run_of("""
        steps:
          - {step: source, shell: x, next: [remediation, {to: remediation, on: failure}]}
          - {step: remediation, shell: 'repair ${failure.context}'}
    """).ok("source")

    assert commands(run) == ["repair "]


def test_the_context_of_many_long_failures_is_bounded_and_always_the_same() -> None:
    """A25: all failed sources together get 6,000 characters, cut head and tail, the same text every time."""
    sources = "".join(f"      - {{step: s{i}, shell: x, next: {{to: fix, on: failure}}}}\n" for i in range(4))
    text = f"    steps:\n{sources}      - {{step: fix, shell: '${{failure.context}}'}}\n"

    def told() -> str:
        run = run_of(text)
        for i in range(4):
            run.fail(f"s{i}", stderr_tail=f"{i}" * 2000, trace="line\n" * 2000)
        return commands(run)[0]

    included = [int(found) for found in re.findall(r"included_chars: (\d+)", told())]
    assert (len(included), sum(included)) == (4, 6_000)
    assert told().count("method: head_tail") == 3
    assert told() == told()
