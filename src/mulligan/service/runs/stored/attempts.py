"""Every attempt of a run: what it was given, how it went, what it cost; the gaps in which the run waited between them.

One fold of the log, from which each face takes what it shows of an attempt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model.agents.spending import FIGURES
from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.events import AttemptFailed, AttemptSucceeded, Entry
from mulligan.core.model.failure import Failure, number_or_zero
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.workflow import Command
from mulligan.core.state.scope import error_view
from mulligan.history.phrases import describe_failure
from mulligan.service.runs.stored.artifacts import KeptFile, kept_files
from mulligan.worker.logs.progress_records import Progress

# The first two are for attempts that have not ended.
Outcome = Literal["queued", "running", "succeeded", "failed", "lost", "interrupted", "cancelled"]
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
ENDS: dict[type[e.Fact], Outcome] = {
    e.AttemptSucceeded: "succeeded",
    e.AttemptFailed: "failed",
    e.AttemptLost: "lost",
    e.AttemptInterrupted: "interrupted",
    e.AttemptCancelled: "cancelled",
}


def unit_of(place: str) -> str:
    """The step or item that a place belongs to."""
    return place.partition(".")[0]


def part_of(place: str) -> Part:
    """The part of a place in its step or item; a command of a handler belongs to the handler."""
    words = place.partition(".")[2].split(".")
    return next((_PARTS[name] for word in words if (name := word.partition("@")[0]) in _PARTS), "own")


class AttemptFacts(msgspec.Struct, kw_only=True):
    """All that the log says of one attempt. A face shows a part of it: `AttemptRecord`, `Attempt`, `AttemptLine`."""

    place: str
    attempt: int
    visit: int
    round: int
    scheduled_at: datetime
    # When its worker reported the start; and when it ran, by what was measured.
    taken_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: Outcome = "queued"
    host: str = ""
    worker: str = ""
    # As it was reported; and what of it are figures.
    usage: dict[str, Any] = {}
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    peak_memory: int | None = None
    tokens: int | None = None
    # Its limits; None if the workflow sets none.
    memory: int | None = None
    cpus: float | None = None
    timeout: float | None = None
    failure: Failure | None = None
    code: str = ""
    exit_code: int | None = None
    signal: int | None = None
    # A map runs nothing itself: its items do.
    is_map: bool = False
    # When a program waited for its calls, and no process ran.
    waits: list[tuple[datetime, datetime | None]] = []
    artifacts: list[KeptFile] = []
    # What is not in its own events: why it was tried again, whether with other limits; what it reported, in words.
    because: str = ""
    is_adjusted: bool = False
    progress: str = ""

    @property
    def unit(self) -> str:
        """The step or item that it belongs to."""
        return unit_of(self.place)

    @property
    def part(self) -> Part:
        """Its part in that."""
        return part_of(self.place)

    @property
    def what(self) -> str:
        """The failure in one line."""
        return describe_failure(self.failure) if self.failure else ""


class Gap(msgspec.Struct):
    """A time in which a step or item waited: for the delay of a retry or a loop, or for a person."""

    unit: str
    kind: Pause
    since: datetime
    # None while it still waits.
    until: datetime | None = None


class Attempts:
    """The attempts and gaps of a run, collected from its log."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, int], AttemptFacts] = {}
        self.gaps: list[Gap] = []
        self.round = 1
        self.visits: dict[str, int] = {}
        self._parked: dict[str, Gap] = {}

    def update(self, entry: e.Entry, spec: Command | None = None) -> None:
        """Take in an entry. `spec`: the definition of its place, if it is known."""
        fact: Any = entry.fact
        kind, at = type(fact), entry.at
        if kind in _OF_AN_ATTEMPT:
            _update(self._get(fact.place, fact.attempt, at), entry, spec)
        elif kind is e.StepEntered:
            self.visits[fact.step] = fact.visit
        elif kind is e.RunReopened:
            self.round = fact.round
        elif kind is e.RetryScheduled and fact.due > at:
            self.gaps.append(Gap(unit_of(fact.place), "delay", at, fact.due))
        elif kind is e.LoopTaken and fact.due > at:
            self.gaps.append(Gap(fact.step, "loop", at, fact.due))
        elif kind is e.StepParked:
            self._parked[fact.step] = Gap(fact.step, "parked", at)
            self.gaps.append(self._parked[fact.step])
        elif kind in UNPARKED_BY and (gap := self._parked.pop(fact.step, None)) is not None:
            gap.until = at
        elif kind is e.StepRan:
            self._ran(fact, at)
        elif kind is e.ProgramWaiting and not fact.goes_on:
            one = self._get(fact.place, fact.attempt, at)
            one.waits = [*one.waits, (at, None)]
        elif kind is e.TurnStarted:
            _end_wait(self._get(fact.place, fact.attempt, at), at)

    def _ran(self, fact: e.StepRan, at: datetime) -> None:
        """An inline step, which the process of its program has run."""
        self.visits[fact.step] = fact.visit
        one = self._get(fact.step, fact.attempt, at)
        one.taken_at, one.ended_at, one.outcome = at, at, "succeeded"
        _measure(one, {"wall_seconds": fact.seconds}, at)
        one.taken_at = one.scheduled_at = one.started_at = at - timedelta(seconds=fact.seconds)

    def _get(self, place: str, attempt: int, at: datetime) -> AttemptFacts:
        """The attempt of a fact. One whose expressions failed was never scheduled."""
        found = self.found.get((place, attempt))
        if found is None:
            found = self.found[place, attempt] = AttemptFacts(
                place=place,
                attempt=attempt,
                visit=self.visits.get(step_name(place), 0),
                round=self.round,
                scheduled_at=at,
            )
        return found


