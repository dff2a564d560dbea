"""Plays a run on from where its history parts from the log: nothing is executed, and time jumps to what is due next.

Attempts that happened end as recorded, after as long as they took; others as drawn. People decide what they decided,
after as long as they took to. What was asked of the run as a whole comes when it came.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from mulligan.analysis.whatif.attempt_names import failure_kind
from mulligan.analysis.whatif.following import REFUSALS, Follower, fired, reopened_at, with_present_cap
from mulligan.analysis.whatif.played_history import ExpectedEnd, KnowledgeNeeded, PlayedHistory, Undecidable
from mulligan.analysis.whatif.recording import ends_outside
from mulligan.core.deciding.flow import remaining_start_batches
from mulligan.core.deciding.lifecycle import add_location
from mulligan.core.deciding.rounds.rounds import plan_round
from mulligan.core.effects import effects as fx
from mulligan.core.evolve.evolve_places import is_engine_action
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.actions import traits_of
from mulligan.core.model.event_types import Adjusted
from mulligan.core.state.held_steps import is_on_hold
from mulligan.core.state.scope import DecisionContext
from mulligan.core.state.state import Place
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.core.turn import follow, follow_facts

_replace = msgspec.structs.replace
# A history that has this many more entries than the recorded one, and this many times as many, does not end.
_ENTRIES_MORE_MAX, _TIMES_MAX = 20_000, 20

Due = Callable[[datetime], Iterator[e.Entry] | None]


class Continuation:
    """The rest of a run, from the turn on in which it parted from its log."""

    def __init__(self, history: PlayedHistory, follower: Follower) -> None:
        self.history = history
        self.state = history.state
        recording = history.recording
        self._heap: list[tuple[datetime, bool, int, Due]] = []
        self._order = 0
        # Tasks that were queued while the run was paused.
        self._held: list[str] = []
        self._entries_max = len(recording.entries) * _TIMES_MAX + _ENTRIES_MORE_MAX
        followed = follower.entries[follower.next - 1].seq if follower.next else 0
        for timer in follower.timers.values():
            self._set_timer(timer)
        for place in list(self.state.places.values()):
            self._adopt(place)
        for entry in recording.asked:
            if entry.seq > followed:
                self._push(entry.at, self._ask(entry.fact))
        for begin in remaining_start_batches(self.state) if self.state.places else ():
            self._push(self.state.run.at, self._report(lambda at, begin=begin: r.StartsDue(at, begin)))  # type: ignore[misc]
        self._after_turn()

    def play(self) -> None:
        """Play to the end, or until nothing is due any more."""
        while self._heap:
            at, _, _, due = heapq.heappop(self._heap)
            at = max(at, self.state.run.at)
            try:
                entries = due(at)
                if entries is not None:
                    self._take(entries)
            except REFUSALS:
                continue
            if self.state.run.seq > self._entries_max:
                raise Undecidable("endless", str(self.state.run.seq))

    # -- turns -------------------------------------------------------------------------------------------------------

    def _take(self, entries: Iterator[e.Entry]) -> None:
        history, was_paused = self.history, self.state.run.status == "paused"
        seq = self.state.run.seq
        for entry in entries:
            history.note(entry)
            for effect in fx.effects(self.state, entry.fact):
                self._carry_out(effect, entry.at)
            self._watch(entry)
        if was_paused and self.state.run.status != "paused":
            held, self._held = self._held, []
            for key in held:
                if key in self.state.places:
                    self._queue(self.state.places[key], self.state.run.at)
        if self.state.run.seq != seq:
            self._after_turn()

    def _after_turn(self) -> None:
        """At the end of a round, everything that is left of it is dropped; somebody may ask for another one."""
        run = self.state.run
        if run.status not in RUN_ENDED:
            return
        self._heap.clear()
        self._held.clear()
        ended = self.history.recording.rounds.get(run.round)
        if ended is None or ended.reopened is None or ended.reopened_at is None or run.status == "completed":
            return
        if ended.is_revised:
            raise Undecidable("revised", str(run.round + 1))
        asked = ended.reopened
        self._push(run.at + (ended.reopened_at - ended.ended_at), lambda at: self._reopen(at, asked))

    def _reopen(self, at: datetime, asked: e.RunReopened) -> Iterator[e.Entry]:
        items = asked.indexes or None
        report = r.RetryRequested(
            at,
            asked.by,
            asked.reason,
            from_step=asked.from_step,
            items=items,
            stale=asked.stale,
            # A round of an older version kept them.
            keep_completed=asked.keep_completed or asked.fresh is None,
        )
        plan = plan_round(self.state, report)
        now = self.history.context(at)
        adjustments = {step: given for step, given in asked.adjustments.items() if step in plan.steps}
        fact = _replace(
            asked,
            round=self.state.run.round + 1,
            put_back=plan.steps,
            from_step=plan.from_step,
            indexes=plan.items,
            stale=plan.stale,
            adjustments=adjustments,
            fresh=plan.fresh,
        )
        return follow_facts(now, iter((reopened_at(now, fact),)))

    def _push(self, at: datetime, due: Due, *, is_start: bool = False) -> None:
        """Do something at a time. Tasks start before anything else of that time, as in the turn that queues them."""
        self._order += 1
        heapq.heappush(self._heap, (at, not is_start, self._order, due))

    def _report(self, report: Callable[[datetime], r.Report]) -> Due:
        return lambda at: follow(self.state, report(at), self.history.evaluator)

    # -- effects -----------------------------------------------------------------------------------------------------

    def _carry_out(self, effect: fx.Effect, at: datetime) -> None:
        if isinstance(effect, fx.SetTimer):
            self._set_timer(effect)
        elif isinstance(effect, fx.QueueTask):
            self._queue(self.state.places[effect.place], at)
        elif isinstance(effect, fx.StartChild | fx.ContinueChild):
            self._begin(self.state.places[effect.place], at)
        elif isinstance(effect, fx.StopTask):
            if effect.grace_seconds is not None and effect.place in self.state.places:
                self._push(at, lambda now: self._stop(now, effect.place, effect.attempt))
        elif isinstance(effect, fx.StopChild):
            self._push(at, lambda now: self._end_child(now, effect.place, effect.attempt))
        elif isinstance(effect, fx.EnterMore):
            self._push(at, self._report(lambda now: r.StartsDue(now, effect.begin)))

    def _set_timer(self, timer: fx.SetTimer) -> None:
        # If no process drove the run, it fired later than it was due.
        at = self.history.recording.fired.get(timer, timer.due)
        self._push(at, lambda now: fired(self.history, now, timer))

    def _watch(self, entry: e.Entry) -> None:
        """What waits for a person: parked steps and approvals."""
        fact = entry.fact
        if isinstance(fact, e.StepParked):
            if not fact.agent:
                self._await_verdict(fact.step, fact.attempt, fact.failure, entry.at)
        elif isinstance(fact, e.TriageSuggested):
            found = self.state.places[fact.step].failure
            if found is not None:
                self._await_verdict(fact.step, fact.attempt, found, entry.at)
        elif isinstance(fact, e.AttemptStarted):
            place = self.state.places.get(fact.place)
            if place is not None and traits_of(place.spec.action).asks_person:
                self._begin(place, entry.at)

    # -- what is open when the histories part --------------------------------------------------------------------------

    def _adopt(self, place: Place) -> None:
        """Go on with what is open at a place."""
        history, at = self.history, self.state.run.at
        if place.status == "pending_failed" and place.role == "step" and not place.child and place.failure is not None:
            self._await_verdict(place.key, place.attempt, place.failure, history.parked_at.get(place.key, at))
            return
        is_open = place.key in history.named and self._is_open(place.key, place.attempt) is not None
        if not is_open or place.child or not ends_outside(place):
            return
        if place.status == "ready":
            if not is_engine_action(place.spec) and not is_on_hold(self.state, place):
                self._queue(place, history.scheduled_at[place.key])
        elif place.phase and not self._reports_although_stopping(place):
            stop = self._end_child if traits_of(place.spec.action).calls_run else self._stop
            self._push(at, lambda now: stop(now, place.key, place.attempt))
        else:
            self._begin(place, history.started_at.get(place.key, at))

    # -- attempts ----------------------------------------------------------------------------------------------------

    def _queue(self, place: Place, at: datetime) -> None:
        """Start a task after as long as it waited for a worker then."""
        if self.state.run.status == "paused":
            self._held.append(place.key)
            return
        recorded = self.history.recorded(place) if place.key in self.history.named else None
        wait = recorded.wait_seconds if recorded is not None and recorded.started_at is not None else 0.0
        key, attempt = place.key, place.attempt
        self._push(at + timedelta(seconds=wait), lambda now: self._start(now, key, attempt), is_start=True)

    def _start(self, at: datetime, key: str, attempt: int) -> Iterator[e.Entry] | None:
        place = self.state.places.get(key)
        if place is None or place.attempt != attempt or place.status != "ready" or is_on_hold(self.state, place):
            return None
        if self.state.run.status == "paused":
            self._held.append(key)
            return None
        expected = self.history.expect(place)
        if expected.end is None:
            return None
        recorded = self.history.recorded(place)
        if recorded is not None and recorded.started_at is None and not expected.doubt:
            # It ended without having been started: there was no room for it, or its breaker was open.
            return self._end(at, key, attempt, expected)
        self._push(at + timedelta(seconds=expected.seconds), lambda now: self._end(now, key, attempt, expected))
        return follow(self.state, r.TaskStarted(at, key, attempt), self.history.evaluator)

    def _begin(self, place: Place, at: datetime) -> None:
        """An attempt has started that something outside ends: note when."""
        key, attempt = place.key, place.attempt
        recorded = self.history.recorded(place)
        is_open = recorded is not None and recorded.end is None and not recorded.was_cut
        if is_open and traits_of(place.spec.action).asks_person:
            # Nobody has answered, or its time was up before.
            return
        expected = self.history.expect(place)
        self._push(at + timedelta(seconds=expected.seconds), lambda now: self._end(now, key, attempt, expected))

    def _is_open(self, key: str, attempt: int) -> Place | None:
        place = self.state.places.get(key)
        if place is None or place.attempt != attempt or place.status not in ("ready", "running"):
            return None
        return None if place.phase in ("validating", "finishing", "stopped") else place

    def _end(self, at: datetime, key: str, attempt: int, expected: ExpectedEnd) -> Iterator[e.Entry] | None:
        place = self._is_open(key, attempt)
        if place is None:
            return None
        if place.phase and not self._reports_although_stopping(place):
            is_child = traits_of(place.spec.action).calls_run
            return self._end_child(at, key, attempt) if is_child else self._stop(at, key, attempt)
        if isinstance(expected.end, r.ChildEnded):
            report = _replace(expected.end, at=at, place=key, attempt=attempt)
            return follow(self.state, report, self.history.evaluator)
        now = self.history.context(at)
        return follow_facts(now, iter((_moved(now, place, expected.end),)))

    def _stop(self, at: datetime, key: str, attempt: int) -> Iterator[e.Entry] | None:
        """End a task that was asked to: at once, since how long it takes to is not known."""
        place = self._is_open(key, attempt)
        if place is None or place.status != "running" or not place.phase:
            return None
        if self._reports_although_stopping(place):
            return None
        return follow_facts(self.history.context(at), iter((e.AttemptCancelled(key, attempt),)))

    def _reports_although_stopping(self, place: Place) -> bool:
        """Whether its outcome counts although it was asked to end: it may finish, or had reported already."""
        recorded = self.history.recorded(place)
        was_stopping = recorded is not None and recorded.was_stopping
        may_finish = was_stopping or self.state.is_left_to_finish(place)
        return place.phase == "stopping" and may_finish and not traits_of(place.spec.action).calls_run

    def _end_child(self, at: datetime, key: str, attempt: int) -> Iterator[e.Entry] | None:
        if self._is_open(key, attempt) is None:
            return None
        report = r.ChildEnded(at, key, attempt, child_run_id=0, status="cancelled")
        return follow(self.state, report, self.history.evaluator)

    # -- people ------------------------------------------------------------------------------------------------------

    def _await_verdict(self, step: str, attempt: int, found: Any, at: datetime) -> None:
        """Somebody decides what they decided then, after as long; otherwise what people decide about such failures."""
        history = self.history
        name = history.names.name_of(self.state, step, attempt)
        recorded = history.recording.decisions.get(name)
        if recorded is not None and recorded.fact is not None and recorded.decided_at is not None:
            fact, wait = recorded.fact, recorded.decided_at - recorded.parked_at
            given = fact.adjusted or Adjusted()
            self._push(
                at + wait,
                self._report(
                    lambda now: r.Classified(
                        now,
                        step,
                        fact.verdict,
                        fact.by,
                        fact.reason,
                        memory=given.memory,
                        timeout=given.timeout,
                        budgets=fact.budgets,
                        attempt=attempt,
                    )
                ),
            )
            return
        if recorded is not None and not recorded.was_cut:
            # It was parked then too, and nobody decided: its default does, or it still waits.
            return
        if history.knowledge is None:
            raise KnowledgeNeeded
        drawn = history.knowledge.draw_verdict(step, failure_kind(found), history.draw, name)
        history.count_drawn("never_happened", drawn)
        if drawn is None:
            return
        verdict, wait = drawn.verdict, drawn.wait
        report = self._report(lambda now: r.Classified(now, step, verdict, "somebody", "an estimate", attempt=attempt))
        self._push(at + wait, report)

    def _ask(self, fact: Any) -> Due:
        """What somebody asked of the run as a whole, or of a step, or sent to it."""
        if isinstance(fact, e.RunStopping):
            return self._report(lambda at: r.CancelRequested(at, fact.by, fact.reason, fact.now))
        if isinstance(fact, e.RunPaused):
            return self._report(lambda at: r.PauseRequested(at, fact.by, fact.reason))
        if isinstance(fact, e.RunResumed):
            return self._report(lambda at: r.ResumeRequested(at, fact.by, fact.reason, steps=fact.steps))
        if isinstance(fact, e.StepPaused):
            return self._report(lambda at: r.PauseRequested(at, fact.by, fact.reason, fact.step))
        if isinstance(fact, e.EventReceived):
            return self._report(lambda at: r.EventSent(at, fact.name, fact.value, fact.by, fact.key))
        return self._report(lambda at: r.ResumeRequested(at, fact.by, fact.reason, fact.step))


def _moved(now: DecisionContext, place: Place, end: Any) -> e.Fact:
    """A recorded or drawn outcome, as that of the present attempt at a place."""
    if isinstance(end, e.AttemptFailed):
        found = add_location(now, place, end.failure)
        return with_present_cap(now, _replace(end, place=place.key, attempt=place.attempt, failure=found))
    moved: e.Fact = _replace(end, place=place.key, attempt=place.attempt)
    return moved
