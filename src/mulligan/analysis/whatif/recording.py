"""What a log says about the world outside of a run: how attempts ended and when, what people decided and asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from mulligan.analysis.whatif.attempt_names import AttemptName, AttemptNames, Circumstances, FailureKind, failure_kind
from mulligan.core.effects import effects as fx
from mulligan.core.evolve.evolve_places import is_engine_action, waits_until
from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.model import events as e
from mulligan.core.model.actions import traits_of
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Command
from mulligan.core.state.deadlines import deadline_of
from mulligan.core.state.mailbox import is_open_wait
from mulligan.core.state.state import Place, State
from mulligan.core.state.transitions import RUN_ENDED

ENDS = (e.AttemptSucceeded, e.AttemptFailed, e.AttemptLost, e.AttemptInterrupted, e.AttemptCancelled)
AttemptEnd = e.AttemptSucceeded | e.AttemptFailed | e.AttemptLost | e.AttemptInterrupted | e.AttemptCancelled
# What somebody asks of a run as a whole, or of a step, at a time of their own; and events that were sent.
_ASKED = (e.RunPaused, e.RunResumed, e.StepPaused, e.StepResumed, e.EventReceived)


class RecordedAttempt(msgspec.Struct):
    """One attempt that a worker, a child run or a person ended, or that has not ended."""

    name: AttemptName
    key: str
    attempt: int
    circumstances: Circumstances
    # The failure before it, and when that came.
    failure: FailureKind | None
    failed_at: datetime | None
    spec: Command
    bindings: dict[str, object]
    scheduled_at: datetime
    # The deadline of its visit.
    deadline: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    # None while it has not ended, if the run ended it, or if its time was up.
    end: AttemptEnd | None = None
    # It was asked to end, and reported an outcome all the same.
    was_stopping: bool = False
    # The run ended it: how it would have ended by itself is not known.
    was_cut: bool = False

    @property
    def wait_seconds(self) -> float:
        """How long it waited for a worker."""
        return 0.0 if self.started_at is None else (self.started_at - self.scheduled_at).total_seconds()

    @property
    def seconds(self) -> float | None:
        """How long it took; None if it has not ended."""
        if self.ended_at is None:
            return None
        return (self.ended_at - (self.started_at or self.scheduled_at)).total_seconds()


class RecordedDecision(msgspec.Struct):
    """A step that was parked, and what a person decided, if anything.

    `was_cut`: the run was stopped before anybody decided, so what they would have decided is not known.
    """

    name: AttemptName
    failure: FailureKind
    parked_at: datetime
    decided_at: datetime | None = None
    fact: e.StepClassified | None = None
    was_cut: bool = False


class RecordedRound(msgspec.Struct):
    """A round that has ended, and the request for the next one, if there is one."""

    status: str
    ended_at: datetime
    reopened_at: datetime | None = None
    reopened: e.RunReopened | None = None
    is_revised: bool = False


class Counts(msgspec.Struct):
    """What one history took."""

    attempts: int = 0
    # Verdicts on parked steps, answers to approvals, and rounds that people asked for.
    decisions: int = 0
    seconds: float = 0.0


class Recording(msgspec.Struct):
    """One run as its log tells it."""

    graph: Graph
    entries: list[e.Entry]
    attempts: dict[AttemptName, RecordedAttempt] = {}
    decisions: dict[AttemptName, RecordedDecision] = {}
    rounds: dict[int, RecordedRound] = {}
    # What was asked of the run from outside, with its place in the log.
    asked: list[e.Entry] = []
    # The timers that each entry set, by its number.
    timers: dict[int, tuple[fx.SetTimer, ...]] = {}
    # When timers fired: later than they were due if no process drove the run.
    fired: dict[fx.SetTimer, datetime] = {}
    run_id: int = 0
    counts: Counts = msgspec.field(default_factory=Counts)
    status: str = ""
    degraded: bool = False
    is_revised: bool = False
    # When it was forked from an event of another run: what is before that happened there.
    forked_at: datetime | None = None

    @property
    def has_ended(self) -> bool:
        return self.status in RUN_ENDED

    @property
    def failed_steps(self) -> frozenset[str]:
        """The steps of which an attempt failed, or which were parked."""
        return frozenset(one.name.place.partition(".")[0].partition("[")[0] for one in self.failures)

    @property
    def failures(self) -> Iterator[RecordedAttempt]:
        return (one for one in self.attempts.values() if isinstance(one.end, e.AttemptFailed | e.AttemptLost))


def record(graph: Graph, log: Iterable[e.Entry]) -> Recording:
    """Read a log with the definition that its run was started with."""
    recorder = _Recorder(Recording(graph, list(log)))
    recorder.read()
    return recorder.recording


class _Recorder:
    """Fills a recording from its entries."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.state = State(recording.graph.workflow, recording.graph)
        self.names = AttemptNames()
        self.set_timers: dict[tuple[str, str, int], fx.SetTimer] = {}
        # The attempts and parked steps that are open, by key.
        self.open: dict[str, RecordedAttempt] = {}
        self.parked: dict[str, RecordedDecision] = {}
        self.counter = HistoryCounter(recording.counts)

    def read(self) -> None:
        recording = self.recording
        for entry in recording.entries:
            self.note_before(entry)
            evolve(self.state, entry)
            self.note(entry)
        run = self.state.run
        recording.run_id, recording.status, recording.degraded = run.run_id, end_of(self.state), run.degraded

    def note_before(self, entry: e.Entry) -> None:
        """What has to be read from the state before the entry is applied: commands are dropped when they end."""
        fact = entry.fact
        timer = fired_timer(self.state, entry)
        if timer is not None and (found := self.set_timers.get(timer)) is not None:
            self.recording.fired[found] = entry.at
        if isinstance(fact, ENDS):
            self.end(entry, fact)

    def note(self, entry: e.Entry) -> None:
        fact, state, recording = entry.fact, self.state, self.recording
        self.counter.note(state, entry)
        named = self.names.note(state, entry)
        timers = tuple(effect for effect in fx.effects(state, fact) if isinstance(effect, fx.SetTimer))
        if timers:
            recording.timers[entry.seq] = timers
            self.set_timers.update({(timer.kind, timer.place, timer.number): timer for timer in timers})
        if isinstance(fact, e.AttemptScheduled):
            place = state.places.get(fact.place)
            if named is not None and place is not None and ends_outside(place):
                self.open[fact.place] = recording.attempts[named.name] = RecordedAttempt(
                    name=named.name,
                    key=fact.place,
                    attempt=fact.attempt,
                    circumstances=named.circumstances,
                    failure=named.failure,
                    failed_at=named.failed_at,
                    spec=place.spec,
                    bindings=fact.bindings,
                    scheduled_at=entry.at,
                    deadline=deadline_of(state, place),
                )
        elif isinstance(fact, e.AttemptStarted):
            if fact.place in self.open:
                self.open[fact.place].started_at = entry.at
        elif isinstance(fact, e.StepParked):
            name = self.names.name_of(state, fact.step, fact.attempt)
            kind = failure_kind(fact.failure)
            self.parked[fact.step] = recording.decisions[name] = RecordedDecision(name, kind, entry.at)
        elif isinstance(fact, e.TriageSuggested):
            # The time of a person begins here.
            if fact.step in self.parked:
                self.parked[fact.step].parked_at = entry.at
        elif isinstance(fact, e.StepClassified):
            parked = self.parked.pop(fact.step, None)
            if parked is not None and is_decision_of_a_person(fact):
                parked.decided_at, parked.fact = entry.at, fact
        elif isinstance(fact, e.StepCancelled | e.StepFailed):
            if (parked := self.parked.pop(fact.step, None)) is not None:
                parked.was_cut = True
        elif isinstance(fact, e.RunReopened):
            ended = recording.rounds.get(fact.round - 1)
            if ended is not None:
                ended.reopened_at, ended.reopened, ended.is_revised = entry.at, fact, recording.is_revised
        elif isinstance(fact, e.RunRevised):
            recording.is_revised = True
        elif isinstance(fact, e.RunForked):
            recording.forked_at = entry.at
        elif isinstance(fact, e.RunCompleted | e.RunFailed | e.RunCancelled):
            recording.rounds[state.run.round] = RecordedRound(state.run.status, entry.at)
        elif entry.caused_by == 0 and (isinstance(fact, _ASKED) or _is_cancel(fact)):
            recording.asked.append(entry)

    def end(self, entry: e.Entry, fact: AttemptEnd) -> None:
        found = self.open.get(fact.place)
        if found is None or found.attempt != fact.attempt:
            return
        del self.open[fact.place]
        place = self.state.places.get(fact.place)
        found.ended_at = entry.at
        if entry.caused_by == 0 and place is not None and not _was_ended_by_the_run(place, fact):
            found.end, found.was_stopping = fact, place.phase == "stopping"
        found.was_cut = isinstance(fact, e.AttemptCancelled)


