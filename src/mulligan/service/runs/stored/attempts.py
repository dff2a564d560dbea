"""Every attempt of a run: when it began, what it cost, how it ended; and the costs of each step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model.agents.spending import FIGURES
from mulligan.core.model.events import AttemptFailed, AttemptSucceeded, Entry
from mulligan.core.model.failure import number_or_zero
from mulligan.core.model.place_keys import step_name
from mulligan.core.state.scope import error_view
from mulligan.service.runs.stored.artifacts import KeptFile, kept_files
from mulligan.worker.logs.progress_records import Progress

# The first two are for attempts that have not ended.
Outcome = Literal["queued", "running", "succeeded", "failed", "lost", "interrupted", "cancelled"]


class AttemptRecord(msgspec.Struct):
    """One attempt at a step, at a command of an item or handler, or at a recovery script."""

    place: str
    attempt: int
    round: int
    scheduled_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    status: Outcome = "queued"
    host: str = ""
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    peak_memory: int | None = None
    tokens: int | None = None
    # US dollars, as text.
    cost: str | None = None
    model: str | None = None
    failure: dict[str, Any] | None = None
    # What it reported last, while it runs and afterwards; and the files that it kept.
    progress: Progress | None = None
    artifacts: list[KeptFile] = []


def list_attempts(
    entries: Iterable[e.Entry], is_wanted: Callable[[str], bool], rounds: Sequence[tuple[int, int]] = ()
) -> list[AttemptRecord]:
    """The attempts at the wanted places, over all rounds, in the order of scheduling.

    `rounds`: the events that opened a round, and its number, in order; if these events are not among the entries.
    """
    found: dict[tuple[str, int], AttemptRecord] = {}
    round_, left = 1, deque(rounds)
    for entry in entries:
        fact = entry.fact
        while left and left[0][0] <= entry.seq:
            round_ = left.popleft()[1]
        if isinstance(fact, e.RunReopened):
            round_ = fact.round
        elif isinstance(fact, _OF_AN_ATTEMPT) and is_wanted(fact.place):
            _apply(found, entry, round_)
    return list(found.values())


def attempts_by_step(entries: Iterable[e.Entry]) -> dict[str, list[AttemptRecord]]:
    """The attempts at steps, their handlers and scripts, by step. Attempts at items are left out: there may be many."""
    found: dict[str, list[AttemptRecord]] = {}
    for one in list_attempts(entries, lambda place: "[" not in place):
        found.setdefault(step_name(one.place), []).append(one)
    return found


def _apply(found: dict[tuple[str, int], AttemptRecord], entry: e.Entry, round_: int) -> None:
    fact: Any = entry.fact
    # An attempt whose expressions failed was never scheduled.
    one = found.setdefault((fact.place, fact.attempt), AttemptRecord(fact.place, fact.attempt, round_, entry.at))
    if not isinstance(fact, e.AttemptScheduled):
        _update(one, fact, entry.at)
        one.artifacts.extend(kept_files(entry))


def _update(one: AttemptRecord, fact: Any, at: datetime) -> None:
    if isinstance(fact, e.AttemptStarted):
        one.started_at, one.host, one.status = at, fact.host, "running"
        return
    if isinstance(fact, e.ResultRejected):
        one.status, one.failure = "failed", error_view(fact.failure)
        return
    one.ended_at, one.status = at, ENDS[type(fact)]
    if isinstance(fact, e.AttemptSucceeded | e.AttemptFailed):
        for name in ("wall_seconds", "cpu_seconds", "peak_memory", "tokens", "cost", "model"):
            setattr(one, name, fact.usage.get(name))
    if isinstance(fact, e.AttemptFailed):
        one.failure = error_view(fact.failure)


ENDS: dict[type[e.Fact], Outcome] = {
    e.AttemptSucceeded: "succeeded",
    e.AttemptFailed: "failed",
    e.AttemptLost: "lost",
    e.AttemptInterrupted: "interrupted",
    e.AttemptCancelled: "cancelled",
}
_OF_AN_ATTEMPT = (
    *(e.AttemptScheduled, e.AttemptStarted, e.ResultRejected),
    *(e.AttemptSucceeded, e.AttemptFailed, e.AttemptLost, e.AttemptInterrupted, e.AttemptCancelled),
)


class Cost(msgspec.Struct):
    """Time and processor time of all attempts together, those at items and handlers too; the most memory of one."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory: int = 0


def total(costs: Iterable[Cost]) -> Cost:
    """The total cost of several steps; the most memory of one attempt."""
    found = Cost()
    for cost in costs:
        found.wall_seconds = round(found.wall_seconds + cost.wall_seconds, 6)
        found.cpu_seconds = round(found.cpu_seconds + cost.cpu_seconds, 6)
        found.peak_memory = max(found.peak_memory, cost.peak_memory)
    return found


class Costs:
    """The costs of the steps of a run while its events are read. Steps without measurements are left out."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.by_step: dict[str, Cost] = {}
        for entry in entries:
            self.see(entry)

    def see(self, entry: Entry) -> None:
        """Add an entry."""
        fact = entry.fact
        if not isinstance(fact, AttemptSucceeded | AttemptFailed) or fact.usage.keys() <= FIGURES:
            return
        cost = self.by_step.setdefault(step_name(fact.place), Cost())
        cost.wall_seconds = round(cost.wall_seconds + number_or_zero(fact.usage.get("wall_seconds")), 6)
        cost.cpu_seconds = round(cost.cpu_seconds + number_or_zero(fact.usage.get("cpu_seconds")), 6)
        cost.peak_memory = max(cost.peak_memory, int(number_or_zero(fact.usage.get("peak_memory"))))
