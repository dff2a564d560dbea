"""The visits in which something failed: what happened, what each rung of the ladder did, and how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal

import msgspec

from mulligan.core.deciding.workers.resource_usage import ran_short
from mulligan.core.evolve.revision import is_removed
from mulligan.core.model import events as e
from mulligan.core.model.failure import Failure
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.rejected_output import rejected_text
from mulligan.core.model.workflow import END
from mulligan.core.state.state import FailureRecord, State
from mulligan.history.phrases import UNDO_FAILED, describe_failure, failure_label
from mulligan.history.route_outcomes import (
    ANOTHER_ROUND,
    ENDINGS,
    LOST,
    NOT_CALLED,
    REMOVED,
    UNDONE_LATER,
    Ending,
    FailureOutcome,
    describe_recovery,
    describe_route_outcome,
    format_times,
)
from mulligan.history.story import StoryLine
from mulligan.service.runs.stored.attempts import part_of, unit_of
from mulligan.service.runs.views.failure_summary import OUTCOMES, spent_budget

RungName = Literal["retry", "handle", "triage", "route", "end"]
# Dealt: this rung handled the failure. Tried: it ran, and a later rung followed. Passed: it did not apply. Absent: the
# step has none. Unasked: the failure was handled before it.
RungOutcome = Literal["dealt", "tried", "passed", "absent", "unasked"]

RUNGS: tuple[RungName, ...] = ("retry", "handle", "triage", "route", "end")
# An item has only the first two; its step handles what is left.
ITEM_RUNGS: tuple[RungName, ...] = ("retry", "handle")
# Of a long visit only the beginning and the end are listed.
LINES_MAX = 40
# A rung may run a hundred times: only its last lines are listed.
_SAID_MAX = 2


class VisitLine(msgspec.Struct, frozen=True):
    """A line of the story."""

    at: datetime
    place: str
    text: str
    tone: str


class Rung(msgspec.Struct, frozen=True):
    name: RungName
    outcome: RungOutcome
    said: str = ""


class Log(msgspec.Struct, frozen=True):
    """The end of the log of a failed attempt. `is_cut`: the log is longer."""

    place: str
    attempt: int
    stdout: str = ""
    stderr: str = ""
    is_cut: bool = False
    # The host that it ran on, if the log is not on this one.
    ran_on: str = ""
    # The files with the full log, stderr first; without empty files.
    files: list[str] = []
    # The display name of the place, if it belongs to an item.
    name: str = ""


class VisitFailure(msgspec.Struct):
    """One visit of a step, or one item in it, in which an attempt failed or was lost."""

    unit: str
    step: str
    visit: int
    round: int
    at: datetime
    # The failure in one line, its code, and its full message; empty if only workers were lost.
    what: str
    code: str
    message: str
    answer: str
    outcome: FailureOutcome = msgspec.field(name="fate")
    failures: int
    rungs: list[Rung]
    lines: list[VisitLine]
    lines_left: int = 0
    failed_attempts: list[tuple[str, int]] = []
    logs: list[Log] = []
    # The display name of an item.
    name: str = ""
    # It ran out of memory or time: `retry --adjust` gives it more.
    has_run_out: bool = False
    # The output that `validate` rejected, or its head and tail.
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


class _VisitTracker:
    """Collects the facts of one visit."""

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
        self.lines: list[StoryLine] = []
        # How it ended; "" while it has not.
        self.ended = ""
        self.recovered_by = ""
        self.is_undo_failed = False
        self.is_undone_later = False

    @property
    def has_failed(self) -> bool:
        return self.failure is not None or self.losses > 0

    @property
    def is_item(self) -> bool:
        return "[" in self.unit

    def note(self, rung: str, line: StoryLine | None) -> None:
        if line is not None:
            self.said.setdefault(rung, []).append(line.text)


class FailedVisits:
    """The visits of a run in which something failed, collected from its log."""

    def __init__(self) -> None:
        self._trackers: dict[tuple[str, int], _VisitTracker] = {}
        self._visits: dict[str, int] = {}
        self._round = 1
        # The list that the last line went to: the next line may replace it.
        self._last: list[StoryLine] = []

    def update(self, entry: e.Entry, lines: Iterable[StoryLine]) -> None:
        """Take in an entry, with its story lines."""
        fact = entry.fact
        if isinstance(fact, e.RunReopened):
            self._round = fact.round
        elif isinstance(fact, e.StepEntered):
            self._visits[fact.step] = fact.visit
        own = self._keep_lines(lines, entry.at)
        place: str = getattr(fact, "place", "") or getattr(fact, "step", "")
        if isinstance(fact, e.UndoFailed | e.UndoCompleted):
            # Of an earlier visit, if there was a loop or another round since.
            self._undo_ended(fact, entry.at)
        elif type(fact) in _FACTS and part_of(place) in ("own", "undo"):
            _record(self._tracker(place, entry.at), fact, own)

    def _undo_ended(self, fact: e.UndoFailed | e.UndoCompleted, at: datetime) -> None:
        key = fact.step, fact.visit
        if isinstance(fact, e.UndoFailed):
            tracker = self._trackers.setdefault(key, _VisitTracker(*key, self._round, at))
            tracker.failure, tracker.is_undo_failed, tracker.is_undone_later = fact.failure, True, False
        elif key in self._trackers:
            self._trackers[key].is_undone_later = True

    def _keep_lines(self, lines: Iterable[StoryLine], at: datetime) -> StoryLine | None:
        """Add lines to the visits of their places; the first is the fact's own, the others are details."""
        first = None
        for line in lines:
            if line.place:
                if line.is_whole and self._last:
                    self._last.pop()
                self._last = self._tracker(line.place, at).lines
                self._last.append(line)
                first = first or line
        return first

    def _tracker(self, place: str, at: datetime) -> _VisitTracker:
        unit = unit_of(place)
        key = unit, self._visits.get(step_name(place), 0)
        if key not in self._trackers:
            self._trackers[key] = _VisitTracker(*key, self._round, at)
        return self._trackers[key]

    def failed_visits(self, state: State) -> list[VisitFailure]:
        """All of them: unhandled ones first, then in the order in which they started."""
        records = {(record.step, record.visit): record for record in state.failures}
        found = [self._visit(state, tracker, records) for tracker in self._trackers.values() if tracker.has_failed]
        return sorted(found, key=lambda one: (OUTCOMES.index(one.outcome), one.is_item, one.at))

    def item_failures(self) -> list[ItemFailures]:
        """How items finally failed, by the visit of their step."""
        kinds: dict[tuple[str, int], Counter[str]] = {}
        for tracker in self._trackers.values():
            if tracker.is_item and tracker.ended == "failed" and tracker.failure is not None:
                step = step_name(tracker.unit)
                kinds.setdefault((step, tracker.visit), Counter())[failure_label(tracker.failure)] += 1
        return [ItemFailures(*key, sum(count.values()), count.most_common(10)) for key, count in kinds.items()]

    def _visit(
        self, state: State, tracker: _VisitTracker, records: dict[tuple[str, int], FailureRecord]
    ) -> VisitFailure:
        record = records.get((tracker.unit, tracker.visit))
        answer, outcome = self._answer(state, tracker, record)
        failure, half = tracker.failure, LINES_MAX // 2
        many = len(tracker.lines) > LINES_MAX
        lines = [*tracker.lines[:half], *tracker.lines[-half:]] if many else tracker.lines
        return VisitFailure(
            unit=tracker.unit,
            step=step_name(tracker.unit),
            visit=tracker.visit,
            round=tracker.round,
            at=tracker.at,
            what=describe_failure(failure) if failure else LOST,
            code=failure.code if failure else "WORKER_LOST",
            message=failure.message if failure else "",
            answer=answer,
            outcome=outcome,
            failures=tracker.failures + tracker.losses,
            rungs=[] if tracker.is_undo_failed else list(_rungs(tracker, record)),
            lines=[VisitLine(line.at, line.place, line.text, line.tone) for line in lines],
            lines_left=len(tracker.lines) - len(lines),
            failed_attempts=tracker.attempts,
            has_run_out=failure is not None and ran_short(failure),
            refused=rejected_text(failure) if failure else "",
            spent_budget=spent_budget(tracker.unit, failure.code, failure.details) if failure else "",
        )

    def _answer(self, state: State, tracker: _VisitTracker, record: FailureRecord | None) -> Ending:
        """How the visit ended, in words, and its outcome."""
        if tracker.is_undo_failed:
            return UNDONE_LATER if tracker.is_undone_later else (UNDO_FAILED, FailureOutcome.UNHANDLED)
        if tracker.ended == "completed":
            return _describe_recovery(tracker), FailureOutcome.REPAIRED
        if is_removed(state, step_name(tracker.unit)):
            return NOT_CALLED if step_name(tracker.unit) in state.dropped else REMOVED
        if tracker.ended == "failed" and record is not None:
            return self._in_another_round(tracker) if record.is_closed else describe_route_outcome(state, record)
        if tracker.ended == "failed":
            return self._item_answer(state, tracker)
        if tracker.ended == "cancelled":
            return ENDINGS["cancelled"]
        place = state.places.get(tracker.unit)
        return ENDINGS[place.status] if place is not None else ENDINGS["running"]

    def _item_answer(self, state: State, tracker: _VisitTracker) -> Ending:
        name = step_name(tracker.unit)
        step = self._trackers.get((name, tracker.visit))
        if step is not None and step.ended == "completed":
            return "its step completed without it", FailureOutcome.ALLOWED
        is_over = state.places[name].visit > tracker.visit or state.run.round > tracker.round
        return self._in_another_round(tracker) if is_over else ("its step fails", FailureOutcome.UNHANDLED)

    def _in_another_round(self, tracker: _VisitTracker) -> Ending:
        """The outcome of a failure that ran again in a later round."""
        last = self._visits.get(step_name(tracker.unit), 0)
        later = (self._trackers.get((tracker.unit, visit)) for visit in range(tracker.visit + 1, last + 1))
        done = next((one for one in later if one is not None and one.ended == "completed"), None)
        return ANOTHER_ROUND if done is None else (f"completed in round {done.round}", FailureOutcome.REPAIRED)


