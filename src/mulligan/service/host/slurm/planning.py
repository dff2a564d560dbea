"""Which pilots to submit: pure. What the queue asks for and what there is go in, submissions come out.

Pilots that have no worker yet will take tasks, so their room counts against the demand. A worker that is up takes what
fits at once: a task that is still queued does not fit there now.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from mulligan.core.effects.run_lists import QueuedShape
from mulligan.core.model.clusters.slurm_profile import SlurmProfile
from mulligan.core.model.text.formatting import format_duration
from mulligan.service.host.slurm.pilots import MARGIN_SECONDS_MAX, MARGIN_SECONDS_MIN, PilotSize, mebibytes
from mulligan.worker.slots.allocation import MIB

# Sums of fractions such as 0.1 are not exact.
_EPSILON = 1e-9
# What a pilot has if its profile does not say it.
_CPUS_DEFAULT = 1
# The worker shares the memory of its job with the tasks. It takes about 31 MiB, and more when it reports large outputs.
WORKER_MEMORY = 64 * MIB


class Supply(msgspec.Struct, frozen=True):
    """An active pilot. `is_open`: its worker has not joined yet, so all of its room will be there."""

    profile: str
    size: PilotSize
    is_open: bool


class Submission(msgspec.Struct, frozen=True):
    """Equal pilots to be submitted together, and the shapes that they are for."""

    profile: str
    size: PilotSize
    count: int
    shapes: tuple[QueuedShape, ...]


class Unmet(msgspec.Struct, frozen=True):
    """Tasks for which no profile has pilots, and why."""

    shape: QueuedShape
    reason: str


class Plan(msgspec.Struct, frozen=True):
    submissions: tuple[Submission, ...] = ()
    unmet: tuple[Unmet, ...] = ()


class _Room:
    """What a pilot has left while tasks are assigned to it."""

    def __init__(self, profile: SlurmProfile, size: PilotSize) -> None:
        self._cpus = float(size.cpus or _CPUS_DEFAULT)
        self._memory = (size.memory or 0) * MIB
        self._gpus = size.gpus
        self._tasks: float = math.inf if profile.tasks is None else profile.tasks

    def put(self, shape: QueuedShape, count: int) -> int:
        """Assign up to so many tasks of the shape; how many fit."""
        if shape.nodes > 1:
            # It has the worker for itself.
            is_free, self._tasks = self._tasks > 0, 0
            return int(is_free)
        fits = min(
            float(count),
            self._tasks,
            math.floor(self._cpus / shape.cpus + _EPSILON) if shape.cpus else math.inf,
            self._memory // shape.memory if shape.memory else math.inf,
            self._gpus // shape.gpus if shape.gpus else math.inf,
        )
        taken = int(fits)
        self._tasks -= taken
        self._cpus -= taken * shape.cpus
        self._memory -= taken * shape.memory
        self._gpus -= taken * shape.gpus
        return taken


def plan(
    profiles: Mapping[str, SlurmProfile],
    demand: Sequence[QueuedShape],
    supply: Iterable[Supply],
    *,
    pilots_max: int,
    limits: Mapping[str, int] | None = None,
    refused: Collection[tuple[str, PilotSize]] = (),
) -> Plan:
    """The submissions that the demand asks for. With them there are never more than `pilots_max` pilots.

    `limits`: how many active pilots a profile may have at most, if fewer. `refused`: what Slurm does not take.
    """
    active = list(supply)
    usable = {name: one for name, one in profiles.items() if (limits or {}).get(name) != 0}
    counts = dict.fromkeys(profiles, 0)
    for one in active:
        counts[one.profile] = counts.get(one.profile, 0) + 1
    total = len(active)
    # By profile and size. Tasks count only against pilots of the kind that would be submitted for them: so another look
    # at the same queue assigns them in the same way, and submits nothing more.
    rooms: dict[tuple[str, PilotSize], list[_Room]] = {}
    for one in active:
        if one.is_open and one.profile in profiles:
            rooms.setdefault((one.profile, one.size), []).append(_Room(profiles[one.profile], one.size))
    new: dict[tuple[str, PilotSize], tuple[int, list[QueuedShape]]] = {}
    unmet: list[Unmet] = []
    for shape in demand:
        found = choose(usable, shape, refused)
        if found is None:
            if choose(profiles, shape, refused) is None:
                unmet.append(Unmet(shape, why_none(profiles, shape, refused)))
            continue
        left, kind = shape.count, rooms.setdefault(found, [])
        for room in kind:
            if left > 0:
                left -= room.put(shape, left)
        name, size = found
        most = min(pilots_max - total, (limits or {}).get(name, pilots_max) - counts[name])
        while left > 0 and most > 0:
            kind.append(_Room(profiles[name], size))
            left, most, total = left - kind[-1].put(shape, left), most - 1, total + 1
            counts[name] += 1
            count, shapes = new.get(found, (0, []))
            new[found] = (count + 1, shapes if shape in shapes else [*shapes, shape])
    return Plan(
        tuple(Submission(name, size, count, tuple(shapes)) for (name, size), (count, shapes) in new.items()),
        tuple(unmet),
    )


def choose(
    profiles: Mapping[str, SlurmProfile], shape: QueuedShape, refused: Collection[tuple[str, PilotSize]] = ()
) -> tuple[str, PilotSize] | None:
    """The profile whose pilots take such tasks and have the least beside what they need, and the size of a pilot."""
    found = [
        ((_extra(profile, shape), place), (name, size))
        for place, (name, profile) in enumerate(profiles.items())
        if is_meant_for(profile, shape)
        and suits(profile, shape)
        and _covers(size := size_for(profile, shape), shape)
        and (name, size) not in refused
    ]
    return min(found)[1] if found else None


def unmet(profiles: Mapping[str, SlurmProfile], demand: Iterable[QueuedShape]) -> list[Unmet]:
    """What no profile has pilots for, as far as that is known without asking Slurm."""
    return [Unmet(shape, why_none(profiles, shape)) for shape in demand if choose(profiles, shape) is None]


def suits(profile: SlurmProfile, shape: QueuedShape) -> bool:
    """Whether the workers of the profile may take such tasks, whatever their size: by labels, nodes and time."""
    if not set(shape.labels) <= set(profile.labels):
        return False
    if not _has_nodes(profile, shape):
        return False
    return shape.timeout is None or profile.walltime is None or shape.timeout <= usable_seconds(profile.walltime)


def is_meant_for(profile: SlurmProfile, shape: QueuedShape) -> bool:
    """Whether pilots of the profile are submitted for such tasks: not if it has labels, and they ask for none of them.

    Once they are up they take other tasks as well, as every worker does.
    """
    return not profile.labels or not set(profile.labels).isdisjoint(shape.labels)


def usable_seconds(walltime: float) -> float:
    """How long the worker of a pilot runs at most: it ends before its job."""
    return walltime - min(max(walltime / 10, MARGIN_SECONDS_MIN), MARGIN_SECONDS_MAX)


def size_for(profile: SlurmProfile, shape: QueuedShape) -> PilotSize:
    """What a pilot for such tasks asks for: what the profile says, and otherwise what one task and the worker need."""
    memory = profile.memory or (shape.memory + WORKER_MEMORY if shape.memory else 0)
    return PilotSize(
        cpus=profile.cpus or max(1, math.ceil(shape.cpus - _EPSILON)),
        memory=mebibytes(memory) if memory else None,
        gpus=profile.gpus or shape.gpus,
        nodes=profile.nodes if profile.nodes > 1 else shape.nodes,
    )


def why_none(
    profiles: Mapping[str, SlurmProfile], shape: QueuedShape, refused: Collection[tuple[str, PilotSize]] = ()
) -> str:
    """Why no profile has pilots for such tasks."""
    if missing := sorted(set(shape.labels) - {label for one in profiles.values() for label in one.labels}):
        names = ", ".join(f"'{label}'" for label in missing)
        return f"no profile has {'label' if len(missing) == 1 else 'labels'} {names}"
    labelled = [one for one in profiles.values() if set(shape.labels) <= set(one.labels)]
    if not labelled:
        return "no profile has all of their labels"
    labelled = [one for one in labelled if is_meant_for(one, shape)]
    if not labelled:
        return "every profile has labels, and they ask for none"
    labelled = [one for one in labelled if _has_nodes(one, shape)]
    if not labelled:
        return "no profile has such a number of nodes"
    if not any(suits(one, shape) for one in labelled):
        longest = max(usable_seconds(one.walltime) for one in labelled if one.walltime is not None)
        return (
            f"their timeout is {format_duration(shape.timeout or 0)}, and the longest pilot has "
            f"{format_duration(longest)} for tasks: write a longer walltime, or a shorter timeout"
        )
    if any((name, size_for(one, shape)) in refused for name, one in profiles.items()):
        return "Slurm does not take pilots of this size"
    return "they ask for more than the pilots of any profile have"


def can_take(shape: QueuedShape, *, cpus: float, memory: int, gpus: int, nodes: int, labels: Collection[str]) -> bool:
    """Whether a worker with all of this could ever run such a task."""
    return (
        shape.cpus <= cpus + _EPSILON
        and shape.memory <= memory
        and shape.gpus <= gpus
        and shape.nodes <= nodes
        and set(shape.labels) <= set(labels)
    )


def _covers(size: PilotSize, shape: QueuedShape) -> bool:
    return (
        shape.cpus <= (size.cpus or _CPUS_DEFAULT) + _EPSILON
        and shape.memory <= (size.memory or 0) * MIB
        and shape.gpus <= size.gpus
    )


def _has_nodes(profile: SlurmProfile, shape: QueuedShape) -> bool:
    """Whether a pilot may have as many as the tasks ask for. One of several nodes is for tasks that ask for several."""
    return profile.nodes == 1 or 1 < shape.nodes <= profile.nodes


def _extra(profile: SlurmProfile, shape: QueuedShape) -> tuple[int, int, int]:
    """What the pilots of a profile have and such tasks do not ask for."""
    return (
        len(set(profile.labels) - set(shape.labels)),
        max(0, profile.gpus - shape.gpus),
        max(0, profile.nodes - shape.nodes),
    )
