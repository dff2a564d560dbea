"""The end of a step: arrivals that came meanwhile, remediation, fail-fast."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Backoff
from mulligan.testing.history import History, edge, step, workflow

LATER = Backoff(delay=30.0)


def settled(run: History) -> list[tuple[str, str]]:
    return [(fact.step, fact.outcome) for fact in run.facts(e.StepSettled)]


def brought_back(run: History) -> list[str]:
    """The steps that a remediation has brought back."""
    return [fact.step for fact in run.facts(e.StepPutBack) if fact.cause == "rerun"]


def run_of(*steps: Any, answers: Any = None, **fields: Any) -> History:
    return History(workflow(*steps, **fields), answers).start()


# -- arrivals that came meanwhile --------------------------------------------------------------------------------------


def test_a_step_whose_repair_came_to_nothing_is_visited_for_what_arrived_meanwhile() -> None:
    sources = [step(name, next=["a"]) for name in "st"]
    steps = (*sources, step("a", join="each", next=[edge("fix", "failure", then="rerun")]), step("fix"))
    run = run_of(*steps, fail_fast="never").ok("s").fail("a").ok("t")
    assert (run["a"].status, run["a"].queue, run.queued) == ("failed", ("t#0",), ["fix"])

    run.fail("fix")

    assert settled(run) == [("a", "failed")]
    assert (run["a"].visit, run["a"].arrival, run.queued) == (2, "t#0", ["a"])


def test_a_step_that_is_settled_and_was_not_arrived_at_again_is_left_alone() -> None:
    sources = [step(name, next=["a"]) for name in "st"]
    run = run_of(*sources, step("a", join="each")).ok("s").ok("a").ok("t").ok("a")

    assert (run["a"].settled, settled(run), run.status) == ("completed", [], "completed")


@pytest.mark.parametrize(
    ("is_allowed", "edges", "outcome"),
    [
        (True, [], "allowed"),
        (False, [], "failed"),
        # What was sent somewhere is that step's business, and no longer allowed to pass.
        (True, [edge("h", "failure")], "failed"),
    ],
    ids=["allowed", "not allowed", "allowed, and sent on"],
)
def test_a_step_with_a_visit_for_each_arrival_is_settled_as_it_ended_when_nobody_else_can_come(
    is_allowed: bool, edges: list[Any], outcome: str
) -> None:
    sources = [step("s", next=["a"]), step("t", next=[edge("a", when="no")])]
    a = step("a", join="each", continue_on_error=is_allowed, next=edges)
    run = run_of(*sources, a, step("h"), step("n", needs=["a"]), answers={"no": False}, fail_fast="never")

    run.ok("s").fail("a").ok("h")
    assert (run["a"].settled, run["n"].status) == ("", "waiting")
    run.ok("t")

    assert settled(run) == [("a", outcome)]
    assert run["n"].status == ("ready" if outcome == "allowed" else "skipped")


# -- what a remediation brings about -----------------------------------------------------------------------------------


def test_who_failed_in_an_earlier_round_and_waits_in_this_one_is_not_ended_by_a_remediation_that_cannot_come() -> None:
    steps = (
        *(step("x"), step("p", needs=["x"]), step("n", needs=["x"])),
        step("a", needs=["p"], next=[edge("fix", "failure", then="rerun")]),
        step("fix", needs=["n"]),
    )
    run = run_of(*steps, fail_fast="never").ok("x").ok("p", "n").fail("a").fail("fix")
    assert (run.status, settled(run)) == ("failed", [("a", "failed")])

    run.retry("x").ok("x").fail("n")
    assert (run.statuses["fix"], run.statuses["a"]) == ("skipped", "waiting")
    run.ok("p").ok("a")

    assert (run.statuses["a"], settled(run)) == ("completed", [("a", "failed")])


def test_what_comes_of_a_remediation_is_decided_by_the_last_failure_and_not_by_one_of_an_earlier_round() -> None:
    """In the first round `fix` was to stand in for `a`, in the second it is to bring it back."""
    edges = [edge("fix", "failure", exit_codes=(7,), then="continue"), edge("fix", "failure", then="rerun")]
    run = run_of(step("a", next=edges), step("fix"), fail_fast="never").fail("a", 7).fail("fix")

    run.retry().fail("a", 1).ok("fix")

    assert (brought_back(run), run.facts(e.StepReplaced)) == (["a"], [])
    assert run.queued == ["a"]


def test_a_step_that_is_about_to_go_back_in_a_loop_is_not_brought_back_before_that() -> None:
    """Its failure goes back to `fix`, which is visited for another arrival before the loop fires."""
    back = edge("fix", "failure", then="rerun", backoff=LATER)
    steps = (step("x", next=["fix"]), step("y", next=["fix"]), step("fix", join="each", next=["a"]))
    run = run_of(*steps, step("a", join="first", next=[back]), fail_fast="never").ok("x").ok("fix").fail("a")
    assert (run["a"].loop_edge, run["a"].status) == (0, "failed")

    run.ok("y").ok("fix")
    assert (run["fix"].visit, brought_back(run), run["a"].visit) == (2, [], 1)
    run.wait(30)

    assert len(run.facts(e.LoopFired)) == 1


def test_who_waits_for_a_remediation_hears_that_it_failed_also_if_that_has_stopped_the_run() -> None:
    """`fix` was sent on to `fix2`, in vain: that was passed over. Nothing will come of it for `a` either."""
    steps = (
        step("a", next=[edge("fix", "failure", then="rerun")]),
        step("fix", next=[edge("fix2", "failure", then="rerun")]),
        *(step("n", when="no"), step("fix2", needs=["n"]), step("slow")),
    )
    run = run_of(*steps, fail_fast="always", answers={"no": False}).fail("a")
    assert run["fix2"].status == "skipped"

    run.fail("fix")

    assert run.state.run.stop is not None
    assert (settled(run), run["a"].settled) == ([("a", "failed")], "failed")


# -- fail-fast ---------------------------------------------------------------------------------------------------------


def test_a_step_that_failed_in_an_earlier_round_and_is_skipped_in_this_one_stops_nothing() -> None:
    rounds = [1]
    steps = (step("a", when="wanted"), step("b"))
    run = run_of(*steps, answers={"wanted": lambda names: rounds == [1]}, fail_fast="always").fail("a")
    assert (run.status, run.statuses) == ("failed", {"a": "failed", "b": "cancelled"})
    rounds.append(2)

    run.retry()

    assert (run.statuses, run.state.run.stop) == ({"a": "skipped", "b": "ready"}, None)
