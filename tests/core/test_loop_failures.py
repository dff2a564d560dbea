"""Failures in loops: the limit keeps the last real failure, and what only went round is not handled."""

from __future__ import annotations

import pytest

from mulligan.core.state.verdict import is_handled
from mulligan.core.turn import fold
from mulligan.history.route_outcomes import describe_route_outcome
from mulligan.history.story import story
from mulligan.testing.history import History, edge, step, workflow

from .writing import run_of

MISSING = {"reported": ({"code": "NO_SUCH_TABLE", "message": "no table 'orders'", "details": {"table": "orders"}},)}
TIMEOUT = {"reported": ({"code": "SLOW", "message": "too slow"},)}

SCAN = """
    steps:
      - {{step: plan, shell: x, max_visits: 2, next: execute{at_limit}}}
      - {{step: execute, shell: x, next: [answer, {{to: refine, on: failure}}]}}
      - {{step: refine, shell: x, next: plan}}
      - {{step: answer, shell: x}}
"""


def scan(at_limit: str = "") -> History:
    return run_of(SCAN.format(at_limit=at_limit and f", at_max_visits: {at_limit}"))


def used_up(run: History) -> History:
    """Both visits of the plan lead to a statement that fails."""
    run.ok("plan").fail("execute", 0, **TIMEOUT).ok("refine")
    return run.ok("plan").fail("execute", 0, **MISSING).ok("refine")


def handled(run: History) -> list[bool | None]:
    return [is_handled(run.state, record) for record in run.state.failures]


# -- the cause -------------------------------------------------------------------------------------------------------


def test_the_limit_of_a_loop_has_the_last_real_failure_as_its_cause() -> None:
    run = used_up(scan())

    found = run["plan"].failure
    assert (run.status, found.code, [one.code for one in found.cause]) == ("failed", "LOOP_LIMIT", ["NO_SUCH_TABLE"])
    assert "(max_visits); last 'execute' failed with NO_SUCH_TABLE: no table 'orders'" in found.message


def test_a_loop_that_says_so_fails_with_the_last_real_failure_itself() -> None:
    run = used_up(scan("last_failure"))

    found = run["plan"].failure
    assert (found.code, found.message, found.step, found.visit) == ("NO_SUCH_TABLE", "no table 'orders'", "plan", 3)
    assert found.details == {"table": "orders", "failed_step": "execute", "max_visits": 2}
    assert (found.cause[0].step, run["plan"].visit) == ("execute", 3)


def test_without_a_failure_in_the_last_round_there_is_no_cause_to_tell() -> None:
    run = run_of("""
        steps:
          - step: poll
            shell: x
            max_visits: 2
            at_max_visits: last_failure
            next: [poll, {to: poll, on: failure}]
    """)

    run.fail("poll").ok("poll")

    assert (run["poll"].failure.code, run["poll"].failure.cause) == ("LOOP_LIMIT", ())


def test_a_step_that_its_remediation_lets_run_again_keeps_its_own_failure() -> None:
    run = History(
        workflow(
            step("a", max_visits=1, at_max_visits="last_failure", next=[edge("fix", "failure", then="rerun")]),
            step("fix"),
        )
    ).start()

    run.fail("a", 7).ok("fix")

    assert (run["a"].visit, run["a"].failure.code, run["a"].failure.exit_code) == (2, "EXIT_NONZERO", 7)


# -- handled ---------------------------------------------------------------------------------------------------------


def test_failures_that_only_went_round_are_not_handled() -> None:
    run = used_up(scan())

    assert handled(run) == [False, False, False]
    assert (run.ended.failed_steps_count, run.ended.handled_steps_count) == (2, 0)
    words = [describe_route_outcome(run.state, record)[0] for record in run.state.failures[:2]]
    assert words == ["routed to 'refine', which completed, and failed again in the loop: not handled"] * 2


def test_failures_of_a_loop_that_ends_well_are_handled() -> None:
    run = scan().ok("plan").fail("execute", 0, **MISSING).ok("refine")
    under_way = handled(run)

    run.ok("plan", "execute", "answer")

    assert (under_way, handled(run), run.status) == ([None], [True], "completed")
    assert run.ended.handled_steps_count == 1


def test_a_limit_that_is_routed_out_of_the_loop_handles_what_went_round() -> None:
    run = run_of("""
        steps:
          - step: plan
            shell: x
            max_visits: 1
            next: [execute, {to: give_up, on: failure, codes: [LOOP_LIMIT]}]
          - {step: execute, shell: x, next: [{to: refine, on: failure}]}
          - {step: refine, shell: x, next: plan}
          - {step: give_up, shell: x}
    """)

    run.ok("plan").fail("execute").ok("refine").ok("give_up")

    assert (run.status, handled(run)) == ("completed", [True, True])


def test_a_remediation_that_the_limit_keeps_from_leading_back_handles_nothing() -> None:
    run = run_of("""
        steps:
          - {step: connect, shell: x, max_visits: 2, next: [{to: dial, on: failure}]}
          - {step: dial, shell: x, next: connect}
    """)

    run.fail("connect").ok("dial").fail("connect").ok("dial").ok("dial")

    assert (run["connect"].failure.code, run.status) == ("LOOP_LIMIT", "failed")
    assert handled(run) == [False, False, False]


def test_what_a_rerun_did_not_repair_is_not_handled() -> None:
    run = History(workflow(step("a", max_visits=2, next=[edge("fix", "failure", then="rerun")]), step("fix"))).start()

    run.fail("a").ok("fix").fail("a").ok("fix")

    assert (run.status, handled(run)) == ("failed", [False, False, False])


def test_the_story_says_handled_only_where_the_path_does_not_lead_back() -> None:
    run = used_up(scan())

    told = [line.text for line in story(run.log, run.state.workflow) if line.place == "refine"]
    assert told[0] == "completed; leads back after the failure of 'execute'"
    (last,) = [line.text for line in story(run.log, run.state.workflow) if line.place == "end"]
    assert "failures of 'plan', 'execute' not handled" in last


@pytest.mark.parametrize("at_limit", ["", "last_failure"])
def test_a_replay_gives_the_same_state_and_a_round_more_runs_the_loop_again(at_limit: str) -> None:
    run = used_up(scan(at_limit))
    assert fold(run.state.workflow, run.log) == run.state

    run.retry()

    assert (run.queued, run["plan"].visits_before) == (["plan"], 3)
    run.ok("plan", "execute", "answer")
    assert run.status == "completed"
