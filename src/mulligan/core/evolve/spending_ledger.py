"""Book what agents spend to their step and to the run, from facts alone. Part of `evolve`.

    scheduled    an attempt of an agent counts as a call, so that a budget bounds the calls that can be scheduled
    ended        the tokens and the money that it reported, and its further calls
    never ran    an attempt that failed or was cancelled before it ran, or took over an earlier result: its call is
                 given back

A child run reports what its agents spent when it ends; that is booked to the step that called it. An attempt of a lost
worker stays a call; what else it spent is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mulligan.core.evolve.evolve_places import is_agent_call
from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.agents.spending import NOTHING_SPENT, Spent, spent_from_usage
from mulligan.core.model.workflow import Budget
from mulligan.core.state.state import Place, Run, State

_A_CALL, _NO_CALL, _A_TOOL_CALL = Spent(calls=1), Spent(calls=-1), Spent(tool_calls=1)


def _book(state: State, place: Place, more: Spent) -> None:
    if more == NOTHING_SPENT:
        return
    step = state.touch(state.step_of(place).key)
    step.spent += more
    state.run.spent += more


def _book_call(state: State, fact: e.AttemptScheduled, entry: e.Entry) -> None:
    place = state.places[fact.place]
    if fact.is_call:
        # Cleared until a worker reports that it has started.
        state.touch(fact.place).worker = ""
        _book(state, place, _A_CALL)


def _book_usage(state: State, fact: e.AttemptSucceeded | e.AttemptFailed | e.AttemptCancelled, entry: e.Entry) -> None:
    place = state.places[fact.place]
    if traits_of(place.spec.action).calls_run:
        _book(state, place, spent_from_usage(fact.usage))
    elif is_agent_call(place.spec) and fact.attempt == place.attempt and state.step_of(place).spent.calls:
        # Without a counted call the log is older than budgets: its tables have no sums, so nothing is booked.
        _book(state, place, _agent_spending(place, fact))


def _book_tool_call(state: State, fact: e.ToolCalled, entry: e.Entry) -> None:
    if fact.position >= 0:
        _book(state, state.places[fact.place], _A_TOOL_CALL)


def _agent_spending(place: Place, fact: e.AttemptSucceeded | e.AttemptFailed | e.AttemptCancelled) -> Spent:
    """What to book at the end of an attempt. The call itself was booked when it was scheduled."""
    if _never_ran(place, fact):
        return _NO_CALL
    spent = spent_from_usage(fact.usage)
    return spent + _NO_CALL if spent.calls else spent


def _never_ran(place: Place, fact: e.AttemptSucceeded | e.AttemptFailed | e.AttemptCancelled) -> bool:
    """Whether the attempt ended before anything ran: no usage was measured, and there is no exit code."""
    if isinstance(fact, e.AttemptSucceeded):
        return fact.reused_run_id > 0
    if isinstance(fact, e.AttemptFailed):
        found = fact.failure
        return not (fact.usage or found.exit_code or found.signal) and found.code != "WORKER_LOST"
    return not place.worker and not fact.usage


def raise_budgets(run: Run, more: Mapping[str, Budget]) -> None:
    """Raise the budgets of the run by step."""
    if more:
        run.budgets = {**run.budgets, **{step: raise_budget(run.budgets.get(step), one) for step, one in more.items()}}


def raise_budget(before: Budget | None, more: Budget) -> Budget:
    """The budget with its limits replaced by those of `more`."""
    limits = {**(before.limits if before else {}), **more.limits}
    return Budget(**limits)


def add_to_budget(budget: Budget, spent: Spent) -> Budget:
    """The budget of one who has spent this already, and may spend the whole budget in addition."""
    return Budget(**{what: limit + (getattr(spent, what) or 0) for what, limit in budget.limits.items()})


# Called before the fact is applied. An attempt without an agent costs one lookup.
SPENDING_HANDLERS: dict[type[e.Fact], Callable[[State, Any, e.Entry], None]] = {
    e.AttemptScheduled: _book_call,
    e.AttemptSucceeded: _book_usage,
    e.AttemptFailed: _book_usage,
    e.AttemptCancelled: _book_usage,
    e.ToolCalled: _book_tool_call,
}
