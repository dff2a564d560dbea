"""Regressions that an audit of the design found."""

from __future__ import annotations

import pytest

from mulligan.core.deciding.lifecycle import expected_files
from mulligan.core.effects.effects import SetTimer
from mulligan.core.model.events import RunStopping
from mulligan.core.model.failure import CAUSES_MAX, failure
from mulligan.core.model.workflow import Action, Backoff, Expression, Handler, Map, Need, Template, Triage
from mulligan.errors import ExpressionFailed
from mulligan.testing.history import History, command, edge, expression, handler, retry, step, workflow


@pytest.mark.nightly
def test_a_chain_of_remediations_that_all_fail_may_be_deeper_than_pythons_stack():
    depth = 1050
    steps = [step(f"s{i}", next=[edge(f"s{i + 1}", "failure")]) for i in range(depth)]
    run = History(workflow(*steps, step(f"s{depth}"))).start()

    for i in range(depth + 1):
        run.fail(f"s{i}")

    assert run.status == "failed"
    assert run.ended.failed_steps_count == depth + 1


def test_fail_fast_does_not_strike_at_a_failure_that_a_loop_takes_back():
    way_back = edge("fetch", "failure", backoff=Backoff(delay=5))
    steps = step("start", next=["fetch"]), step("fetch", next=["load"]), step("load", next=[way_back])
    run = History(workflow(*steps, step("other"), fail_fast="always")).start()

    run.ok("start", "fetch").fail("load")

    assert run.queued == ["other"]
    assert run.wait(5).queued == ["fetch", "other"]
    assert run.ok("fetch", "load", "other").status == "completed"


def test_fail_fast_strikes_when_the_loop_of_a_failure_comes_to_its_limit():
    steps = step("start", next=["fetch"]), step("fetch", next=[edge("fetch", "failure")], max_visits=2)
    run = History(workflow(*steps, step("other"), fail_fast="always")).start()

    run.ok("start").fail("fetch").fail("fetch")

    assert run.statuses == {"start": "completed", "fetch": "failed", "other": "cancelled"}


def test_a_failure_sent_in_vain_is_settled_at_once_although_a_loop_elsewhere_waits():
    # 'repair' was skipped for good when 'fetch' failed: no loop of 'poll' will ever change that.
    run = History(
        workflow(
            step("gate"),
            step("repair", needs=["gate"]),
            step("fetch", next=[edge("repair", "failure", then="rerun")]),
            step("report", needs=[Need("fetch", "always")]),
            step("poll", next=[edge("poll", when="again", backoff=Backoff(delay=100))]),
        ),
        {"again": True},
    ).start()

    run.fail("gate").ok("poll").fail("fetch")

    assert run.queued == ["report"]


def test_one_fix_of_two_sources_repairs_neither_once_the_first_has_stopped_the_run():
    # 'a' has had its one visit, so its rerun fails at once, and that stops the run.
    a = step("a", next=[edge("fix", "failure", then="rerun")], max_visits=1)
    b = step("b", next=[edge("fix", "failure", then="rerun")])
    run = History(workflow(a, b, step("fix"), fail_fast="always")).start()

    run.fail("a").fail("b").ok("fix")

    assert run.status == "failed"
    assert run["b"].visit == 1


def test_a_fix_stands_in_with_what_it_gave_although_another_source_has_called_it_again():
    # The second visit of 'a' fails at once, for its expression, and visits 'fix' anew before 'b' is looked at.
    def second_visit_fails(names):
        return ExpressionFailed("no such key") if names["steps"]["a"]["visits"] > 1 else "x"

    asking = Action("shell", {"text": "a"}, {"x": Template((Expression("look", ("steps.a",)),))})
    a = step("a", action=asking, next=[edge("fix", "failure", then="rerun")])
    b = step("b", next=[edge("fix", "failure", then="continue")])
    run = History(workflow(a, b, step("fix")), {"look": second_visit_fails}).start()

    run.fail("a").fail("b").ok("fix", output="repaired")

    assert run["b"].settled == "stood_in"
    assert run["b"].output == "repaired"


