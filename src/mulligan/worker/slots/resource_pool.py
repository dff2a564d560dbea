"""The resources of a worker (cpus, memory, gpus, labels, nodes), and how much of them is reserved."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from mulligan.core.effects.lease_rules import has_nodes_for, held_max, may_be_held
from mulligan.core.effects.tasks import Task, round_cpus
from mulligan.core.model.actions import WAITING_CPUS, traits
from mulligan.core.model.text.formatting import format_size, pluralize
from mulligan.ports import Lease, Offer

# The GPUs that a process may use, by number or name. CUDA and HIP read it.
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"

# Sums of fractions such as 0.1 are not exact.
_EPSILON = 1e-9
# Tasks that were not leased ahead are prefetched while they take less than this on average.
_SHORT_SECONDS = 0.05
_NEWEST_WEIGHT = 0.1
# The share of the processors that waiting tasks have together, and the most that one of them counts.
_WAITING_SHARE = 0.5
_WAITING_CPUS_MAX = 0.5
# The memory of the processes of waiting tasks that ask for one processor together: of ten requests, or four agents.
_WAITING_BYTES_PER_CPU = 640 << 20


class ResourcePool:
    """Count reservations. A task is counted from its reservation until its end is reported.

    Tasks that wait for another machine ask for little, and have at most half of the processors: others do not have to
    wait for thousands of them. With `counts_waiting` each counts as a whole processor, as any task does: the user has
    said how many tasks run at once.
    """

    def __init__(
        self,
        cpus: float,
        memory: int,
        gpus: int,
        labels: tuple[str, ...],
        environ: Mapping[str, str] | None = None,
        *,
        counts_waiting: bool = False,
        more_labels: Callable[[], tuple[str, ...]] = tuple,
        nodes: int = 1,
        nodes_min: int = 1,
        is_for_one: bool = False,
    ) -> None:
        self.cpus = cpus
        # Each task has the whole of it: one at a time.
        self._is_for_one = is_for_one
        # The nodes of its allocation. A task that asks for several has the whole worker.
        self.nodes, self.nodes_min = nodes, nodes_min
        self.tasks_reserved = 0
        self._is_taken_whole = False
        # What a waiting task counts for each processor that it asks for: more if there is little memory.
        self._waiting_factor = max(1.0, cpus * _WAITING_BYTES_PER_CPU / memory) if memory else math.inf
        self._counts_waiting = counts_waiting
        self._waiting_max = cpus if counts_waiting else max(1.0, cpus * _WAITING_SHARE)
        # Fewer than two processors have no half to leave to others: waiting tasks and others do not count together.
        self._counts_apart = not counts_waiting and cpus < self._waiting_max + 1
        self._waiting_reserved = 0.0
        self.memory = memory
        self.gpus = gpus
        self._labels = labels
        self._more_labels = more_labels
        self._cpus_reserved = 0.0
        self._memory_reserved = 0
        self._gpus_reserved = 0
        self._gpu_names = _gpu_names(gpus, environ or {})
        self._gpus_of: dict[tuple[int, str, int], list[str]] = {}

    @property
    def labels(self) -> tuple[str, ...]:
        """Its labels: those that it was given, and those that were added since."""
        return self._labels + self._more_labels()

    def can_ever_fit(self, task: Task) -> bool:
        return (
            task.cpus <= self.cpus + _EPSILON
            and (task.memory or 0) <= self.memory
            and task.gpus <= self.gpus
            and (not task.labels or set(task.labels) <= set(self.labels))
            and (
                task.nodes == self.nodes_min == 1 or has_nodes_for(task.nodes, self.nodes, self.nodes_min, is_idle=True)
            )
        )

    def missing_resources(self, task: Task) -> str:
        """Describe what it needs and is missing, and the option that replaces what there is.

        For example `64 cpus (there are 2; --parallel 64 allows it), 1 gpu (there is none; --gpus 1 allows it)`.
        """
        parts, memory = [], task.memory or 0
        if task.cpus > self.cpus + _EPSILON:
            there = _availability(self.cpus, f"{self.cpus:g}")
            parts.append(f"{task.cpus:g} cpus ({there}; --parallel {math.ceil(task.cpus)} allows it)")
        if memory > self.memory:
            there = f"there is {format_size(self.memory)}; --memory {_size_option(memory)} allows it"
            parts.append(f"{format_size(memory)} of memory ({there})")
        if task.gpus > self.gpus:
            there = _availability(self.gpus, str(self.gpus))
            parts.append(f"{pluralize(task.gpus, 'gpu')} ({there}; --gpus {task.gpus} allows it)")
        if task.nodes > self.nodes:
            there = _availability(self.nodes, str(self.nodes))
            parts.append(f"{task.nodes} nodes ({there}; a Slurm job with --nodes {task.nodes} has them)")
        absent = (label for label in task.labels if label not in self.labels)
        parts += [f"label '{label}' (it has none; a worker with --labels {label} has it)" for label in absent]
        return ", ".join(parts)

    def fits(self, task: Task) -> bool:
        is_apart = task.waits and self._counts_apart
        cpus = self._cpus_of(task) if task.waits else task.cpus
        # Asked for each task: nearly always the whole answer.
        has_cpus = is_apart or cpus <= self.cpus - self._cpus_reserved + _EPSILON or cpus <= self._free_cpus + _EPSILON
        return (
            has_cpus
            and (not task.waits or self._waiting_reserved + cpus <= self._waiting_max + _EPSILON)
            and self._memory_reserved + (task.memory or 0) <= self.memory
            and self._gpus_reserved + task.gpus <= self.gpus
            and (not task.labels or set(task.labels) <= set(self.labels))
            and not self._is_taken_whole
            and (
                task.nodes == self.nodes_min == 1
                or has_nodes_for(task.nodes, self.nodes, self.nodes_min, is_idle=not self.tasks_reserved)
            )
        )

    def reserve(self, task: Task) -> None:
        self._add(task, 1)
        if task.gpus:
            taken = {name for names in self._gpus_of.values() for name in names}
            self._gpus_of[_key(task)] = [name for name in self._gpu_names if name not in taken][: task.gpus]

    def release(self, task: Task) -> None:
        self._add(task, -1)
        if task.gpus:
            del self._gpus_of[_key(task)]

    def assign_gpus(self, lease: Lease) -> Lease:
        """Return the lease with the task's GPUs in its environment, unless the step sets the variable itself."""
        task = lease.task
        if not task.gpus:
            return lease
        names = ",".join(self._gpus_of[_key(task)])
        return replace(lease, task=replace(task, env={VISIBLE_GPUS: names, **task.env}))

    def offer(self, host: str) -> Offer:
        cpus = max(0.0, self._free_cpus)
        memory = max(0, self.memory - self._memory_reserved)
        gpus = max(0, self.gpus - self._gpus_reserved)
        has_room = self._waiting_reserved < self._waiting_max - _EPSILON
        if has_room and self._counts_apart:
            cpus = max(cpus, min(max(WAITING_CPUS), self._waiting_max - self._waiting_reserved))
        # The store compares exactly: what `fits` lets pass must be offered.
        cpus = round_cpus(cpus)
        return Offer(
            cpus,
            memory,
            gpus,
            self.labels,
            host=host,
            tasks_max=0 if self._is_taken_whole else 1 if self._is_for_one else math.ceil(cpus - _EPSILON),
            refused_cpus=() if has_room or self._counts_waiting else WAITING_CPUS,
            nodes=1 if self.tasks_reserved else self.nodes,
            nodes_min=self.nodes_min,
        )

    @property
    def _free_cpus(self) -> float:
        return self.cpus - self._cpus_reserved + (self._waiting_reserved if self._counts_apart else 0.0)

    def _cpus_of(self, task: Task) -> float:
        if not task.waits:
            return task.cpus
        return 1.0 if self._counts_waiting else min(_WAITING_CPUS_MAX, task.cpus * self._waiting_factor)

    def _add(self, task: Task, sign: int) -> None:
        # Shares of processors add up to a little more or less: it must not stay, or a task for all of them never fits.
        cpus = sign * (self._cpus_of(task) if task.waits else task.cpus)
        total = self._cpus_reserved + cpus
        self._cpus_reserved = total if total.is_integer() else round_cpus(total)
        if task.waits:
            self._waiting_reserved = round_cpus(self._waiting_reserved + cpus)
        self._memory_reserved += sign * (task.memory or 0)
        self._gpus_reserved += sign * task.gpus
        self.tasks_reserved += sign
        if not self.tasks_reserved:
            self._cpus_reserved = self._waiting_reserved = 0.0
        if task.nodes > 1 or self._is_for_one:
            self._is_taken_whole = sign > 0


