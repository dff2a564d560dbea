"""The visits in which something failed: what happened, rung by rung what was done about it, and what came of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal

import msgspec

from mulligan.core.deciding.resource_usage import ran_short
from mulligan.core.evolve.revision import is_removed
from mulligan.core.model import events as e
from mulligan.core.model.failure import Failure
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.rejected_output import rejected_text
from mulligan.core.model.workflow import END
from mulligan.core.state.state import FailureRecord, State
from mulligan.history.phrases import describe_failure, failure_label
from mulligan.history.story import Line
from mulligan.service.failure_summary import ENDINGS, FATES, RECOVERED, REMOVED, Fate, routed, spent_budget, times
from mulligan.service.report.attempts import part_of, unit_of

RungName = Literal["retry", "handle", "triage", "route", "end"]
# Dealt: this rung ended the climb. Tried: it was, and the climb went on. Passed: it did not apply. Absent: the step has
# no such thing. Unasked: the climb did not get there.
RungOutcome = Literal["dealt", "tried", "passed", "absent", "unasked"]

RUNGS: tuple[RungName, ...] = ("retry", "handle", "triage", "route", "end")
# An item climbs the first two; what is left of its failure is its step's.
ITEM_RUNGS: tuple[RungName, ...] = ("retry", "handle")
# Of a long visit the beginning and the end are told.
LINES_MAX = 40
# A rung may be tried a hundred times: what was said of it last.
_SAID_MAX = 2


class Told(msgspec.Struct, frozen=True):
    """A sentence of the story."""

    at: datetime
    place: str
    text: str
    tone: str


class Rung(msgspec.Struct, frozen=True):
    name: RungName
    outcome: RungOutcome
    said: str = ""


class Log(msgspec.Struct, frozen=True):
    """The end of what a failed attempt wrote. `is_cut`: there is more of it."""

    place: str
    attempt: int
    stdout: str = ""
    stderr: str = ""
    is_cut: bool = False
    # Where it ran, if there is no log of it here.
    ran_on: str = ""
    # The files that have all of it, stderr first; only those with something in them.
    files: list[str] = []


class FailedVisit(msgspec.Struct):
    """One visit of a step, or one item in it, in which an attempt failed or was lost."""

    unit: str
    step: str
    visit: int
    round: int
    at: datetime
    # What happened, in a few words and as it was written; empty where only workers were lost.
    what: str
    code: str
    message: str
    answer: str
    fate: Fate
    failures: int
    rungs: list[Rung]
    lines: list[Told]
    lines_left: int = 0
    failed_attempts: list[tuple[str, int]] = []
    logs: list[Log] = []
    # Of an item: what it is called.
    name: str = ""
    # It ran out of memory or time: `retry --adjust` gives it more.
    has_run_out: bool = False
    # The output that `validate` refused, or the head and tail of it.
    refused: str = ""
    # The limit that kept its agent from starting, as `retry --budget` names it.
    spent_budget: str = ""

    @property
    def is_item(self) -> bool:
        return self.unit != self.step


class ItemFailures(msgspec.Struct, frozen=True):
    """How the items of one visit failed: by kind, the most frequent first."""

    step: str
    visit: int
    items: int
    kinds: list[tuple[str, int]]


class _Climb:
    """One visit, as it goes."""

    def __init__(self, unit: str, visit: int, round_: int, at: datetime) -> None:
        self.unit, self.visit, self.round, self.at = unit, visit, round_, at
        self.failure: Failure | None = None
        self.failures = 0
        self.losses = 0
        self.retries = 0
        self.attempts: list[tuple[str, int]] = []
        self.said: dict[str, list[str]] = {}
        self.tried: set[str] = set()
        self.passed: set[str] = set()
        self.lines: list[Line] = []
        # How it ended: "" while it has not.
        self.ended = ""
        self.recovered_by = ""
        self.is_undo_failed = False

    @property
    def has_trouble(self) -> bool:
        return self.failure is not None or self.losses > 0

    @property
    def is_item(self) -> bool:
        return "[" in self.unit

    def fail(self, failure: Failure, place: str, attempt: int) -> None:
        self.failure = failure
        self.failures += 1
        self.attempts.append((place, attempt))

    def tell(self, rung: str, line: Line | None) -> None:
        if line is not None:
            self.said.setdefault(rung, []).append(line.text)


class FailedVisits:
    """The visits of a run in which something failed, as its log grows."""

    def __init__(self) -> None:
        self._climbs: dict[tuple[str, int], _Climb] = {}
        self._visits: dict[str, int] = {}
        self._round = 1
        # Where the last sentence went: the next may say it all again.
        self._last: list[Line] = []

    def see(self, entry: e.Entry, lines: Iterable[Line]) -> None:
        """Take in an entry, with the sentences that the story has for it."""
        fact = entry.fact
        if isinstance(fact, e.RunReopened):
            self._round = fact.round
        elif isinstance(fact, e.StepEntered):
            self._visits[fact.step] = fact.visit
        own = self._keep(lines, entry.at)
        rule = _RULES.get(type(fact))
        place: str = getattr(fact, "place", "") or getattr(fact, "step", "")
        if rule is not None and part_of(place) in ("own", "undo"):
            rule(self._climb(place, entry.at), fact, own)

    def _keep(self, lines: Iterable[Line], at: datetime) -> Line | None:
        """Put sentences where they belong; the first is the fact's own, the others are details."""
        first = None
        for line in lines:
            if line.place:
                if line.is_whole and self._last:
                    self._last.pop()
                self._last = self._climb(line.place, at).lines
                self._last.append(line)
                first = first or line
        return first

    def _climb(self, place: str, at: datetime) -> _Climb:
        unit = unit_of(place)
        key = unit, self._visits.get(step_name(place), 0)
        if key not in self._climbs:
            self._climbs[key] = _Climb(*key, self._round, at)
        return self._climbs[key]

    def told(self, state: State) -> list[FailedVisit]:
        """All of them: what nobody dealt with first, then in the order in which they began."""
        records = {(record.step, record.visit): record for record in state.failures}
        found = [self._visit(state, climb, records) for climb in self._climbs.values() if climb.has_trouble]
        return sorted(found, key=lambda one: (FATES.index(one.fate), one.is_item, one.at))

    def item_failures(self) -> list[ItemFailures]:
        """How items failed for good, by the visit of their step."""
        kinds: dict[tuple[str, int], Counter[str]] = {}
        for climb in self._climbs.values():
            if climb.is_item and climb.ended == "failed" and climb.failure is not None:
                step = step_name(climb.unit)
                kinds.setdefault((step, climb.visit), Counter())[failure_label(climb.failure)] += 1
        return [ItemFailures(*key, sum(count.values()), count.most_common(10)) for key, count in kinds.items()]

    def _visit(self, state: State, climb: _Climb, records: dict[tuple[str, int], FailureRecord]) -> FailedVisit:
        record = records.get((climb.unit, climb.visit))
        answer, fate = self._answer(state, climb, record)
        failure, half = climb.failure, LINES_MAX // 2
        many = len(climb.lines) > LINES_MAX
        lines = [*climb.lines[:half], *climb.lines[-half:]] if many else climb.lines
        return FailedVisit(
            climb.unit,
            step_name(climb.unit),
            climb.visit,
            climb.round,
            climb.at,
            describe_failure(failure) if failure else "its worker was lost",
            failure.code if failure else "WORKER_LOST",
            failure.message if failure else "",
            answer,
            fate,
            climb.failures + climb.losses,
            [] if climb.is_undo_failed else list(_rungs(climb, record, fate)),
            [Told(line.at, line.place, line.text, line.tone) for line in lines],
            len(climb.lines) - len(lines),
            climb.attempts,
            has_run_out=failure is not None and ran_short(failure),
            refused=rejected_text(failure) if failure else "",
            spent_budget=spent_budget(climb.unit, failure.code, failure.details) if failure else "",
        )

    def _answer(self, state: State, climb: _Climb, record: FailureRecord | None) -> tuple[str, Fate]:
        """How it came out, in words, and what that means for who reads of it."""
        if climb.is_undo_failed:
            return "could not be undone", "open"
        if climb.ended == "completed":
            return _mended(climb), "mended"
        if is_removed(state, step_name(climb.unit)):
            return REMOVED
        if climb.ended == "failed" and record is not None:
            return self._in_another_round(climb) if record.is_closed else routed(state, record)
        if climb.ended == "failed":
            return self._of_item(state, climb)
        if climb.ended == "cancelled":
            return ENDINGS["cancelled"]
        place = state.places.get(climb.unit)
        return ENDINGS[place.status] if place is not None else ENDINGS["running"]

    def _of_item(self, state: State, climb: _Climb) -> tuple[str, Fate]:
        name = step_name(climb.unit)
        step = self._climbs.get((name, climb.visit))
        if step is not None and step.ended == "completed":
            return "its step completed without it", "left"
        is_over = state.places[name].visit > climb.visit or state.run.round > climb.round
        return self._in_another_round(climb) if is_over else ("it fails its step", "open")

    def _in_another_round(self, climb: _Climb) -> tuple[str, Fate]:
        """What came of a failure that a later round gave another chance."""
        last = self._visits.get(step_name(climb.unit), 0)
        later = (self._climbs.get((climb.unit, visit)) for visit in range(climb.visit + 1, last + 1))
        done = next((one for one in later if one is not None and one.ended == "completed"), None)
        return _ANOTHER_ROUND if done is None else (f"completed in round {done.round}", "mended")