def fired_timer(state: State, entry: e.Entry) -> tuple[str, str, int] | None:
    """The kind, place and number of the timer that an entry comes from, given the state before it."""
    fact = entry.fact
    if isinstance(fact, e.LoopFired):
        return "loop", fact.step, fact.edge
    if entry.caused_by != 0:
        return None
    if isinstance(fact, e.AttemptScheduled):
        return "retry", fact.place, fact.attempt
    if isinstance(fact, e.StepClassified) and fact.is_default:
        return "triage", fact.step, fact.attempt
    if isinstance(fact, e.RunStopping) and fact.cause == "timed_out":
        return "run", "", state.run.round
    if isinstance(fact, e.AttemptStopping) and fact.reason == "handler_timeout":
        return "handler", fact.place, fact.attempt
    if isinstance(fact, e.AttemptSucceeded | e.AttemptFailed | e.AttemptStopping) and fact.place in state.places:
        place = state.places[fact.place]
        action = traits_of(place.spec.action)
        if action.is_timer or action.awaits_event or (action.asks_person and not is_answer_of_a_person(fact)):
            return "until" if waits_until(place.spec) else "attempt", fact.place, fact.attempt
    return None


def _was_ended_by_the_run(place: Place, fact: AttemptEnd) -> bool:
    """Whether the run ended the attempt: it was asked to end, or its time was up while nobody had started it."""
    if isinstance(fact, e.AttemptCancelled) or place.phase == "timeout":
        return True
    if isinstance(fact, e.AttemptFailed) and place.status == "ready" and fact.failure.code == "TIMEOUT":
        return True
    # An approval that nobody answered: a timer decides.
    return traits_of(place.spec.action).asks_person and not is_answer_of_a_person(fact)


