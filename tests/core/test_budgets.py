"""Spending is counted from the log, and no agent starts without budget."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from mulligan.core.effects import effects as fx
from mulligan.core.effects.tasks import make_task
from mulligan.core.evolve.spending_ledger import add_to_budget
from mulligan.core.model import events as e
from mulligan.core.model.agents.spending import Spent
from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.workflow import Action, Budget, Command, Handler, Map, Rule, Step, Triage
from mulligan.core.turn import fold
from mulligan.errors import InputInvalid, UnknownStep
from mulligan.testing.history import History, command, expression, retry, step, workflow

ASK = Action("agent", {"prompt": "What now?"})


def agent(name: str, **fields: Any) -> Step:
    return step(name, action=ASK, **fields)


def usd(text: str) -> Budget:
    return Budget(cost=Decimal(text))


def refused(run: History) -> list[tuple[str, str, str]]:
    """Place, whose budget and what of it, of the attempts that a budget has refused."""
    failed = [fact for fact in run.facts(e.AttemptFailed) if fact.failure.code == "BUDGET_EXCEEDED"]
    return [(fact.place, fact.failure.details["budget"], fact.failure.details["what"]) for fact in failed]


# -- counting --------------------------------------------------------------------------------------------------------


def test_calls_tokens_and_money_are_added_up_by_step_and_for_the_run() -> None:
    run = History(workflow(agent("a"), agent("b"))).start()

    run.ok("a", usage={"tokens": 30, "input_tokens": 20, "output_tokens": 10, "cost": "0.1"})
    run.ok("b", usage={"tokens": 5, "cost": "0.2"})

    assert run["a"].spent == Spent(1, 30, 20, 10, Decimal("0.1"))
    assert run["b"].spent == Spent(1, 5, cost=Decimal("0.2"))
    assert run.state.run.spent == Spent(2, 35, 20, 10, Decimal("0.3"))


def test_a_step_that_is_no_agent_spends_nothing_whatever_it_reports() -> None:
    run = History(workflow(step("a"))).start().ok("a", usage={"tokens": 30, "cost": "1"})

    assert not run["a"].spent
    assert not run.state.run.spent


def test_what_failed_and_retried_attempts_spent_counts() -> None:
    run = History(workflow(agent("a", rules=retry(2)))).start()

    run.fail("a", usage={"tokens": 7}).fail("a", usage={"tokens": 8}).ok("a", usage={"tokens": 9})

    assert run["a"].spent == Spent(3, 24)


def test_an_attempt_that_is_lost_or_interrupted_stays_a_call() -> None:
    run = History(workflow(agent("a"))).start()

    run.started("a").lose("a").started("a").interrupt("a").ok("a", usage={"tokens": 9})

    assert run["a"].spent == Spent(3, 9)


def test_a_lost_attempt_that_counts_as_failed_stays_a_call() -> None:
    run = History(workflow(agent("a", on_lost="fail"))).start().lose("a")

    assert (run["a"].status, run["a"].spent) == ("failed", Spent(1))


def test_a_result_that_is_reported_twice_is_counted_once() -> None:
    run = History(workflow(agent("a", rules=retry(1)))).start().fail("a", usage={"tokens": 7})

    run.report(TaskEnded(run.clock, "a", 1, usage={"tokens": 7}))

    assert run["a"].spent == Spent(2, 7)


def test_a_call_that_was_never_made_is_given_back() -> None:
    run = History(workflow(agent("a"), agent("b", needs=("a",)))).start()

    run.fail("a", 0, code="INPUT_INVALID", message="no agent 'oracle' here")

    assert run["a"].spent == Spent()


def test_an_agent_that_takes_over_an_earlier_result_makes_no_call_and_is_warned_of_nothing() -> None:
    run = History(workflow(agent("a"), budget=Budget(tokens=10))).start()

    run.report(TaskEnded(run.clock, "a", 1, output="x", fingerprint="f", reused_run_id=7))

    assert (run.status, run.state.run.spent, run["a"].warnings) == ("completed", Spent(), run["end"].warnings)


def test_a_call_that_was_cancelled_in_the_queue_is_given_back_and_one_that_ran_is_not() -> None:
    run = History(workflow(agent("a"), agent("b"))).start().started("a")

    run.cancel().fail("a", signal=15, usage={"tokens": 4})

    assert run["a"].spent == Spent(1, 4)
    assert run["b"].spent == Spent()


@pytest.mark.parametrize(
    ("code", "ended"), [(None, {"signal": 9}), (2, {}), (0, {"code": "INPUT_INVALID", "usage": {"tokens": 0}})]
)
def test_a_call_that_failed_after_it_began_stays_a_call(code: Any, ended: dict[str, Any]) -> None:
    run = History(workflow(agent("a"))).start().fail("a", code, **ended)

    assert run["a"].spent.calls == 1


def test_a_call_that_was_cancelled_while_it_ran_stays_a_call_also_without_figures() -> None:
    run = History(workflow(agent("a"))).start().started("a")

    run.cancel().fail("a", signal=15)

    assert run["a"].spent == Spent(1)


def test_a_call_of_the_first_run_that_is_taken_over_is_given_back() -> None:
    run = History(workflow(agent("a"))).start()

    run.report(TaskEnded(run.clock, "a", 1, output="x", fingerprint="f", reused_run_id=1))

    assert run["a"].spent == Spent()


def test_a_retry_that_waits_for_a_worker_is_given_back_when_it_is_cancelled() -> None:
    run = History(workflow(agent("a", rules=retry(1)))).start().started("a").fail("a", usage={"tokens": 3})

    run.cancel()

    assert run["a"].spent == Spent(1, 3)


def test_an_agent_that_says_how_many_calls_it_made_is_believed() -> None:
    run = History(workflow(agent("a"))).start().ok("a", usage={"calls": 4})

    assert run["a"].spent == Spent(4)


@pytest.mark.parametrize("said", [True, "many", -1, float("nan"), float("inf"), None, [], {}])
def test_what_is_no_figure_counts_for_nothing(said: Any) -> None:
    run = History(workflow(agent("a"))).start().ok("a", usage={"tokens": said, "cost": said, "calls": said})

    assert run["a"].spent == Spent(1)


def test_agents_of_items_handlers_scripts_checks_and_undos_count_for_their_step() -> None:
    ask = Command(action=ASK)
    mapped = step("m", map=Map(over=expression("items", "inputs")), do=(ask,))
    rule = Rule(any=True, max_retries=1, recovery_script=ask)
    plain = step("s", rules=(rule,), on_failure=Handler((ask,)), validator=None)
    run = History(workflow(mapped, plain), {"items": [1, 2]}).start()

    for key in ("m[0].0", "m[1].0"):
        run.ok(key, usage={"tokens": 10})
    run.fail("s").ok("s.script@1", usage={"tokens": 1}).fail("s").ok("s.on_failure@2.0", usage={"tokens": 2})

    assert run["m"].spent == Spent(2, 20)
    assert run["s"].spent == Spent(2, 3)
    assert run.state.run.spent == Spent(4, 23)


def test_what_a_child_run_spent_counts_for_the_step_that_called_it() -> None:
    child = step("c", action=Action("workflow", {"file": "child.yaml"}))
    run = History(workflow(child, children={"child.yaml": workflow(agent("a"))})).start()

    run.child_ended("c", usage={"calls": 3, "tokens": 40, "cost": "0.5"})

    assert run["c"].spent == Spent(3, 40, cost=Decimal("0.5"))


def test_a_replay_of_the_log_gives_the_same_sums() -> None:
    definition = workflow(agent("a", rules=retry(1)), budget=usd("1"))
    run = History(definition).start().fail("a", usage={"cost": "0.7"}).ok("a", usage={"cost": "0.7"})

    assert fold(definition, run.log) == run.state
    assert run.state.run.spent.cost == Decimal("1.4")


def test_a_log_from_before_agents_were_counted_folds_to_what_its_tables_hold() -> None:
    definition = workflow(agent("a", rules=retry(1)))
    run = History(definition).start().fail("a", usage={"tokens": 7}).ok("a", usage={"tokens": 7})

    old = [
        replace(entry, fact=replace(entry.fact, is_call=False)) if isinstance(entry.fact, e.AttemptScheduled) else entry
        for entry in run.log
    ]

    assert not fold(definition, old).run.spent


# -- refusing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "usage", "what"),
    [
        (Budget(calls=1), {}, "calls"),
        (Budget(tokens=100), {"tokens": 100}, "tokens"),
        (usd("0.30"), {"cost": "0.3"}, "cost"),
    ],
)
def test_an_agent_does_not_start_when_nothing_is_left_of_the_runs_budget(
    budget: Budget, usage: dict[str, Any], what: str
) -> None:
    run = History(workflow(agent("a"), agent("b", needs=("a",)), budget=budget)).start().ok("a", usage=usage)

    assert refused(run) == [("b", "run", what)]
    assert run.queued == []
    assert run.statuses == {"a": "completed", "b": "failed"}


def test_the_budget_of_a_step_holds_for_its_agents_alone() -> None:
    both = (agent("a", budget=Budget(tokens=10), max_visits=3), agent("b", needs=("a",)))
    run = History(workflow(*both)).start().ok("a", usage={"tokens": 11})

    assert refused(run) == []
    assert run.queued == ["b"]


def test_an_attempt_that_reports_more_than_was_left_keeps_its_work() -> None:
    run = History(workflow(agent("a"), budget=Budget(tokens=10))).start().ok("a", output="done", usage={"tokens": 99})

    assert run.status == "completed"
    assert run["a"].output == "done"


def test_a_refused_attempt_says_whose_budget_is_spent_and_how_much_of_it() -> None:
    run = History(workflow(agent("a"), agent("b", needs=("a",)), budget=usd("2"))).start().ok("a", usage={"cost": 2.5})

    failure = run["b"].failure
    assert failure is not None
    assert failure.details == {"budget": "run", "what": "cost", "limit": "2", "spent": "2.5"}
    assert failure.message == "the run has spent its budget for agents: $2.50 of $2.00"
    assert failure.is_fatal


def test_no_rule_but_one_that_names_it_retries_a_refused_attempt() -> None:
    named = agent("b", needs=("a",), rules=(Rule(codes=("BUDGET_EXCEEDED",), max_retries=1),))
    others = agent("c", needs=("a",), rules=retry(5))
    run = History(workflow(agent("a"), named, others, budget=Budget(calls=1))).start().ok("a")

    assert [place for place, _, _ in refused(run)] == ["b", "b", "c"]


def test_a_refused_agent_may_be_handled_by_what_costs_nothing() -> None:
    cheap = agent("b", needs=("a",), on_failure=Handler((command("cheap"),), strategy="fallback"))
    run = History(workflow(agent("a"), cheap, budget=Budget(calls=1))).start().ok("a")

    run.ok("b.on_failure@1.0", output="by hand")

    assert run.status == "completed"
    assert run["b"].output == "by hand"


def test_no_more_items_are_scheduled_than_calls_are_left() -> None:
    mapped = step(
        "m", map=Map(over=expression("items", "inputs"), on_item_failure="collect"), do=(Command(action=ASK),)
    )
    run = History(workflow(mapped, budget=Budget(calls=2)), {"items": [1, 2, 3, 4]}).start()

    assert run.queued == ["m[0].0", "m[1].0"]
    assert [place for place, _, _ in refused(run)] == ["m[2].0", "m[3].0"]


def test_agents_that_wait_for_a_worker_are_refused_when_another_has_spent_the_rest() -> None:
    mapped = step(
        "m", map=Map(over=expression("items", "inputs"), on_item_failure="collect"), do=(Command(action=ASK),)
    )
    run = History(workflow(mapped, budget=Budget(tokens=100)), {"items": [1, 2, 3]}).start()
    run.started("m[0].0").started("m[1].0")

    run.ok("m[0].0", usage={"tokens": 100})

    assert refused(run) == [("m[2].0", "run", "tokens")]
    assert fx.StopTask("m[2].0", 1, 0.0) in run.effects
    assert run.queued == ["m[1].0"]


def test_an_agent_that_runs_is_left_to_end_when_the_budget_is_spent_beside_it() -> None:
    run = History(workflow(agent("a"), agent("b"), budget=Budget(tokens=10))).start().started("a").started("b")

    run.ok("a", usage={"tokens": 20}).ok("b", usage={"tokens": 20})

    assert run.status == "completed"
    assert run.state.run.spent == Spent(2, 40)


def test_a_child_run_may_not_spend_more_than_its_caller_has_left() -> None:
    run = History(workflow(agent("a"), agent("b", needs=("a",)), budget=Budget(tokens=1000)))
    run.start(callers_budget=Budget(tokens=10))

    run.ok("a", usage={"tokens": 10})

    assert refused(run) == [("b", "caller", "tokens")]
    assert run["b"].failure is not None
    assert run["b"].failure.message.startswith("the calling run has spent its budget for agents: 10 tokens of 10")


def test_a_step_that_has_spent_its_budget_says_so() -> None:
    run = History(workflow(agent("a", budget=Budget(calls=1), rules=retry(1)))).start().fail("a")

    assert run["a"].failure is not None
    assert run["a"].failure.message == "the step has spent its budget for agents: 1 call of 1 call"


def test_a_shell_step_that_waits_for_a_worker_is_not_refused_when_the_budget_is_spent() -> None:
    run = History(workflow(agent("a"), step("b"), budget=Budget(tokens=10))).start().started("a")

    run.ok("a", usage={"tokens": 10})

    assert (refused(run), run.queued) == ([], ["b"])


# -- what is left ----------------------------------------------------------------------------------------------------


def test_a_worker_is_told_what_is_left_the_attempts_own_call_included() -> None:
    both = (agent("a"), agent("b", needs=("a",), budget=Budget(tokens=70, calls=9)))
    run = History(workflow(*both, budget=Budget(tokens=100, cost=Decimal("1"), calls=5))).start()

    run.ok("a", usage={"tokens": 40, "cost": "0.25"})

    assert make_task(run.state, "b").budget == Budget(tokens=60, cost=Decimal("0.75"), calls=4)


def test_a_worker_is_told_nothing_where_there_is_no_budget() -> None:
    assert make_task(History(workflow(agent("a"))).start().state, "a").budget is None


def test_a_limit_of_which_nothing_was_reported_is_warned_of() -> None:
    run = History(workflow(agent("a"), budget=Budget(tokens=100, cost=Decimal("1")))).start()

    run.ok("a", usage={"tokens": 3})

    [warning] = run["a"].warnings
    assert (warning.code, warning.severity, warning.details) == ("BUDGET_UNREPORTED", "warning", {"what": ["cost"]})


@pytest.mark.parametrize(
    ("budget", "usage", "what"),
    [
        (Budget(tokens=100, cost=Decimal("1")), {"calls": 1}, "tokens and cost"),
        (Budget(tokens=100), {"calls": 1}, "tokens"),
        (usd("1"), {"calls": 1}, "cost"),
    ],
)
def test_a_warning_names_only_the_limits_that_cannot_be_enforced(
    budget: Budget, usage: dict[str, Any], what: str
) -> None:
    [warning] = History(workflow(agent("a"), budget=budget)).start().ok("a", usage=usage)["a"].warnings

    assert warning.message == (
        f"the budget limits {what}, but the agent reported no {what}, so the limit cannot be enforced"
    )


# -- raising ---------------------------------------------------------------------------------------------------------


def exhausted() -> History:
    return (
        History(workflow(agent("a"), agent("b", needs=("a",)), budget=usd("1"))).start().ok("a", usage={"cost": "1.5"})
    )


def test_a_round_without_more_budget_is_refused_again() -> None:
    run = exhausted().retry()

    assert run.status == "failed"
    assert len(refused(run)) == 2


def test_a_round_with_a_raised_budget_goes_on() -> None:
    run = exhausted().retry(budgets={"": usd("5")})

    run.ok("b", usage={"cost": "1"})

    assert run.status == "completed"
    assert run.state.run.spent == Spent(2, cost=Decimal("2.5"))
    assert fold(run.state.workflow, run.log) == run.state


def test_a_raised_limit_leaves_the_other_limits_as_they_were() -> None:
    run = History(workflow(agent("a"), agent("b", needs=("a",)), budget=Budget(tokens=10, calls=1))).start().ok("a")

    run.retry(budgets={"": Budget(calls=7)})

    assert make_task(run.state, "b").budget == Budget(tokens=10, calls=6)


def test_a_budget_that_would_leave_nothing_is_refused() -> None:
    run = exhausted()

    with pytest.raises(InputInvalid) as found:
        run.retry(budgets={"": usd("1.50")})
    assert found.value.message == "run 1 has already spent $1.50, so a budget of $1.50 leaves nothing"
    assert found.value.hint == "raise it above what was spent"
    with pytest.raises(InputInvalid) as found:
        run.retry(budgets={"a": usd("1.50")})
    assert found.value.message == "step 'a' has already spent $1.50, so a budget of $1.50 leaves nothing"


def test_a_limit_of_which_nothing_was_counted_yet_may_be_raised() -> None:
    run = exhausted().retry(budgets={"": replace(usd("5"), tokens=1), "a": Budget(tokens=1), "end": Budget(calls=1)})

    assert run.queued == ["b"]


def test_a_budget_of_a_step_that_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownStep) as found:
        exhausted().retry(budgets={"c": usd("9")})

    assert (found.value.message, found.value.hint) == ("'c' is not a step of run 1", "")
    assert found.value.data == {"step": "c"}


def test_a_budget_of_a_matrix_is_raised_by_the_names_of_its_steps() -> None:
    swept = (agent("fit[x=1]", sweep="fit"), agent("fit[x=2]", sweep="fit"))
    run = History(workflow(*swept, budget=Budget(calls=1))).start().fail("fit[x=1]")

    with pytest.raises(UnknownStep) as found:
        run.retry(budgets={"fit": Budget(calls=9)})

    assert found.value.hint == "'fit' is a matrix: name one of its steps, such as 'fit[x=1]'"


def test_whoever_classifies_a_parked_agent_may_raise_its_budget() -> None:
    parked = agent("b", needs=("a",), budget=Budget(calls=1), triage=Triage(), max_visits=2, rules=retry(1))
    run = History(workflow(agent("a"), parked)).start().ok("a").fail("b")
    assert run["b"].status == "pending_failed"

    run.classify("b", "retry", budgets={"b": Budget(calls=2)}).ok("b")

    assert run.status == "completed"


def test_who_has_spent_some_may_spend_the_whole_budget_in_addition() -> None:
    spent = Spent(tokens=30, cost=Decimal("0.5"), calls=2)

    more = add_to_budget(Budget(tokens=100, cost=Decimal(2)), spent)

    assert more == Budget(tokens=130, cost=Decimal("2.5"))
    assert add_to_budget(Budget(tokens=100), Spent()) == Budget(tokens=100)
