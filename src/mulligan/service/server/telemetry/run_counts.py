"""Counts what happens in the runs that a worker drives, from the facts that it writes. No library is needed here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mulligan.core.evolve.tallies import TALLY_HANDLERS, parse_tally_key
from mulligan.core.model import events as e
from mulligan.core.state.state import State

# A workflow, or a failure code, that comes when there are so many already is counted as `OTHER`: each is a series.
NAMES_MAX = 200
OTHER = "(other)"

_STEP_OUTCOMES: dict[type[e.Fact], str] = {e.StepSkipped: "skipped", e.StepCancelled: "cancelled"}
_ATTEMPT_OUTCOMES: dict[type[e.Fact], str] = {
    e.AttemptSucceeded: "succeeded",
    e.AttemptLost: "lost",
    e.AttemptInterrupted: "interrupted",
    e.AttemptCancelled: "cancelled",
}
_RUN_OUTCOMES: dict[type[e.Fact], str] = {
    e.RunCompleted: "completed",
    e.RunFailed: "failed",
    e.RunCancelled: "cancelled",
}


class RunCounts:
    """Counters since this process began. A run id is never part of a name."""

    def __init__(self) -> None:
        # By workflow; by workflow and outcome.
        self.runs_started: Counter[str] = Counter()
        self.runs_ended: Counter[tuple[str, str]] = Counter()
        # By outcome; by outcome and failure code.
        self.steps_ended: Counter[str] = Counter()
        self.attempts_ended: Counter[tuple[str, str]] = Counter()
        self.rungs_tried: Counter[str] = Counter()
        self.rungs_won: Counter[str] = Counter()
        self._names: dict[str, set[str]] = {"workflow": set(), "code": set()}
        # What the tallies of each open run said last, by rung: tried and won.
        self._rungs: dict[int, dict[str, tuple[int, int]]] = {}

    def committed(self, state: State, entries: Sequence[e.Entry]) -> None:
        """Count these facts of a run."""
        run_id = state.run.run_id
        if run_id not in self._rungs:
            # Another process may have driven it until now: what it counted is not ours.
            is_new = any(type(entry.fact) is e.RunStarted for entry in entries)
            self._rungs[run_id] = {} if is_new else _rungs(state)
        for entry in entries:
            self._count(state, entry.fact)
        if state.tallies and any(type(entry.fact) in TALLY_HANDLERS for entry in entries):
            self._count_rungs(run_id, _rungs(state))
        if any(type(entry.fact) in _RUN_OUTCOMES for entry in entries):
            del self._rungs[run_id]

    def _count(self, state: State, fact: Any) -> None:
        kind = type(fact)
        if kind in _ATTEMPT_OUTCOMES:
            self.attempts_ended[_ATTEMPT_OUTCOMES[kind], ""] += 1
        elif kind is e.AttemptFailed:
            self.attempts_ended["failed", self._bounded("code", fact.failure.code)] += 1
        elif kind is e.StepRan or (kind is e.StepAdded and fact.is_kept):
            self.steps_ended["completed"] += 1
        elif kind is e.StepCompleted:
            self.steps_ended["recovered" if fact.recovered_by else "completed"] += 1
        elif kind is e.StepFailed:
            self.steps_ended["failed"] += 1
        elif kind in _STEP_OUTCOMES:
            self.steps_ended[_STEP_OUTCOMES[kind]] += 1
        elif kind is e.RunStopping:
            self.steps_ended["cancelled"] += fact.not_begun
        elif kind is e.RunStarted:
            self.runs_started[self._bounded("workflow", state.workflow.name)] += 1
        elif kind in _RUN_OUTCOMES:
            outcome = "degraded" if fact.degraded and kind is e.RunCompleted else _RUN_OUTCOMES[kind]
            self.runs_ended[self._bounded("workflow", state.workflow.name), outcome] += 1

    def _count_rungs(self, run_id: int, now: dict[str, tuple[int, int]]) -> None:
        before, self._rungs[run_id] = self._rungs[run_id], now
        for rung, (tried, won) in now.items():
            tried_before, won_before = before.get(rung, (0, 0))
            self.rungs_tried[rung] += max(0, tried - tried_before)
            self.rungs_won[rung] += max(0, won - won_before)

    def _bounded(self, kind: str, name: str) -> str:
        known = self._names[kind]
        if name not in known:
            if len(known) >= NAMES_MAX:
                return OTHER
            known.add(name)
        return name


def _rungs(state: State) -> dict[str, tuple[int, int]]:
    """How often each rung was tried in a run, and how often it worked."""
    sums: dict[str, tuple[int, int]] = {}
    for key, tally in state.tallies.items():
        rung = parse_tally_key(key)[2]
        tried, won = sums.get(rung, (0, 0))
        sums[rung] = tried + tally.tried, won + tally.worked
    return sums
