"""Recovery scripts run only for a reserved retry."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import Action, Backoff, Command, Rule, Template
from mulligan.errors import ExpressionFailed
from mulligan.testing.history import T0, History, command, edge, expression, handler, retry, shell, step, workflow


def scripted(max_retries: int = 3, delay: float = 0.0, **fields: object) -> Rule:
    fields.setdefault("recovery_script", command("clear-cache"))
    return Rule(any=True, max_retries=max_retries, backoff=Backoff(delay=delay), **fields)


def run_of(*rules: Rule, **fields: object) -> History:
    return History(workflow(step("a", rules=rules, **fields))).start()


# -- the reservation -------------------------------------------------------------------------------------------------


def test_the_retry_is_reserved_before_its_script_runs():
    """Torc: the retry is reserved first, so that no script runs for a retry that will not happen."""
    run = run_of(scripted()).fail("a")

    assert run.follows[1:] == [
        e.RetryScheduled("a", attempt=2, rule=0, number=1, due=T0, has_script=True),
        e.CommandEntered("a.script@1", "a", "script"),
        e.AttemptScheduled("a.script@1", 1),
    ]


def test_the_reservation_and_the_script_come_of_one_turn():
    run = run_of(scripted()).fail("a")

    causes = {type(entry.fact): entry.caused_by for entry in run.last}
    assert causes[e.RetryScheduled] == causes[e.CommandEntered] == run.last[0].seq


def test_no_script_runs_when_the_retries_are_used_up():
    run = run_of(scripted(1)).fail("a").ok("a.script@1").fail("a")

    assert run.status == "failed"
    assert [fact.place for fact in run.facts(e.CommandEntered)] == ["a.script@1"]


def test_no_attempt_follows_a_script_that_outlasts_the_deadline():
    run = run_of(scripted(), deadline=60.0).fail("a").wait(61)

    run.ok("a.script@1")

    assert (run["a"].status, run["a"].failure.message) == ("failed", "it took longer than its deadline")
    assert [fact.attempt for fact in run.facts(e.AttemptScheduled) if fact.place == "a"] == [1]
    assert run.passed[-2:] == [("retry", "deadline_passed"), ("route", "no_route")]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"max_attempts": 1}, "attempts_exhausted"), ({"deadline": 5.0}, "deadline_passed")],
)
def test_no_script_runs_for_a_retry_that_a_bound_refuses(fields, reason):
    run = run_of(scripted(delay=10), **fields).fail("a")

    assert run.passed[0] == ("retry", reason)
    assert run.facts(e.CommandEntered) == []


def test_no_script_runs_for_a_failure_that_no_rule_matches():
    run = run_of(Rule(exit_codes=(10,), recovery_script=command())).fail("a", 11)

    assert run.facts(e.CommandEntered) == []


def test_the_script_is_that_of_the_rule_that_matched():
    """Torc: each rule has its own recovery script."""
    rules = (
        Rule(any=True),
        Rule(exit_codes=(10,), recovery_script=command("ten")),
        Rule(exit_codes=(11,), recovery_script=command("eleven")),
    )

    run = run_of(*rules).fail("a", 11)

    assert run["a.script@1"].spec.action == shell("eleven")


def test_a_failure_reported_twice_starts_one_script():
    run = run_of(scripted()).fail("a")

    run.report(r.TaskEnded(run.clock, "a", 1, Outcome(1)))

    assert run.follows == [e.ReportRefused("a", 1, "already_ended")]
    assert run.queued == ["a.script@1"]


def test_each_retry_runs_the_script_again():
    run = run_of(scripted(2)).fail("a").ok("a.script@1").fail("a").ok("a.script@2").ok("a")

    assert run.status == "completed"
    assert [fact.place for fact in run.facts(e.CommandCompleted)] == ["a.script@1", "a.script@2"]


# -- when the step is ready ------------------------------------------------------------------------------------------


def test_the_step_waits_for_its_script():
    run = run_of(scripted()).fail("a")

    assert (run["a"].status, run.queued) == ("backing_off", ["a.script@1"])

    run.ok("a.script@1")
    assert run.queued == ["a"]


def test_the_step_waits_for_the_delay_although_the_script_has_ended():
    run = run_of(scripted(delay=30)).fail("a").wait(10).ok("a.script@1")

    assert (run["a"].status, run.queued) == ("backing_off", [])

    run.wait(20)
    assert run.queued == ["a"]


def test_the_step_waits_for_the_script_although_the_delay_is_over():
    run = run_of(scripted(delay=30)).fail("a").wait(60)

    assert (run["a"].status, run.queued) == ("backing_off", ["a.script@1"])

    run.ok("a.script@1")
    assert run.queued == ["a"]


def test_the_step_is_scheduled_once_when_script_and_delay_end_together():
    run = run_of(scripted(delay=30)).fail("a").wait(29)
    run.clock = T0.replace(second=30)

    run.ok("a.script@1").wait(0)

    assert [fact.attempt for fact in run.facts(e.AttemptScheduled) if fact.place == "a"] == [1, 2]


# -- what becomes of the script --------------------------------------------------------------------------------------


def test_a_script_that_fails_is_recorded_and_the_retry_goes_on():
    """Torc: a recovery script's failure does not stop the retry."""
    run = run_of(scripted()).fail("a").fail("a.script@1", 7)

    (failed,) = run.facts(e.CommandFailed)
    assert (failed.role, failed.failure.code, failed.failure.exit_code) == ("script", "EXIT_NONZERO", 7)
    assert run.queued == ["a"]
    assert run.ok("a").status == "completed"


