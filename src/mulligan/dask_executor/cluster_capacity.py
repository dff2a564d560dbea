"""Which Dask worker gets a task: each has capacity of its own, and a task runs on one of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from mulligan.core.effects.lease_rules import may_run_on
from mulligan.core.effects.tasks import Task, round_cpus
from mulligan.core.model.clusters.on_dask import LABEL
from mulligan.core.model.text.formatting import format_size, pluralize
from mulligan.ports import Offer
from mulligan.worker.slots.resource_pool import ResourcePool

# The resource of a Dask worker that counts its GPUs, in any case.
_GPU = "gpu"
# Tasks are sent ahead while they take less than this on average, so many for each processor.
SHORT_SECONDS = 0.05
AHEAD_PER_CPU = 8
_NEWEST_WEIGHT = 0.1
_EPSILON = 1e-9
TaskKey = tuple[int, str, int]


class Slots(msgspec.Struct, frozen=True):
    """What a Dask worker has."""

    cpus: float
    memory: int
    gpus: int = 0
    labels: tuple[str, ...] = ()


def slots_of(identity: Mapping[str, Any], memory: int) -> Slots:
    """What a Dask worker has, as its scheduler describes it; `memory` if it has no limit of its own.

    Its resources are its labels, but for GPUs; so is its name, if somebody gave it one.
    """
    resources = {str(name): amount for name, amount in (identity.get("resources") or {}).items()}
    gpus = sum(int(amount) for name, amount in resources.items() if name.lower() == _GPU)
    labels = [LABEL]
    labels += [name for name, amount in resources.items() if name.lower() != _GPU and amount > 0]
    name = identity.get("name")
    if isinstance(name, str) and "://" not in name:
        labels.append(name)
    return Slots(float(identity["nthreads"]), int(identity.get("memory_limit") or memory), gpus, tuple(labels))


class _Member:
    """One Dask worker: what is reserved, and what was sent ahead."""

    def __init__(self, slots: Slots, host: str) -> None:
        self.pool = ResourcePool(slots.cpus, slots.memory, slots.gpus, slots.labels)
        self.host = host
        self.ahead_max = int(slots.cpus * AHEAD_PER_CPU)
        # By key, the oldest first.
        self.ahead: dict[TaskKey, Task] = {}

    @property
    def free_cpus(self) -> float:
        return self.pool.offer("").cpus


class ClusterCapacity:
    """The Dask workers of a driver, by address, and what is reserved of them.

    `cpus_max`: how many processors may be used at once, all together; None for all.
    """

    def __init__(self, cpus_max: float | None = None) -> None:
        self._cpus_max = cpus_max
        self._members: dict[str, _Member] = {}
        # Where a task is: the address, and "" for one that waits for a Dask worker.
        self._place_of: dict[TaskKey, str] = {}
        self._cpus_reserved = 0.0
        self._average_seconds: float | None = None

    def add(self, address: str, slots: Slots, host: str) -> None:
        self._members[address] = _Member(slots, host)

    def remove(self, address: str) -> None:
        """The Dask worker is gone. Its tasks are released one by one, as their ends are reported."""
        self._members.pop(address, None)

    # -- what fits

    def can_ever_fit(self, task: Task) -> bool:
        """Whether one Dask worker is large enough. While there is none, nobody knows."""
        return not self._members or any(member.pool.can_ever_fit(task) for member in self._members.values())

    def missing_resources(self, task: Task) -> str:
        """What the task needs and no Dask worker has, in words."""
        pools = [member.pool for member in self._members.values()]
        if not pools:
            return "a Dask worker (there is none)"
        cpus, memory, gpus = (max(getattr(pool, name) for pool in pools) for name in ("cpus", "memory", "gpus"))
        parts = []
        if task.cpus > cpus + _EPSILON:
            parts.append(f"{task.cpus:g} cpus (the largest Dask worker has {cpus:g})")
        if (task.memory or 0) > memory:
            parts.append(
                f"{format_size(task.memory or 0)} of memory (the largest Dask worker has {format_size(memory)})"
            )
        if task.gpus > gpus:
            most = f"a Dask worker has at most {gpus}" if gpus else "no Dask worker has the resource GPU"
            parts.append(f"{pluralize(task.gpus, 'gpu')} ({most})")
        if task.nodes > 1:
            parts.append(f"{task.nodes} nodes (a Dask worker has one)")
        known = {label for pool in pools for label in pool.labels}
        parts += [
            f"label '{label}' (no Dask worker has this resource or name)" for label in task.labels if label not in known
        ]
        return ", ".join(parts) or "more than any single Dask worker has, although the cluster has each part of it"

    def fits(self, task: Task, now: datetime) -> bool:
        has_room = self._cpus_max is None or self._cpus_reserved + task.cpus <= self._cpus_max + _EPSILON
        return has_room and self._find(task, now) is not None

    def _find(self, task: Task, now: datetime) -> str | None:
        """The Dask worker that a task goes to: one with room now, otherwise one that may have it ahead."""
        candidates = self._candidates(task, now)
        fitting = [address for address in candidates if self._members[address].pool.fits(task)]
        if fitting:
            return min(fitting, key=lambda address: self._order(address, task))
        is_short = self._average_seconds is not None and self._average_seconds < SHORT_SECONDS
        if not is_short or not task.is_small or task.is_careful or task.waits or self._cpus_max is not None:
            return None
        waiting = [one for one in candidates if len(self._members[one].ahead) < self._members[one].ahead_max]
        return min(waiting, key=lambda one: len(self._members[one].ahead) / self._members[one].pool.cpus, default=None)

    def _candidates(self, task: Task, now: datetime) -> list[str]:
        """Those of the host that the task is bound to, if there are any; without the hosts that it avoids."""
        members = self._members
        if task.host:
            bound = [address for address, member in members.items() if member.host == task.host]
            if bound:
                return bound
        if task.avoids is None:
            return list(members)
        return [address for address, member in members.items() if may_run_on(task, member.host, now)]

    def _order(self, address: str, task: Task) -> tuple[bool, float]:
        """Spread tasks over the Dask workers; leave GPUs to those who ask for them."""
        member = self._members[address]
        return (member.pool.gpus > 0 and not task.gpus), -member.free_cpus

    def offer(self, host: str) -> Offer:
        """What the Dask worker with most free processors has: a task needs one worker that has it all."""
        offers = [member.pool.offer(host) for member in self._members.values()]
        best = max(offers, key=lambda offer: (offer.tasks_max, offer.memory), default=None)
        if best is None:
            return Offer(0.0, 0, 0, (), host=host, tasks_max=0)
        if self._cpus_max is None:
            return best
        cpus = max(0.0, min(best.cpus, round_cpus(self._cpus_max - self._cpus_reserved)))
        return msgspec.structs.replace(best, cpus=cpus, tasks_max=min(best.tasks_max, int(cpus + _EPSILON)))

    # -- what is reserved

    def reserve(self, task: Task, now: datetime) -> None:
        """Choose the Dask worker of a task. One that does not fit gets the place that is best for it, and waits."""
        self._cpus_reserved = round_cpus(self._cpus_reserved + task.cpus)
        self._place(task, now)

    def _place(self, task: Task, now: datetime) -> str:
        address = self._find(task, now)
        if address is None:
            large = [one for one, member in self._members.items() if member.pool.can_ever_fit(task)]
            address = min(large, key=lambda one: self._order(one, task), default="")
        self._place_of[_key(task)] = address
        member = self._members.get(address)
        if member is not None and member.pool.fits(task):
            member.pool.reserve(task)
        elif member is not None:
            member.ahead[_key(task)] = task
        return address

    def place_of(self, task: Task) -> str:
        """The address of the Dask worker that the task is for; "" if there is none yet."""
        return self._place_of.get(_key(task), "")

    def host_of(self, task: Task) -> str:
        member = self._members.get(self.place_of(task))
        return member.host if member is not None else ""

    def move(self, task: Task, now: datetime) -> str:
        """Choose again for a task that waits, or was given back. Return the address, or ""."""
        self._leave(task)
        return self._place(task, now)

    def release(self, task: Task) -> None:
        """Free the capacity of a task. One that was sent ahead to the same Dask worker takes its place."""
        self._cpus_reserved = max(0.0, round_cpus(self._cpus_reserved - task.cpus))
        self._leave(task)

    def _leave(self, task: Task) -> None:
        key = _key(task)
        member = self._members.get(self._place_of.pop(key, ""))
        if member is None:
            return
        if member.ahead.pop(key, None) is not None:
            return
        member.pool.release(task)
        for waiting_key, waiting in list(member.ahead.items()):
            if not member.pool.fits(waiting):
                break
            del member.ahead[waiting_key]
            member.pool.reserve(waiting)

    def misplaced(self) -> dict[str, list[Task]]:
        """The tasks that wait at one Dask worker while another has room for them, by address."""
        found: dict[str, list[Task]] = {}
        room = sum(int(member.free_cpus + _EPSILON) for member in self._members.values() if not member.ahead)
        for address, member in self._members.items():
            # The youngest first: the oldest is about to start where it is.
            for task in reversed(list(member.ahead.values())):
                if room < 1:
                    return found
                found.setdefault(address, []).append(task)
                room -= 1
        return found

    def record_duration(self, seconds: float) -> None:
        average = self._average_seconds
        self._average_seconds = seconds if average is None else average + (seconds - average) * _NEWEST_WEIGHT


def _key(task: Task) -> TaskKey:
    return task.run_id, task.place, task.attempt
