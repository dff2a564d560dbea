"""The spans of a run, for tracing: its rounds, the visits of its steps, and every attempt; from its events alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model.failure import Failure
from mulligan.core.model.place_keys import step_name
from mulligan.core.model.trace_ids import (
    attempt_span_id,
    calling_span_id,
    round_span_id,
    run_identity,
    trace_id,
    visit_span_id,
)

SpanStatus = Literal["unset", "ok", "error"]


class SpanEvent(msgspec.Struct, frozen=True):
    """Something that happened in a span: a rung that was tried, a person who was asked."""

    at: datetime
    name: str
    attributes: dict[str, Any]


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Work with a beginning and an end."""

    name: str
    trace_id: str
    span_id: str
    # "" for a run at the top.
    parent_id: str
    start: datetime
    end: datetime
    status: SpanStatus
    # Why it failed.
    message: str
    attributes: dict[str, Any]
    events: tuple[SpanEvent, ...] = ()
    # The event that ended it.
    seq: int


class _Open:
    """A span that has not ended yet."""

    def __init__(self, name: str, span_id: str, parent_id: str, start: datetime, **attributes: Any) -> None:
        self.name, self.span_id, self.parent_id, self.start = name, span_id, parent_id, start
        self.attributes = _present(**attributes)
        self.events: list[SpanEvent] = []


class SpanReader:
    """Reads the events of one run in order, and gives each span when it has ended."""

    def __init__(self) -> None:
        self._identity = ""
        self._round: _Open | None = None
        self._number = 1
        self._about: dict[str, Any] = {}
        self._visits: dict[str, _Open] = {}
        self._attempts: dict[tuple[str, int], _Open] = {}

    def read(self, entries: Iterable[e.Entry]) -> Iterator[Span]:
        """The spans that these entries end."""
        for entry in entries:
            handle = _HANDLERS.get(type(entry.fact))
            if handle is not None:
                yield from handle(self, entry.fact, entry) or ()

    # -- rounds ------------------------------------------------------------------------------------------------------

    def _run_started(self, fact: e.RunStarted, entry: e.Entry) -> None:
        self._identity = run_identity(fact.uid, fact.run_id)
        self._about = {"workflow": fact.workflow, "run_id": fact.run_id, "version": fact.version, "by": fact.by}
        self._open_round(entry.at)

    def _run_reopened(self, fact: e.RunReopened, entry: e.Entry) -> None:
        self._number = fact.round
        self._open_round(entry.at)

    def _open_round(self, at: datetime) -> None:
        span_id = round_span_id(self._identity, self._number)
        name = f"run {self._about.get('workflow', '')}"
        self._round = _Open(name, span_id, calling_span_id(self._identity), at, round=self._number, **self._about)

    def _run_ended(self, fact: Any, entry: e.Entry) -> Iterator[Span]:
        # What was cut off with the run ends with it.
        for key in [*self._attempts]:
            yield from self._end(self._attempts.pop(key), entry, "unset", "", outcome="cut off")
        for step in [*self._visits]:
            yield from self._end(self._visits.pop(step), entry, "unset", "", outcome="cut off")
        opened, self._round = self._round, None
        outcome = _RUN_OUTCOMES[type(fact)]
        status: SpanStatus = {"completed": "ok", "failed": "error"}.get(outcome, "unset")  # type: ignore[assignment]
        reason = fact.reason if status == "error" else ""
        yield from self._end(opened, entry, status, reason, outcome=outcome, degraded=fact.degraded or None)

    # -- steps -------------------------------------------------------------------------------------------------------

    def _step_entered(self, fact: e.StepEntered, entry: e.Entry) -> None:
        span_id = visit_span_id(self._identity, fact.step, fact.visit)
        self._visits[fact.step] = _Open(
            f"step {fact.step}", span_id, self._round_id, entry.at, step=fact.step, visit=fact.visit
        )

    @property
    def _round_id(self) -> str:
        return self._round.span_id if self._round is not None else round_span_id(self._identity, self._number)

    def _step_ended(self, fact: Any, entry: e.Entry) -> Iterator[Span]:
        opened = self._visits.pop(fact.step, None)
        if isinstance(fact, e.StepCompleted):
            return self._end(opened, entry, "ok", "", outcome="completed", recovered_by=fact.recovered_by)
        if isinstance(fact, e.StepCancelled):
            return self._end(opened, entry, "unset", "", outcome="cancelled")
        route = fact.route.to if fact.route.is_sent else None
        return self._end(
            opened, entry, "error", _words(fact.failure), outcome="failed", code=fact.failure.code, routed_to=route
        )

    def _step_ran(self, fact: e.StepRan, entry: e.Entry) -> Iterator[Span]:
        """An inline step: it ran in an attempt of its program, and has none of its own."""
        visit = self._visits.get(step_name(fact.program))
        opened = _Open(
            f"step {fact.step}",
            visit_span_id(self._identity, fact.step, fact.visit),
            visit.span_id if visit is not None else self._round_id,
            entry.at - timedelta(seconds=fact.seconds),
            step=fact.step,
            visit=fact.visit,
        )
        return self._end(opened, entry, "ok", "", outcome="completed", inline=True)

    # -- attempts ----------------------------------------------------------------------------------------------------

    def _attempt_scheduled(self, fact: e.AttemptScheduled, entry: e.Entry) -> None:
        visit = self._visits.get(step_name(fact.place))
        self._attempts[fact.place, fact.attempt] = _Open(
            f"attempt {fact.place}",
            attempt_span_id(self._identity, fact.place, fact.attempt),
            visit.span_id if visit is not None else self._round_id,
            entry.at,
            place=fact.place,
            attempt=fact.attempt,
        )

    def _attempt_started(self, fact: e.AttemptStarted, entry: e.Entry) -> None:
        """From here on it runs: the time in the queue is not part of it."""
        opened = self._attempts.get((fact.place, fact.attempt))
        if opened is not None:
            opened.start = entry.at
            opened.attributes.update(_present(worker=fact.worker, host=fact.host))

    def _attempt_ended(self, fact: Any, entry: e.Entry) -> Iterator[Span]:
        opened, outcome = self._attempts.pop((fact.place, fact.attempt), None), _ATTEMPT_OUTCOMES[type(fact)]
        if isinstance(fact, e.AttemptFailed):
            return self._end(opened, entry, "error", _words(fact.failure), outcome=outcome, code=fact.failure.code)
        status: SpanStatus = {"succeeded": "ok", "lost": "error"}.get(outcome, "unset")  # type: ignore[assignment]
        return self._end(opened, entry, status, "the worker was lost" if outcome == "lost" else "", outcome=outcome)

    # -- what happens in a step --------------------------------------------------------------------------------------

    def _noted(self, fact: Any, entry: e.Entry) -> None:
        place = getattr(fact, "place", "") or getattr(fact, "step", "")
        visit = self._visits.get(step_name(place))
        if visit is not None:
            name, fields = _NOTED[type(fact)]
            values = {field: getattr(fact, field) for field in fields}
            visit.events.append(SpanEvent(entry.at, name, _present(place=place, **values)))

    def _end(
        self, opened: _Open | None, entry: e.Entry, status: SpanStatus, message: str, **attributes: Any
    ) -> Iterator[Span]:
        if opened is None:
            return
        yield Span(
            name=opened.name,
            trace_id=trace_id(self._identity),
            span_id=opened.span_id,
            parent_id=opened.parent_id,
            start=opened.start,
            end=max(entry.at, opened.start),
            status=status,
            message=message,
            attributes={**opened.attributes, **_present(**attributes)},
            events=tuple(opened.events),
            seq=entry.seq,
        )


