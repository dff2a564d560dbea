"""Which edges a failed step takes besides the one that handles its failure."""

from __future__ import annotations

from mulligan.core.model import events as e
from mulligan.core.model.event_types import Passed, Route
from mulligan.testing.history import History, edge, step, workflow


def test_a_step_that_may_fail_takes_its_always_edges_beside_its_success_edges() -> None:
    a = step("a", continue_on_error=True, next=["b", edge("c", "always"), edge("d", "failure", codes=("TIMEOUT",))])
    run = History(workflow(a, step("b"), step("c"), step("d"))).start()

    run.fail("a")

    assert run.facts(e.StepFailed)[-1].taken == (0, 1)
    assert run.statuses == {"a": "failed", "b": "ready", "c": "ready", "d": "skipped"}


def test_a_failure_edge_to_end_is_chosen_as_any_other_and_handles_nothing() -> None:
    a = step("a", next=[edge("fix", "failure", codes=("TIMEOUT",)), edge("end", "failure"), edge("late", "failure")])
    run = History(workflow(a, step("fix"), step("late"))).start()

    run.fail("a")

    passed = (Passed(0, "fix", "codes_do_not_match"), Passed(2, "late", "not_first"))
    assert run.facts(e.StepFailed)[-1].route == Route("selected", 1, "end", 0, passed=passed)
    assert run.status == "failed"


def test_an_alert_does_not_lead_back() -> None:
    """It handles nothing: a loop over it would visit the step that has failed again, and call that no remedy."""
    steps = (step("a", next=["b"], is_start=True), step("b", next=[edge("a", "failure", handles=False)]))
    run = History(workflow(*steps)).start()

    run.ok("a").fail("b")

    assert (run.status, run["a"].visit) == ("failed", 1)
    assert run.facts(e.StepFailed)[-1].taken == ()


def test_a_remediation_that_has_had_its_last_visit_is_no_route() -> None:
    """The visit beyond `max_visits` fails by itself; nobody is sent to one after that."""
    sources = [step(name, next=[edge("fix", "failure")]) for name in "abc"]
    run = History(workflow(*sources, step("fix", join="each", max_visits=1))).start()

    run.fail("a").fail("b").fail("c")

    routes = [fact.route for fact in run.facts(e.StepFailed)]
    assert [(route.status, route.visit) for route in routes[:2]] == [("selected", 1), ("selected", 2)]
    assert routes[2] == Route("no_route", reason="no_edge_fits", passed=(Passed(0, "fix", "loop_limit"),))


def test_a_failure_may_go_back_to_a_step_that_the_first_arrival_has_entered() -> None:
    """Who comes later than the first is too late, but going back is not coming late."""
    steps = (step("s", next=["a"]), step("a", join="first", next=["b"]), step("b", next=[edge("a", "failure")]))
    run = History(workflow(*steps)).start().ok("s").ok("a")

    run.fail("b")

    assert (run.facts(e.StepFailed)[-1].route.status, run.queued, run["a"].visit) == ("selected", ["a"], 2)
