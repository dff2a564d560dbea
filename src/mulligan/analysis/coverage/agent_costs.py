"""What agents may cost in the worst case: what their budgets allow, whatever fails and however often.

A budget counts over all attempts, handlers and visits of its step, so the bound holds in every case that is played. A
call that is under way when the limit is reached is not stopped: the last one may go over it.
"""

from __future__ import annotations

from decimal import Decimal

from mulligan.analysis.coverage.exploring import called_by
from mulligan.analysis.coverage.results import AgentCosts
from mulligan.core.evolve.evolve_places import is_agent
from mulligan.core.model.workflow import Step, Workflow, all_commands


def agent_costs(workflow: Workflow) -> AgentCosts | None:
    """What the agents of a workflow and of those it calls may cost; None if it has no agent."""
    whole = workflow.budget.cost if workflow.budget is not None else None
    total, has_agent = Decimal(0), False
    without_limit: list[str] = []
    for step in (*workflow.steps, workflow.end):
        own = _step_costs(workflow, step)
        if own is None:
            continue
        has_agent = True
        if own.limit is None:
            without_limit += own.without_limit
        else:
            total += Decimal(str(own.limit))
    if not has_agent:
        return None
    if whole is not None:
        return AgentCosts(float(whole if without_limit else min(whole, total)))
    return AgentCosts(None if without_limit else float(total), tuple(without_limit))


def _step_costs(workflow: Workflow, step: Step) -> AgentCosts | None:
    """Of one step. Its budget counts all its attempts, and those of the workflow that it calls."""
    own = (step.name,) if any(is_agent(command) for command in all_commands([step])) else ()
    child = called_by(workflow, step)
    below = agent_costs(child) if child is not None else None
    if not own and below is None:
        return None
    if step.budget is not None and step.budget.cost is not None:
        return AgentCosts(float(step.budget.cost))
    # A limit of the child's own is for one run of it, and every attempt is another run.
    called = tuple(f"{step.name}/{name}" for name in below.without_limit) or (step.name,) if below is not None else ()
    return AgentCosts(None, own or called)
