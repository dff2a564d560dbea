"""What agents may cost, by the budgets of a workflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.analysis.coverage.agent_costs import agent_costs
from mulligan.analysis.coverage.results import AgentCosts
from mulligan.analysis.coverage.words import describe_agent_costs
from mulligan.core.model.workflow import Workflow
from mulligan.language.loading import load

REPAIRED = """
  - step: build
    shell: make
    on_failure: [{{agent: repair the build}}]
    {build}
"""
REVIEWED = """
  - step: review
    agent: review it
    {review}
"""


def workflow(folder: Path, *parts: str, budget: str = "", **keys: str) -> Workflow:
    text = "".join(parts).format(**{"build": "", "review": "", **keys})
    (folder / "flow.yaml").write_text(f"name: flow\n{budget}\nsteps:{text}")
    return load(folder / "flow.yaml")


def test_a_workflow_without_agents_has_no_costs(tmp_path: Path) -> None:
    found = workflow(tmp_path, "\n  - {{step: build, shell: make}}\n")

    assert agent_costs(found) is None


@pytest.mark.parametrize(
    ("build", "review", "budget", "costs"),
    [
        ("budget: {cost: 2.5}", "budget: {cost: 1}", "", AgentCosts(3.5)),
        ("budget: {cost: 2.5}", "", "", AgentCosts(None, ("review",))),
        ("budget: {calls: 3}", "", "", AgentCosts(None, ("build", "review"))),
        ("budget: {cost: 2.5}", "", "budget: {cost: 4}", AgentCosts(4.0)),
        ("budget: {cost: 2.5}", "budget: {cost: 1}", "budget: {cost: 4}", AgentCosts(3.5)),
        ("budget: {cost: 2.5}", "budget: {cost: 9}", "budget: {cost: 4}", AgentCosts(4.0)),
        ("", "", "budget: {calls: 9}", AgentCosts(None, ("build", "review"))),
    ],
)
def test_budgets_of_steps_and_of_the_run_limit_what_agents_cost(
    tmp_path: Path, build: str, review: str, budget: str, costs: AgentCosts
) -> None:
    found = workflow(tmp_path, REPAIRED, REVIEWED, budget=budget, build=build, review=review)

    assert agent_costs(found) == costs


def test_a_limit_of_a_called_workflow_does_not_limit_its_calls_together(tmp_path: Path) -> None:
    (tmp_path / "child.yaml").write_text("name: child\nbudget: {cost: 1}\nsteps: [{step: ask, agent: look at it}]\n")
    call = "\n  - step: call\n    workflow: child.yaml\n    retry: {{max_retries: 9}}\n    {review}\n"

    free = workflow(tmp_path, call)
    bounded = workflow(tmp_path, call, review="budget: {cost: 3}")

    assert agent_costs(free) == AgentCosts(None, ("call",))
    assert agent_costs(bounded) == AgentCosts(3.0)


def test_the_limit_is_said_or_who_has_none() -> None:
    many = AgentCosts(None, tuple("abcdefg"))

    assert describe_agent_costs(AgentCosts(3.5)) == "agents may spend up to $3.50 before the next call is refused"
    assert describe_agent_costs(many) == "nothing limits what the agents of 'a', 'b', 'c', 'd', 'e' and 2 more cost"