def _describe_recovery(tracker: _VisitTracker) -> str:
    if tracker.recovered_by:
        return describe_recovery(tracker.recovered_by)[0]
    tried = [f"retried{format_times(tracker.retries)}"] if tracker.retries else []
    tried += [f"lost its worker{format_times(tracker.losses)}"] if tracker.losses and tracker.failure else []
    tried += ["parked"] if "triage" in tracker.tried else []
    return ", ".join([*tried, "then completed"])


# -- rungs -----------------------------------------------------------------------------------------------------------


def _rungs(tracker: _VisitTracker, record: FailureRecord | None) -> Iterator[Rung]:
    names = ITEM_RUNGS if tracker.is_item else RUNGS
    decider = _deciding_rung(tracker, record)
    reached = {*tracker.tried, *tracker.passed, decider, "end" if tracker.ended == "failed" else ""}
    for index, name in enumerate(names):
        said = "; ".join(tracker.said.get(name, [])[-_SAID_MAX:])
        is_beyond = any(RUNGS.index(one) > index for one in reached if one in RUNGS)
        outcome = _rung_outcome(tracker, name, said, decider, is_beyond=is_beyond)
        yield Rung(name, outcome, said or (_ABSENT.get(name, "") if outcome == "absent" else ""))


def _rung_outcome(tracker: _VisitTracker, name: str, said: str, decider: str, *, is_beyond: bool) -> RungOutcome:
    if name == decider:
        return "dealt"
    if name in tracker.tried:
        return "tried"
    if name in tracker.passed and said:
        return "passed"
    return "absent" if is_beyond or name in tracker.passed else "unasked"


