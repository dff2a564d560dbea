"""Steps that wait for something that can no longer happen, and loops that wait for a free slot."""

from __future__ import annotations

from typing import Any

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Backoff, Need
from mulligan.testing.history import History, edge, step, workflow


def run_of(*steps: Any, **fields: Any) -> History:
    answers = fields.pop("answers", None)
    return History(workflow(*steps, **fields), answers).start()


def skipped(run: History) -> dict[str, str]:
    return {fact.step: fact.reason for fact in run.facts(e.StepSkipped)}


def circle(number: int = 1) -> list[Any]:
    """`s` failed and waits for `fix`, which waits for `t`, which waits for `s`."""
    s, t, fix = (f"{name}{number}" for name in ("s", "t", "fix"))
    return [
        step(s, next=[edge(fix, "failure", then="rerun")]),
        step(t, needs=[s], next=[f"z{number}"]),
        step(fix, needs=[t]),
    ]


def test_who_waits_in_a_circle_is_target_skipped_and_the_failure_stays_unhandled() -> None:
    # `y` was arrived at, and is over: it is not taken for one that waits.
    run = run_of(step("x", next=["y"]), step("y"), *circle(), step("z1")).ok("x").ok("y")

    run.fail("s1")

    assert skipped(run) == {"t1": "unreachable", "z1": "no_arrival", "fix1": "need_unmet"}
    assert (run.status, run["y"].visit, run["s1"].visit) == ("failed", 1, 1)


def test_a_remediation_that_was_arrived_at_goes_ahead_of_those_that_wait_for_it() -> None:
    """Two steps share it, and the second needs the first: nobody else could break the circle."""
    steps = [
        step("s", next=[edge("fix", "failure", then="rerun")]),
        step("t", needs=["s"], next=[edge("fix", "failure")]),
        step("fix"),
    ]
    run = run_of(*steps).fail("s")
    assert run.queued == ["fix"]

    run.ok("fix").ok("s").ok("t")

    assert (run.status, run["s"].visit, run["fix"].visit) == ("completed", 2, 1)


def test_no_more_is_given_up_than_it_takes_for_something_to_move() -> None:
    """Once somebody runs again, the others may still come to their turn."""
    told = step("told", needs=[Need("t1", "always")])
    run = run_of(*circle(1), step("z1"), *circle(2), step("z2"), told, step("last"))

    run.fail("s1").fail("s2")
    assert [run[name].status for name in ("t1", "t2", "told")] == ["waiting", "waiting", "waiting"]
    run.ok("last")

    assert [run[name].status for name in ("t1", "t2", "told")] == ["skipped", "waiting", "ready"]


def test_a_loop_whose_time_has_come_waits_for_room() -> None:
    again = edge("a", when="again", backoff=Backoff(delay=30.0))
    steps = [step("a", next=[again]), step("b")]
    run = run_of(*steps, max_parallel=1, answers={"again": lambda names: names["output"] == "again"})
    run.ok("a", output="again")
    assert run.queued == ["b"]

    run.wait(30)
    assert (run.facts(e.LoopFired), run.queued) == ([], ["b"])
    run.ok("b")

    assert (len(run.facts(e.LoopFired)), run.queued) == (1, ["a"])


def test_where_one_that_was_arrived_at_is_skipped_after_all_the_next_one_goes_ahead() -> None:
    def shared(number: int, **fields: Any) -> list[Any]:
        s, t, fix = (f"{name}{number}" for name in ("s", "t", "fix"))
        again = edge(fix, "failure", then="rerun")
        return [step(s, next=[again]), step(t, needs=[s], next=[edge(fix, "failure")]), step(fix, **fields)]

    run = run_of(*shared(1, when="no"), *shared(2), answers={"no": False})

    run.fail("s1").fail("s2")

    assert (run["fix1"].status, run.queued, run["t2"].status) == ("skipped", ["fix2"], "waiting")
