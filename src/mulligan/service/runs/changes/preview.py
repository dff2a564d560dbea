"""What a run would do: which steps in which order, what they ask for, and what is missing on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mulligan.core.model.actions import traits_of
from mulligan.core.model.graph import Graph
from mulligan.core.model.waves import waves
from mulligan.core.model.workflow import Command, Expression, Map, Step, Workflow, all_commands, encode, version
from mulligan.errors import ExpressionFailed
from mulligan.language.expressions import Cel
from mulligan.language.input_values import check_inputs, refuse_references
from mulligan.service.decisions.agent_checks import unavailable_agents
from mulligan.service.driving.driver import Capacity, machine
from mulligan.service.runs.changes.capacity_checks import THIS_MACHINE, Place, pools, too_large, with_profiles
from mulligan.service.runs.changes.preflight import missing_files, missing_secrets
from mulligan.service.runs.stored.run_reader import RunReader


class StepPreview(msgspec.Struct, frozen=True):
    """A step that would run, or the steps of a matrix together."""

    step: str
    # How many steps of a matrix are in this wave.
    count: int = 1
    # Its action: shell, python, … or map.
    action: str = ""
    needs: tuple[str, ...] = ()
    # Its condition, and whether it holds; null if that is known only during the run.
    when: str = ""
    holds: bool | None = None
    # It runs only if one of these steps fails.
    if_failed: tuple[str, ...] = ()
    # The number of items of a map, if known; at most so many, if they are filtered.
    items: int | None = None
    is_items_most: bool = False
    retries: int = 0
    timeout: float | None = None
    deadline: float | None = None
    cpus: float | None = None
    memory: int | None = None
    gpus: int | None = None
    labels: tuple[str, ...] = ()
    # The packages that its python actions need, also those of its items and handlers.
    requirements: tuple[str, ...] = ()
    # The steps of the matrix ask for different amounts; the largest of each is given.
    is_varying: bool = False
    nodes: int | None = None


class Problem(msgspec.Struct, frozen=True):
    """Something that would prevent the run, or a step of it, from running here."""

    kind: str
    text: str
    step: str = ""


class Preview(msgspec.Struct, frozen=True):
    """A run that was not started."""

    workflow: str
    version: str
    inputs: dict[str, Any]
    steps: int
    # How many steps may run at a time; null if the workflow does not limit it.
    max_parallel: int | None
    timeout: float | None
    waves: list[list[StepPreview]]
    problems: list[Problem]


def preview(
    reader: RunReader, workflow: Workflow, given: dict[str, Any], cwd: Path, capacity: Capacity | None = None
) -> Preview:
    """Preview a run of the workflow. Starts and writes nothing."""
    inputs = check_inputs(workflow, given)
    refuse_references(inputs)
    graph = Graph(workflow)
    looking = _StepPreviewer(graph, inputs)
    places = pools(_places(reader, capacity, workflow))
    return Preview(
        workflow=workflow.name,
        version=version(encode(workflow)),
        inputs=inputs,
        steps=len(workflow.steps),
        max_parallel=workflow.max_parallel,
        timeout=workflow.timeout,
        waves=[list(looking.wave(names)) for names in waves(graph)],
        problems=[*_missing(workflow, cwd), *_too_large(workflow, places, _whose(reader))],
    )


# -- steps -----------------------------------------------------------------------------------------------------------


class _StepPreviewer:
    """Previews the steps of a workflow with the inputs of a run."""

    def __init__(self, graph: Graph, inputs: dict[str, Any]) -> None:
        self.graph = graph
        self.inputs = inputs
        self._cel = Cel(os.environ)

    def wave(self, names: Iterable[str]) -> Iterator[StepPreview]:
        """The steps of a wave; the steps of a matrix are one entry, at the place of the first."""
        families: dict[str, list[Step]] = {}
        for name in names:
            step = self.graph.nodes[name].step
            families.setdefault(step.sweep or step.name, []).append(step)
        return (self._step(name, steps) for name, steps in families.items())

    def _step(self, name: str, steps: list[Step]) -> StepPreview:
        step = steps[0]
        items, is_most = self._items(step.map)
        when = {one.when.source if one.when else "" for one in steps}
        known = {self._value(one.when) if one.when else None for one in steps}
        asked = _ResourceRequest(steps)
        return StepPreview(
            step=name,
            count=len(steps),
            action="map" if step.map else step.action.kind if step.action else "",
            needs=tuple(dict.fromkeys(need.of for need in step.needs)),
            when=step.when.source if step.when else "",
            holds=known.pop() if len(when) == len(known) == 1 else None,
            if_failed=self._if_failed(step),
            items=items,
            is_items_most=is_most,
            retries=max(command.retries_max for one in steps for command in (one, *one.do)),
            timeout=asked.most("timeout"),
            deadline=asked.most("deadline"),
            cpus=asked.most("cpus"),
            memory=asked.most("memory"),
            gpus=asked.most("gpus"),
            nodes=asked.most("nodes"),
            labels=asked.labels,
            requirements=_requirements(steps),
            is_varying=asked.is_varying,
        )

    def _if_failed(self, step: Step) -> tuple[str, ...]:
        """The steps of which one must fail, if only failure edges lead to this step."""
        arrivals = self.graph.nodes[step.name].arrivals
        if not arrivals or any(arc.edge.on != "failure" for arc in arrivals):
            return ()
        return tuple(dict.fromkeys(arc.source for arc in arrivals))

    def _items(self, listed: Map | None) -> tuple[int | None, bool]:
        """How many items, and whether there may be fewer; None if only the run will know."""
        found = None if listed is None or listed.over is None else self._value(listed.over)
        if listed is None or not isinstance(found, list):
            return None, False
        left = max(0, len(found) - listed.offset)
        bounded = left if listed.max_items is None else min(left, listed.max_items)
        return bounded, listed.filter is not None or listed.distinct is not None

    def _value(self, expression: Expression) -> Any:
        """The value of an expression that reads only inputs; None for any other."""
        if any(name.partition(".")[0] != "inputs" for name in expression.reads):
            return None
        try:
            return self._cel.evaluate(expression, {"inputs": self.inputs})
        except ExpressionFailed:
            return None


def _requirements(steps: Sequence[Step]) -> tuple[str, ...]:
    actions = [action for one in all_commands(steps) if (action := one.action) and traits_of(action).runs_python]
    return tuple(dict.fromkeys(one for action in actions for one in action.params.get("requirements", ())))


class _ResourceRequest:
    """The resources that steps, or the commands of their items, ask for."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._each = [_of_step(step) for step in steps]
        self.labels: tuple[str, ...] = next((one["labels"] for one in self._each if one["labels"]), ())
        self.is_varying = any(one != self._each[0] for one in self._each)

    def most(self, what: str) -> Any:
        return max((one[what] for one in self._each if one[what]), default=None)


