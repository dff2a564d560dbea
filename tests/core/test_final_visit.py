"""The fact that ends the last visit of a step says so, so that dependents wait no longer."""

from __future__ import annotations

from mulligan.core.model import events as e
from mulligan.testing.history import History, edge, step, workflow


def each() -> History:
    """Two steps lead to one that is visited for each; the edge of the second is never taken."""
    flow = workflow(step("a", next=["j"]), step("b", next=[edge("j", when="never")]), step("j", join="each"))
    return History(flow, {"never": False}).start()


def finals(run: History, name: str) -> list[bool]:
    return [fact.is_final for fact in run.facts(e.StepCompleted) if fact.step == name]


def test_the_visit_after_which_nobody_can_come_is_the_last_one() -> None:
    run = each().ok("a", "b")

    run.ok("j")

    assert finals(run, "j") == [True]
    assert (run["j"].settled, run.facts(e.StepSettled)) == ("completed", [])


def test_a_visit_after_which_somebody_may_come_is_not_the_last_one_until_it_is_known_that_nobody_does() -> None:
    run = each().ok("a", "j")
    assert (finals(run, "j"), run["j"].settled) == ([False], "")

    run.ok("b")

    assert run.facts(e.StepSettled) == [e.StepSettled("j", "completed")]


def test_of_as_many_visits_as_there_are_arrivals_the_last_is_final() -> None:
    run = History(workflow(*(step(s, next=["j"]) for s in "ab"), step("j", join="each"))).start().ok("a", "b")

    run.ok("j").ok("j")

    assert finals(run, "j") == [False, True]
    assert run.facts(e.StepSettled) == []


def test_in_a_run_that_stops_every_visit_is_the_last_one() -> None:
    run = each().started("a").started("b").ok("a").started("j")

    run.cancel().ok("j")

    assert finals(run, "j") == [True]
    assert run["j"].settled == "completed"