def test_a_script_that_fails_leaves_the_steps_own_failure_as_it_was():
    run = run_of(scripted(1)).fail("a", 3).fail("a.script@1", 7).fail("a", 4)

    found = run["a"].failure
    assert found is not None
    assert (found.exit_code, found.handler_failure) == (4, None)


def test_a_script_whose_expressions_fail_does_not_stop_the_retry():
    action = Action("shell", {"text": "echo $V"}, {"V": Template((expression("v", "error"),))})
    rule = scripted(recovery_script=Command(action=action))

    run = History(workflow(step("a", rules=(rule,))), {"v": ExpressionFailed("no such key: 'v'")}).start().fail("a")

    (failed,) = run.facts(e.CommandFailed)
    assert (failed.failure.code, failed.failure.message) == ("EXPRESSION_FAILED", "no such key: 'v'")
    assert run.queued == ["a"]


def test_a_script_whose_worker_is_lost_runs_again():
    run = run_of(scripted()).fail("a").lose("a.script@1")

    assert (run.queued, run["a.script@1"].attempt) == (["a.script@1"], 2)
    assert run.ok("a.script@1").queued == ["a"]


def test_a_script_may_have_a_retry_and_a_handler_of_its_own():
    script = command("clear-cache", rules=retry(1), on_failure=handler("clear-by-hand"))

    run = run_of(scripted(recovery_script=script)).fail("a").fail("a.script@1").fail("a.script@1")

    assert run.queued == ["a.script@1.on_failure@2.0"]
    assert run.ok("a.script@1.on_failure@2.0").queued == ["a"]


def test_a_script_sees_the_failure_it_is_about():
    """Torc: the script is told the attempt and the return code."""
    seen: list[object] = []
    action = Action("shell", {"text": "echo $V"}, {"V": Template((expression("v", "error"),))})
    rule = scripted(recovery_script=Command(action=action))

    History(workflow(step("a", rules=(rule,))), {"v": lambda names: seen.append(names["error"])}).start().fail("a", 11)

    (error,) = seen
    assert (error["exit_code"], error["attempt"], error["step"], error["code"]) == (11, 1, "a", "EXIT_NONZERO")


def test_a_late_result_of_the_failed_attempt_is_refused_while_the_script_runs():
    run = run_of(scripted()).fail("a").started("a.script@1")

    run.report(r.TaskEnded(run.clock, "a", 1, output="after all"))

    assert run.follows == [e.ReportRefused("a", 1, "already_ended")]
    assert run["a"].output is None


def test_cancelling_voids_the_reserved_retry():
    run = run_of(scripted(delay=30)).fail("a").started("a.script@1").cancel()

    run.fail("a.script@1", None, signal=15).wait(60)

    assert (run.status, run["a"].status) == ("cancelled", "failed")
    assert [fact.attempt for fact in run.facts(e.AttemptScheduled) if fact.place == "a"] == [1]


# -- laws ------------------------------------------------------------------------------------------------------------

