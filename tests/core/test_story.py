"""A run told from its events alone: whole lines, as a person reads them. The ladder, people, maps, the end."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model.events import FACTS
from mulligan.core.model.failure import failure
from mulligan.core.model.workflow import Action, Adjust, Command, Handler, Map, Rule, Step, Triage, TriageAgent
from mulligan.history.phrases import describe_failure
from mulligan.history.story import _DETAILS, _SENTENCES, story
from mulligan.testing.history import History, command, edge, expression, handler, retry, step, workflow


def story_lines(run: History) -> list[str]:
    called = {("child", 1): 2}
    lines = story(run.log, run.state.workflow, called)
    return [f"{line.place}: {line.text}" if line.place else line.text for line in lines]


# -- retries ---------------------------------------------------------------------------------------------------------

SCRIPT = Rule(exit_codes=(11,), recovery_script=command("clean"), backoff=retry(1, delay=2)[0].backoff)


def test_a_retry_with_its_script_and_delay_is_told():
    run = History(workflow(step("fetch", rules=(SCRIPT,)))).start()

    run.fail("fetch", exit_code=11, stderr_tail="lock is held\n").ok("fetch.script@1").wait(2).ok("fetch")

    assert story_lines(run) == [
        "fetch: attempt 1 failed with EXIT_NONZERO 11: lock is held",
        "fetch: retry 1 of 3 in 2.0s after its recovery script (rule for exit code 11)",
        "fetch.script@1: completed: clean",
        "fetch: completed",
        "end: the run completed (1 step)",
    ]


def test_a_script_that_fails_is_told_and_that_the_retry_comes():
    run = History(workflow(step("fetch", rules=(SCRIPT,)))).start()

    run.fail("fetch", exit_code=11).fail("fetch.script@1", exit_code=3).wait(2).ok("fetch")

    assert story_lines(run)[2:4] == [
        "fetch.script@1: attempt 1 failed with EXIT_NONZERO 3",
        "fetch.script@1: failed; the retry runs anyway",
    ]


def test_each_rule_is_told_by_what_it_is_for_and_what_it_gives():
    rules = (
        Rule(codes=("TIMEOUT",), max_retries=1, adjust=Adjust(timeout=2.0)),
        Rule(exit_codes=(10, 11), max_retries=1),
        Rule(pattern="reset by", max_retries=1),
    )
    run = History(workflow(step("a", rules=rules, timeout=5.0))).start()

    run.fail("a", is_timed_out=True).fail("a", exit_code=10)
    run.fail("a", stderr_tail="connection reset by peer").fail("a", exit_code=11)

    assert story_lines(run) == [
        "a: attempt 1 failed with TIMEOUT after 5s",
        "a: retry 1 of 1 at once with a timeout of 10s (rule for TIMEOUT)",
        "a: attempt 2 failed with EXIT_NONZERO 10",
        "a: retry 1 of 1 at once with a timeout of 10s (rule for exit codes 10, 11)",
        "a: attempt 3 failed with EXIT_NONZERO 1: connection reset by peer",
        "a: retry 1 of 1 at once with a timeout of 10s (rule for 'reset by')",
        "a: attempt 4 failed with EXIT_NONZERO 11",
        "a: no retry: the only retry of the rule for exit codes 10, 11 is used up",
        "a: failed with EXIT_NONZERO 11",
        "end: the run failed: failure of 'a' not handled (1 step, 1 failed)",
    ]


@pytest.mark.parametrize(
    ("fields", "outcome", "said"),
    [
        # there are rules, and none is for it
        (
            {"rules": (Rule(exit_codes=(7,)),)},
            {"exit_code": 3},
            "a: no retry: no rule matches (there is one for exit code 7)",
        ),
        (
            {"rules": (Rule(exit_codes=(7,)), Rule(codes=("TIMEOUT",)), Rule(pattern="reset by"))},
            {"exit_code": 3},
            "a: no retry: no rule matches (there are rules for exit code 7; TIMEOUT; 'reset by')",
        ),
        (
            {"rules": tuple(Rule(exit_codes=(code,)) for code in (7, 8, 9, 10))},
            {"exit_code": 3},
            "a: no retry: no rule matches (there are rules for exit code 7; exit code 8; exit code 9; …)",
        ),
        # one is for anything, but not for this
        (
            {"rules": retry(3)},
            {"exit_code": None, "code": "HTTP_4XX", "message": "not found"},
            "a: no retry: HTTP_4XX is fatal, and no rule names it",
        ),
        ({"rules": retry(0)}, {}, "a: no retry: the rule for any failure allows none"),
        ({"rules": retry(9), "max_attempts": 1}, {}, "a: no retry: max_attempts of 1 reached"),
        (
            {"rules": (Rule(any=True, max_attempts=1),)},
            {},
            "a: no retry: the rule for any failure allows 1 attempt",
        ),
        (
            {"rules": retry(9, delay=60), "deadline": 30.0},
            {},
            "a: no retry: the deadline of 30s leaves no time",
        ),
    ],
    ids=[
        "none matches",
        "none of three",
        "none of four",
        "fatal",
        "none granted",
        "max_attempts",
        "max_attempts of a rule",
        "deadline",
    ],
)
def test_why_there_is_no_retry_is_told(fields: dict, outcome: dict, said: str):
    run = History(workflow(step("a", **fields))).start()

    run.fail("a", **outcome)

    assert story_lines(run)[1] == said


def test_a_step_without_rules_has_nothing_to_say_of_them():
    run = History(workflow(step("a"))).start()

    run.fail("a")

    assert story_lines(run) == [
        "a: failed with EXIT_NONZERO 1",
        "end: the run failed: failure of 'a' not handled (1 step, 1 failed)",
    ]


def test_a_worker_that_is_lost_again_and_again_is_told_until_it_is_a_failure():
    run = History(workflow(step("a"))).start()

    for _ in range(4):
        run.lose("a")

    assert story_lines(run)[:2] == [
        "a: attempt 1 lost: its worker is gone",
        "a: runs again as attempt 2; a lost worker does not use up a retry",
    ]
    assert story_lines(run)[6:9] == [
        "a: attempt 4 lost: its worker is gone",
        "a: lost its worker more than 3 times, which counts as a failure",
        "a: failed with WORKER_LOST: the worker running it was lost (w1)",
    ]


# -- handlers --------------------------------------------------------------------------------------------------------


def test_a_used_up_rule_a_handler_that_fails_and_a_route_are_told():
    flow = workflow(
        step("a", rules=retry(0), on_failure=handler(), next=[edge("fix", "failure", then="rerun")]), step("fix")
    )
    run = History(flow).start()

    run.fail("a").fail("a.on_failure@1.0", exit_code=5).ok("fix").ok("a")

    assert story_lines(run) == [
        "a: attempt 1 failed with EXIT_NONZERO 1",
        "a: no retry: the rule for any failure allows none",
        "a: recovery handler started",
        "a.on_failure@1.0: attempt 1 failed with EXIT_NONZERO 5",
        "a: handler also failed with EXIT_NONZERO 5",
        "a: failed with EXIT_NONZERO 1; routed to 'fix'; 'a' will run again when it completes",
        "fix: completed; handled the failure of 'a'",
        "a: will run again: 'fix' completed",
        "a: visit 2 started",
        "a: completed",
        "end: the run completed (degraded: 1 handled) (2 steps)",
    ]


def test_each_command_of_a_handler_is_told_and_what_a_cleanup_changes_nothing_about():
    cleanup = handler("one", "two", strategy="cleanup", timeout=30.0)
    run = History(workflow(step("a", on_failure=cleanup))).start()

    run.fail("a", stderr_tail="no space").ok("a.on_failure@1.0").ok("a.on_failure@1.1")

    assert story_lines(run)[:-1] == [
        "a: attempt 1 failed with EXIT_NONZERO 1: no space",
        "a: cleanup handler started (2 commands, timeout 30s)",
        "a.on_failure@1.0: completed: one",
        "a.on_failure@1.1: completed: two",
        "a: cleanup handler finished; the failure stands",
        "a: failed with EXIT_NONZERO 1",
    ]


def test_a_handler_within_a_handler_is_told():
    nested = Handler((command("x", on_failure=handler("y")), command("z", continue_on_error=True)))
    run = History(workflow(step("a", on_failure=nested))).start()

    run.fail("a").fail("a.on_failure@1.0").ok("a.on_failure@1.0.on_failure@1.0").fail("a.on_failure@1.1")

    assert story_lines(run)[2:] == [
        "a.on_failure@1.0: attempt 1 failed with EXIT_NONZERO 1",
        "a.on_failure@1.0: recovery handler started",
        "a.on_failure@1.0.on_failure@1.0: completed: y",
        "a.on_failure@1.0: recovered by its handler: x",
        "a.on_failure@1.1: attempt 1 failed with EXIT_NONZERO 1",
        "a.on_failure@1.1: failed (allowed)",
        "a: recovered by its handler",
        "end: the run completed (degraded: 1 recovered) (1 step)",
    ]


def test_a_command_that_runs_elsewhere_since_its_host_is_gone_is_told():
    run = History(workflow(step("a", on_failure=handler("tidy")))).start()

    run.started("a", host="h1").fail("a").started("a.on_failure@1.0", host="h2").ok("a.on_failure@1.0")

    assert story_lines(run)[2] == "a.on_failure@1.0: runs on h2; h1, where its earlier attempt ran, is gone"


def test_a_fallback_a_warning_a_skip_and_a_rejected_result_are_told():
    fallback = Handler((command("other"),), strategy="fallback")
    flow = workflow(
        step("a", validate=expression("fine", "output"), on_failure=fallback),
        step("w"),
        step("s", when="inputs.x > 1"),
        step("f", continue_on_error=True),
    )
    run = History(flow, {"fine": False, "inputs.x > 1": False}).start()

    run.ok("a").ok("a.on_failure@1.0").fail("f")
    run.fail("w", exit_code=0, reported=({"code": "SLOW", "severity": "warning", "message": "took an hour"},))

    assert story_lines(run) == [
        "s: skipped: condition not met: inputs.x > 1",
        "a: result rejected: VALIDATION_FAILED: 'fine' does not hold",
        "a: fallback handler started",
        "a.on_failure@1.0: completed: other",
        "a: recovered by its fallback handler",
        "f: failed (allowed) with EXIT_NONZERO 1",
        "w: warning: SLOW: took an hour",
        "w: completed",
        "end: the run completed (degraded: 1 recovered) (4 steps, 1 skipped)",
    ]


# -- people ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timeout", "told_as"), [(9.5, "9.5s"), (90, "90s"), (330, "5m30s"), (28_800, "8h00m"), (100_000, "27h46m")]
)
def test_a_time_is_told_in_the_units_in_which_people_say_it(timeout: float, told_as: str):
    run = History(workflow(step("a", triage=Triage(timeout=timeout)))).start()

    run.fail("a")

    assert story_lines(run)[-1] == f"a: parked for a decision; without one, it will fail in {told_as}"


def test_triage_pause_cancel_and_a_new_round_are_told():
    run = History(workflow(step("a", triage=Triage(timeout=60)), step("b", needs=["a"]))).start()

    run.fail("a", exit_code=42).classify("a", "retry", reason="a cosmic ray").pause().resume()
    run.cancel(reason="enough").retry()

    assert story_lines(run) == [
        "a: attempt 1 failed with EXIT_NONZERO 42",
        "a: parked for a decision; without one, it will fail in 60s",
        "a: someone decided: retry: a cosmic ray",
        "paused by someone",
        "resumed by someone",
        "stopping: cancelled by someone: enough",
        "a: cancelled",
        "b: cancelled",
        "end: the run was cancelled: enough (2 steps)",
        "round 2 started by someone: again; running again: 'a', 'b'",
        "b: runs again after 'a', which it depends on",
        "a: visit 2 started",
    ]


def test_what_a_person_adds_to_a_retry_is_told():
    run = History(workflow(step("a", triage=Triage()))).start()

    run.fail("a").classify("a", "retry", reason="a large month", memory=2**31, timeout=90.0)

    assert story_lines(run)[-1] == "a: someone decided: retry with 2.0GiB of memory and a timeout of 90s: a large month"


ASKED = TriageAgent("claude", Command(action=Action("agent", {"provider": "claude"})), memory_max=2**31)


def answer(**said: Any) -> dict[str, Any]:
    return {"json": {"verdict": "retry", "reason": "the mirror was down", **said}}


def test_what_an_agent_decides_or_suggests_is_told():
    run = History(workflow(step("a", triage=Triage(timeout=60, agent=ASKED)))).start()

    run.fail("a").ok("a.triager@1", output=answer(confidence=0.9, memory="1GiB", rule="codes: [CONNECTION]"))
    run.fail("a").ok("a.triager@2", output=answer(confidence=0.6)).classify("a", "retry", reason="yes")
    run.fail("a").fail("a.triager@3", 1, stderr_tail="no key")

    assert [line for line in story_lines(run) if "decided" in line or "agent" in line] == [
        "a: parked for a decision; agent 'claude' is asked",
        "a: agent:claude decided: retry with 1.0GiB of memory (90% sure): the mirror was down; it proposes the rule: "
        "codes: [CONNECTION]",
        "a: parked for a decision; agent 'claude' is asked",
        "a: agent 'claude' suggests retry (60% sure): the mirror was down; not applied: it is not sure enough (60% is "
        "below 80%); a person decides; without a decision in 60s: fail",
        "a: someone decided: retry: yes",
        "a: parked for a decision; agent 'claude' is asked",
        "a: agent 'claude' gave no answer: it failed (EXIT_NONZERO: no key); a person decides; without a decision in "
        "60s: fail",
    ]


def test_a_default_that_applies_since_nobody_came_is_told():
    run = History(workflow(step("a", triage=Triage(timeout=60, default="retry")))).start()

    run.fail("a").wait(60)

    assert story_lines(run)[1:] == [
        "a: parked for a decision; without one, it will be retried in 60s",
        "a: no decision in time, default applied: retry",
    ]


def test_why_a_step_with_triage_is_not_parked_is_told():
    run = History(workflow(step("a", rules=retry(0), triage=Triage()))).start()

    run.fail("a")

    assert story_lines(run)[2] == "a: not parked: a rule matched"


def test_who_approved_and_who_was_interrupted_are_told():
    gate = step("gate", action=Action("approve", {"message": "go on?"}))
    run = History(workflow(gate, step("a", needs=["gate"]))).start()

    run.approve("gate", reason="all green").interrupt("a").ok("a")

    assert story_lines(run)[:3] == [
        "gate: approved by someone: all green",
        "gate: completed",
        "a: attempt 1 interrupted; it will run again",
    ]


# -- maps, undo, children, the end -----------------------------------------------------------------------------------


def test_a_map_with_a_lost_worker_a_failed_item_and_an_undo_is_told():
    policy = Map(over=expression("list"))
    flow = workflow(step("a", undo=command("u")), step("m", needs=["a"], map=policy, do=(command("c"),)))
    run = History(flow, {"list": [1, 2]}).start().ok("a")

    run.lose("m[0].0").ok("m[0].0").fail("m[1].0", signal=9).fail("a.undo@1")

    assert story_lines(run) == [
        "a: completed",
        "m: expanded to 2 items",
        "m[0].0: attempt 1 lost: its worker is gone",
        "m[0].0: runs again as attempt 2; a lost worker does not use up a retry",
        "m[1]: item failed with SIGNALED by SIGKILL (signal 9)",
        "m: failed with ITEMS_FAILED: 1 of 2 items failed",
        "a: undo started",
        "a.undo@1: attempt 1 failed with EXIT_NONZERO 1",
        "a: undo failed with UNDO_FAILED: exit code 1; what it did may still be in effect",
        "end: the run failed: failure of 'm' not handled (2 steps, 1 failed)",
    ]


def test_the_rules_and_handlers_of_items_are_told_like_those_of_steps():
    policy = Map(over=expression("list"))
    doing = command("c", rules=retry(1), on_failure=handler("mend", rerun=1))
    run = History(workflow(step("m", map=policy, do=(doing,))), {"list": [1, 2]}).start()

    run.fail("m[0].0").fail("m[0].0").ok("m[0].0.on_failure@2.0").ok("m[0].0").ok("m[1].0")

    assert story_lines(run) == [
        "m: expanded to 2 items",
        "m[0].0: attempt 1 failed with EXIT_NONZERO 1",
        "m[0].0: retry 1 of 1 at once (rule for any failure)",
        "m[0].0: attempt 2 failed with EXIT_NONZERO 1",
        "m[0].0: no retry: the only retry of the rule for any failure is used up",
        "m[0].0: recovery handler started",
        "m[0].0.on_failure@2.0: completed: mend",
        "m[0].0: handler finished; running again",
        "m[0]: item recovered on the rerun after its handler",
        "m: completed",
        "end: the run completed (degraded: 1 recovered) (1 step)",
    ]


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        ("completed", ["child: child run 2 completed", "child: completed", "end: the run completed (1 step)"]),
        (
            "failed",
            [
                "child: failed with CHILD_FAILED: child run 2 failed",
                "end: the run failed: failure of 'child' not handled (1 step, 1 failed)",
            ],
        ),
    ],
)
def test_a_child_run_is_named_and_how_it_ended(status: str, ending: list[str]):
    calling = step("child", action=Action("workflow", {"file": "c.yaml"}))
    run = History(workflow(calling, children={"c.yaml": workflow(step("x"))})).start()

    run.child_ended("child", status)

    assert story_lines(run) == ["child: called 'c.yaml' as run 2", *ending]


def test_what_end_says_of_a_run_is_told_as_its_word():
    flow = workflow(step("a"), end=Step(name="end", action=Action("shell", {"text": "judge"})))
    run = History(flow).start()

    run.ok("a").ok("end", output='{"status": "failed", "reason": "too few rows"}')

    assert story_lines(run) == [
        "a: completed",
        "end: completed",
        "end: the run failed, end returned: too few rows (1 step)",
    ]


def test_a_run_that_is_stopped_says_what_for():
    hasty = History(workflow(step("a"), step("b"), fail_fast="always")).start()
    late = History(workflow(step("a"), timeout=60.0)).start()

    hasty.started("b").fail("a")
    late.wait(60)

    assert story_lines(hasty)[1] == "stopping: fail-fast: EXIT_NONZERO in 'a'"
    assert story_lines(late) == [
        "stopping: the run took longer than its timeout",
        "a: cancelled",
        "end: the run failed: the run took longer than its timeout (1 step)",
    ]


# -- words -----------------------------------------------------------------------------------------------------------


def test_a_failure_is_told_by_the_last_line_of_its_message_cut_to_fit():
    assert describe_failure(failure("EXIT_NONZERO", "first\nlast\n", exit_code=2)) == "EXIT_NONZERO 2: last"
    assert describe_failure(failure("TIMEOUT", "")) == "TIMEOUT"
    assert len(describe_failure(failure("EXCEPTION", "x" * 500))) == len("EXCEPTION: ") + 98


@pytest.mark.parametrize(
    ("code", "message", "details", "said"),
    [
        ("TIMEOUT", "it took longer than its timeout", {"timeout": 0.2}, "TIMEOUT after 0.2s"),
        ("TIMEOUT", "reading page 7\n", {"timeout": 600}, "TIMEOUT after 10m00s: reading page 7"),
        ("TIMEOUT", "it took longer than its timeout", {}, "TIMEOUT: it took longer than its timeout"),
        # of the whole visit: its figure is another
        ("TIMEOUT", "it took longer than its deadline", {"timeout": 60}, "TIMEOUT: it took longer than its deadline"),
        (
            "OUT_OF_MEMORY",
            "it used more memory than its limit",
            {"peak_memory": 310 * 2**20, "memory": 256 * 2**20},
            "OUT_OF_MEMORY at 310MiB of 256MiB",
        ),
        ("OUT_OF_MEMORY", "Killed", {"peak_memory": 3 * 2**30}, "OUT_OF_MEMORY at 3.0GiB: Killed"),
        # what a step reports of itself may be anything
        ("TIMEOUT", "", {"timeout": "soon"}, "TIMEOUT"),
    ],
)
def test_what_ran_out_is_told_in_figures(code: str, message: str, details: dict, said: str):
    assert describe_failure(failure(code, message, details=details)) == said


def test_a_sentence_is_about_a_fact_there_is():
    assert {*_SENTENCES, *_DETAILS} <= set(FACTS)
