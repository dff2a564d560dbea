"""What agents spend, booked from the facts alone to the step that they work for and to the run. Part of `evolve`.

    scheduled    an attempt of an agent is a call from here on: so nobody can schedule more calls than a budget leaves
    ended        the tokens and the money that it reported, and its further calls, if it made any
    not made     one that failed or was cancelled before anything ran, or took over an earlier result: its call is
                 given back

A child run reports what its agents have spent when it ends, and that is booked to the step that called it. An attempt
whose worker was lost stays a call; what it spent beside that, nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mulligan.core.evolve.places import is_agent
from mulligan.core.model import events as e
from mulligan.core.model.spending import NOTHING_SPENT, Spent, spent_from_usage
from mulligan.core.model.workflow import Budget, Command
from mulligan.core.state.state import Place, Run, State

_A_CALL, _NO_CALL = Spent(calls=1), Spent(calls=-1)


def _book(state: State, place: Place, more: Spent) -> None:
    if more == NOTHING_SPENT:
        return
    step = state.touch(state.step_of(place).key)
    step.spent += more
    state.run.spent += more


def _book_call(state: State, fact: e.AttemptScheduled, entry: e.Entry) -> None:
    place = state.places[fact.place]
    if fact.is_call:
        # Until a worker says that it has begun, nobody has.
        state.touch(fact.place).worker = ""
        _book(state, place, _A_CALL)


def _book_usage(state: State, fact: e.AttemptSucceeded | e.AttemptFailed | e.AttemptCancelled, entry: e.Entry) -> None:
    place = state.places[fact.place]
    if _calls_a_child(place.spec):
        _book(state, place, spent_from_usage(fact.usage))
    elif is_agent(place.spec) and fact.attempt == place.attempt and state.step_of(place).spent.calls:
        # Where no call was counted, the log is from before agents were: its tables have no sums, and none are made up.
        _book(state, place, _agent_spending(place, fact))


def _agent_spending(place: Place, fact: e.AttemptSucceeded | e.AttemptFailed | e.AttemptCancelled) -> Spent:
    """What is booked beside the call itself, which was booked before."""
    if _never_ran(place, fact):
        return _NO_CALL
    said = spent_from_usage(fact.usage)
    return said + _NO_CALL if said.calls else said


def _never_ran(place: Place, fact: e.AttemptSucceeded | e.AttemptFailed | e.AttemptCancelled) -> bool:
    """Whether the attempt ended before anything ran: nothing was measured, and nothing has exited."""
    if isinstance(fact, e.AttemptSucceeded):
        return fact.reused_run_id > 0
    if isinstance(fact, e.AttemptFailed):
        found = fact.failure
        return not (fact.usage or found.exit_code or found.signal) and found.code != "WORKER_LOST"
    return isinstance(fact, e.AttemptCancelled) and not place.worker and not fact.usage


def _calls_a_child(spec: Command) -> bool:
    return spec.action is not None and spec.action.kind == "workflow"


def raise_budgets(run: Run, more: Mapping[str, Budget]) -> None:
    """The limits of `more` hold from here on."""
    if more:
        run.budgets = {**run.budgets, **{step: raise_budget(run.budgets.get(step), one) for step, one in more.items()}}


def raise_budget(before: Budget | None, more: Budget) -> Budget:
    """The budget with the limits of `more` in the place of its own."""
    limits = {**(before.limits if before else {}), **more.limits}
    return Budget(**limits)


# What is booked before the fact becomes true. What is no agent costs one look.
SPENDING_HANDLERS: dict[type[e.Fact], Callable[[State, Any, e.Entry], None]] = {
    e.AttemptScheduled: _book_call,
    e.AttemptSucceeded: _book_usage,
    e.AttemptFailed: _book_usage,
    e.AttemptCancelled: _book_usage,
}
