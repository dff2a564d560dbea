"""A run that is decided again: its state under the new definition, what it took, and what that rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

import msgspec

from mulligan.analysis.whatif.attempt_names import AttemptNames, Named
from mulligan.analysis.whatif.knowledge import Draw, Drawn, DrawnVerdict, Knowledge, Share, Subject
from mulligan.analysis.whatif.recording import Counts, HistoryCounter, RecordedAttempt, Recording, end_of
from mulligan.core.deciding.classify import LIMIT, PAST_DEADLINE, TOO_LONG, exceeded_limit
from mulligan.core.deciding.workers.resource_usage import attempt_limits
from mulligan.core.evolve.evolve_places import is_engine_action
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.actions import traits_of
from mulligan.core.model.failure import failure, number_or_zero
from mulligan.core.model.graph import Graph
from mulligan.core.model.workflow import Command
from mulligan.core.state.deadlines import deadline_of
from mulligan.core.state.scope import DecisionContext, Evaluator
from mulligan.core.state.state import Place, State

# Why an outcome is not certain: the step runs something else; with other values; sooner after the failure than then;
# with other limits of memory or time; after another repair; it never happened; nothing like it was ever recorded.
Doubt = Literal[
    "", "other_action", "other_values", "sooner", "other_limits", "other_repair", "never_happened", "unknown"
]

# A retry that comes this much sooner than the recorded one is not the same retry.
SOONER_SECONDS, SOONER_SHARE = 1.0, 0.1


class Judgement(msgspec.Struct, frozen=True):
    """What the record says about an attempt: nothing (`end` is None), a fact (no doubt), or a guess."""

    end: e.AttemptSucceeded | e.AttemptFailed | e.AttemptLost | e.AttemptInterrupted | e.AttemptCancelled | None
    seconds: float
    doubt: Doubt = ""


def _under_its_limits(recorded: RecordedAttempt, place: Place) -> Judgement | None:
    """What another limit makes of the recorded outcome; None if it changes nothing."""
    if is_engine_action(place.spec):
        # Its limits are timers of the run.
        return None
    limits, end = attempt_limits(place), recorded.end
    assert recorded.seconds is not None
    is_timeout = isinstance(end, e.AttemptFailed) and exceeded_limit(end.failure) == "timeout"
    adjusted = recorded.circumstances.adjusted
    had = (adjusted.timeout if adjusted is not None else None) or recorded.spec.timeout
    if is_timeout and had != limits.timeout and (limits.timeout is None or limits.timeout > recorded.seconds):
        return Judgement(None, 0.0, "other_limits")
    # The time limit of a Python step counts from its call.
    usage = end.usage if isinstance(end, e.AttemptSucceeded | e.AttemptFailed) else {}
    seconds = recorded.seconds - number_or_zero(usage.get("import_seconds"))
    if limits.timeout is not None and limits.timeout < seconds and limits.timeout != had:
        found = failure("TIMEOUT", TOO_LONG, details={LIMIT: "timeout", "timeout": limits.timeout})
        return Judgement(e.AttemptFailed(place.key, place.attempt, found), limits.timeout)
    if isinstance(end, e.AttemptFailed) and end.failure.code == "OUT_OF_MEMORY":
        given = number_or_zero(end.failure.details.get("memory"))
        if given and (limits.memory is None or limits.memory > given):
            return Judgement(None, 0.0, "other_limits")
    return None


def _under_its_deadline(
    recorded: RecordedAttempt, place: Place, deadline: datetime | None, started_at: datetime
) -> Judgement | None:
    """What another deadline, or less time until it, makes of the recorded outcome; None if it changes nothing."""
    end = recorded.end
    assert recorded.seconds is not None
    left = None if deadline is None else max(0.0, (deadline - started_at).total_seconds())
    if isinstance(end, e.AttemptFailed) and exceeded_limit(end.failure) == "deadline":
        if left is None or left > recorded.seconds + SOONER_SECONDS:
            return Judgement(None, 0.0, "other_limits")
        return Judgement(end, left)
    if left is None or left >= recorded.seconds:
        return None
    found = failure("TIMEOUT", PAST_DEADLINE, details={LIMIT: "deadline"})
    return Judgement(e.AttemptFailed(place.key, place.attempt, found), left)


def _lacks_memory(recorded: RecordedAttempt, place: Place) -> bool:
    """Whether the attempt used more memory than it would be given."""
    usage = recorded.end.usage if isinstance(recorded.end, e.AttemptSucceeded) else {}
    limit = attempt_limits(place).memory
    return limit is not None and number_or_zero(usage.get("peak_memory")) > limit


def _is_sooner(recorded: RecordedAttempt, failed_at: datetime | None, at: datetime) -> bool:
    """Whether it comes sooner after the failure: what was wrong may have needed that time to pass."""
    if failed_at is None or recorded.failed_at is None or recorded.circumstances.kind == "entered":
        return False
    then = (recorded.scheduled_at - recorded.failed_at).total_seconds()
    now = (at - failed_at).total_seconds()
    return now < then - max(SOONER_SECONDS, SOONER_SHARE * then)


def _what_runs(spec: Command) -> tuple[object, ...]:
    """What determines the outcome of one attempt, without the policy about it."""
    files = spec.reads, spec.writes, spec.file_paths
    return spec.action, spec.env, spec.cwd, spec.capture, files, spec.tools, spec.session


# What a history rests on: recorded outcomes alone; also recorded outcomes under other conditions; also drawn ones.
Evidence = Literal["fact", "assumed", "estimate"]


class Undecidable(Exception):
    """The run cannot be decided again, and why: a code, and what it is about."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail


