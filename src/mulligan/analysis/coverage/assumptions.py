"""Assumptions: what is assumed about conditions, and which failures come first, so that a step is reached at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mulligan.analysis.coverage.failure_kinds import failing_command, kinds_of, leads_to, plain_first
from mulligan.analysis.coverage.injection import ALWAYS, Injection, Path
from mulligan.core.model.graph import Arc, Graph
from mulligan.core.model.workflow import Expression, Step, Workflow


class Assumptions:
    """One set of assumptions, and the failures that happen in it before any other."""

    def __init__(
        self, choices: Mapping[Expression, bool] | None = None, injections: tuple[Injection, ...] = ()
    ) -> None:
        self.choices = dict(choices or {})
        self.injections = injections


def assumptions_for(
    workflow: Workflow, path: Path, step: Step, choices: Mapping[Expression, bool], graph: Graph | None = None
) -> Iterator[Assumptions]:
    """Assumptions under which a step is probably reached, the simplest first. `choices`: what leads to its workflow."""
    way = _Way(graph or Graph(workflow), path, dict(choices))
    way.reach(step.name)
    # A remediation that reruns its step needs a failure that stops when it has run; retries come before it.
    tries = (1, 2, max((one.times for one in way.failures), default=0), ALWAYS)
    for times in dict.fromkeys(tries) if way.failures else (0,):
        injections = tuple(Injection(one.path, one.step, one.kind, times) for one in way.failures)
        yield Assumptions(way.choices, injections)


class _Way:
    """Gathers what must hold, and what must fail, on the way to a step."""

    def __init__(self, graph: Graph, path: Path, choices: dict[Expression, bool]) -> None:
        self.choices = choices
        self.failures: list[Injection] = []
        self._path = path
        self._graph = graph
        self._seen: set[str] = set()

    def reach(self, name: str) -> None:
        waiting = [name]
        while waiting:
            name = waiting.pop()
            if name in self._seen or name not in self._graph.nodes:
                continue
            self._seen.add(name)
            node = self._graph.nodes[name]
            if node.step.when is not None:
                self.choices[node.step.when] = True
            waiting += [source for source, _ in node.needs]
            waiting += [member for barrier in node.waits for member in barrier.members]
            # One that needs no failure if there is one.
            arc = min(node.arrivals, key=lambda arc: arc.edge.on == "failure", default=None)
            if arc is not None:
                self._take(arc)
                waiting.append(arc.source)

    def _take(self, arc: Arc) -> None:
        source = self._graph.nodes[arc.source]
        if arc.edge.on == "failure":
            self._fail(source.step, arc.to)
            return
        if arc.edge.when is not None:
            self.choices[arc.edge.when] = True
        if source.step.take == "first":
            before = source.by_priority[: source.by_priority.index(arc)]
            self.choices.update((one.edge.when, False) for one in before if one.edge.when is not None)

    def _fail(self, step: Step, target: str) -> None:
        kinds = plain_first(kinds_of(self._graph.workflow, step))
        kind = next((kind for kind in kinds if leads_to(step, kind, target)), None)
        if kind is not None:
            retries = failing_command(step).retries_max + 1
            self.failures.append(Injection(self._path, step, kind, retries))