RULES = st.builds(
    lambda kind, max_retries, delay, has_script: Rule(
        **kind,
        max_retries=max_retries,
        backoff=Backoff(delay=delay),
        recovery_script=command() if has_script else None,
    ),
    st.sampled_from([{"exit_codes": (10,)}, {"codes": ("EXIT_NONZERO",)}, {"any": True}]),
    st.integers(0, 3),
    st.sampled_from([0.0, 7.0]),
    st.booleans(),
)
MOVES = st.sampled_from(["fail", "fail 10", "lose", "interrupt", "wait", "script ok", "script fails", "twice"])


@settings(max_examples=examples(40, 100))
@given(rules=st.lists(RULES, min_size=1, max_size=3).map(tuple), moves=st.lists(MOVES, max_size=30))
def test_a_script_never_runs_without_a_reserved_retry_and_no_attempt_starts_beside_it(rules, moves):
    run = History(workflow(step("a", rules=rules, next=[edge("fix", on="failure", then="rerun")]), step("fix"))).start()

    for move in moves:
        _make(run, move)

    reserved, script_of = None, ""
    last: dict[str, int] = {}
    for fact in run.facts():
        if isinstance(fact, e.RetryScheduled):
            assert reserved is None
            reserved = fact
        elif isinstance(fact, e.CommandEntered):
            assert reserved is not None and reserved.has_script and not script_of
            script_of = fact.place
        elif isinstance(fact, e.CommandCompleted | e.CommandFailed):
            script_of = ""
        elif isinstance(fact, e.AttemptScheduled):
            assert fact.attempt > last.get(fact.place, 0)
            last[fact.place] = fact.attempt
            if fact.place == "a":
                assert not script_of
                assert reserved is None or fact.attempt == reserved.attempt
                reserved = None


def _make(run: History, move: str) -> None:
    script = f"a.script@{run['a'].attempt}"
    if move == "wait":
        run.wait(7)
    elif move.startswith("script"):
        if script in run.queued:
            run.ok(script) if move == "script ok" else run.fail(script)
    elif move == "twice":
        run.report(r.TaskEnded(run.clock, "a", run["a"].attempt - 1, Outcome(1)))
    elif "fix" in run.queued:
        run.ok("fix")
    elif "a" in run.queued:
        {"lose": run.lose, "interrupt": run.interrupt}.get(move, lambda key: run.fail(key, 10 if "10" in move else 1))(
            "a"
        )


@pytest.mark.parametrize(
    ("script", "is_told"),
    [
        (Command(action=Action("agent", {"prompt": "what went wrong?"})), True),
        # What a program prints is no advice.
        (command("clear"), False),
    ],
)
def test_only_an_agent_advises_the_next_attempt_of_an_agent(script, is_told):
    rule = Rule(any=True, recovery_script=script)
    flow = workflow(step("a", action=Action("agent", {"prompt": "mend it"}), rules=(rule,)))

    run = History(flow).start().fail("a").ok("a.script@1", output={"content": "look at the disk"})

    assert (run.facts(e.AttemptScheduled)[-1].summary == "look at the disk") is is_told


def test_advice_is_for_the_next_attempt_alone():
    advisor = Command(action=Action("agent", {"prompt": "what went wrong?"}))
    rules = Rule(exit_codes=(1,), recovery_script=advisor), Rule(any=True)
    flow = workflow(step("a", action=Action("agent", {"prompt": "mend it"}), rules=rules))
    run = History(flow).start().fail("a").ok("a.script@1", output={"content": "look at the disk"})

    run.fail("a", 2)

    assert "look at the disk" not in run.facts(e.AttemptScheduled)[-1].summary


def test_in_the_place_of_advice_that_is_gone_an_agent_is_told_of_its_failure():
    kept = {"$artifact": {"name": "1/a/output.json", "size": 81920, "sha256": "9f2c", "format": "json"}}

    def told(script: Command, output: Any) -> str:
        rule = Rule(any=True, recovery_script=script)
        flow = workflow(step("a", action=Action("agent", {"prompt": "mend it"}), rules=(rule,)))
        run = History(flow, {"output": ExpressionFailed("the artifact is gone")}).start().fail("a", stderr_tail="full")
        summary: str = run.ok("a.script@1", output=output).facts(e.AttemptScheduled)[-1].summary
        return summary

    gone = told(Command(action=Action("agent", {"prompt": "what went wrong?"})), kept)

    assert "full" in gone
    assert gone == told(command("clear"), None)