class KnowledgeNeeded(Exception):
    """The new definition tries something that never happened: what other runs say about that is needed."""


class Divergence(msgspec.Struct, frozen=True):
    """Where the new definition decides otherwise for the first time."""

    seq: int
    at: datetime
    # What happened then; None if nothing did.
    then: e.Fact | None
    # What happens instead; None if the difference is an outcome, and then which.
    now: e.Fact | None
    place: str = ""
    what: Literal["decision", "outcome", "timer", "child"] = "decision"


class ChildResult(msgspec.Struct, frozen=True):
    """How a child run ends that was decided again."""

    report: r.ChildEnded
    seconds: float
    by: Evidence
    is_otherwise: bool


class ExpectedEnd(NamedTuple):
    """How and when an attempt ends: a fact of the record, a report, or something that was drawn."""

    end: e.Fact | r.ChildEnded | None
    seconds: float
    doubt: Doubt = ""
    # Of the record: how long it waited for a worker.
    wait_seconds: float = 0.0


# Decides the child run again that an attempt called: given the place under the new definition, and the recorded
# attempt. None if it has the same definition.
Children = Callable[[State, Place, RecordedAttempt], ChildResult | None]


def no_children(state: State, place: Place, recorded: RecordedAttempt) -> ChildResult | None:
    return None