_ABSENT = {"retry": "no rules", "handle": "no handler", "triage": "no triage", "route": "no failure edge"}


def _deciding_rung(tracker: _VisitTracker, record: FailureRecord | None) -> str:
    """The rung that handled the failure, or decided that it stands; "" while this is open."""
    if tracker.ended == "completed":
        if tracker.recovered_by:
            return "handle"
        return "triage" if "triage" in tracker.tried else "retry"
    if tracker.ended == "failed" and not tracker.is_item:
        return "route" if record is not None and record.target else "end"
    return ""


# The rung that has been tried, and how a visit has ended, by the fact that says so.
_TRIED: dict[type[e.Fact], RungName] = {
    e.RetryScheduled: "retry",
    **dict.fromkeys((e.HandlerStarted, e.HandlerSucceeded, e.HandlerFailed), "handle"),
    **dict.fromkeys((e.StepParked, e.TriageSuggested, e.StepClassified), "triage"),
}
_ENDED: dict[type[e.Fact], str] = {
    **dict.fromkeys((e.StepCompleted, e.ItemCompleted), "completed"),
    **dict.fromkeys((e.StepFailed, e.ItemFailed), "failed"),
    **dict.fromkeys((e.StepCancelled, e.ItemCancelled), "cancelled"),
}
_FACTS = frozenset(
    {*_TRIED, *_ENDED, e.AttemptFailed, e.ResultRejected, e.AttemptLost, e.AttemptScheduled, e.RungPassed}
)


def _record(tracker: _VisitTracker, fact: Any, line: StoryLine | None) -> None:
    is_rerun = isinstance(fact, e.AttemptScheduled) and fact.cause in ("lost", "job_ended")
    if rung := "retry" if is_rerun else _TRIED.get(type(fact)):
        tracker.tried.add(rung)
        tracker.note(rung, line)
    tracker.ended = _ENDED.get(type(fact), tracker.ended)
    if isinstance(fact, e.AttemptFailed | e.ResultRejected | e.StepFailed | e.ItemFailed):
        tracker.failure = fact.failure
    if isinstance(fact, e.AttemptFailed | e.ResultRejected):
        tracker.failures += 1
        tracker.attempts.append((fact.place, fact.attempt))
    elif isinstance(fact, e.AttemptLost):
        tracker.losses += 1
        tracker.attempts.append((fact.place, fact.attempt))
    elif isinstance(fact, e.RetryScheduled):
        tracker.retries += 1
    elif isinstance(fact, e.RungPassed):
        tracker.passed.add(fact.rung)
        tracker.note(fact.rung, line)
    elif isinstance(fact, e.StepCompleted | e.ItemCompleted):
        tracker.recovered_by = fact.recovered_by
    elif isinstance(fact, e.StepFailed) and fact.route.is_sent:
        tracker.tried.add("route")
        tracker.said.setdefault("route", []).append(
            f"{'raised in' if fact.route.edge is None else 'routed to'} '{fact.route.to}'"
        )
    elif isinstance(fact, e.StepFailed) and fact.step != END:
        tracker.said.setdefault("end", []).append("allowed to fail" if fact.is_allowed else "not handled")
