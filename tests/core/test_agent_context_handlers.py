"""The context of agents in handlers and recovery scripts: failures, times and rejected outputs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mulligan.core.deciding.agents.agent_context import AgentContext, PriorOutput, agent_context, reads_upstream
from mulligan.core.model.workflow import Action, Command, Handler, Rule, Step
from mulligan.testing.history import T0, History, command, edge, expression, step, workflow


def agent(**params: Any) -> Command:
    return Command(action=Action("agent", {"prompt": "mend", **params}))


def thinking(name: str, **fields: Any) -> Step:
    return step(name, action=Action("agent", {"prompt": "think"}), **fields)


def run_of(*steps: Step, answers: dict[str, Any] | None = None, **fields: Any) -> History:
    return History(workflow(*steps, **fields), answers).start()


def context_of(run: History, key: str) -> AgentContext:
    return agent_context(run.state, run[key])


def test_an_agent_that_mends_is_told_whose_failure_it_is_and_what_the_rules_said_of_it() -> None:
    rules = (Rule(exit_codes=(9,), max_retries=2),)
    run = run_of(step("a", rules=rules, on_failure=Handler((agent(),)))).wait(5).fail("a", 9).fail("a", 7)

    [failed] = context_of(run, "a.on_failure@2.0").failed

    assert (failed.step, failed.visit, failed.attempt, failed.reason) == ("a", 1, 2, "no_rule")
    assert (failed.max_retries, failed.retries_used, failed.failure.exit_code) == (2, 1, 7)
    assert (failed.failed_at, failed.summary) == (T0 + timedelta(seconds=5), None)
    assert (failed.entered_seq, failed.failure_seq) == (run["a"].entered_seq, run["a"].climb.failure_seq)


def test_since_when_a_failure_is_there_does_not_change_with_what_is_reported_later() -> None:
    mended = step("a", validate=expression("good", "output"), on_failure=Handler((agent(),)))
    run = run_of(mended, step("b"), answers={"good": False}).wait(5).ok("a", output="bad")

    run.wait(10).ok("b")

    found, since = context_of(run, "a.on_failure@1.0"), T0 + timedelta(seconds=5)
    assert (found.failed[0].failed_at, found.outputs[0].given_at) == (since, since)


def test_an_agent_that_is_a_recovery_script_is_told_that_a_retry_comes() -> None:
    rules = (Rule(any=True, max_retries=2, recovery_script=agent()),)
    run = run_of(step("a", rules=rules)).fail("a")

    [failed] = context_of(run, "a.script@1").failed

    assert failed.reason == "retry_scheduled"


def test_an_agent_in_a_handler_that_no_rung_has_passed_to_is_told_no_reason() -> None:
    sweeping = Handler((agent(),), strategy="cleanup")
    run = run_of(step("a", on_failure=sweeping)).started("a").wait(3)

    run.cancel().wait(2).fail("a", None, signal=15)

    [failed] = context_of(run, "a.on_failure@1.0").failed
    assert (failed.reason, failed.failure.code) == ("", "CANCELLED")


def test_what_belongs_to_a_handler_is_told_of_the_same_failure() -> None:
    checked = Handler((Command(action=Action("shell", {"text": "fix"}), validator=agent()),))
    run = run_of(step("a", on_failure=checked)).fail("a", 7)

    run.ok("a.on_failure@1.0")

    assert [one.step for one in context_of(run, "a.on_failure@1.0.validator@1").failed] == ["a"]


def test_a_step_of_its_own_is_told_of_no_failure_but_those_that_led_to_it() -> None:
    run = run_of(thinking("a", rules=(Rule(any=True),))).fail("a")

    assert context_of(run, "a").failed == ()


def test_the_summary_of_the_attempt_before_is_told_with_the_failure_that_is_to_be_mended() -> None:
    rules = (Rule(exit_codes=(9,), max_retries=1),)
    run = run_of(thinking("a", rules=rules, on_failure=Handler((agent(),)))).fail("a", 9, stderr_tail="first")

    run.fail("a", 7, stderr_tail="second")

    [failed] = context_of(run, "a.on_failure@2.0").failed
    assert failed.summary is not None
    assert failed.summary == run["a"].climb.summary


# -- what was not accepted -------------------------------------------------------------------------------------------


def test_what_was_not_accepted_is_told_to_who_mends_it_before_all_else() -> None:
    mended = step("b", needs=["a"], validate=expression("good", "output"), on_failure=Handler((agent(),)))
    run = run_of(step("a"), mended, answers={"good": False}).ok("a", output="from a").wait(5).ok("b", output="bad")

    heard = context_of(run, "b.on_failure@1.0").outputs

    assert [(one.step, one.output) for one in heard] == [("b", "bad"), ("a", "from a")]
    place = run["b"]
    assert heard[0] == PriorOutput(
        "b", 1, 1, place.entered_seq, place.climb.failure_seq, T0 + timedelta(seconds=5), "bad"
    )


def test_where_nothing_was_given_there_is_nothing_that_was_not_accepted() -> None:
    run = run_of(step("b", on_failure=Handler((agent(),)))).fail("b")

    assert context_of(run, "b.on_failure@1.0").outputs == ()


def test_nothing_was_given_and_that_was_not_accepted() -> None:
    mended = step("b", validate=expression("good", "output"), on_failure=Handler((agent(),)))
    run = run_of(mended, answers={"good": False}).ok("b")

    assert context_of(run, "b.on_failure@1.0").outputs == ()


# -- what came before ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "hears"),
    [
        (agent(), True),
        (agent(upstream=True), True),
        (agent(upstream=False), False),
        (command(), False),
        (Command(action=Action("shell", {"text": "x", "upstream": True})), False),
        (Command(), False),
    ],
)
def test_only_an_agent_hears_what_came_before_and_only_if_it_wants_to(spec: Command, hears: bool) -> None:
    assert reads_upstream(spec) is hears


def test_those_whose_edges_led_here_are_heard_in_the_order_of_the_file() -> None:
    steps = (step("c", next=["z"]), step("b", next=["z"]), step("a", next=["z"]), thinking("z"))
    run = run_of(*steps)

    run.ok("a", output=1).ok("b", output=2).ok("c", output=3)

    assert [one.step for one in context_of(run, "z").outputs] == ["c", "b", "a"]


def test_an_edge_that_is_still_waited_for_is_not_heard_and_one_that_has_arrived_is() -> None:
    steps = (step("a", next=["z"]), step("b", next=["z"]), thinking("z", join="first"))
    run = run_of(*steps)

    run.ok("b", output="early")

    assert [(one.step, one.output) for one in context_of(run, "z").outputs] == [("b", "early")]


def test_an_arrival_that_came_while_another_visit_was_under_way_is_heard_in_its_own() -> None:
    steps = (step("a", next=["z"]), step("b", next=["z"]), thinking("z", join="each"))
    run = run_of(*steps).ok("a", output=1).ok("b", output=2)

    run.ok("z")

    assert {one.step for one in context_of(run, "z").outputs} <= {"a", "b"}
    assert "b" in {one.step for one in context_of(run, "z").outputs}


def test_a_loop_that_led_back_is_heard_beside_who_led_there_first() -> None:
    steps = (step("s", next=["a"]), thinking("a", next=["b"]), step("b", next=[edge("a", when="more")]))
    run = run_of(*steps, answers={"more": True}).ok("s", output="first").ok("a", output="x").ok("b", output="again")

    assert [(one.step, one.output) for one in context_of(run, "a").outputs] == [("s", "first"), ("b", "again")]


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ({"content": "said", "decision": "", "tokens": 3}, "said"),
        ({"content": "said", "decision": "", "tokens": 3, "json": {"a": 1}}, "said"),
        # Something else is in it: then all of it is told.
        ({"content": "said", "decision": "", "tokens": 3, "more": 1}, '"more":1'),
        ({"content": 7, "decision": "", "tokens": 3}, '"content":7'),
        ({"content": "said"}, '"content":"said"'),
    ],
)
def test_an_answer_that_has_nothing_but_a_text_is_told_as_that_text(output: dict[str, Any], text: str) -> None:
    found = AgentContext("z", outputs=(PriorOutput("a", 1, 1, 1, 2, T0, output),)).text(1)

    assert text in found
    assert ("content_type: text" in found) is (text == "said")
