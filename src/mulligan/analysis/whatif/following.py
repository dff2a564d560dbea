"""Follows a log with another definition, as long as that decides the same: the core decides, the log says what came in.

Every entry of a log that no other entry caused came from outside, or from a timer. What came in is derived from it and
given to the core again, at the recorded time. The first entry that the core writes otherwise, the first timer that
fires where none did, or the first outcome that would be another one, is where the two histories part.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import msgspec

from mulligan.analysis.whatif.played_history import Divergence, PlayedHistory, Undecidable
from mulligan.analysis.whatif.recording import ends_outside, is_answer_of_a_person
from mulligan.core.deciding.admit import LATEST
from mulligan.core.deciding.ladder import with_cap_detail
from mulligan.core.deciding.lifecycle import NOTHING, Facts
from mulligan.core.deciding.workers.adjustment import CAP
from mulligan.core.effects import effects as fx
from mulligan.core.evolve.evolve_places import waits_until
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.actions import traits_of
from mulligan.core.state.scope import DecisionContext
from mulligan.core.turn import follow, follow_facts
from mulligan.errors import InputInvalid, NotFound, Refused

REFUSALS = (Refused, NotFound, InputInvalid)
_replace = msgspec.structs.replace


class Follower:
    """Follows the log of one run."""

    def __init__(self, history: PlayedHistory, inputs: dict[str, Any] | None = None) -> None:
        self.history = history
        # What the run gets in place of its recorded inputs.
        self.inputs = inputs
        self.entries = history.recording.entries
        # The index of the next recorded entry.
        self.next = 0
        # The timers that were set, by kind, place and number; and batches of first steps that were not entered.
        self.timers: dict[tuple[str, str, int], fx.SetTimer] = {}
        self.starts: list[int] = []
        # Timers that the run did not set then, by the time at which they are due: they may fire where none did.
        self._other_timers: list[tuple[datetime, int, fx.SetTimer]] = []
        self._order = count()
        # The entries of the turn in which the histories part, from that point on.
        self.parted: list[e.Entry] = []

    def follow(self) -> None:
        """Follow the log to its end, or until the history has a divergence. The turn in which it parts is complete."""
        history, entries = self.history, self.entries
        while self.next < len(entries) and history.divergence is None:
            expected, before = entries[self.next], self.next
            if self._other_timers and self._other_timers[0][0] < expected.at:
                due, _, timer = heapq.heappop(self._other_timers)
                self._take(fired(history, due, timer), is_expected=False)
                continue
            try:
                self._take(self.turn_of(expected))
            except REFUSALS:
                pass
            if history.divergence is None and self.next == before:
                history.divergence = Divergence(expected.seq, expected.at, expected.fact, None)

    def _take(self, turn: Iterator[e.Entry], *, is_expected: bool = True) -> None:
        history = self.history
        for entry in turn:
            history.note(entry)
            self._note_effects(entry)
            if history.divergence is None:
                if is_expected:
                    self._compare(entry)
                else:
                    history.divergence = Divergence(entry.seq, entry.at, None, entry.fact)
            if history.divergence is not None:
                self.parted.append(entry)

    def _note_effects(self, entry: e.Entry) -> None:
        for effect in fx.effects(self.history.state, entry.fact):
            if isinstance(effect, fx.SetTimer):
                self.timers[effect.kind, effect.place, effect.number] = effect
            elif isinstance(effect, fx.EnterMore):
                self.starts.append(effect.begin)

    def _compare(self, entry: e.Entry) -> None:
        """Go on to the next recorded entry, or note that this is where the histories part."""
        history = self.history
        expected = self.entries[self.next] if self.next < len(self.entries) else None
        fact = entry.fact
        if expected is None or not is_same(entry, expected):
            then = None if expected is None else expected.fact
            history.divergence = Divergence(entry.seq, entry.at, then, fact)
            return
        self.next += 1
        if not history.may_differ:
            return
        state = history.state
        if timers := [effect for effect in fx.effects(state, fact) if isinstance(effect, fx.SetTimer)]:
            set_then = history.recording.timers.get(entry.seq, ())
            for timer in timers:
                if timer not in set_then:
                    heapq.heappush(self._other_timers, (timer.due, next(self._order), timer))
        if isinstance(fact, e.AttemptScheduled):
            place_now = state.places.get(fact.place)
            if place_now is not None and ends_outside(place_now):
                self._compare_outcome(entry, fact)

    def _compare_outcome(self, entry: e.Entry, fact: e.AttemptScheduled) -> None:
        """Whether the attempt that was just scheduled ends as recorded under the new definition."""
        history = self.history
        place, recorded = history.state.places[fact.place], history.recorded(history.state.places[fact.place])
        judgement = history.judge(place)
        if recorded is None or (recorded.end is None and judgement.end is None):
            # It has not ended, or the run ended it: the log goes on to say what came of it.
            return
        child = history.child_result(place)
        if child is not None and child.is_otherwise:
            history.divergence = Divergence(entry.seq, entry.at, fact, fact, fact.place, "child")
        elif judgement.end is not recorded.end:
            history.divergence = Divergence(entry.seq, entry.at, fact, fact, fact.place, "outcome")
        else:
            history.count(judgement.doubt)

    # -- what came in ------------------------------------------------------------------------------------------------

    def turn_of(self, expected: e.Entry) -> Iterator[e.Entry]:
        """The turn that begins with a recorded entry."""
        history = self.history
        state, fact = history.state, expected.fact
        now = history.context(expected.at)
        if expected.caused_by != 0:
            # Nothing came in but the time: a loop is due.
            return follow_facts(now, NOTHING)
        read = _REPORTS.get(type(fact))
        report = None if read is None else read(self, expected.at, fact)
        if report is not None:
            return follow(state, report, history.evaluator)
        if isinstance(fact, e.RunRevised):
            if history.may_differ:
                raise Undecidable("revised", str(state.run.round + 1))
            # Both came in together.
            later = (entry.fact for entry in self.entries[self.next + 1 :])
            return follow_facts(now, iter((fact, next(one for one in later if isinstance(one, e.RunReopened)))))
        if isinstance(fact, e.RunReopened):
            return follow_facts(now, iter((reopened_at(now, fact),)))
        if isinstance(fact, e.StepPaused | e.StepResumed):
            return follow_facts(now, self._same_request(expected, fact))
        if isinstance(fact, e.AttemptFailed):
            return follow_facts(now, iter((with_present_cap(now, fact),)))
        if isinstance(fact, _AS_RECORDED):
            return follow_facts(now, iter((fact,)))
        raise Undecidable("unknown_event", f"{expected.seq}")

    def _same_request(self, expected: e.Entry, fact: e.StepPaused | e.StepResumed) -> Facts:
        """All facts of one request: that for a matrix pauses or resumes several steps."""
        yield fact
        while self.history.divergence is None and self.next < len(self.entries):
            entry = self.entries[self.next]
            other = entry.fact
            is_alike = type(other) is type(fact) and entry.at == expected.at and entry.caused_by == 0
            if not is_alike or (other.by, other.reason) != (fact.by, fact.reason):  # type: ignore[union-attr]
                return
            yield other

    def _starts(self, at: Any, fact: Any) -> r.Report | None:
        graph = self.history.graph
        index = graph.starts.index(fact.step) if fact.step in graph.starts else 0
        return r.StartsDue(at, index - index % graph.starts_at_once)

    def _attempt_failed(self, at: Any, fact: e.AttemptFailed) -> r.Report | None:
        """A retry that was due could not be scheduled; any other failure is taken as it was recorded."""
        place = self.history.state.places.get(fact.place)
        if place is not None and place.status == "backing_off":
            return r.TimerFired(at, "retry", fact.place, fact.attempt)
        return self._attempt_ended(at, fact)

    def _attempt_ended(self, at: Any, fact: e.AttemptFailed | e.AttemptSucceeded) -> r.Report | None:
        """A wait that was over, for whatever its time was up; any other end is taken as it was recorded."""
        place = self.history.state.places.get(fact.place)
        action = traits_of(place.spec.action if place is not None else None)
        is_timed_out = action.asks_person and not is_answer_of_a_person(fact)
        if place is None or not (action.is_timer or action.awaits_event or is_timed_out):
            return None
        if isinstance(fact, e.AttemptFailed) and fact.failure.code == "TIMEOUT":
            return r.TimerFired(at, "deadline", fact.place, place.visit)
        return r.TimerFired(at, "until" if waits_until(place.spec) else "attempt", fact.place, fact.attempt, LATEST)

    def _stopping(self, at: Any, fact: e.AttemptStopping) -> r.Report:
        """A timer has asked an attempt to end: which one depends on what is due."""
        place = self.history.state.places[fact.place]
        if fact.reason == "handler_timeout":
            return r.TimerFired(at, "handler", fact.place, fact.attempt)
        is_due = place.due is not None and place.due <= max(at, self.history.state.run.at)
        if fact.reason == "timeout" and is_due:
            return r.TimerFired(at, "attempt", fact.place, fact.attempt)
        return r.TimerFired(at, "deadline", fact.place, place.visit)

    def _run_stopping(self, at: Any, fact: e.RunStopping) -> r.Report:
        if fact.cause == "cancelled":
            return r.CancelRequested(at, fact.by, fact.reason, fact.now)
        return r.TimerFired(at, "run", "", self.history.state.run.round)


def requested(at: datetime, fact: e.RunStarted, inputs: dict[str, Any] | None = None) -> r.RunRequested:
    """The request that a run was started with."""
    fields = {name: getattr(fact, name) for name in fact.__struct_fields__ if name not in ("workflow", "due")}
    if inputs is not None:
        fields["inputs"] = inputs
    return r.RunRequested(at=at, **fields)


def reopened_at(now: DecisionContext, fact: e.RunReopened) -> e.RunReopened:
    """The fact that opens a round, with the timeout of the present definition."""
    limit = now.state.workflow.timeout
    return _replace(fact, due=None if limit is None else now.at + timedelta(seconds=limit))


def with_present_cap(now: DecisionContext, fact: e.AttemptFailed) -> e.AttemptFailed:
    """A recorded failure; whether a cap keeps a rule from giving more is said for the present rules."""
    place = now.state.places.get(fact.place)
    if place is None or fact.failure.code not in ("OUT_OF_MEMORY", "TIMEOUT"):
        return fact
    details = {name: value for name, value in fact.failure.details.items() if name != CAP}
    return _replace(fact, failure=with_cap_detail(place, _replace(fact.failure, details=details)))


def fired(history: PlayedHistory, at: datetime, timer: fx.SetTimer) -> Iterator[e.Entry]:
    """The turn of a timer that is due."""
    if timer.kind == "loop":
        return follow_facts(history.context(at), NOTHING)
    report = r.TimerFired(at, timer.kind, timer.place, timer.number, max(at, timer.due))
    return follow(history.state, report, history.evaluator)


def is_same(entry: e.Entry, expected: e.Entry) -> bool:
    """Whether the core wrote what is recorded. A time limit that is another one does not matter until it is reached."""
    if entry == expected:
        return True
    one, other = entry.fact, expected.fact
    if type(one) is not type(other) or entry.caused_by != expected.caused_by:
        return False
    if (entry.seq, entry.at) != (expected.seq, expected.at):
        return False
    if "due" in one.__struct_fields__:
        one = _replace(one, due=other.due)  # type: ignore[union-attr]
    if isinstance(one, e.RunStarted) and isinstance(other, e.RunStarted):
        # What an input changes is seen where it is read.
        one = _replace(one, inputs=other.inputs)
    if isinstance(one, e.AttemptScheduled) and isinstance(other, e.AttemptScheduled):
        # What other values change is judged with the outcome. Older releases did not note which attempts are calls of
        # agents.
        one = _replace(one, bindings=other.bindings, is_call=other.is_call)
    return one == other or _without_wording(msgspec.to_builtins(one)) == _without_wording(msgspec.to_builtins(other))


def _without_wording(value: Any) -> Any:
    """A fact without its reasons and messages: other releases say the same in other words."""
    if isinstance(value, dict):
        return {name: _without_wording(one) for name, one in value.items() if name not in _WORDING}
    return [_without_wording(one) for one in value] if isinstance(value, list) else value


_WORDING = frozenset({"reason", "message"})


# Facts that have all that came in.
_AS_RECORDED = (
    e.EventReceived,
    e.RunPaused,
    e.AttemptSucceeded,
    e.AttemptCancelled,
    e.AttemptLost,
    e.AttemptInterrupted,
    e.StepClassified,
    e.ReportRefused,
)

# The report that a recorded entry comes from; None if its fact has all that is needed.
_REPORTS: dict[type[e.Fact], Callable[[Follower, Any, Any], r.Report | None]] = {
    e.RunStarted: lambda follower, at, fact: requested(at, fact, follower.inputs),
    e.RunResumed: lambda follower, at, fact: r.ResumeRequested(at, fact.by, fact.reason, steps=fact.steps),
    e.RunStopping: Follower._run_stopping,
    e.RunLate: lambda follower, at, fact: r.TimerFired(at, "late", "", follower.history.state.run.round),
    e.TimerHeld: lambda follower, at, fact: r.TimerFired(at, fact.kind, fact.place, fact.number, LATEST),
    e.StepEntered: Follower._starts,
    e.StepSkipped: Follower._starts,
    e.AttemptScheduled: lambda follower, at, fact: r.TimerFired(at, "retry", fact.place, fact.attempt),
    e.AttemptStarted: lambda follower, at, fact: r.TaskStarted(at, fact.place, fact.attempt, fact.worker, fact.host),
    e.AttemptFailed: Follower._attempt_failed,
    e.AttemptSucceeded: Follower._attempt_ended,
    e.StepClassified: lambda follower, at, fact: (
        r.TimerFired(at, "triage", fact.step, fact.attempt) if fact.is_default else None
    ),
    e.AttemptStopping: Follower._stopping,
}
