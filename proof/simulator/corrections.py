"""Random corrections of a workflow: what a person may change in the file before the run continues."""

from __future__ import annotations

from random import Random
from typing import TypeVar

import msgspec

from mulligan.core.evolve.revision import plain_from_json
from mulligan.core.model.actions import traits_of
from mulligan.core.model.graph import Graph
from mulligan.core.model.reports import Revised
from mulligan.core.model.workflow import Command, Need, Step, Workflow, encode, version
from proof.simulator.workflows import is_allowed, without_waiting_remediations

TRIES_MAX = 10

_C = TypeVar("_C", bound=Command)
_replace = msgspec.structs.replace


def correction(rng: Random, workflow: Workflow, inputs: dict[str, object]) -> Revised:
    """Return a corrected definition for a retry; sometimes it is unchanged."""
    data = encode(corrected(rng, workflow))
    return Revised(version(data), plain_from_json(data), dict(inputs))


def corrected(rng: Random, workflow: Workflow) -> Workflow:
    """Return the workflow with one to three valid changes."""
    for _ in range(rng.randint(1, 3)):
        for _ in range(TRIES_MAX):
            changed = without_waiting_remediations(rng.choice(_CHANGES)(rng, workflow))
            if is_allowed(changed):
                workflow = changed
                break
    return workflow


def _with(workflow: Workflow, step: Step) -> Workflow:
    return _replace(workflow, steps=tuple(step if one.name == step.name else one for one in workflow.steps))


def _other_text(rng: Random, workflow: Workflow) -> Workflow:
    """Change what a step does, and so its result."""
    step = rng.choice(workflow.steps)
    if step.do:
        return _with(workflow, _replace(step, do=(_reworded(step.do[0]), *step.do[1:])))
    return _with(workflow, _reworded(step))


def _reworded(command: _C) -> _C:
    action = command.action
    if action is None or not traits_of(action).script:
        return _replace(command, env={**command.env})
    text = f"{action.params.get('text', '')} # corrected"
    return _replace(command, action=_replace(action, params={**action.params, "text": text}))


def _other_limit(rng: Random, workflow: Workflow) -> Workflow:
    """Change how long a step may take, and so not its result."""
    step = rng.choice(workflow.steps)
    return _with(workflow, _replace(step, timeout=(step.timeout or 50.0) + rng.randint(1, 50)))


def _fewer_remedies(rng: Random, workflow: Workflow) -> Workflow:
    return _with(workflow, _replace(rng.choice(workflow.steps), rules=(), on_failure=None, undo=None))


def _one_more(rng: Random, workflow: Workflow) -> Workflow:
    """Add a step that needs an existing one, and that an existing one may need."""
    names = {step.name for step in workflow.steps}
    name = next(name for name in (f"new{i}" for i in range(len(names) + 1)) if name not in names)
    like = next((step.action for step in workflow.steps if step.action and traits_of(step.action).script), None)
    new = Step(name=name, action=like, needs=tuple(Need(one) for one in rng.sample(sorted(names), 1)))
    changed = _replace(workflow, steps=(*workflow.steps, new))
    if rng.random() < 0.5:
        return changed
    needing = rng.choice(workflow.steps)
    return _with(changed, _replace(needing, needs=(*needing.needs, Need(name))))


def _one_less(rng: Random, workflow: Workflow) -> Workflow:
    """Remove a step and all references to it."""
    if len(workflow.steps) < 2:
        return workflow
    gone = rng.choice(workflow.steps).name
    if f'"steps.{gone}"' in encode(workflow).decode():
        return workflow
    steps = (_without(step, gone) for step in workflow.steps if step.name != gone)
    groups = {name: tuple(one for one in members if one != gone) for name, members in workflow.groups.items()}
    return _replace(workflow, steps=tuple(steps), groups=groups) if all(groups.values()) else workflow


def _without(step: Step, gone: str) -> Step:
    edges = [edge for edge in step.edges if edge.to != gone]
    return _replace(
        step,
        needs=tuple(need for need in step.needs if need.of != gone),
        edges=tuple(_replace(edge, index=index) for index, edge in enumerate(edges)),
    )


def _one_edge_less(rng: Random, workflow: Workflow) -> Workflow:
    step = rng.choice(workflow.steps)
    edges = step.edges[: rng.randint(0, len(step.edges))]
    return _with(workflow, _replace(step, edges=edges))


def _one_need_more(rng: Random, workflow: Workflow) -> Workflow:
    step, other = rng.choice(workflow.steps), rng.choice(workflow.steps)
    needs = (*(need for need in step.needs if need.of != other.name), Need(other.name))
    is_behind = other.name in Graph(workflow).region(step.name)
    return workflow if is_behind else _with(workflow, _replace(step, needs=needs))


_CHANGES = (_other_text, _other_limit, _fewer_remedies, _one_more, _one_less, _one_edge_less, _one_need_more)
