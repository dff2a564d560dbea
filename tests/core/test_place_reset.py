"""When a place moves to its next stage, nothing of the stage before is left."""

from __future__ import annotations

from mulligan.core.deciding.agents.agent_context import agent_context
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import Action, Command, Map, Resources, Rule, Step, Triage
from mulligan.testing.history import History, command, expression, handler, retry, step, workflow

MIB = 1024 * 1024


def run_of(*steps: Step, **answers: object) -> History:
    return History(workflow(*steps), answers).start()


def out_of_memory(run: History, key: str) -> History:
    report = r.TaskEnded(run.clock, key, run[key].attempt, Outcome(signal=9, is_out_of_memory=True))
    run.tasks.pop(key, None)
    return run.report(report)


def adjusted(run: History, key: str) -> Adjusted | None:
    """What the last attempt of a place got in place of what the workflow says."""
    found: list[e.AttemptScheduled] = [fact for fact in run.facts(e.AttemptScheduled) if fact.place == key]
    return found[-1].adjusted


def test_a_place_whose_result_was_not_accepted_is_checked_no_longer() -> None:
    run = run_of(step("a", validator=command("check"), on_failure=handler("fix"))).ok("a")
    assert run["a"].phase == "validating"

    run.fail("a.validator@1")

    assert (run["a"].status, run["a"].phase) == ("handling", "")


def test_what_rung_1_said_of_an_earlier_failure_is_not_told_of_one_that_it_retries() -> None:
    script = Command(action=Action("agent", {"prompt": "mend"}))
    rules = (Rule(codes=("TIMEOUT",), recovery_script=script),)
    run = run_of(step("a", rules=rules, triage=Triage())).fail("a", 7).classify("a", "retry")
    assert run.passed == [("retry", "no_rule")]

    run.fail("a", None, is_timed_out=True)

    [told] = agent_context(run.state, run["a.script@2"]).failed
    assert (told.reason, told.failure.code) == ("retry_scheduled", "TIMEOUT")


def test_a_retry_that_a_stop_made_void_is_due_no_more_while_its_place_is_cleaned_up() -> None:
    run = run_of(step("a", rules=retry(1, delay=60), on_failure=handler("sweep", strategy="cleanup"))).fail("a")
    assert run["a"].climb.due is not None

    run.cancel()

    assert (run["a"].status, run["a"].climb.due) == ("handling", None)


def test_a_handler_that_has_ended_has_no_time_limit_any_more() -> None:
    well = run_of(step("a", on_failure=handler("fix", timeout=60))).fail("a")
    badly = run_of(step("a", on_failure=handler("fix", timeout=60))).fail("a")
    assert well["a"].climb.handler_due == badly["a"].climb.handler_due is not None

    well.ok("a.on_failure@1.0")
    badly.fail("a.on_failure@1.0")

    assert (well["a"].climb.handler_due, badly["a"].climb.handler_due) == (None, None)


def test_what_a_round_gives_to_a_map_is_for_the_commands_of_its_items() -> None:
    one = command("one", resources=Resources(memory=10 * MIB))
    run = run_of(step("m", map=Map(over=expression("list")), do=(one,)), list=[1])
    out_of_memory(run, "m[0].0")

    run.retry(adjust=True)

    assert adjusted(run, "m[0].0") == Adjusted(memory=15 * MIB)
    assert adjusted(run, "m") is None


def test_a_command_that_asks_for_no_memory_gets_what_a_round_gives_to_its_step() -> None:
    does = (command("one", resources=Resources(memory=10 * MIB)), command("two", resources=Resources(cpus=2)))
    run = run_of(step("m", map=Map(over=expression("list")), do=does), list=[1])
    out_of_memory(run, "m[0].0")

    run.retry(adjust=True).ok("m[0].0")

    assert adjusted(run, "m[0].1") == Adjusted(memory=15 * MIB)
