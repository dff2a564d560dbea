"""What agents may still spend: the budgets of their step, of their run, and of the run that called it.

A budget limits calls, tokens or money. An attempt of an agent starts as long as something of every limit is left. When
an attempt reports more than was left, its work is kept, since it is paid for, and the next attempt is refused.
Calls are counted when an attempt is scheduled, tokens and money when it has ended: so agents that run side by side can
spend more tokens or money than the limit together, and never make more calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from mulligan.core.evolve.places import is_agent
from mulligan.core.evolve.spending_ledger import raised
from mulligan.core.model.failure import Failure, failure
from mulligan.core.model.graph import Graph
from mulligan.core.model.spending import NOTHING_SPENT, Spent, amount, plain_cost, reported
from mulligan.core.model.workflow import END, Budget
from mulligan.core.state.state import Place, State
from mulligan.errors import InputInvalid, UnknownStep

CODE, UNREPORTED = "BUDGET_EXCEEDED", "BUDGET_UNREPORTED"
# What `retry` and `classify` may raise: the name of a step, or this for the budget of the whole run.
RUN = ""
LIMITED = ("calls", "tokens", "cost")


class Account(NamedTuple):
    """A budget, whose it is, and what was spent of it."""

    whose: str
    budget: Budget
    spent: Spent


def accounts(state: State, step: str) -> Iterator[Account]:
    """The budgets that hold for the agents of a step: its own, the run's, and what the caller of the run has left."""
    run = state.run
    if (own := budget_of(state, step)) is not None:
        yield Account("step", own, state.places[step].spent)
    if (whole := budget_of(state, RUN)) is not None:
        yield Account("run", whole, run.spent)
    if run.callers_budget is not None:
        yield Account("caller", run.callers_budget, run.spent)


def budget_of(state: State, step: str) -> Budget | None:
    """The budget of a step, or of the run (`RUN`): what the workflow says, and what was raised since."""
    written = state.workflow.budget if step == RUN else state.step(step).budget
    more = state.run.budgets.get(step)
    return written if more is None else raised(written, more)


def refusal(state: State, place: Place, *, is_counted: bool = False) -> Failure | None:
    """Why an attempt of an agent may not start: the first limit of which nothing is left; None if it may.

    `is_counted`: it is scheduled already, so that its own call is among those that were counted.
    """
    for account in accounts(state, state.step_of(place).key):
        for what, limit in account.budget.limits.items():
            spent = _spent_by_others(account.spent, what, is_counted)
            if spent >= limit:
                return _exceeded(account.whose, what, limit, spent)
    return None


def _spent_by_others(spent: Spent, what: str, is_counted: bool) -> Any:
    return (getattr(spent, what) or 0) - (what == "calls" and is_counted)


def _exceeded(whose: str, what: str, limit: Any, spent: Any) -> Failure:
    owner = {"step": "the step", "run": "the run", "caller": "the run that called this one"}[whose]
    message = f"{owner} has spent its budget for agents: {amount(what, spent)} of {amount(what, limit)}"
    details = {"budget": whose, "what": what, "limit": _figure(limit), "spent": _figure(spent)}
    return failure(CODE, message, details=details)


def _figure(value: Any) -> Any:
    return value if isinstance(value, int) else plain_cost(value)


def remaining(state: State, place: Place) -> Budget | None:
    """What the present attempt may spend, its own call included: the least that a budget leaves. None without one."""
    is_counted = is_agent(place.spec)
    left: dict[str, Any] = {}
    for account in accounts(state, state.step_of(place).key):
        for what, limit in account.budget.limits.items():
            rest = max(limit - _spent_by_others(account.spent, what, is_counted), limit * 0)
            left[what] = min(left.get(what, rest), rest)
    return Budget(**left) if left else None


def is_queued(place: Place) -> bool:
    """Whether it is an attempt of an agent that waits for a worker."""
    return place.status == "ready" and not place.phase and is_agent(place.spec)


def unreported(state: State, place: Place, usage: Mapping[str, Any]) -> Failure | None:
    """A warning where a budget limits what an attempt has not reported: that limit holds nobody."""
    said = reported(usage)
    limited = {what for account in accounts(state, state.step_of(place).key) for what in account.budget.limits}
    missing = [what for what in ("tokens", "cost") if what in limited and getattr(said, what) is None]
    if not missing:
        return None
    words = " and ".join(missing)
    message = f"a budget limits {words}, and the agent has reported no {words}: the limit cannot hold it"
    return failure(UNREPORTED, message, severity="warning", details={"what": missing})


# -- raising a budget ------------------------------------------------------------------------------------------------


def check_raised(state: State, more: Mapping[str, Budget], graph: Graph) -> None:
    """Refuse a raised budget that names no step of `graph`, or of which nothing would be left."""
    for step, budget in more.items():
        if step != RUN and step != END and step not in graph.nodes:
            members = graph.matrices.get(step, ())
            hint = f"it is a matrix: name one of its steps, such as '{members[0]}'" if members else ""
            raise UnknownStep(f"'{step}' is not a step of run {state.run.run_id}", hint=hint, step=step)
        # A corrected definition may have steps that the run has never had.
        place = state.places.get(step)
        spent = state.run.spent if step == RUN else place.spent if place is not None else NOTHING_SPENT
        for what, limit in budget.limits.items():
            used = getattr(spent, what)
            if used is not None and used >= limit:
                owner = f"run {state.run.run_id}" if step == RUN else f"step '{step}'"
                message = f"{owner} has spent {amount(what, used)}, so a budget of {amount(what, limit)} leaves nothing"
                raise InputInvalid(message, hint="give it more than that")