_ANOTHER_ROUND: tuple[str, Fate] = ("another round gave it a new chance", "left")


def _mended(climb: _Climb) -> str:
    if climb.recovered_by:
        return RECOVERED.get(climb.recovered_by, f"recovered by its {climb.recovered_by} handler")
    tried = [f"retried{times(climb.retries)}"] if climb.retries else []
    tried += [f"lost its worker{times(climb.losses)}"] if climb.losses and climb.failure else []
    tried += ["parked"] if "triage" in climb.tried else []
    return ", ".join([*tried, "then completed"])


# -- rung by rung ----------------------------------------------------------------------------------------------------


def _rungs(climb: _Climb, record: FailureRecord | None, fate: Fate) -> Iterator[Rung]:
    names = ITEM_RUNGS if climb.is_item else RUNGS
    dealer = _dealer(climb, record)
    asked = {*climb.tried, *climb.passed, *([dealer] if dealer else []), *(["end"] if climb.ended == "failed" else [])}
    for index, name in enumerate(names):
        said = "; ".join(climb.said.get(name, [])[-_SAID_MAX:])
        is_beyond = any(RUNGS.index(one) > index for one in asked if one in RUNGS)
        outcome = _rung_outcome(climb, name, said, dealer, is_beyond=is_beyond)
        yield Rung(name, outcome, said or (_ABSENT.get(name, "") if outcome == "absent" else ""))


