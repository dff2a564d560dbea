"""What the agents of a run have spent, counted from its log, to check that no budget is exceeded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Budget, Workflow


class AgentSpending:
    """Calls and tokens by step, with "" for the whole run, and the budgets that apply."""

    def __init__(self, workflow: Workflow) -> None:
        self.budgets = {step.name: step.budget for step in workflow.steps}
        self.budgets[""] = workflow.budget
        self.tokens: Counter[str] = Counter()
        self._calls: dict[tuple[str, int], str] = {}
        self._started: set[tuple[str, int]] = set()
        self.tool_calls: Counter[str] = Counter()

    def record(self, fact: Any, step: str, *, is_agent: bool) -> None:
        """Record a fact about an attempt of this step."""
        call = (fact.place, fact.attempt)
        if isinstance(fact, e.AttemptStarted):
            self._started.add(call)
        elif not is_agent:
            return
        elif isinstance(fact, e.AttemptScheduled):
            self._calls[call] = step
        elif isinstance(fact, e.AttemptSucceeded | e.AttemptFailed | e.AttemptCancelled):
            if _ran_nothing(fact, call in self._started):
                self._calls.pop(call, None)
            self._add_tokens(step, fact.usage.get("tokens") or 0)

    def record_tool_call(self, fact: e.ToolCalled, step: str) -> None:
        if fact.position >= 0:
            self.tool_calls[step] += 1
            self.tool_calls[""] += 1

    def exceeded_tool_limits(self, step: str) -> Iterator[str]:
        """Describe the limits of tool calls that this step has used up."""
        for owner in (step, ""):
            budget = self.budgets.get(owner)
            limit = budget.tool_calls if budget is not None else None
            if limit is not None and self.tool_calls[owner] >= limit:
                yield f"{self.tool_calls[owner]} of {limit} tool calls"

    def _add_tokens(self, step: str, tokens: int) -> None:
        self.tokens[step] += tokens
        self.tokens[""] += tokens

    def raise_budgets(self, more: dict[str, Budget]) -> None:
        for step, budget in more.items():
            limits = {**(before.limits if (before := self.budgets.get(step)) else {}), **budget.limits}
            self.budgets[step] = Budget(**limits)

    def exhausted_limits(self, step: str) -> Iterator[str]:
        """Describe the limits that a call of this step has used up."""
        for owner in (step, ""):
            budget = self.budgets.get(owner)
            calls = sum(owner in ("", called) for called in self._calls.values())
            if budget is not None and budget.calls is not None and calls >= budget.calls:
                yield f"{calls} of {budget.calls} calls"
            if budget is not None and budget.tokens is not None and self.tokens[owner] >= budget.tokens:
                yield f"{self.tokens[owner]} of {budget.tokens} tokens"


def _ran_nothing(fact: Any, has_started: bool) -> bool:
    if isinstance(fact, e.AttemptSucceeded):
        return fact.reused_run_id != 0
    if isinstance(fact, e.AttemptFailed):
        return not (fact.usage or fact.failure.exit_code or fact.failure.signal) and fact.failure.code != "WORKER_LOST"
    return isinstance(fact, e.AttemptCancelled) and not has_started