def ends_outside(place: Place) -> bool:
    """Whether something outside of the run ends an attempt at this place: a worker, a child run, a person."""
    action = place.spec.action
    if action is None:
        return False
    found = traits_of(action)
    return found.asks_person or found.calls_run or not is_engine_action(place.spec)


def is_answer_of_a_person(fact: e.Fact) -> bool:
    """Whether the end of an approval is an answer, not the end of its time."""
    if isinstance(fact, e.AttemptFailed):
        return fact.failure.code == "APPROVAL_REFUSED"
    output = fact.output if isinstance(fact, e.AttemptSucceeded) else None
    return isinstance(output, dict) and output.get("by") != "timeout"


def is_decision_of_a_person(fact: e.StepClassified) -> bool:
    """Whether somebody outside of the run decided, not its default and not its triager."""
    return not fact.is_default and not fact.is_triagers


def _is_cancel(fact: e.Fact) -> bool:
    return isinstance(fact, e.RunStopping) and fact.cause == "cancelled"


def end_of(state: State) -> str:
    """How a history ends: the status of the run; `waiting` if all it does is wait for a person or an event."""
    if state.run.status in RUN_ENDED or state.run.status == "paused":
        return str(state.run.status)
    active = [place for place in state.places.values() if place.is_active and not place.child]
    waits = [one for one in active if one.status == "pending_failed" or one.is_open_approval or is_open_wait(one)]
    return "waiting" if waits and len(waits) == len(active) else "running"


class HistoryCounter:
    """Counts what a history takes, from its entries in order, each after it was applied."""

    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        self._began_at: datetime | None = None

    def note(self, state: State, entry: e.Entry) -> None:
        """Count an entry. The time is that of all rounds, without the time between them."""
        fact, counts = entry.fact, self.counts
        if isinstance(fact, e.AttemptStarted):
            place = state.places.get(fact.place)
            counts.attempts += place is not None and place.spec.action is not None and not is_engine_action(place.spec)
        elif isinstance(fact, e.StepClassified):
            counts.decisions += is_decision_of_a_person(fact)
        elif isinstance(fact, e.AttemptSucceeded | e.AttemptFailed):
            place = state.places.get(fact.place)
            is_approval = place is not None and traits_of(place.spec.action).asks_person
            counts.decisions += is_approval and is_answer_of_a_person(fact)
        elif isinstance(fact, e.RunStarted):
            self._began_at = entry.at
        elif isinstance(fact, e.RunReopened):
            counts.decisions += 1
            self._began_at = entry.at
        elif isinstance(fact, e.RunCompleted | e.RunFailed | e.RunCancelled) and self._began_at is not None:
            counts.seconds += (entry.at - self._began_at).total_seconds()
            self._began_at = None
