"""Which attempt of one history corresponds to which attempt of another.

Attempts are numbered over the whole run, so with fewer retries in the first visit of a step the numbers of all later
attempts are others. Here an attempt is named by its place, the visit of its step, and its position in that visit. The
*circumstances* of an attempt say what was done about the failure before it: the outcome of an attempt after a handler
says nothing about an attempt without it.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, NamedTuple

from mulligan.core.model import events as e
from mulligan.core.model.event_types import Adjusted
from mulligan.core.model.failure import Failure
from mulligan.core.model.workflow import Command
from mulligan.core.state.state import Place, State

_NUMBER = re.compile(r"@(\d+)")
_INDEX = re.compile(r"\[\d+\]")


class AttemptName(NamedTuple):
    """The place, with attempts in its key named in the same way; the visit; which attempt of that visit."""

    place: str
    visit: int
    position: int


class FailureKind(NamedTuple):
    """What failures have in common for what is learned from them."""

    code: str
    exit_code: int | None = None

    @property
    def text(self) -> str:
        return f"exit code {self.exit_code}" if self.code == "EXIT_NONZERO" else self.code


class Circumstances(NamedTuple):
    """How it came to an attempt. Two attempts are comparable only if these are equal."""

    # "entered"; "again" after a failure; "rerun" after a handler.
    kind: str
    # What was run before it to repair something: a recovery script, a handler.
    repair: Any = None
    # For the first attempt of a visit: the remediation after which the step is visited again, and the round.
    after: str = ""
    round: int = 1
    adjusted: Adjusted | None = None


class Named(NamedTuple):
    """An attempt that was scheduled: its name, how it came to it, and the failure before it."""

    name: AttemptName
    circumstances: Circumstances
    failure: FailureKind | None
    failed_at: datetime | None


def failure_kind(failure: Failure) -> FailureKind:
    """What a failure is counted under."""
    return FailureKind(failure.code, failure.exit_code if failure.code == "EXIT_NONZERO" else None)


def general_place(key: str) -> str:
    """The place without numbers of items, visits and attempts: all of these are learned from together."""
    return _INDEX.sub("[]", _NUMBER.sub("", key))


class AttemptNames:
    """Names the attempts of one history, from its entries in order."""

    def __init__(self) -> None:
        self._positions: dict[tuple[str, int], int] = {}
        self._names: dict[tuple[str, int], tuple[int, int]] = {}
        self._scripts: dict[str, Command | None] = {}
        self._put_back: dict[str, str] = {}
        self._entered: dict[str, tuple[str, int]] = {}
        self._failures: dict[str, tuple[FailureKind, datetime]] = {}

    def note(self, state: State, entry: e.Entry) -> Named | None:
        """Take note of an entry that was applied to the state; the name of the attempt that it schedules, if any."""
        fact = entry.fact
        if isinstance(fact, e.AttemptScheduled):
            place = state.places.get(fact.place)
            return None if place is None else self._name(state, place, fact)
        if isinstance(fact, e.AttemptFailed | e.ResultRejected):
            self._failures[fact.place] = failure_kind(fact.failure), entry.at
        elif isinstance(fact, e.AttemptLost):
            self._failures[fact.place] = FailureKind("WORKER_LOST"), entry.at
        elif isinstance(fact, e.AttemptInterrupted):
            self._failures[fact.place] = FailureKind("INTERRUPTED"), entry.at
        elif isinstance(fact, e.RetryScheduled):
            rules = state.places[fact.place].spec.rules
            self._scripts[fact.place] = rules[fact.rule].recovery_script if fact.has_script else None
        elif isinstance(fact, e.StepPutBack):
            self._put_back[fact.step] = fact.by
        elif isinstance(fact, e.StepEntered):
            self._failures.pop(fact.step, None)
            self._entered[fact.step] = self._put_back.pop(fact.step, ""), state.run.round
        return None

    def place_name(self, key: str) -> str:
        """The key of a place with the attempts in it named by visit and position."""
        if "@" not in key:
            return key
        parts: list[str] = []
        end = 0
        for match in _NUMBER.finditer(key):
            owner, _, role = key[: match.start()].rpartition(".")
            visit_and_position = None if role == "undo" else self._names.get((owner, int(match[1])))
            parts.append(key[end : match.start()])
            parts.append(match[0] if visit_and_position is None else "@{}:{}".format(*visit_and_position))
            end = match.end()
        return "".join((*parts, key[end:]))

    def name_of(self, state: State, key: str, attempt: int) -> AttemptName:
        """The name of an attempt that was scheduled before."""
        visit, position = self._names.get((key, attempt), (0, 0))
        return AttemptName(self.place_name(key), visit, position)

    def _name(self, state: State, place: Place, fact: e.AttemptScheduled) -> Named:
        step = state.step_of(place)
        named = self.place_name(place.key)
        position = self._positions[named, step.visit] = self._positions.get((named, step.visit), 0) + 1
        self._names[place.key, fact.attempt] = step.visit, position
        kind, failed_at = self._failures.get(place.key, (None, None))
        return Named(
            AttemptName(named, step.visit, position), self._circumstances(place, fact, step.visit), kind, failed_at
        )

    def _circumstances(self, place: Place, fact: e.AttemptScheduled, visit: int) -> Circumstances:
        if fact.cause == "entered":
            after, round_ = self._entered.get(place.key, ("", 1)) if visit > 1 else ("", 1)
            return Circumstances("entered", None, after, round_, fact.adjusted)
        if fact.cause == "rerun":
            return Circumstances("rerun", place.spec.on_failure, adjusted=fact.adjusted)
        script = self._scripts.get(place.key) if fact.cause == "retry" else None
        return Circumstances("again", script, adjusted=fact.adjusted)