def test_a_loop_that_waits_costs_the_end_of_a_step_elsewhere_nothing():
    names = [f"poll{i}" for i in range(30)]
    polls = [step(name, next=[edge(name, when="again", backoff=Backoff(delay=10))]) for name in names]
    run = History(workflow(*polls), {"again": True}).start()

    run.ok(*names)

    # One when its loop was taken, one when what it waited for came to rest.
    timers = [effect for effect in run.effects if isinstance(effect, SetTimer)]
    assert len(timers) == 2 * len(names)


def test_a_deadline_that_passes_in_the_script_of_a_retry_leaves_no_next_attempt_of_a_map():
    scripted = retry(1, recovery_script=command("clear"))
    run = History(
        workflow(step("m", map=Map(over=expression("list")), do=(command("one"),), rules=scripted, deadline=30)),
        {"list": [1]},
    ).start()

    run.fail("m[0].0").wait(60).ok("m.script@1")

    assert (run["m"].status, run["m"].failure.code, run.queued) == ("failed", "TIMEOUT", [])


def test_a_deadline_that_passes_in_a_handler_or_a_triage_cuts_the_next_attempt_of_an_approval_short():
    asking = Action("approve", {"message": "go?"})
    for fields in ({"on_failure": handler(rerun=1)}, {"triage": Triage("always")}):
        run = History(workflow(step("a", action=asking, deadline=30, **fields))).start().approve("a", False)

        run.wait(60)
        if run.queued:
            run.ok("a.on_failure@1.0")
        else:
            run.classify("a", "retry")
        run.wait(0)

        assert run["a"].failure.code == "TIMEOUT"


def test_a_step_that_kept_its_result_is_not_visited_again_by_one_that_was_undone():
    steps = step("rent", next=["announce", "test"], undo=command("return")), step("announce"), step("test")
    run = History(workflow(*steps)).start().ok("rent", "announce").fail("test").ok("rent.undo@1")

    run.retry(keep_completed=True).ok("rent", "test")

    assert run.status == "completed"
    assert {name: run[name].visit for name in run.statuses} == {"rent": 2, "announce": 1, "test": 2}


def test_what_was_built_on_an_undone_step_is_built_again_before_what_failed_runs():
    steps = [step("rent", undo=command("return")), step("install", needs=["rent"]), step("test", needs=["install"])]
    run = History(workflow(*steps)).start().ok("rent", "install").fail("test").ok("rent.undo@1")

    run.retry()

    assert run.queued == ["rent"]
    run.ok("rent", "install", "test")
    assert run.status == "completed"


def test_a_failure_is_gone_from_a_step_that_a_retry_made_good():
    run = History(workflow(step("a", rules=retry(1)))).start().fail("a").ok("a")

    assert (run["a"].status, run["a"].failure) == ("completed", None)


def test_the_last_command_of_a_recovery_owes_the_files_that_its_step_declared():
    recovery = Handler((command("x"), command("y", on_failure=handler("z"))))
    steps = step("a", writes=("mesh",), on_failure=recovery), step("b", writes=("log",), on_failure=handler(rerun=1))
    run = History(workflow(*steps)).start().fail("a").fail("b")

    assert expected_files(run.state, run["a.on_failure@1.0"]) == ()
    # The step's own action runs again: it owes them itself.
    assert expected_files(run.state, run["b.on_failure@1.0"]) == ()
    run.ok("a.on_failure@1.0")
    assert expected_files(run.state, run["a.on_failure@1.1"]) == ("mesh",)
    run.fail("a.on_failure@1.1")
    assert expected_files(run.state, run["a.on_failure@1.1.on_failure@1.0"]) == ("mesh",)


def test_an_alert_rings_again_in_the_round_in_which_a_step_fails_again():
    run = History(workflow(step("a", next=[edge("page", "failure", handles=False)]), step("page"))).start()
    run.fail("a").ok("page")

    run.retry().fail("a")

    assert run.queued == ["page"]


def test_a_remediation_that_a_new_round_runs_again_is_told_of_the_failure_again():
    told = Action("shell", {"text": "fix"}, {"m": Template((Expression("message", ("failure",)),))})
    steps = step("a", next=[edge("fix", "failure")]), step("fix", action=told, next=["b"]), step("b")
    run = History(workflow(*steps), {"message": lambda names: names["failure"]["message"]}).start()
    run.fail("a", stderr_tail="disk full").ok("fix").fail("b")

    run.retry(from_step="fix")

    assert run["fix"].bindings == {"m": "disk full"}


