"""What agents may still spend: the budgets of their step, of their run, and of the calling run.

A budget limits calls, tokens, money, or calls of tools. An attempt of an agent starts while something of every limit is
left. If it spends more than was left, its result is kept and the next attempt is refused. Calls are counted when an
attempt is scheduled, tokens and money when it has ended. So parallel agents may together exceed a limit of
tokens or money, but never a limit of calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from mulligan.core.evolve.evolve_places import is_agent_call
from mulligan.core.evolve.spending_ledger import raise_budget
from mulligan.core.model.agents.spending import NOTHING_SPENT, Spent, format_amount, plain_cost, spent_from_usage
from mulligan.core.model.failure import Failure, failure
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import END, Budget
from mulligan.core.state.state import Place, State
from mulligan.errors import InputInvalid, UnknownStep

CODE, UNREPORTED = "BUDGET_EXCEEDED", "BUDGET_UNREPORTED"
# What `retry` and `classify` may raise: the name of a step, or this for the budget of the whole run.
RUN = ""
LIMITED = ("calls", "tokens", "cost")
TOOL_CALLS = "tool_calls"


class BudgetUse(msgspec.Struct, frozen=True):
    """A budget, its owner ("step", "run" or "caller"), and what was spent of it."""

    owner: str
    budget: Budget
    spent: Spent


def budgets_for(state: State, step: str) -> Iterator[BudgetUse]:
    """The budgets of the agents of a step: its own, that of the run, and what the calling run has left."""
    run = state.run
    # A call of a program that its undo has ended is no step any more.
    if step in state.places and (own := budget_of(state, step)) is not None:
        yield BudgetUse("step", own, state.places[step].spent)
    if (whole := budget_of(state, RUN)) is not None:
        yield BudgetUse("run", whole, run.spent)
    if run.callers_budget is not None:
        yield BudgetUse("caller", run.callers_budget, run.spent)


def budget_of(state: State, step: str) -> Budget | None:
    """The budget of a step, or of the run (`RUN`): as written in the workflow, with what was raised since."""
    written = state.workflow.budget if step == RUN else state.step(step).budget
    more = state.run.budgets.get(step)
    return written if more is None else raise_budget(written, more)


def budget_refusal(state: State, place: Place, *, is_counted: bool = False) -> Failure | None:
    """The failure of an agent that may not start: the first limit of which nothing is left; None if it may start.

    `is_counted`: the attempt is already scheduled, so its own call is among those counted.
    """
    for use in budgets_for(state, state.step_of(place).key):
        for what, limit in use.budget.limits.items():
            spent = _spent_by_others(use.spent, what, is_counted)
            # Without tools left, an agent can still answer.
            if spent >= limit and what != TOOL_CALLS:
                return _exceeded(use.owner, what, limit, spent)
    return None


def tool_budget_refusal(state: State, place: Place) -> Failure | None:
    """The failure of an agent that asks for a tool when no call of one is left; None if it may call it."""
    for use in budgets_for(state, state.step_of(place).key):
        limit = use.budget.tool_calls
        if limit is not None and use.spent.tool_calls >= limit:
            return _exceeded(use.owner, TOOL_CALLS, limit, use.spent.tool_calls)
    return None


def _spent_by_others(spent: Spent, what: str, is_counted: bool) -> Any:
    return (getattr(spent, what) or 0) - (what == "calls" and is_counted)


def _exceeded(owner: str, what: str, limit: Any, spent: Any) -> Failure:
    spender = {"step": "the step", "run": "the run", "caller": "the calling run"}[owner]
    message = f"{spender} has spent its budget for agents: {format_amount(what, spent)} of {format_amount(what, limit)}"
    details = {"budget": owner, "what": what, "limit": _figure(limit), "spent": _figure(spent)}
    return failure(CODE, message, details=details)


def _figure(value: Any) -> Any:
    return value if isinstance(value, int) else plain_cost(value)


def remaining_budget(state: State, place: Place) -> Budget | None:
    """The least that a budget leaves the current attempt, its own call included; None without a budget."""
    is_counted = is_agent_call(place.spec)
    left: dict[str, Any] = {}
    for use in budgets_for(state, state.step_of(place).key):
        for what, limit in use.budget.limits.items():
            rest = max(limit - _spent_by_others(use.spent, what, is_counted), limit * 0)
            left[what] = min(left.get(what, rest), rest)
    return Budget(**left) if left else None


def is_queued_agent(place: Place) -> bool:
    """Whether an attempt of an agent waits for a worker here."""
    return place.status == "ready" and not place.phase and is_agent_call(place.spec)


def unreported_warning(state: State, place: Place, usage: Mapping[str, Any]) -> Failure | None:
    """A warning if a budget limits what the attempt did not report: that limit cannot be enforced."""
    spent = spent_from_usage(usage)
    limited = {what for use in budgets_for(state, state.step_of(place).key) for what in use.budget.limits}
    missing = [what for what in ("tokens", "cost") if what in limited and getattr(spent, what) is None]
    if not missing:
        return None
    words = " and ".join(missing)
    message = f"the budget limits {words}, but the agent reported no {words}, so the limit cannot be enforced"
    return failure(UNREPORTED, message, severity="warning", details={"what": missing})


# -- raising a budget ------------------------------------------------------------------------------------------------


def check_raised_budgets(state: State, more: Mapping[str, Budget], graph: Graph) -> None:
    """Refuse a raised budget that names an unknown step, or of which nothing would be left."""
    for step, budget in more.items():
        if step != RUN and step != END and step not in graph.nodes:
            members = graph.matrices.get(step, ())
            hint = f"'{step}' is a matrix: name one of its steps, such as '{members[0]}'" if members else ""
            raise UnknownStep(f"'{step}' is not a step of run {state.run.run_id}", hint=hint, step=step)
        # A corrected definition may have steps that the run did not have.
        place = state.places.get(step)
        spent = state.run.spent if step == RUN else place.spent if place is not None else NOTHING_SPENT
        for what, limit in budget.limits.items():
            used = getattr(spent, what)
            if used is not None and used >= limit:
                owner = f"run {state.run.run_id}" if step == RUN else f"step '{step}'"
                had, gets = format_amount(what, used), format_amount(what, limit)
                raise InputInvalid(
                    f"{owner} has already spent {had}, so a budget of {gets} leaves nothing",
                    hint="raise it above what was spent",
                )
