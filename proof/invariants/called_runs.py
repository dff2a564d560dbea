"""What a log says about the child runs of its run: which attempt has called which round, and how each round ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from mulligan.core.model import events as e
from mulligan.core.model.actions import is_group
from mulligan.core.model.graph import Graph
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.workflow import Command

Round = tuple[int, int]


class FailedCall(msgspec.Struct, frozen=True):
    """A child run that did not complete, and the call after which it did not."""

    round: Round
    # None: not known any more.
    bindings: Mapping[str, Any] | None
    seq: int
    visit: int


class CalledRuns:
    """Follows one log. A call is continued at the same place: of a command, unless it is entered again.

    What an item is entered for again begins with its first command, which goes on.
    """

    def __init__(self) -> None:
        # By place: the values of the attempt that was scheduled last, and its last call that failed.
        self.bindings: dict[str, Mapping[str, Any]] = {}
        self.failed: dict[str, FailedCall] = {}
        # The attempt that asked for a round of a child run, and whether that round has completed; the last by run.
        self.asked: dict[Round, tuple[str, int]] = {}
        self.is_completed: dict[Round, bool] = {}
        self.attempts: dict[int, int] = {}
        self._rounds: dict[tuple[str, int], Round] = {}
        self._completed_at: dict[str, int] = {}
        # Of this run, if it is a child run: by round, the attempt that it names, and whether it has completed.
        self.own_rounds: dict[int, int] = {}
        self.own_ends: dict[int, bool] = {}
        # Whether the round keeps what was completed before it, and how often it has visited each step.
        self._keeps_completed = False
        self._visits: dict[str, int] = {}

    def expected(
        self, fact: e.AttemptStarted, command: Command, step: str, visit: int, graph: Graph
    ) -> tuple[Round | None, bool]:
        """The round that the attempt may continue, None for a new child run; and whether it has to."""
        before = self.failed.get(fact.place)
        if before is None or is_group(command.action):
            return None, True
        sources = graph.sources(step) if step in graph.nodes else ()
        is_newer = any(self._completed_at.get(one, 0) > before.seq for one in sources)
        if visit != before.visit and is_newer and not (self._keeps_completed and self._visits.get(step) == 1):
            return None, True
        run_id, number = before.round
        # Not all values are passed on to the child run. In a worktree it may work elsewhere now: then a new one starts.
        has_to = graph.workflow.workspace is None and self.bindings.get(fact.place) == before.bindings
        return (run_id, number + 1), has_to

    def record(self, entry: e.Entry, visit: int, graph: Graph) -> None:
        fact = entry.fact
        if isinstance(fact, e.AttemptScheduled):
            self.bindings[fact.place] = fact.bindings
        elif isinstance(fact, e.AttemptStarted) and fact.continues is not None:
            asked = fact.continues.run_id, fact.continues.round
            self.asked[asked], self._rounds[fact.place, fact.attempt] = (fact.place, fact.attempt), asked
            self.attempts[asked[0]] = fact.attempt
        elif isinstance(fact, e.AttemptSucceeded):
            self.failed.pop(fact.place, None)
            if (asked_for := self._rounds.get((fact.place, fact.attempt))) is not None:
                self.is_completed[asked_for] = True
        elif isinstance(fact, e.AttemptFailed | e.AttemptCancelled):
            self._record_failure(fact, entry.seq, visit)
        elif isinstance(fact, e.StepCompleted | e.StepReplaced):
            self._completed_at[fact.step] = entry.seq
            if isinstance(fact, e.StepCompleted):
                self.failed.pop(fact.step, None)
        elif isinstance(fact, e.CommandCompleted):
            # Also by a decision.
            self.failed.pop(fact.place, None)
        elif isinstance(fact, e.CommandEntered):
            if (fact.role, fact.index) != ("do", 0):
                self.failed.pop(fact.place, None)
        elif isinstance(fact, e.RunCompleted | e.RunFailed | e.RunCancelled):
            self.own_ends[fact.round] = isinstance(fact, e.RunCompleted)
        elif isinstance(fact, e.StepEntered):
            self._visits[fact.step] = self._visits.get(fact.step, 0) + 1
        elif isinstance(fact, e.RunReopened):
            self.own_rounds[fact.round] = fact.attempt
            self._keeps_completed, self._visits = fact.keep_completed, {}
            if fact.from_start:
                self.failed.clear()
            elif fact.child is not None and fact.child.from_start:
                self.failed.pop(fact.child.place, None)
        elif isinstance(fact, e.RunRevised):
            # It may call with other values now, also with constant ones.
            self.failed = {place: replace(one, bindings=None) for place, one in self.failed.items()}
        elif isinstance(fact, e.LoopFired):
            region = graph.region(fact.to)
            self.failed = {place: one for place, one in self.failed.items() if step_name(place) not in region}
        elif isinstance(fact, e.RunForked):
            self.failed.clear()

    def _record_failure(self, fact: e.AttemptFailed | e.AttemptCancelled, seq: int, visit: int) -> None:
        if fact.child is None:
            if (fact.place, fact.attempt) in self._rounds:
                self.failed.pop(fact.place, None)
            return
        ended = fact.child.run_id, fact.child.round
        if (asked := self._rounds.get((fact.place, fact.attempt))) is not None and asked != ended:
            # It has refused to open that round, which may be asked for again.
            del self.asked[asked]
        self.is_completed[ended] = False
        self.failed[fact.place] = FailedCall(ended, self.bindings.get(fact.place, {}), seq, visit)