def _rung_outcome(climb: _Climb, name: str, said: str, dealer: str, *, is_beyond: bool) -> RungOutcome:
    if name == dealer:
        return "dealt"
    if name in climb.tried:
        return "tried"
    if name in climb.passed and said:
        return "passed"
    return "absent" if is_beyond or name in climb.passed else "unasked"


_ABSENT = {"retry": "no rules", "handle": "no handler", "triage": "no triage", "route": "no failure edge"}


def _dealer(climb: _Climb, record: FailureRecord | None) -> str:
    """The rung that ended the climb; "" while it goes on."""
    if climb.ended == "completed":
        if climb.recovered_by:
            return "handle"
        return "triage" if "triage" in climb.tried else "retry"
    if climb.ended == "failed" and not climb.is_item:
        return "route" if record is not None and record.target else "end"
    return ""


def _attempt_failed(climb: _Climb, fact: Any, line: Line | None) -> None:
    climb.fail(fact.failure, fact.place, fact.attempt)


def _lost(climb: _Climb, fact: e.AttemptLost, line: Line | None) -> None:
    climb.losses += 1
    climb.attempts.append((fact.place, fact.attempt))


def _scheduled(climb: _Climb, fact: e.AttemptScheduled, line: Line | None) -> None:
    if fact.cause == "lost":
        climb.tried.add("retry")
        climb.tell("retry", line)


def _retried(climb: _Climb, fact: e.RetryScheduled, line: Line | None) -> None:
    climb.retries += 1
    climb.tried.add("retry")
    climb.tell("retry", line)


def _passed(climb: _Climb, fact: e.RungPassed, line: Line | None) -> None:
    climb.passed.add(fact.rung)
    climb.tell(fact.rung, line)


def _handled(climb: _Climb, fact: Any, line: Line | None) -> None:
    climb.tried.add("handle")
    climb.tell("handle", line)


def _parked(climb: _Climb, fact: Any, line: Line | None) -> None:
    climb.tried.add("triage")
    climb.tell("triage", line)


def _completed(climb: _Climb, fact: Any, line: Line | None) -> None:
    climb.ended, climb.recovered_by = "completed", fact.recovered_by


def _step_failed(climb: _Climb, fact: e.StepFailed, line: Line | None) -> None:
    climb.ended = "failed"
    climb.failure = fact.failure
    if fact.route.is_sent:
        climb.tried.add("route")
        climb.said.setdefault("route", []).append(f"'{fact.route.to}' takes over")
    elif fact.step != END:
        said = "it may fail" if fact.is_allowed else "nobody handled it"
        climb.said.setdefault("end", []).append(said)


def _item_failed(climb: _Climb, fact: e.ItemFailed, line: Line | None) -> None:
    climb.ended, climb.failure = "failed", fact.failure


def _cancelled(climb: _Climb, fact: Any, line: Line | None) -> None:
    climb.ended = "cancelled"


def _undo_failed(climb: _Climb, fact: e.UndoFailed, line: Line | None) -> None:
    climb.failure, climb.is_undo_failed = fact.failure, True


_RULES: dict[type[e.Fact], Any] = {
    e.AttemptFailed: _attempt_failed,
    e.ResultRejected: _attempt_failed,
    e.AttemptLost: _lost,
    e.AttemptScheduled: _scheduled,
    e.RetryScheduled: _retried,
    e.RungPassed: _passed,
    **dict.fromkeys((e.HandlerStarted, e.HandlerSucceeded, e.HandlerFailed), _handled),
    **dict.fromkeys((e.StepParked, e.StepClassified), _parked),
    **dict.fromkeys((e.StepCompleted, e.ItemCompleted), _completed),
    e.StepFailed: _step_failed,
    e.ItemFailed: _item_failed,
    **dict.fromkeys((e.StepCancelled, e.ItemCancelled), _cancelled),
    e.UndoFailed: _undo_failed,
}