def _present(**attributes: Any) -> dict[str, Any]:
    """Attributes under our prefix, without those that say nothing."""
    return {f"mulligan.{key}": value for key, value in attributes.items() if value not in ("", None)}


def _words(failure: Failure) -> str:
    return f"{failure.code}: {failure.message}" if failure.message else failure.code


_RUN_OUTCOMES: dict[type[e.Fact], str] = {
    e.RunCompleted: "completed",
    e.RunFailed: "failed",
    e.RunCancelled: "cancelled",
}
_ATTEMPT_OUTCOMES: dict[type[e.Fact], str] = {
    e.AttemptSucceeded: "succeeded",
    e.AttemptFailed: "failed",
    e.AttemptLost: "lost",
    e.AttemptInterrupted: "interrupted",
    e.AttemptCancelled: "cancelled",
}
# Events of the span of a step: their name, and the fields that say more.
_NOTED: dict[type[e.Fact], tuple[str, tuple[str, ...]]] = {
    e.RetryScheduled: ("retry scheduled", ("attempt", "number")),
    e.HandlerStarted: ("handler started", ("attempt", "strategy")),
    e.HandlerSucceeded: ("handler succeeded", ("attempt", "strategy")),
    e.HandlerFailed: ("handler failed", ("attempt",)),
    e.RungPassed: ("rung passed", ("rung", "reason")),
    e.StepParked: ("parked for a decision", ("attempt", "reason")),
    e.StepClassified: ("decided", ("verdict", "by", "reason")),
    e.TriageSuggested: ("left to a person", ("agent", "why_not")),
}
_HANDLERS: dict[type[e.Fact], Callable[[SpanReader, Any, e.Entry], Iterator[Span] | None]] = {
    e.RunStarted: SpanReader._run_started,
    e.RunReopened: SpanReader._run_reopened,
    **dict.fromkeys(_RUN_OUTCOMES, SpanReader._run_ended),
    e.StepEntered: SpanReader._step_entered,
    **dict.fromkeys((e.StepCompleted, e.StepFailed, e.StepCancelled), SpanReader._step_ended),
    e.StepRan: SpanReader._step_ran,
    e.AttemptScheduled: SpanReader._attempt_scheduled,
    e.AttemptStarted: SpanReader._attempt_started,
    **dict.fromkeys(_ATTEMPT_OUTCOMES, SpanReader._attempt_ended),
    **dict.fromkeys(_NOTED, SpanReader._noted),
}
