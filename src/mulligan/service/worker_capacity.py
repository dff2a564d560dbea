"""The workers that may run the tasks of a run: what they have, and what is in use."""

from __future__ import annotations

from collections import defaultdict

from mulligan.core.state.state import State
from mulligan.history.obstacles import RunningTask, WorkerCapacity, WorkerPool
from mulligan.ports import Store, WorkerRecord
from mulligan.service.home import Home
from mulligan.service.locks import Locks


def worker_pool_for(home: Home, store: Store, state: State) -> WorkerPool | None:
    """The workers that may take the run's tasks; None if no task waits for a worker.

    In a store that several hosts share, any worker may. Otherwise only the process that drives the run does.
    """
    if not any(place.status == "ready" for place in state.places.values()):
        return None
    if store.is_shared:
        return WorkerPool(capacities(home, store))
    holder = store.run(state.run.run_id).holder
    return WorkerPool(capacities(home, store, holder), no_worker="no process is driving the run")


def capacities(home: Home, store: Store, name: str | None = None) -> list[WorkerCapacity]:
    """Every registered worker that runs tasks, or only the one of that name. A process without cpus runs none."""
    locks = Locks(home, is_shared=store.is_shared)
    tasks: dict[str, list[RunningTask]] = defaultdict(list)
    for one in store.lists.leased():
        tasks[one.worker].append(RunningTask(one.run_id, one.place, one.cpus, one.memory, one.gpus))
    workers = (worker for worker in store.workers() if worker.cpus and name in (None, worker.name))
    return [_capacity(worker, tasks[worker.name], is_alive=locks.seems_alive(worker)) for worker in workers]


def _capacity(worker: WorkerRecord, tasks: list[RunningTask], *, is_alive: bool) -> WorkerCapacity:
    return WorkerCapacity(
        name=worker.name,
        host=worker.host,
        cpus=worker.cpus,
        memory=worker.memory,
        gpus=worker.gpus,
        labels=worker.labels,
        tasks=tuple(tasks) if is_alive else (),
        is_alive=is_alive,
    )
