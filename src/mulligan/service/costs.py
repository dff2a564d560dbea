"""What the attempts of a run cost, added up by step."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mulligan.core.model.events import AttemptFailed, AttemptSucceeded, Entry
from mulligan.core.model.failure import number_or_zero
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.spending import FIGURES


class Cost(msgspec.Struct):
    """Time and processor time of all attempts together, those at items and handlers too; the most memory of one."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory: int = 0


def total(costs: Iterable[Cost]) -> Cost:
    """What several steps cost together; of memory again the most of one."""
    found = Cost()
    for cost in costs:
        found.wall_seconds = round(found.wall_seconds + cost.wall_seconds, 6)
        found.cpu_seconds = round(found.cpu_seconds + cost.cpu_seconds, 6)
        found.peak_memory = max(found.peak_memory, cost.peak_memory)
    return found


class Costs:
    """The costs of the steps of a run, as its log grows. Nothing of a step of which nothing was measured."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.by_step: dict[str, Cost] = {}
        for entry in entries:
            self.see(entry)

    def see(self, entry: Entry) -> None:
        """Take in an entry."""
        fact = entry.fact
        if not isinstance(fact, AttemptSucceeded | AttemptFailed) or fact.usage.keys() <= FIGURES:
            return
        cost = self.by_step.setdefault(step_name(fact.place), Cost())
        cost.wall_seconds = round(cost.wall_seconds + number_or_zero(fact.usage.get("wall_seconds")), 6)
        cost.cpu_seconds = round(cost.cpu_seconds + number_or_zero(fact.usage.get("cpu_seconds")), 6)
        cost.peak_memory = max(cost.peak_memory, int(number_or_zero(fact.usage.get("peak_memory"))))
