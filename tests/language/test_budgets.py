"""Budgets: figures with and without units, on a step and on the whole."""

from __future__ import annotations

from decimal import Decimal
from textwrap import dedent
from typing import Any

import pytest

from mulligan.core.model.workflow import Budget
from mulligan.language import examine
from mulligan.language.readers.budgets import parse_budgets, tokens

from .reading import step, workflow


def test_a_step_and_a_workflow_have_budgets_of_their_own() -> None:
    found = workflow("""
        budget: {cost: 2.50, calls: 20}
        steps:
          - {step: a, agent: hello, budget: {tokens: 200000}}
    """)

    assert found.budget == Budget(cost=Decimal("2.5"), calls=20)
    assert found.steps[0].budget == Budget(tokens=200_000)


def test_a_map_may_have_a_budget() -> None:
    found = step("map: {over: [1, 2]}\ndo: [{agent: hello}]\nbudget: {calls: 3}")

    assert found.budget == Budget(calls=3)


@pytest.mark.parametrize(
    ("written", "meant"),
    [(1, 1), ("200k", 200_000), ("1.5M", 1_500_000), ("200_000", 200_000), ("40 k", 40_000), ("1.2345k", None)]
    + [(wrong, None) for wrong in (0, -5, 1.5, True, "", "k", "5G", None, 10**16)],
)
def test_tokens_are_a_whole_number_with_or_without_a_unit(written: Any, meant: int | None) -> None:
    if meant is None:
        with pytest.raises(ValueError):
            tokens(written)
    else:
        assert tokens(written) == meant


def test_money_is_exact_however_it_is_written() -> None:
    costs = [step(f"agent: hello\nbudget: {{cost: {text}}}").budget for text in ("0.1", "'0.10'", "$0.10", "1e-1")]

    assert costs == [Budget(cost=Decimal("0.1"))] * 4


@pytest.mark.parametrize(
    "text",
    [
        "budget: {calls: 1}\nsteps: [{step: a, shell: make}]",
        "steps: [{step: a, shell: make, budget: {calls: 1}}]",
    ],
)
def test_a_budget_without_an_agent_is_warned_about(text: str) -> None:
    [warning] = examine("w.yaml", text=text).warnings

    assert warning.code == "warning.language.idle_budget"


@pytest.mark.parametrize(
    "keys",
    [
        "agent: hello",
        "shell: make, on_failure: {agent: hello}",
        "shell: make, retry: {recovery_script: {agent: hello}}",
        "map: {over: [1]}, do: [{agent: hello}]",
    ],
)
def test_a_budget_is_for_agents_wherever_they_stand_in_a_step(keys: str) -> None:
    text = dedent(f"steps: [{{step: a, {keys}, budget: {{calls: 1}}}}]")

    assert examine("w.yaml", text=text).warnings == ()


# -- on a command line -----------------------------------------------------------------------------------------------


def test_budgets_are_given_for_the_run_and_for_steps() -> None:
    assert parse_budgets(["cost=5", "calls=7", "a.b.tokens=50k"]) == {
        "": Budget(cost=Decimal(5), calls=7),
        "a.b": Budget(tokens=50_000),
    }


@pytest.mark.parametrize(
    "word", ["cost", "cost=", "cost=much", "price=3", ".cost=3", "calls=0", "calls=1.5", "tokens=-1"]
)
def test_a_word_that_is_no_budget_is_named(word: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_budgets(["cost=5", word])

    assert str(caught.value) == word
