"""Whether a failure is handled while the step it was routed to has not been entered."""

from __future__ import annotations

from mulligan.core.model.workflow import Backoff
from mulligan.core.state.state import FailureRecord
from mulligan.core.state.verdict import is_handled
from mulligan.testing.history import History, edge, step, workflow

LATER = Backoff(delay=30.0)


def failure_of(run: History, name: str) -> FailureRecord:
    """The last failure of a step."""
    return [record for record in run.state.failures if record.step == name][-1]


def answer(run: History, name: str) -> bool | None:
    return is_handled(run.state, failure_of(run, name))


def test_a_failure_that_goes_back_is_open_until_the_loop_has_brought_its_target_to_an_end() -> None:
    steps = (step("a", next=["b"], is_start=True), step("b", next=[edge("a", "failure", backoff=LATER)]))
    run = History(workflow(*steps, fail_fast="always")).start().ok("a")

    run.fail("b")
    assert (answer(run, "b"), run.state.run.stop) == (None, None)
    run.wait(30)
    assert (answer(run, "b"), run.queued) == (None, ["a"])
    run.ok("a").ok("b")

    assert (answer(run, "b"), run.status) == (True, "completed")


def test_a_failure_that_goes_back_to_a_step_that_then_fails_is_unhandled() -> None:
    steps = (step("a", next=["b"], is_start=True), step("b", next=[edge("a", "failure", backoff=LATER)]))
    run = History(workflow(*steps)).start().ok("a").fail("b").wait(30)

    run.fail("a")

    assert (answer(run, "b"), run.status) == (False, "failed")


def test_a_failure_is_open_while_a_loop_is_about_to_put_back_the_step_it_was_sent_to() -> None:
    """`fix` was passed over, since `m` was skipped; when all of it goes back it may come to its turn."""
    run = History(
        workflow(
            step("a", next=["n", "b"], is_start=True),
            step("n", next=[edge("a", "failure", backoff=LATER)]),
            step("m", needs=["a"], when="wanted"),
            step("b", next=[edge("fix", "failure")]),
            step("fix", needs=["m"]),
            fail_fast="always",
        ),
        {"wanted": lambda names: run["a"].visit > 1},
    )
    run.start().ok("a").fail("n")
    assert run.statuses["fix"] == "skipped"

    run.fail("b")
    assert (answer(run, "b"), run.state.run.stop) == (None, None)
    run.wait(30).ok("a").ok("n").ok("m").fail("b").ok("fix")

    assert (answer(run, "b"), run.status) == (True, "completed")


def test_a_failure_that_was_sent_to_what_was_passed_over_is_unhandled_at_once() -> None:
    steps = (step("m", when="no"), step("b", next=[edge("fix", "failure")]), step("fix", needs=["m"]))
    run = History(workflow(*steps, step("slow")), {"no": False}).start()

    run.fail("b")

    assert answer(run, "b") is False
    assert run.status == "running"


def test_of_two_failures_in_the_queue_of_one_step_the_second_is_open_until_its_own_visit_has_ended() -> None:
    sources = [step(name, next=[edge("fix", "failure")]) for name in ("a", "b")]
    run = History(workflow(*sources, step("fix", join="each"), fail_fast="always")).start().fail("a").fail("b")
    assert [answer(run, name) for name in "ab"] == [None, None]

    run.ok("fix")
    assert [answer(run, name) for name in "ab"] == [True, None]
    run.ok("fix")

    assert [answer(run, name) for name in "ab"] == [True, True]
    assert run.status == "completed"


def test_nothing_waits_for_its_turn_in_a_run_that_stops() -> None:
    sources = [step(name, next=[edge("fix", "failure")]) for name in ("a", "b")]
    run = History(workflow(*sources, step("fix", join="each"))).start().fail("a").fail("b").started("fix")

    run.cancel()

    # The first may still end well, the second will never begin.
    assert [answer(run, name) for name in "ab"] == [None, False]
