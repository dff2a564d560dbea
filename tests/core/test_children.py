"""Child runs: the end of the child ends the attempt; stops and timeouts are passed down."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mulligan.core.deciding.rounds.child_failure import failures_of_child
from mulligan.core.effects import effects as fx
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.failure import Failure, failure
from mulligan.core.model.workflow import Action, Command, Handler, Map, Step
from mulligan.core.turn import fold
from mulligan.testing.history import History, command, edge, expression, handler, retry, step, workflow

CHILD = Action("workflow", {"file": "child.yaml"})


def child(name: str = "c", **fields: Any) -> Any:
    return step(name, action=CHILD, **fields)


def run_of(*steps: Any, **fields: Any) -> History:
    answers = fields.pop("answers", None)
    return History(workflow(*steps, **fields), answers).start()


# -- its end ---------------------------------------------------------------------------------------------------------


def test_a_workflow_step_starts_a_child_run_and_waits_for_it() -> None:
    run = run_of(child(), step("after", needs=["c"]))

    assert run.effects == [fx.StartChild("c", 1)]
    assert (run.statuses, run.queued) == ({"c": "running", "after": "waiting"}, [])


def test_the_outputs_of_a_child_that_completed_are_the_output_of_the_step() -> None:
    run = run_of(child())

    run.child_ended("c", outputs={"rows": 3})

    assert (run.status, run["c"].output) == ("completed", {"rows": 3})


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_any_other_end_is_child_failed_with_the_failures_of_the_child_as_cause(status: str) -> None:
    causes = (failure("EXIT_NONZERO", "boom", step="inner", exit_code=3), failure("TIMEOUT", "slow", step="other"))
    run = run_of(child())

    run.child_ended("c", status, failures=causes)

    found = run["c"].failure
    assert (found.code, found.details) == ("CHILD_FAILED", {"child_run_id": 2})
    assert (found.step, found.visit, found.attempt, found.cause) == ("c", 1, 1, causes)
    assert run.status == "failed"


INNER = failure("EXIT_NONZERO", "loading\nerror: no such table\n", step="fetch", exit_code=3)


@pytest.mark.parametrize(
    ("failures", "reason", "message"),
    [
        ((INNER,), "", "child run 2 failed at 'fetch': EXIT_NONZERO 3: error: no such table"),
        (
            (INNER, failure("TIMEOUT", "slow", step="other")),
            "",
            "child run 2 failed at 'fetch': EXIT_NONZERO 3: error: no such table (and 1 more failure)",
        ),
        (
            (failure("EXIT_NONZERO", "exit code 3", step="fetch", exit_code=3),),
            "",
            "child run 2 failed at 'fetch': EXIT_NONZERO 3",
        ),
        # The exit code of a program that succeeded is no part of why its output was refused.
        (
            (failure("OUTPUT_INVALID", "the output is not JSON", step="fetch", exit_code=0),),
            "",
            "child run 2 failed at 'fetch': OUTPUT_INVALID: the output is not JSON",
        ),
        (
            (failure("EXCEPTION", "KeyError: 'x'\nsecond line", step="fetch"),),
            "",
            "child run 2 failed at 'fetch': EXCEPTION: KeyError: 'x'",
        ),
        (
            (failure("CHILD_FAILED", "child run 3 failed", step="call", cause=(INNER,), details={"child_run_id": 3}),),
            "",
            "child run 2 failed at 'call/fetch': EXIT_NONZERO 3: error: no such table",
        ),
        (
            (
                failure(
                    "ITEMS_FAILED",
                    "2 of 9 items failed",
                    step="fetch",
                    cause=(msgspec.structs.replace(INNER, item=4),),
                ),
            ),
            "",
            "child run 2 failed at 'fetch[4]': EXIT_NONZERO 3: error: no such table (2 of 9 items failed)",
        ),
        (
            (
                failure(
                    "TIMEOUT",
                    "slow",
                    step="group",
                    cause=(INNER, failure("TIMEOUT", "slow", step="last")),
                    details={"child_run_id": 3, "failed_step": "last"},
                ),
            ),
            "",
            "child run 2 failed at 'group/last': TIMEOUT: slow",
        ),
        ((), "output 'rows': no such key", "child run 2 failed: output 'rows': no such key"),
        ((), "", "child run 2 failed"),
    ],
)
def test_the_message_says_at_which_step_inside_it_failed_and_why(
    failures: tuple[Failure, ...], reason: str, message: str
) -> None:
    run = run_of(child())

    run.child_ended("c", "failed", failures=failures, reason=reason)

    assert run["c"].failure.message == message


def test_a_child_that_was_cancelled_says_why_and_blames_no_step() -> None:
    run = run_of(child())

    run.child_ended("c", "cancelled", failures=(INNER,), reason="not needed any more")

    assert run["c"].failure.message == "child run 2 cancelled: not needed any more"


def test_a_long_or_odd_message_inside_stays_one_short_line() -> None:
    run = run_of(child())

    run.child_ended("c", "failed", failures=(failure("EXCEPTION", "\x1b[31mred\u202e" + "x" * 1000, step="fetch"),))

    message = run["c"].failure.message
    assert message.startswith("child run 2 failed at 'fetch': EXCEPTION: red\\u202exxx")
    assert len(message) < 260 and message.isprintable()


def test_the_failures_of_a_child_are_those_that_nothing_handled_and_that_of_its_end() -> None:
    last = Step(name="end", action=Action("shell", {"text": "report"}))
    run = run_of(step("a"), step("b", next=[edge("r", "failure")]), step("r"), end=last)
    run.fail("a", stderr_tail="boom").fail("b").ok("r").fail("end", stderr_tail="no disk")

    found = failures_of_child(run.state)

    assert [(one.step, one.message) for one in found] == [("a", "boom"), ("end", "no disk")]


def test_a_child_that_failed_climbs_the_ladder_of_the_parent() -> None:
    climber = child(rules=retry(1, delay=5), on_failure=handler("fix", rerun=1), next=[edge("r", "failure")])
    run = run_of(climber, step("r"))

    run.child_ended("c", "failed")
    assert run.statuses["c"] == "backing_off"
    run.wait(5).child_ended("c", "failed").ok("c.on_failure@2.0").child_ended("c", "failed").ok("r")

    calls = [effect for effect in run.effects if isinstance(effect, fx.StartChild | fx.ContinueChild)]
    assert calls == [fx.StartChild("c", 1), fx.ContinueChild("c", 2, 2, 2), fx.ContinueChild("c", 3, 2, 3)]
    assert (run.status, run.statuses) == ("completed", {"c": "failed", "r": "completed"})


def test_children_run_side_by_side() -> None:
    run = run_of(child("one"), child("two"))

    run.child_ended("two").child_ended("one")

    assert run.status == "completed"


def test_a_handler_may_be_a_child_run() -> None:
    run = run_of(step("a", on_failure=Handler((Command(action=CHILD),)))).fail("a")
    assert run.effects[-1] == fx.StartChild("a.on_failure@1.0", 1)

    run.child_ended("a.on_failure@1.0", outputs={"fixed": True})

    assert (run.status, run["a"].output) == ("completed", {"fixed": True})


def test_an_item_may_be_a_child_run() -> None:
    run = run_of(step("m", map=Map(over=expression("list")), do=(Command(action=CHILD),)), answers={"list": [1, 2]})

    run.child_ended("m[1].0", outputs={"n": 2}).child_ended("m[0].0", "failed")

    assert (run["m"].failure.message, run["m"].failure.cause[0].code) == ("1 of 2 items failed", "CHILD_FAILED")


# -- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["timeout", "deadline"])
def test_a_child_whose_time_is_up_is_stopped_and_the_step_fails_with_timeout(limit: str) -> None:
    run = run_of(child(**{limit: 60}))

    run.wait(60)
    assert run.effects[-1] == fx.StopChild("c", 1)
    assert run.statuses == {"c": "running"}
    run.child_ended("c", "cancelled")

    assert (run["c"].failure.code, run["c"].failure.message) == (
        "TIMEOUT",
        "the child run took longer than its timeout",
    )
    assert run.status == "failed"


def test_a_child_that_completes_in_its_grace_has_completed() -> None:
    run = run_of(child(timeout=60)).wait(60)

    run.child_ended("c", outputs={"rows": 3})

    assert (run.status, run["c"].output) == ("completed", {"rows": 3})


def test_a_timed_out_child_is_retried_with_a_fresh_limit() -> None:
    run = run_of(child(timeout=60, rules=retry(1))).wait(60).child_ended("c", "cancelled")

    run.wait(59)
    assert run["c"].phase == ""
    run.wait(1)

    assert run["c"].phase == "timeout"


def test_the_timeout_of_the_parent_stops_the_child() -> None:
    run = run_of(child(), timeout=60).wait(60)
    assert run.effects[-1] == fx.StopChild("c", 1)

    run.child_ended("c", "cancelled")

    assert (run.status, run.statuses) == ("failed", {"c": "cancelled"})


# -- stopping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_child_that_ends_badly_while_the_parent_stops_is_no_failure(status: str) -> None:
    run = run_of(child(rules=retry(3)), cancel_grace=None).cancel()

    run.child_ended("c", status)

    assert (run.status, run.statuses) == ("cancelled", {"c": "cancelled"})
    assert run.state.failures == []


def test_a_child_that_completes_while_the_parent_stops_has_completed() -> None:
    run = run_of(child()).cancel().child_ended("c", outputs={"rows": 3})

    assert (run.status, run.statuses, run["c"].output) == ("cancelled", {"c": "completed"}, {"rows": 3})


def test_now_goes_down_the_tree() -> None:
    run = run_of(child())

    run.cancel(now=True)

    assert run.effects[-1] == fx.StopChild("c", 1, now=True)


def test_now_after_cancel_is_told_to_a_child_that_is_stopping_already() -> None:
    run = run_of(child()).cancel()

    run.cancel(now=True)

    stops = [effect for effect in run.effects if isinstance(effect, fx.StopChild)]
    assert stops == [fx.StopChild("c", 1), fx.StopChild("c", 1, now=True)]
    assert run.child_ended("c", "cancelled").status == "cancelled"


def test_a_child_that_never_started_because_of_a_pause_is_not_waited_for() -> None:
    run = run_of(step("a"), child(needs=["a"])).pause().ok("a")

    run.cancel()

    assert (run.status, run.statuses["c"]) == ("cancelled", "cancelled")
    assert not any(isinstance(effect, fx.StartChild) for effect in run.effects)


def test_a_cleanup_handler_runs_after_its_child_run_was_stopped() -> None:
    run = run_of(child(on_failure=handler("sweep", strategy="cleanup"))).cancel().child_ended("c", "cancelled")
    assert run.queued == ["c.on_failure@1.0"]

    run.ok("c.on_failure@1.0")

    assert run.statuses == {"c": "cancelled"}


def test_an_undo_may_be_a_child_run_and_a_stop_leaves_it_be() -> None:
    run = run_of(step("a", undo=Command(action=CHILD)), step("b", needs=["a"])).ok("a").cancel()
    assert run.effects[-1] == fx.StartChild("a.undo@1", 1)

    run.child_ended("a.undo@1", "failed", failures=(failure("EXIT_NONZERO", "boom"),))

    assert run.facts(e.UndoFailed)[0].failure.cause[0].code == "CHILD_FAILED"
    assert run.status == "cancelled"


# -- late ------------------------------------------------------------------------------------------------------------


def test_a_child_that_ends_twice_is_heard_once() -> None:
    run = run_of(child(), step("b")).child_ended("c")

    run.child_ended("c", "failed")

    assert run.follows == [e.ReportRefused("c", 1, "already_ended")]
    assert run.statuses["c"] == "completed"


def test_the_end_of_a_child_of_an_earlier_attempt_is_refused() -> None:
    run = run_of(child(rules=retry(1))).child_ended("c", "failed")

    run.report(r.ChildEnded(run.clock, "c", 1, 2, "completed"))

    assert run.follows == [e.ReportRefused("c", 1, "stale_attempt")]


def test_the_end_of_a_child_after_the_parents_end_is_refused() -> None:
    run = run_of(child()).cancel().child_ended("c", "cancelled")

    run.child_ended("c")

    assert run.follows == [e.ReportRefused("c", 1, "run_ended")]
    assert fold(run.state.workflow, run.log) == run.state


def test_the_end_of_a_child_that_nobody_started_is_refused() -> None:
    run = run_of(step("a"))

    run.report(r.ChildEnded(run.clock, "nobody", 1, 2, "completed"))

    assert run.follows == [e.ReportRefused("nobody", 1, "unknown_place")]


def test_a_paused_parent_takes_note_of_the_childs_end() -> None:
    run = run_of(child(), step("b", needs=["c"], undo=command("x"))).pause().child_ended("c")

    assert run.statuses == {"c": "completed", "b": "ready"}