def _end_wait(one: AttemptFacts, at: datetime) -> None:
    """A program goes on. A short wait is no wait: there are as many as calls."""
    if one.waits and one.waits[-1][1] is None:
        since, _ = one.waits[-1]
        is_long = at - since >= WAIT_MIN
        one.waits = [*one.waits[:-1], *([(since, at)] if is_long else [])]


def _update(one: AttemptFacts, entry: e.Entry, spec: Command | None) -> None:
    fact: Any = entry.fact
    at = entry.at
    if isinstance(fact, e.AttemptScheduled):
        given, resources = fact.adjusted or Adjusted(), spec.resources if spec else None
        one.memory = given.memory or (resources.memory if resources else None)
        one.cpus = given.cpus or (resources.cpus if resources else None)
        one.timeout = given.timeout or (spec.timeout if spec else None)
    elif isinstance(fact, e.AttemptStarted):
        one.taken_at = one.started_at = at
        one.host, one.worker, one.outcome = fact.host, fact.worker, "running"
    elif isinstance(fact, e.MapExpanded):
        one.is_map = True
    elif isinstance(fact, e.ResultRejected):
        one.outcome = "failed"
    else:
        one.ended_at, one.outcome = at, ENDS[type(fact)]
    if isinstance(fact, AttemptSucceeded | AttemptFailed):
        _measure(one, fact.usage, at)
        one.artifacts = [*kept_files(entry)]
    if isinstance(fact, e.AttemptFailed | e.ResultRejected):
        failure = one.failure = fact.failure
        one.code, one.exit_code, one.signal = failure.code, failure.exit_code, failure.signal


def _measure(one: AttemptFacts, usage: dict[str, Any], at: datetime) -> None:
    """Add the measured usage. The attempt started its measured time before its end: a leased task may not run yet."""
    one.usage, peak, tokens = usage, _figure(usage.get("peak_memory")), _figure(usage.get("tokens"))
    one.wall_seconds, one.cpu_seconds = _figure(usage.get("wall_seconds")), _figure(usage.get("cpu_seconds"))
    one.peak_memory, one.tokens = int(peak) if peak else None, int(tokens) if tokens else None
    if one.wall_seconds is not None:
        one.started_at = max(one.scheduled_at, at - timedelta(seconds=one.wall_seconds))


def _figure(said: Any) -> float | None:
    return float(said) if isinstance(said, int | float) and 0 <= said < float("inf") else None


_OF_AN_ATTEMPT = frozenset({e.AttemptScheduled, e.AttemptStarted, e.MapExpanded, e.ResultRejected, *ENDS})
# A program that waited for less than this for its calls did not wait: there are as many such waits as calls.
WAIT_MIN = timedelta(seconds=1)
UNPARKED_BY = (e.StepClassified, e.StepCancelled, e.StepFailed)


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


_FIGURES = ("wall_seconds", "cpu_seconds", "peak_memory", "tokens", "cost", "model")


def list_attempts(
    entries: Iterable[e.Entry], is_wanted: Callable[[str], bool], rounds: Sequence[tuple[int, int]] = ()
) -> list[AttemptRecord]:
    """The attempts at the wanted places, over all rounds, in the order of scheduling.

    `rounds`: the events that opened a round, and its number, in order; if these events are not among the entries.
    """
    attempts, left = Attempts(), deque(rounds)
    for entry in entries:
        while left and left[0][0] <= entry.seq:
            attempts.round = left.popleft()[1]
        fact: Any = entry.fact
        kind = type(fact)
        if (
            kind is e.RunReopened
            or (kind in _RECORDED and is_wanted(fact.place))
            or (kind is e.StepRan and is_wanted(fact.step))
        ):
            attempts.update(entry)
    return [
        AttemptRecord(
            place=one.place,
            attempt=one.attempt,
            round=one.round,
            scheduled_at=one.scheduled_at,
            started_at=one.taken_at,
            ended_at=one.ended_at,
            status=one.outcome,
            host=one.host,
            failure=error_view(one.failure) if one.failure else None,
            artifacts=one.artifacts,
            **{name: one.usage.get(name) for name in _FIGURES},
        )
        for one in attempts.found.values()
    ]


# A map that finds its items is an attempt already.
_RECORDED = _OF_AN_ATTEMPT - {e.MapExpanded}


def attempts_by_step(entries: Iterable[e.Entry]) -> dict[str, list[AttemptRecord]]:
    """The attempts at steps, their handlers and scripts, by step. Attempts at items are left out: there may be many."""
    found: dict[str, list[AttemptRecord]] = {}
    for one in list_attempts(entries, lambda place: "[" not in place):
        found.setdefault(step_name(one.place), []).append(one)
    return found


class Cost(msgspec.Struct):
    """Time and processor time of all attempts together, those at items and handlers too; the most memory of one."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory: int = 0

    def add(self, wall_seconds: float, cpu_seconds: float, peak_memory: int) -> None:
        """Add what another attempt, or all of another step, has cost."""
        self.wall_seconds = round(self.wall_seconds + wall_seconds, 6)
        self.cpu_seconds = round(self.cpu_seconds + cpu_seconds, 6)
        self.peak_memory = max(self.peak_memory, peak_memory)


def total(costs: Iterable[Cost]) -> Cost:
    """The total cost of several steps; the most memory of one attempt."""
    found = Cost()
    for cost in costs:
        found.add(*msgspec.structs.astuple(cost))
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
        wall, cpu, peak = (number_or_zero(fact.usage.get(name)) for name in Cost.__struct_fields__)
        self.by_step.setdefault(step_name(fact.place), Cost()).add(wall, cpu, int(peak))
