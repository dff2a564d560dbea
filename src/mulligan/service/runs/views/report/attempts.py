"""Every attempt of a run over time, with its limits and what it used; and the gaps in which it waited."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.workflow import Command
from mulligan.history.phrases import describe_failure
from mulligan.service.runs.stored.attempts import ENDS, Outcome

Part = Literal["own", "handler", "script", "check", "undo", "triager", "model", "tool"]
Pause = Literal["delay", "parked", "loop"]

# By part of the place key: what runs on behalf of a step or an item.
_PARTS: dict[str, Part] = {
    "on_failure": "handler",
    "on_success": "handler",
    "script": "script",
    "validator": "check",
    "lister": "check",
    "undo": "undo",
    "triager": "triager",
    # What an agent with tools does: each question to its model, each call of a tool.
    "model": "model",
    "tool": "tool",
    "tool_list": "tool",
}


class Attempt(msgspec.Struct):
    """One attempt: when it was scheduled, started and ended; its outcome, its limits and what it used."""

    place: str
    attempt: int
    # The step or item that it belongs to, and its part in that.
    unit: str
    part: Part
    visit: int
    round: int
    scheduled_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: Outcome = "queued"
    # The failure in one line.
    what: str = ""
    host: str = ""
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    peak_memory: int | None = None
    # Reported by an agent.
    tokens: int | None = None
    # Its limits; None if the workflow sets none.
    memory: int | None = None
    cpus: float | None = None
    # A map runs nothing itself: its items do.
    is_map: bool = False
    # What it reported last, in words.
    progress: str = ""


class Gap(msgspec.Struct):
    """A time in which a step or item waited: for the delay of a retry or a loop, or for a person."""

    unit: str
    kind: Pause
    since: datetime
    # None while it still waits.
    until: datetime | None = None


def unit_of(place: str) -> str:
    """The step or item that a place belongs to."""
    return place.partition(".")[0]


def part_of(place: str) -> Part:
    """The part of a place in its step or item; a command of a handler belongs to the handler."""
    words = place.partition(".")[2].split(".")
    return next((_PARTS[name] for word in words if (name := word.partition("@")[0]) in _PARTS), "own")


class Attempts:
    """The attempts and gaps of a run, collected from its log."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, int], Attempt] = {}
        self.gaps: list[Gap] = []
        self.round = 1
        self.visits: dict[str, int] = {}
        self._parked: dict[str, Gap] = {}

    def update(self, entry: e.Entry, spec: Command | None) -> None:
        """Take in an entry. `spec`: the definition of its place, if it is known."""
        rule = _RULES.get(type(entry.fact))
        if rule is not None:
            rule(self, entry.fact, entry.at, spec)

    def _entered(self, fact: e.StepEntered, at: datetime, spec: Command | None) -> None:
        self.visits[fact.step] = fact.visit

    def _reopened(self, fact: e.RunReopened, at: datetime, spec: Command | None) -> None:
        self.round = fact.round

    def _scheduled(self, fact: e.AttemptScheduled, at: datetime, spec: Command | None) -> None:
        one = self._new(fact.place, fact.attempt, at)
        given, resources = fact.adjusted or Adjusted(), spec.resources if spec else None
        one.memory = given.memory or (resources.memory if resources else None)
        one.cpus = given.cpus or (resources.cpus if resources else None)

    def _new(self, place: str, attempt: int, at: datetime) -> Attempt:
        unit = unit_of(place)
        visit = self.visits.get(step_name(place), 0)
        one = Attempt(place, attempt, unit, part_of(place), visit, self.round, at)
        self.found[place, attempt] = one
        return one

    def _get(self, fact: Any, at: datetime) -> Attempt:
        """The attempt of a fact. One whose expressions failed was never scheduled."""
        return self.found.get((fact.place, fact.attempt)) or self._new(fact.place, fact.attempt, at)

    def _started(self, fact: e.AttemptStarted, at: datetime, spec: Command | None) -> None:
        one = self._get(fact, at)
        one.started_at, one.host, one.outcome = at, fact.host, "running"

    def _mapped(self, fact: e.MapExpanded, at: datetime, spec: Command | None) -> None:
        self._get(fact, at).is_map = True

    def _ended(self, fact: Any, at: datetime, spec: Command | None) -> None:
        one = self._get(fact, at)
        one.ended_at, one.outcome = at, ENDS[type(fact)]
        if isinstance(fact, e.AttemptSucceeded | e.AttemptFailed):
            _measure(one, fact.usage, at)
        if isinstance(fact, e.AttemptFailed):
            one.what = describe_failure(fact.failure)

    def _rejected(self, fact: e.ResultRejected, at: datetime, spec: Command | None) -> None:
        one = self._get(fact, at)
        one.outcome, one.what = "failed", describe_failure(fact.failure)

    def _retried(self, fact: e.RetryScheduled, at: datetime, spec: Command | None) -> None:
        if fact.due > at:
            self.gaps.append(Gap(unit_of(fact.place), "delay", at, fact.due))

    def _looped(self, fact: e.LoopTaken, at: datetime, spec: Command | None) -> None:
        if fact.due > at:
            self.gaps.append(Gap(fact.step, "loop", at, fact.due))

    def _parks(self, fact: e.StepParked, at: datetime, spec: Command | None) -> None:
        self._parked[fact.step] = Gap(fact.step, "parked", at)
        self.gaps.append(self._parked[fact.step])

    def _unparks(self, fact: Any, at: datetime, spec: Command | None) -> None:
        gap = self._parked.pop(fact.step, None)
        if gap is not None:
            gap.until = at


def _measure(one: Attempt, usage: dict[str, Any], at: datetime) -> None:
    """Add the measured usage. The attempt started its measured time before its end: a leased task may not run yet."""
    one.wall_seconds = _figure(usage.get("wall_seconds"))
    one.cpu_seconds = _figure(usage.get("cpu_seconds"))
    peak = _figure(usage.get("peak_memory"))
    one.peak_memory = int(peak) if peak else None
    tokens = _figure(usage.get("tokens"))
    one.tokens = int(tokens) if tokens else None
    if one.wall_seconds is not None:
        one.started_at = max(one.scheduled_at, at - timedelta(seconds=one.wall_seconds))


def _figure(said: Any) -> float | None:
    return float(said) if isinstance(said, int | float) and 0 <= said < float("inf") else None


_RULES: dict[type[e.Fact], Any] = {
    e.StepEntered: Attempts._entered,
    e.RunReopened: Attempts._reopened,
    e.AttemptScheduled: Attempts._scheduled,
    e.AttemptStarted: Attempts._started,
    e.MapExpanded: Attempts._mapped,
    **dict.fromkeys(ENDS, Attempts._ended),
    e.ResultRejected: Attempts._rejected,
    e.RetryScheduled: Attempts._retried,
    e.LoopTaken: Attempts._looped,
    e.StepParked: Attempts._parks,
    **dict.fromkeys((e.StepClassified, e.StepCancelled, e.StepFailed), Attempts._unparks),
}
