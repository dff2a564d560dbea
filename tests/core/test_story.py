"""A run told from its events alone: whole lines, as a person reads them."""

from __future__ import annotations

import pytest

from mulligan.core.events import FACTS
from mulligan.core.failure import failure
from mulligan.core.story import _SENTENCES, story, what
from mulligan.core.workflow import Action, Handler, Map, Rule, Triage
from mulligan.testing.history import History, command, edge, expression, handler, retry, step, workflow


def told(run: History) -> list[str]:
    return [f"{line.place}: {line.text}" if line.place else line.text for line in story(iter(run.log))]


def test_a_retry_with_its_script_and_delay_is_told():
    rule = Rule(exit_codes=(11,), recovery_script=command("clean"), backoff=retry(1, delay=2)[0].backoff)
    run = History(workflow(step("fetch", rules=(rule,)))).start()

    run.fail("fetch", exit_code=11, stderr_tail="lock is held\n").ok("fetch.script@1").wait(2).ok("fetch")

    assert told(run) == [
        "fetch: attempt 1 failed, EXIT_NONZERO 11: lock is held",
        "fetch: rule 1 grants retry 1, in 2.0s, after its recovery script",
        "fetch: completed",
        "end: the run completed",
    ]


def test_a_used_up_rule_a_handler_that_fails_and_a_route_are_told():
    flow = workflow(
        step("a", rules=retry(0), on_failure=handler(), next=[edge("fix", "failure", then="rerun")]), step("fix")
    )
    run = History(flow).start()

    run.fail("a").fail("a.on_failure@1.0", exit_code=5).ok("fix").ok("a")

    assert told(run) == [
        "a: attempt 1 failed, EXIT_NONZERO 1",
        "a: its retries are used up",
        "a: its recovery handler runs",
        "a.on_failure@1.0: attempt 1 failed, EXIT_NONZERO 5",
        "a: its handler failed too, EXIT_NONZERO 5",
        "a: failed, EXIT_NONZERO 1; 'fix' takes over",
        "fix: completed",
        "a: goes again: 'fix' has completed",
        "a: visit 2",
        "a: completed",
        "end: the run completed, not without help",
    ]


@pytest.mark.parametrize(
    ("timeout", "told_as"), [(9.5, "9.5s"), (90, "90s"), (330, "5m30s"), (28_800, "8h00m"), (100_000, "27h46m")]
)
def test_a_time_is_told_in_the_units_in_which_people_say_it(timeout: float, told_as: str):
    run = History(workflow(step("a", triage=Triage(timeout=timeout)))).start()

    run.fail("a")

    assert told(run)[-1] == f"a: parked for a person to decide; its default applies in {told_as}"


def test_triage_pause_cancel_and_a_new_round_are_told():
    run = History(workflow(step("a", triage=Triage(timeout=60)), step("b", needs=["a"]))).start()

    run.fail("a", exit_code=42).classify("a", "retry", reason="a cosmic ray").pause().resume()
    run.cancel(reason="enough").retry()

    assert told(run) == [
        "a: attempt 1 failed, EXIT_NONZERO 42",
        "a: parked for a person to decide; its default applies in 60s",
        "a: someone says retry: a cosmic ray",
        "paused by someone",
        "resumed by someone",
        "stopping: cancelled by someone: enough",
        "a: cancelled",
        "b: cancelled",
        "end: the run was cancelled: enough",
        "round 2 by someone: again",
        "a: visit 2",
    ]


def test_a_map_with_a_lost_worker_a_failed_item_and_an_undo_is_told():
    policy = Map(over=expression("list"))
    flow = workflow(step("a", undo=command("u")), step("m", needs=["a"], map=policy, do=(command("c"),)))
    run = History(flow, {"list": [1, 2]}).start().ok("a")

    run.lose("m[0].0").ok("m[0].0").fail("m[1].0", signal=9).fail("a.undo@1")

    assert told(run) == [
        "a: completed",
        "m: 2 items",
        "m[0].0: attempt 1 lost: its worker is gone",
        "m[1].0: attempt 1 failed, SIGNALED: killed by signal 9",
        "m[1]: item failed, SIGNALED: killed by signal 9",
        "m: attempt 1 failed, ITEMS_FAILED: 1 of 2 items failed",
        "m: failed, ITEMS_FAILED: 1 of 2 items failed",
        "a: is undone",
        "a.undo@1: attempt 1 failed, EXIT_NONZERO 1",
        "a: could not be undone, UNDO_FAILED: exit code 1",
        "end: the run failed, 1 step failed with nobody to handle it",
    ]


def test_a_fallback_a_warning_a_skip_and_a_rejected_result_are_told():
    fallback = Handler((command("other"),), strategy="fallback")
    flow = workflow(
        step("a", validate=expression("fine", "output"), on_failure=fallback),
        step("w"),
        step("s", when="no"),
        step("f", continue_on_error=True),
    )
    run = History(flow, {"fine": False, "no": False}).start()

    run.ok("a").ok("a.on_failure@1.0").fail("f")
    run.fail("w", exit_code=0, reported=({"code": "SLOW", "severity": "warning", "message": "took an hour"},))

    assert told(run) == [
        "s: skipped: when",
        "a: its result is not accepted, VALIDATION_FAILED: 'fine' does not hold",
        "a: its fallback handler runs",
        "a: recovered, by its fallback handler",
        "f: attempt 1 failed, EXIT_NONZERO 1",
        "f: failed, which it may, EXIT_NONZERO 1",
        "w: warning, SLOW: took an hour",
        "w: completed",
        "end: the run completed, not without help",
    ]


def test_a_failure_is_told_by_the_last_line_of_its_message_cut_to_fit():
    assert what(failure("EXIT_NONZERO", "first\nlast\n", exit_code=2)) == "EXIT_NONZERO 2: last"
    assert what(failure("TIMEOUT", "")) == "TIMEOUT"
    assert len(what(failure("EXCEPTION", "x" * 500))) == len("EXCEPTION: ") + 98


def test_a_sentence_is_about_a_fact_there_is():
    assert set(_SENTENCES) <= set(FACTS)


def test_who_approved_and_who_was_interrupted_are_told():
    gate = step("gate", action=Action("approve", {"message": "go on?"}))
    run = History(workflow(gate, step("a", needs=["gate"]))).start()

    run.approve("gate", reason="all green").interrupt("a").ok("a")

    assert told(run)[:3] == [
        "gate: approved by someone: all green",
        "gate: completed",
        "a: attempt 1 interrupted: it goes again",
    ]