def _of_step(step: Step) -> dict[str, Any]:
    own: tuple[Command, ...] = (step, *step.do)
    resources = [command.resources for command in own if command.resources]
    found: dict[str, Any] = {
        name: max((getattr(one, name) for one in resources if getattr(one, name)), default=None)
        for name in ("cpus", "memory", "gpus", "nodes")
    }
    found["labels"] = tuple(dict.fromkeys(label for one in resources for label in one.labels))
    found["timeout"] = max((command.timeout for command in own if command.timeout), default=None)
    found["deadline"] = step.deadline
    return found


# -- what is missing -------------------------------------------------------------------------------------------------


def _missing(workflow: Workflow, cwd: Path) -> Iterator[Problem]:
    for path in missing_files(workflow, cwd):
        yield Problem("file", f"file '{path}' does not exist, and no step writes it")
    for step, name, problem in missing_secrets(workflow, cwd, os.environ):
        yield Problem("secret", f"secret '{name}', which step '{step}' reads, is not available: {problem}", step)
    for agent in unavailable_agents(workflow, os.environ):
        yield Problem("agent", f"{agent.problem}; step '{agent.step}' asks it", agent.step)


def _places(reader: RunReader, capacity: Capacity | None, workflow: Workflow) -> list[Capacity]:
    """Where a step may run: on this machine or, in a shared store, on a running worker."""
    here = capacity or machine()
    if not reader.home.store_url:
        return [with_profiles(here, workflow)]
    workers = [worker for worker in reader.store.workers() if worker.cpus and not worker.is_expired]
    return [
        Capacity(one.cpus, one.memory, one.gpus, one.labels, nodes=one.nodes, nodes_min=one.nodes_min)
        for one in workers
    ] or [here]


def _whose(reader: RunReader) -> str:
    return "any running worker" if reader.home.store_url else THIS_MACHINE


def _too_large(workflow: Workflow, places: list[Place], where: str) -> Iterator[Problem]:
    """The steps that no worker here can ever run."""
    return (Problem("capacity", one.text, one.step) for one in too_large(workflow, places, where))
