"""A run that is decided again: its state under the new definition, what it took, and what that rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from mulligan.analysis.whatif.attempt_names import AttemptNames, Named
from mulligan.analysis.whatif.judging import Doubt, Judgement, judge
from mulligan.analysis.whatif.knowledge import Draw, Drawn, Knowledge, Share, Subject
from mulligan.analysis.whatif.recording import Counts, HistoryCounter, RecordedAttempt, Recording, end_of
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.actions import traits_of
from mulligan.core.model.graph import Graph
from mulligan.core.state.deadlines import deadline_of
from mulligan.core.state.scope import Evaluator
from mulligan.core.state.state import Place, State

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
        named = self.named[place.key]
        return judge(
            self.recording.attempts.get(named.name),
            place,
            circumstances=named.circumstances,
            failed_at=named.failed_at,
            at=self.scheduled_at[place.key],
            deadline=deadline_of(self.state, place),
            may_differ=self.may_differ,
        )

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
        if judgement.is_recorded:
            self.count(judgement.doubt)
            return ExpectedEnd(judgement.end, judgement.seconds, judgement.doubt, wait)
        return self._draw(place, judgement.doubt)

    def _draw(self, place: Place, doubt: Doubt) -> ExpectedEnd:
        if self.knowledge is None:
            raise KnowledgeNeeded
        named = self.named[place.key]
        drawn: Drawn | None = self.knowledge.draw(place.key, named.circumstances, named.failure, self.draw, named.name)
        if drawn is not None:
            self.estimated[doubt] += 1
            self.drawn[drawn.subject] += 1
            self.shares[drawn.subject] = drawn.share
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