def test_a_remediation_is_not_told_of_the_failures_of_an_earlier_round_whose_step_ran_again():
    told = Action("shell", {"text": "fix"}, {"m": Template((Expression("context", ("failure",)),))})
    fix = step("fix", action=told, needs=["gate"])
    run = History(
        workflow(step("gate"), step("a", next=[edge("fix", "failure")]), fix),
        {"context": lambda names: names["failure"]["context"]},
    ).start()
    run.fail("a", stderr_tail="disk full").cancel()

    run.retry().ok("gate").fail("a", stderr_tail="no network")

    assert "no network" in run["fix"].bindings["m"]
    assert "disk full" not in run["fix"].bindings["m"]


def test_a_condition_that_cannot_be_read_closes_its_own_edge_of_a_step_that_may_fail_and_no_other():
    may_fail = step("a", continue_on_error=True, next=[edge("b"), edge("c", when="output.size > 0")])
    answers = {"output.size > 0": ExpressionFailed("no such key: size")}
    run = History(workflow(may_fail, step("b"), step("c")), answers).start()

    run.fail("a")

    assert run.statuses == {"a": "failed", "b": "ready", "c": "skipped"}


def everything_below(found):
    below = [*found.cause, *([found.handler_failure] if found.handler_failure else [])]
    return [*below, *(deeper for one in below for deeper in everything_below(one))]


def test_of_the_thousand_failures_of_a_child_run_the_nearest_fit_in_the_parents():
    deep = failure("ITEMS_FAILED", cause=tuple(failure("TIMEOUT", f"item {i}") for i in range(10)))
    run = History(workflow(step("a", action=Action("workflow", {"file": "child.yaml"})))).start()

    run.child_ended("a", "failed", failures=(deep, *(failure("EXIT_NONZERO", f"step {i}") for i in range(1000))))

    causes = run["a"].failure.cause
    assert [one.message for one in causes] == ["", *(f"step {i}" for i in range(CAUSES_MAX - 1))]
    assert len(everything_below(run["a"].failure)) == CAUSES_MAX


def test_a_failure_of_handlers_of_handlers_stays_as_large_however_deep_they_are():
    nested = None
    for _ in range(60):
        nested = Handler((command("fix", on_failure=nested),))
    run = History(workflow(step("a", on_failure=nested))).start()

    while run.queued:
        run.fail(run.queued[0])

    assert run.status == "failed"
    sizes = [len(everything_below(fact.failure)) for fact in run.facts() if getattr(fact, "failure", None)]
    assert max(sizes) == CAUSES_MAX + 1


def test_causes_that_fit_are_kept_as_they_are():
    inner = failure("EXIT_NONZERO", "inner", cause=(failure("TIMEOUT", "innermost"),))

    found = failure("CHILD_FAILED", cause=(inner,))

    assert found.cause == (inner,)


def test_fail_fast_strikes_for_a_critical_failure_however_many_remediations_it_was_sent_through():
    chain = [step(f"s{i}", next=[edge(f"s{i + 1}", "failure")]) for i in range(3)]
    run = History(workflow(*chain, step("s3"), step("other"))).start()

    run.fail("s0", reported=({"code": "SECURITY_VIOLATION"},)).fail("s1").fail("s2").fail("s3")

    assert run.facts(RunStopping)[0].reason == "SECURITY_VIOLATION in 's0'"
    assert run.statuses["other"] == "cancelled"


def test_details_that_an_event_has_no_room_for_are_left_out_and_their_size_is_said():
    small, large = {"path": "/data"}, {"dump": "x" * 1_000_000}
    errors = {"code": "A", "details": large}, {"code": "B", "details": small}
    run = History(workflow(step("a"))).start()

    run.fail("a", reported=errors)

    found = run["a"].failure
    assert (found.code, found.details) == ("A", {"dropped_bytes": 1_000_011})
    assert found.cause[0].details == small
