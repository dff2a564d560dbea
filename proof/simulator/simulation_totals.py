"""Totals over many histories: how many there were, and how often each kind of thing happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Workflow

_HAPPENED = "what happened"
_CRASH = "crash "


class SimulationTotals(msgspec.Struct):
    """Counts by kind and name."""

    histories: int = 0
    runs: int = 0
    events: int = 0
    counts: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)

    def add(self, workflow: Workflow, store: str, happened: Counter[str], logs: Iterable[Iterable[e.Entry]]) -> None:
        """Add one history."""
        self.histories += 1
        self.counts["store", store] += 1
        for name, count in happened.items():
            self.counts[_HAPPENED, name] += count
        self.counts.update(_shapes(workflow))
        for log in logs:
            facts = [entry.fact for entry in log]
            self.runs += 1
            self.events += len(facts)
            for kind, count in Counter(map(type, facts)).items():
                self.counts["fact", kind.__name__] += count
            self.counts.update(label for fact in facts if type(fact) in _SUBDIVIDED for label in _labels(fact))

    def merge(self, other: SimulationTotals) -> None:
        self.histories += other.histories
        self.runs += other.runs
        self.events += other.events
        self.counts.update(other.counts)

    def summary(self) -> str:
        """Return a few lines: stores, crashes, faults."""
        happened = self._counts_of(_HAPPENED)
        crashes = {name.removeprefix(_CRASH): count for name, count in happened.items() if name.startswith(_CRASH)}
        others = {name: count for name, count in happened.items() if not name.startswith(_CRASH)}
        lines = (
            ("stores", self._counts_of("store")),
            (f"{sum(crashes.values()):,} crashes", crashes),
            ("what happened", others),
        )
        return "\n".join(f"{title}: {_format_counts(named)}" for title, named in lines if named)

    def table(self) -> str:
        """Return a table of how often each kind of thing happened."""
        lines = []
        for kind in sorted({kind for kind, _ in self.counts}):
            lines.append(f"{kind}:")
            lines += [f"  {count:>9} {name}" for name, count in sorted(self._counts_of(kind).items())]
        return "\n".join(lines)

    def _counts_of(self, kind: str) -> dict[str, int]:
        return {name: count for (found, name), count in self.counts.items() if found == kind}


def _format_counts(named: dict[str, int]) -> str:
    most_first = sorted(named.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{name} {count:,}" for name, count in most_first)


_SUBDIVIDED = frozenset(
    (
        e.HandlerStarted,
        e.RungPassed,
        e.StepFailed,
        e.StepCompleted,
        e.CommandCompleted,
        e.CommandEntered,
        e.StepSkipped,
        e.StepRestored,
        e.RunStopping,
        e.ReportRefused,
        e.AttemptScheduled,
    )
)


def _labels(fact: e.Fact) -> Iterator[tuple[str, str]]:
    """Yield what a fact counts as, besides its kind."""
    if isinstance(fact, e.HandlerStarted):
        yield "strategy", fact.strategy
    elif isinstance(fact, e.RungPassed):
        yield "rung passed", f"{fact.rung}: {fact.reason}"
    elif isinstance(fact, e.StepFailed):
        yield "route", fact.route.status
        yield "code", fact.failure.code
    elif isinstance(fact, e.StepCompleted | e.CommandCompleted) and fact.recovered_by:
        yield "recovered by", fact.recovered_by
    elif isinstance(fact, e.CommandEntered):
        yield "command", fact.role
    elif isinstance(fact, e.StepSkipped | e.StepRestored):
        yield "skipped", fact.reason
    elif isinstance(fact, e.RunStopping):
        yield "stopping", fact.cause + (" now" if fact.now else "")
    elif isinstance(fact, e.ReportRefused):
        yield "refused", fact.reason
    elif isinstance(fact, e.AttemptScheduled):
        yield "attempt", fact.cause


def _shapes(workflow: Workflow) -> Iterator[tuple[str, str]]:
    for step in workflow.steps:
        yield "join", step.join
        yield "action", step.action.kind if step.action else "map"
        yield from (("need", need.on + (" of a group" if need.is_group else "")) for need in step.needs)
        yield from (("edge", f"{edge.on}, then {edge.then}" if edge.then else edge.on) for edge in step.edges)