def visible_gpus(environ: Mapping[str, str], devices: str | Path = "/dev") -> int:
    """Return how many GPUs this process may use: those that the variable names, otherwise those of the system."""
    if VISIBLE_GPUS in environ:
        return len(_parse_gpu_names(environ[VISIBLE_GPUS]))
    names = os.listdir(devices) if os.path.isdir(devices) else []
    return sum(name.startswith("nvidia") and name[6:].isdigit() for name in names)


def _gpu_names(count: int, environ: Mapping[str, str]) -> list[str]:
    """Return the names of the worker's GPUs: from its environment, otherwise numbers."""
    named = _parse_gpu_names(environ.get(VISIBLE_GPUS, ""))
    return named[:count] if len(named) >= count else [str(number) for number in range(count)]


def _parse_gpu_names(text: str) -> list[str]:
    """Parse as CUDA does: stop at the first name that is not valid, such as -1 or `NoDevFiles`."""
    parts: list[str] = []
    for name in (part.strip() for part in text.split(",")):
        if not (name.isdigit() or name.startswith(("GPU-", "MIG-"))):
            break
        parts.append(name)
    return parts


class Prefetch:
    """Tasks taken beyond the free resources, so that a slot never waits for a commit: only while tasks are short.

    A task that is held must fit in the slot of any task that ends. With `is_ahead` also Python tasks, and tasks that
    take longer: a store on a server takes longer to answer.
    """

    def __init__(self, slots: int, tasks_max: int | None = None, *, is_ahead: bool = False) -> None:
        self._slots = slots
        self._limit = math.inf if tasks_max is None else tasks_max
        self._is_ahead = is_ahead
        self._average_seconds: float | None = None
        self.reserved: set[tuple[int, str, int]] = set()

    def fits(self, task: Task) -> bool:
        """Whether a task may be taken that nobody else has been offered: only a short one, which is over soon."""
        return self.has_room(task) and (self._average_seconds or 0.0) < _SHORT_SECONDS

    def has_room(self, task: Task) -> bool:
        action = traits(task.kind, task.params)
        is_held = action.is_short and (self._is_ahead or action.runs_in == "process")
        return is_held and may_be_held(task) and len(self.reserved) < self._tasks_max

    @property
    def room_ahead(self) -> int:
        """How many tasks to ask for: some at a time, since each question costs as much as several short tasks."""
        tasks_max = self._tasks_max if self._is_ahead else 0
        has_many = len(self.reserved) > tasks_max / 2
        return 0 if has_many else tasks_max - len(self.reserved)

    @property
    def _tasks_max(self) -> int:
        average = self._average_seconds
        if not self._is_ahead and average is not None and average >= _SHORT_SECONDS:
            return 0
        return int(min(self._limit, held_max(self._slots, average)))

    def reserve(self, task: Task) -> None:
        self.reserved.add(_key(task))

    def release(self, task: Task) -> bool:
        """Return whether it was reserved here, and forget it."""
        if (key := _key(task)) not in self.reserved:
            return False
        self.reserved.remove(key)
        return True

    def contains(self, task: Task) -> bool:
        return _key(task) in self.reserved

    def record_duration(self, seconds: float) -> None:
        average = self._average_seconds
        self._average_seconds = seconds if average is None else average + (seconds - average) * _NEWEST_WEIGHT

    def record_overdue(self, seconds: float) -> None:
        """Note that no slot became free for so long: the average says nothing about tasks that have not ended.

        Until several short ones have ended none is held. Otherwise the same ones would be leased again, and given back.
        """
        self._average_seconds = max(seconds, self._average_seconds or 0.0)


def _size_option(bytes_: int) -> str:
    """A size that is at least as large, as an option takes it."""
    gibibytes, rest = divmod(bytes_, 1 << 30)
    return f"{math.ceil(bytes_ / (1 << 20))}MiB" if rest else f"{gibibytes}GiB"


def _availability(number: float, shown: str) -> str:
    return "there is none" if number == 0 else f"there {'is' if number == 1 else 'are'} {shown}"


def _key(task: Task) -> tuple[int, str, int]:
    return task.run_id, task.place, task.attempt
