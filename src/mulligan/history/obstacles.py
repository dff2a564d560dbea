"""Why no worker takes a queued task: what it asks for, compared with what the workers have and what is in use.

The store decides which worker gets a task; nothing is decided here. This names what is missing, and distinguishes a
task that has to wait for room from one that no worker that is up could ever run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import Literal

import msgspec

from mulligan.core.effects.tasks import Demand
from mulligan.core.model.event_types import AvoidedHosts
from mulligan.core.model.text.formatting import format_duration, format_size, quote_names

ObstacleKind = Literal["no_worker", "host", "label", "cpus", "memory", "gpus", "nodes", "time", "breaker", "parallel"]
_Kind = Literal["cpus", "memory", "gpus"]
_KINDS: tuple[_Kind, ...] = ("cpus", "memory", "gpus")
# How many of the tasks that use the resource are named.
HOLDERS_NAMED_MAX = 3
# Sums of shares such as 0.1 are never exact.
_EPSILON = 1e-9


class RunningTask(msgspec.Struct, frozen=True):
    """A task that a worker has taken, and the resources that it uses."""

    run_id: int
    place: str
    cpus: float = 1.0
    memory: int = 0
    gpus: int = 0


class WorkerCapacity(msgspec.Struct, frozen=True):
    """A registered worker: what it has, and the tasks that it has taken."""

    name: str
    host: str
    cpus: float
    memory: int = 0
    gpus: int = 0
    labels: tuple[str, ...] = ()
    tasks: tuple[RunningTask, ...] = ()
    # The most and the fewest nodes that a task of it may ask for.
    nodes: int = 1
    nodes_min: int = 1
    # How long it takes tasks; None if it has no end.
    seconds_left: float | None = None
    # Whether it responds. A worker that does not keeps the tasks of its host until its lease expires.
    is_alive: bool = True


class Obstacle(msgspec.Struct, frozen=True, omit_defaults=True):
    """One reason why a task is not taken: as text, and as data. Memory is in bytes, time in seconds."""

    kind: ObstacleKind
    text: str
    # No worker that is up could run the task even if it were idle.
    is_impossible: bool = False
    asked: float | None = None
    # The most that one worker has in total, and the most that one worker has free now.
    largest: float | None = None
    free: float | None = None
    # Labels that no worker has, or that no worker has together.
    labels: list[str] = []
    host: str = ""
    breaker: str = ""
    # When the obstacle ends by itself.
    until: datetime | None = None
    # The first tasks that use the resource, and the number of all of them.
    used_by: list[RunningTask] = []
    used_by_count: int = 0


class WorkerPool:
    """The workers that may run the tasks of a run. Equal demands of many tasks are examined once."""

    def __init__(self, workers: Sequence[WorkerCapacity], no_worker: str = "no worker is up") -> None:
        self.workers = tuple(workers)
        # The text of the obstacle if there is no worker.
        self._no_worker = no_worker
        self._answers: dict[Demand, tuple[Obstacle, ...]] = {}

    @cached_property
    def _alive(self) -> list[WorkerCapacity]:
        return [worker for worker in self.workers if worker.is_alive]

    def obstacles(self, demand: Demand) -> tuple[Obstacle, ...]:
        """What keeps a task with this demand in the queue; nothing if a worker has room for it."""
        if demand not in self._answers:
            self._answers[demand] = tuple(self._find(demand))
        return self._answers[demand]

    def _find(self, demand: Demand) -> Iterator[Obstacle]:
        if not self._alive:
            yield Obstacle("no_worker", self._no_worker)
            return
        bound = [worker for worker in self.workers if worker.host == demand.host] if demand.host else []
        able = [worker for worker in bound if worker.is_alive] if bound else self._alive
        if not able:
            text = f"it must run on host '{demand.host}', and the worker there does not respond"
            yield Obstacle("host", text, host=demand.host)
            return
        if demand.avoids is not None and not bound:
            others = [worker for worker in able if worker.host not in demand.avoids.hosts]
            if not others:
                yield _no_other_host(demand.avoids)
                return
            able = others
        where = f" on host '{demand.host}'" if bound else ""
        labelled = [worker for worker in able if set(demand.labels) <= set(worker.labels)]
        if not labelled:
            yield from _find_missing_labels(demand, able, where)
            return
        spread = [worker for worker in labelled if worker.nodes_min <= demand.nodes <= worker.nodes]
        if not spread:
            yield _no_nodes(demand, labelled, where)
            return
        labelled = spread
        large = [worker for worker in labelled if _is_large_enough(worker, demand)]
        if not large:
            yield from _find_too_small(demand, labelled, where)
            return
        lasting = [worker for worker in large if _lasts(worker, demand)]
        if not lasting:
            yield _too_little_time(demand, large, where)
        elif not any(_has_room(worker, demand) for worker in lasting):
            yield from _find_busy(demand, lasting, where)
        elif demand.nodes > 1 and all(worker.tasks for worker in lasting):
            text = f"it asks for {demand.nodes} nodes for itself, and the workers that have them run other tasks"
            users = [task for worker in lasting for task in worker.tasks]
            yield Obstacle(
                "nodes", text, asked=demand.nodes, used_by=users[:HOLDERS_NAMED_MAX], used_by_count=len(users)
            )


def _no_nodes(demand: Demand, workers: Sequence[WorkerCapacity], where: str) -> Obstacle:
    largest = max(worker.nodes for worker in workers)
    if demand.nodes == 1:
        text = f"every worker{where} is for steps that ask for several nodes"
    else:
        text = f"it asks for {demand.nodes} nodes, and the largest allocation of a worker{where} has {largest}"
    return Obstacle("nodes", text, is_impossible=True, asked=demand.nodes, largest=largest)


def _no_other_host(avoids: AvoidedHosts) -> Obstacle:
    hosts = f"{'host' if len(avoids.hosts) == 1 else 'hosts'} {quote_names(avoids.hosts)}"
    text = f"it failed on {hosts}, and no other host has a worker; after a minute any host may run it"
    return Obstacle("host", text, host=avoids.hosts[-1], until=avoids.until)


def _lasts(worker: WorkerCapacity, demand: Demand) -> bool:
    return worker.seconds_left is None or max(demand.timeout, demand.seconds_min) <= worker.seconds_left


def _too_little_time(demand: Demand, workers: Sequence[WorkerCapacity], where: str) -> Obstacle:
    """The obstacle if all workers end too soon. `Demand` says whether the task may take so long, or has shown it."""
    longest = max(worker.seconds_left or 0.0 for worker in workers)
    asked = max(demand.timeout, demand.seconds_min)
    if demand.timeout >= demand.seconds_min:
        why = f"it may take {format_duration(asked)} (its timeout)"
    else:
        why = f"it needs a worker with {format_duration(math.ceil(asked))} left, since others have ended before it"
    text = f"{why}, and the longest that a worker{where} has left is {format_duration(math.floor(longest))}"
    return Obstacle("time", text, is_impossible=True, asked=asked, largest=longest)


def _find_missing_labels(demand: Demand, workers: Sequence[WorkerCapacity], where: str) -> Iterator[Obstacle]:
    known = {label for worker in workers for label in worker.labels}
    missing = [label for label in demand.labels if label not in known]
    for label in missing:
        yield Obstacle("label", f"no worker{where} has label '{label}'", is_impossible=True, labels=[label])
    if not missing:
        text = f"no worker{where} has labels {quote_names(demand.labels, len(demand.labels))} together"
        yield Obstacle("label", text, is_impossible=True, labels=[*demand.labels])


def _find_too_small(demand: Demand, workers: Sequence[WorkerCapacity], where: str) -> Iterator[Obstacle]:
    """The resources of which no worker has enough; otherwise those that no worker has together."""
    labelled = (
        f" with label{'s' if len(demand.labels) > 1 else ''} {quote_names(demand.labels)}" if demand.labels else ""
    )
    found = list(_find_lacking(demand, workers, f"{labelled}{where}"))
    if found:
        yield from found
        return
    together = " and ".join(_amount(kind, asked) for kind, asked in _requested(demand))
    kind, asked = next(_requested(demand))
    text = f"no worker{labelled}{where} has {together} together"
    largest = max(getattr(worker, kind) for worker in workers)
    yield Obstacle(kind, text, is_impossible=True, asked=asked, largest=largest)


def _find_lacking(demand: Demand, workers: Sequence[WorkerCapacity], where: str) -> Iterator[Obstacle]:
    for kind, asked in _requested(demand):
        largest = max(getattr(worker, kind) for worker in workers)
        if largest + _EPSILON < asked:
            has = "has none" if not largest else f"has {_number(kind, largest)}"
            text = f"it asks for {_amount(kind, asked)}, and the largest worker{where} {has}"
            yield Obstacle(kind, text, is_impossible=True, asked=asked, largest=largest)


def _find_busy(demand: Demand, workers: Sequence[WorkerCapacity], where: str) -> Iterator[Obstacle]:
    """The resources that no worker has free now; if each worker lacks another one, all of them."""
    short = {
        kind: [worker for worker in workers if _free(worker, kind) + _EPSILON < asked]
        for kind, asked in _requested(demand)
    }
    whole = {kind for kind, found in short.items() if len(found) == len(workers)}
    for kind, asked in _requested(demand):
        if short[kind] and (kind in whole or not whole):
            yield _in_use(kind, asked, short[kind], where)


def _in_use(kind: _Kind, asked: float, workers: Sequence[WorkerCapacity], where: str) -> Obstacle:
    total = sum(getattr(worker, kind) for worker in workers)
    # Short tasks are taken before there is room for them.
    used = sum(getattr(worker, kind) - max(0, _free(worker, kind)) for worker in workers)
    users = [task for worker in workers for task in worker.tasks if getattr(task, kind)]
    named = ", ".join(f"run {task.run_id} '{task.place}'" for task in users[:HOLDERS_NAMED_MAX])
    more = f" and {len(users) - HOLDERS_NAMED_MAX} more" if len(users) > HOLDERS_NAMED_MAX else ""
    among = f" on {len(workers)} workers" if len(workers) > 1 else ""
    verb = "is" if kind == "memory" or used == 1 else "are"
    text = (
        f"it asks for {_amount(kind, asked)}, and {_number(kind, used)} of {_number(kind, total)}{among}{where} "
        f"{verb} in use by {named}{more}"
    )
    free = max(0, max(_free(worker, kind) for worker in workers))
    largest = max(getattr(worker, kind) for worker in workers)
    return Obstacle(
        kind,
        text,
        asked=asked,
        largest=largest,
        free=free,
        used_by=users[:HOLDERS_NAMED_MAX],
        used_by_count=len(users),
    )


# -- amounts ---------------------------------------------------------------------------------------------------------


def _requested(demand: Demand) -> Iterator[tuple[_Kind, float]]:
    return ((kind, asked) for kind in _KINDS if (asked := getattr(demand, kind)))


def _is_large_enough(worker: WorkerCapacity, demand: Demand) -> bool:
    return all(getattr(worker, kind) + _EPSILON >= asked for kind, asked in _requested(demand))


def _has_room(worker: WorkerCapacity, demand: Demand) -> bool:
    return all(_free(worker, kind) + _EPSILON >= asked for kind, asked in _requested(demand))


def _free(worker: WorkerCapacity, kind: _Kind) -> float:
    total, taken = getattr(worker, kind), sum(getattr(task, kind) for task in worker.tasks)
    return float(total - taken)


def _amount(kind: _Kind, number: float) -> str:
    """`2 cpus`, `64.0GiB of memory`, `1 gpu`."""
    if kind == "memory":
        return f"{format_size(number)} of memory"
    return f"{number:g} {kind if number != 1 else kind[:-1]}"


def _number(kind: _Kind, number: float) -> str:
    return format_size(number) if kind == "memory" else f"{number:g}"
