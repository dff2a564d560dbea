"""What a later round makes of a failure that was sent somewhere, and never got there, is not counted for it."""

from __future__ import annotations

from mulligan.core.state.state import Tally
from mulligan.testing.history import History, edge, step, workflow


def test_a_route_that_came_to_nothing_is_not_judged_by_what_another_failure_makes_of_its_target() -> None:
    sources = [step(name, next=[edge("fix", "failure")]) for name in "ab"]
    flow = workflow(*sources, step("slow"), step("fix", needs=["slow"]), fail_fast="never")
    run = History(flow).start().fail("a").cancel().wait(60)
    assert (run.status, run["fix"].visit) == ("cancelled", 0)

    # In the next round it is the visit of the same number that deals with the other's failure.
    run.retry().ok("a").fail("b").ok("slow").wait(5).ok("fix")

    assert run["fix"].status == "completed"
    assert run.state.tallies == {
        "a:route:fix": Tally(tried=1),
        "b:route:fix": Tally(tried=1, worked=1, judged=1, seconds=5.0),
    }
