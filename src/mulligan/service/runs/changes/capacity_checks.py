"""Steps that ask for more than there is: found before anything runs."""

from __future__ import annotations

from typing import Protocol

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.clusters.on_dask import wants_client
from mulligan.core.model.clusters.slurm_profile import profile_labels
from mulligan.core.model.workflow import Command, Step, Workflow, all_commands
from mulligan.errors import InputInvalid
from mulligan.service.driving.driver import Capacity
from mulligan.worker.slots.resource_pool import ResourcePool

THIS_MACHINE = "this machine"
_CLUSTER_HINT = "let the step ask for less, or start larger workers"
_HINT = "set the right numbers with the options, or let the step ask for less"


class Place(Protocol):
    """Where tasks run: an executor, or the resources of one worker."""

    def can_ever_fit(self, task: Task) -> bool: ...

    def missing_resources(self, task: Task) -> str: ...


class TooLarge(msgspec.Struct, frozen=True):
    """A step that no place can ever run, or several of a matrix. `is_certain`: it runs, and nothing answers that."""

    step: str
    text: str
    is_certain: bool


def too_large(workflow: Workflow, places: list[Place], where: str = THIS_MACHINE) -> list[TooLarge]:
    """The steps that no place can ever run; the steps of a matrix in one entry."""
    found: dict[tuple[str, str], list[Step]] = {}
    certain: set[str] = set()
    targets = {edge.to for step in workflow.steps for edge in step.edges}
    for step in workflow.steps:
        for command in all_commands((step,)):
            task = _task(step, command)
            if task is None or any(place.can_ever_fit(task) for place in places):
                continue
            found.setdefault((step.sweep or step.name, places[0].missing_resources(task)), []).append(step)
            if (command is step or command in step.do) and step.name not in targets and not _is_answered(step):
                certain.add(step.name)
    return [
        TooLarge(steps[0].name, _text(name, lacking, len(steps), where), any(one.name in certain for one in steps))
        for (name, lacking), steps in found.items()
    ]


def refuse_too_large(workflow: Workflow, place: Place, cluster: str = "") -> None:
    """Raise if a step that will run asks for more than there is, unless the workflow says what follows from that."""
    where, hint = (f"a worker of {cluster}", _CLUSTER_HINT) if cluster else (THIS_MACHINE, _HINT)
    certain = [one for one in too_large(workflow, [place], where) if one.is_certain]
    if certain:
        more = f"; and so do {len(certain) - 1} more" if len(certain) > 1 else ""
        raise InputInvalid(f"{certain[0].text}{more}", hint=hint)


def refuse_without_dask(workflow: Workflow) -> None:
    """Raise if a step needs a Dask cluster: this run has none."""
    for step in workflow.steps:
        if any(one.action is not None and wants_client(one.action.params) for one in all_commands((step,))):
            raise InputInvalid(
                f"step '{step.name}' says 'on: {{dask: true}}', and the run has no Dask cluster",
                hint="name one: mulligan run FILE --on dask://HOST:PORT",
            )


def refuse_no_processors(capacity: Capacity, *, is_shared: bool) -> None:
    """Raise if a process that runs no steps would drive a run whose steps no other process can run."""
    if not capacity.cpus and not is_shared:
        raise InputInvalid(
            "with --parallel 0 this process runs no steps, and no other process can: "
            "the store is a file of this machine",
            hint="name a store that workers share: MULLIGAN_STORE=postgresql://…",
        )


def notes(workflow: Workflow, capacity: Capacity) -> list[str]:
    """A sentence for each step that may be skipped or handled: `refuse_too_large` refuses the others."""
    found = too_large(workflow, pools([with_profiles(capacity, workflow)]))
    return [one.text for one in found if not one.is_certain]


def with_profiles(capacity: Capacity, workflow: Workflow) -> Capacity:
    """What this machine offers to a run of its own: also what the workflow leaves to pilots of its Slurm profiles."""
    return capacity.with_labels((*capacity.labels, *profile_labels(workflow.slurm)))


def pools(capacities: list[Capacity]) -> list[Place]:
    """Workers of these capacities."""
    return [
        ResourcePool(one.cpus, one.memory, one.gpus, one.labels, nodes=one.nodes, nodes_min=one.nodes_min)
        for one in capacities
    ]


def _text(name: str, lacking: str, count: int, where: str) -> str:
    who = f"step '{name}' asks" if count == 1 else f"{count} steps of '{name}' ask"
    return f"{who} for more than {where} can give: {lacking}"


def _is_answered(step: Step) -> bool:
    """Whether the step may be skipped, or its failure has consequences that the workflow names."""
    is_named = any("NO_CAPACITY" in rule.codes for rule in step.rules)
    is_handled = step.continue_on_error or step.on_failure is not None or step.triage is not None
    return is_named or is_handled or step.when is not None or bool(step.edges)


def _task(step: Step, command: Command) -> Task | None:
    """A task with only its resource needs; None if the command asks for nothing."""
    asked = command.resources
    if asked is None:
        return None
    return Task(
        run_id=0,
        place=step.name,
        attempt=1,
        kind="",
        params={},
        workflow="",
        version="",
        step=step.name,
        visit=1,
        cpus=1.0 if asked.cpus is None else asked.cpus,
        memory=asked.memory,
        gpus=asked.gpus or 0,
        labels=asked.labels,
        nodes=asked.nodes or 1,
    )