class PlayedHistory:
    """How a run goes under another definition.

    Both parts of a redecision work on it: the part that follows the log, and the part that goes on from there.
    """

    def __init__(
        self,
        recording: Recording,
        graph: Graph,
        evaluator: Evaluator,
        *,
        knowledge: Knowledge | None,
        draw: Draw,
        children: Children = no_children,
    ) -> None:
        self.recording = recording
        self.graph = graph
        self.evaluator = evaluator
        self.knowledge = knowledge
        self.draw = draw
        self.children = children
        self.state = State(graph.workflow, graph)
        self.names = AttemptNames()
        self.counts = Counts()
        self.counter = HistoryCounter(self.counts)
        self.divergence: Divergence | None = None
        # Where it goes another way, and why; "" if it goes exactly as recorded. How many recorded entries are the same.
        self.step = self.why = ""
        self.followed = 0
        # The attempt that each place has now: what it is called, and how it came to it.
        self.named: dict[str, Named] = {}
        self.scheduled_at: dict[str, datetime] = {}
        self.started_at: dict[str, datetime] = {}
        # Since when steps wait for a person.
        self.parked_at: dict[str, datetime] = {}
        # How outcomes were found: as recorded; as recorded under other conditions; drawn from what other runs say.
        self.facts = 0
        self.assumed: Counter[Doubt] = Counter()
        self.estimated: Counter[Doubt] = Counter()
        self.drawn: Counter[Subject] = Counter()
        self.shares: dict[Subject, Share] = {}
        self.may_differ = recording.graph.workflow != graph.workflow

    def context(self, at: datetime) -> DecisionContext:
        """For decisions at a time, which is not before the last entry."""
        return DecisionContext(self.state, max(at, self.state.run.at), self.evaluator)

    def note(self, entry: e.Entry) -> None:
        """Take note of an entry of the new history, after it was applied."""
        fact = entry.fact
        self.counter.note(self.state, entry)
        named = self.names.note(self.state, entry)
        if named is not None:
            assert isinstance(fact, e.AttemptScheduled)
            self.named[fact.place] = named
            self.scheduled_at[fact.place] = entry.at
            self.started_at.pop(fact.place, None)
        elif isinstance(fact, e.AttemptStarted):
            self.started_at[fact.place] = entry.at
        elif isinstance(fact, e.StepParked | e.TriageSuggested):
            self.parked_at[fact.step] = entry.at

    # -- how attempts end --------------------------------------------------------------------------------------------

    def judge(self, place: Place) -> Judgement:
        """What the record says about the present attempt at a place."""
        named, at, deadline = self.named[place.key], self.scheduled_at[place.key], deadline_of(self.state, place)
        recorded = self.recorded(place)
        if recorded is None or recorded.seconds is None:
            return Judgement(None, 0.0, "never_happened")
        if recorded.circumstances != named.circumstances:
            return Judgement(None, 0.0, "other_repair")
        doubt: Doubt = ""
        # Also for an attempt that the run ended: it took at least as long as it was left to run.
        if (deadline, at) != (recorded.deadline, recorded.scheduled_at) and not is_engine_action(place.spec):
            limited = _under_its_deadline(recorded, place, deadline, at + timedelta(seconds=recorded.wait_seconds))
            if limited is not None:
                return limited
        if self.may_differ and recorded.spec != place.spec:
            limited = _under_its_limits(recorded, place)
            if limited is not None:
                return limited
            if recorded.end is not None and _what_runs(recorded.spec) != _what_runs(place.spec):
                doubt = "other_action"
            elif _lacks_memory(recorded, place):
                doubt = "other_limits"
        if recorded.end is None:
            return Judgement(None, 0.0, "never_happened")
        # Older releases recorded fewer values.
        if not doubt and any(place.bindings.get(name) != value for name, value in recorded.bindings.items()):
            doubt = "other_values"
        if not doubt and _is_sooner(recorded, named.failed_at, at):
            doubt = "sooner"
        return Judgement(recorded.end, recorded.seconds, doubt)

    def recorded(self, place: Place) -> RecordedAttempt | None:
        return self.recording.attempts.get(self.named[place.key].name)

    def child_result(self, place: Place) -> ChildResult | None:
        """The result of a child run with another definition than then; None if it has the same, or never ran."""
        recorded = self.recorded(place)
        if recorded is None or not traits_of(place.spec.action).calls_run:
            return None
        return self.children(self.state, place, recorded) if self.may_differ else None

    def expect(self, place: Place) -> ExpectedEnd:
        """How the present attempt at a place ends: by the record where it says so, otherwise drawn."""
        child = self.child_result(place)
        recorded = self.recorded(place)
        wait = recorded.wait_seconds if recorded is not None else 0.0
        judgement = self.judge(place)
        if child is not None and judgement.doubt not in ("never_happened", "other_repair"):
            self.count_child(child)
            return ExpectedEnd(child.report, child.seconds, judgement.doubt, wait)
        if judgement.end is not None:
            self.count(judgement.doubt)
            return ExpectedEnd(judgement.end, judgement.seconds, judgement.doubt, wait)
        return self._draw(place, judgement.doubt)

    def _draw(self, place: Place, doubt: Doubt) -> ExpectedEnd:
        if self.knowledge is None:
            raise KnowledgeNeeded
        named = self.named[place.key]
        drawn: Drawn | None = self.knowledge.draw(place.key, named.circumstances, named.failure, self.draw, named.name)
        if drawn is not None:
            self.count_drawn(doubt, drawn)
            return ExpectedEnd(drawn.end, drawn.seconds, doubt)
        if named.circumstances.kind == "entered" and not is_repair(self.state, place):
            # A step that never ran anywhere, and that no failure leads to.
            self.estimated["unknown"] += 1
            return ExpectedEnd(e.AttemptSucceeded(place.key, place.attempt), 0.0, "unknown")
        raise Undecidable("nothing_known", what_is_tried(self.state, place, named))

    def count(self, doubt: Doubt) -> None:
        """Count a recorded outcome that the new history uses."""
        if doubt:
            self.assumed[doubt] += 1
        else:
            self.facts += 1

    def count_drawn(self, doubt: Doubt, drawn: Drawn | DrawnVerdict | None) -> None:
        """Count an outcome that was drawn, or that could not be."""
        self.estimated[doubt] += 1
        if drawn is not None:
            self.drawn[drawn.subject] += 1
            self.shares[drawn.subject] = drawn.share

    def count_child(self, child: ChildResult) -> None:
        """Count how a child run ends that was decided again: it is as certain as what it rests on."""
        if child.by == "estimate":
            self.estimated["never_happened"] += 1
        elif child.by == "assumed":
            self.assumed["other_values"] += 1
        else:
            self.facts += 1

    @property
    def status(self) -> str:
        """How it ends, see `end_of`."""
        return end_of(self.state)

    @property
    def goes_another_way(self) -> bool:
        return bool(self.why)

    @property
    def by(self) -> Evidence:
        """What the history rests on, as a whole."""
        return "estimate" if self.estimated else "assumed" if self.assumed else "fact"


def is_repair(state: State, place: Place) -> bool:
    """Whether a place is tried because something failed: a handler, a script, a triager, a remediation, an undo."""
    if any(above.role in ("handler", "script", "triager", "undo") for above in state.ancestors(place)):
        return True
    step = state.step_of(place)
    return bool(state.routed.get((step.key, step.visit)))


def what_is_tried(state: State, place: Place, named: Named) -> str:
    """In words: `a retry of 'fetch' after exit code 11`."""
    if named.circumstances.kind == "entered" or named.failure is None:
        return f"'{place.key}'"
    tried = "a rerun" if named.circumstances.kind == "rerun" else "a retry"
    script = " with this recovery script" if named.circumstances.kind == "again" and named.circumstances.repair else ""
    return f"{tried} of '{place.key}' after {named.failure.text}{script}"
