"""Histories that are told what becomes of them, for the command that runs histories: by their seeds."""

from __future__ import annotations

import os
from collections import Counter

from mulligan.core.model.events import Entry
from mulligan.core.model.workflow import Workflow
from mulligan.testing.history import History, retry, step, workflow
from proof.simulator.fault_budget import ALL_FAULTS, FaultBudget

WELL, BROKEN, CRASHING, DYING, ENDLESS = range(5)
KINDS = 10

WORKFLOW = workflow(step("a"), step("b", rules=retry(2)), step("c", needs=["a"]))


class Scripted:
    """Seed 11 is broken, as 1 and 21 are: as long as there is a step 'b', two engines and a lost worker."""

    def __init__(self, seed: int, workflow: Workflow | None = None, *, budget: FaultBudget = ALL_FAULTS) -> None:
        self.seed = seed
        self.workflow = workflow or WORKFLOW
        self.budget = budget
        self.happened: Counter[str] = Counter()
        self.steps = 20 if budget.steps_max is None else min(20, budget.steps_max)
        self.engines_max = budget.engines_max or 3
        self.store_kind = budget.store or "sqlite"
        self._history = History(self.workflow)

    def run(self) -> None:
        self.happened.update({name: 1 for name in ("lost", "late", "doubled") if name not in self.budget.without})
        kind = self.seed % KINDS
        if kind == BROKEN and self._is_bad_enough():
            raise AssertionError(f"promise 3: that was one too many\n  {len(self.workflow.steps)} steps")
        if kind == CRASHING:
            raise ZeroDivisionError("by zero")
        if kind == DYING:
            os._exit(9)
        while kind == ENDLESS:
            pass

    def _is_bad_enough(self) -> bool:
        has_step = any(found.name == "b" for found in self.workflow.steps)
        return has_step and self.happened["lost"] > 0 and self.engines_max > 1 and self.steps > 3

    def logs(self) -> list[list[Entry]]:
        return [self._history.log]

    def last_facts(self, count: int) -> str:
        return "  the last facts"
