"""Budgets in whole runs, on both stores: what child runs spend counts, and queued agents hear of it."""

from __future__ import annotations

import pytest
from tests.support.runner import Live

from mulligan.core.model import events as e

SPENDS = """echo '{"content": "done", "tokens": 10, "cost": "0.1"}' > "$MULLIGAN_OUTPUT\""""


@pytest.fixture(autouse=True)
def robot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULLIGAN_AGENT_ROBOT", SPENDS)


def test_what_a_child_run_spends_counts_for_its_caller_and_it_may_spend_what_that_has_left(live: Live) -> None:
    live.write(
        "child.yaml",
        """
        name: child
        steps:
          - {step: first, agent: {provider: robot, prompt: x}}
          - {step: second, needs: first, agent: {provider: robot, prompt: x}, continue_on_error: true}
        """,
    )

    ran = live.run("""
        name: parent
        budget: {tokens: 20}
        steps:
          - {step: ask, agent: {provider: robot, prompt: x}}
          - {step: call, needs: ask, workflow: child.yaml}
          - {step: late, needs: call, agent: {provider: robot, prompt: x}}
    """)

    assert (ran.steps["call"]["spent"]["tokens"], ran.steps["call"]["spent"]["cost"]) == (10, "0.1")
    assert ran.steps["late"]["failure"]["code"] == "BUDGET_EXCEEDED"
    [child] = live.children(ran.run_id)
    refused = live.service.runs.show(child.run_id)["steps"]["second"]["failure"]
    assert (refused["code"], refused["details"]["budget"]) == ("BUDGET_EXCEEDED", "caller")


def test_items_that_wait_for_a_worker_never_start_when_the_rest_is_spent(live: Live) -> None:
    ran = live.run("""
        name: many
        budget: {cost: 0.3}
        steps:
          - step: each
            map: {over: "${[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}", on_item_failure: collect}
            do: [{agent: {provider: robot, prompt: "${item}"}, resources: {cpus: 4}}]
    """)

    assert ran.steps["each"]["spent"]["calls"] == 3
    assert len(ran.facts(e.ItemFailed)) == 9
    assert {fact.failure.code for fact in ran.facts(e.ItemFailed)} == {"BUDGET_EXCEEDED"}
