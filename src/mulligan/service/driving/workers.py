"""The workers of a store: what each can take and runs now, and which of them may take the tasks of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from mulligan.core.effects.run_lists import LeasedTask
from mulligan.core.model.clusters.scheduler_job import WorkerJob
from mulligan.core.state.state import State
from mulligan.history.obstacles import RunningTask, WorkerCapacity, WorkerPool
from mulligan.ports import Store, WorkerRecord
from mulligan.service.driving.locks import Locks
from mulligan.service.home import Home
from mulligan.service.runs.stored.run_reader import RunReader, StoredPlaceNames


class WorkerTask(msgspec.Struct, frozen=True):
    """A task that a worker runs now."""

    run_id: int
    workflow: str
    step: str
    # The display name of the step: `load[west]` for an item of a map.
    name: str
    attempt: int
    cpus: float
    memory: int
    gpus: int
    since: datetime | None
    seconds: float | None


class Resources(msgspec.Struct, frozen=True):
    cpus: float = 0.0
    memory: int = 0
    gpus: int = 0


class WorkerLine(msgspec.Struct, frozen=True):
    """A worker in the list. A dead worker is listed until another one takes over its tasks."""

    name: str
    host: str
    pid: int
    is_alive: bool
    # None for a worker of an older version.
    started_at: datetime | None
    # Its last heartbeat; in a store of one machine, where its lock shows that it is alive, the current time.
    last_contact: datetime | None
    capacity: Resources
    labels: list[str]
    # What its tasks have reserved.
    in_use: Resources
    # How many runs it drives, and the oldest of them.
    runs: int
    first_run_id: int | None
    tasks: list[WorkerTask]
    # When its time for tasks is over; None if it has no end.
    ends_at: datetime | None = None
    # The job of a scheduler in which it runs.
    job: WorkerJob | None = None
    # What is wrong with its machine, so that it takes no tasks; "" if nothing is.
    trouble: str = ""

    @property
    def runs_tasks(self) -> bool:
        """Whether it runs tasks: a command that changes a run is a worker for a moment and runs none."""
        return self.capacity.cpus > 0

    @property
    def job_text(self) -> str:
        """`Slurm job 17 on node n3, profile long`: the job of a scheduler in which it runs; "" for none."""
        if self.job is None:
            return ""
        return f"{self.job}{f', profile {self.job.profile}' if self.job.profile else ''}"


def list_workers(reader: RunReader) -> list[WorkerLine]:
    """Every worker that the store knows: what it can take, what is in use, and what it runs now."""
    return worker_lines(reader.store, reader.is_alive, datetime.now(UTC)) if reader.home.is_there else []


def worker_lines(store: Store, is_alive: Callable[[WorkerRecord], bool], now: datetime) -> list[WorkerLine]:
    """The workers by name. Times are by the clock of the store, if it has one."""
    now = store.now() or now
    names, tasks = StoredPlaceNames(store), _tasks_by_worker(store)
    runs = {name: (count, run_id) for name, count, run_id in store.lists.holders()}

    def line(worker: WorkerRecord) -> WorkerLine:
        is_up, own = is_alive(worker), tasks[worker.name]
        count, first = runs.get(worker.name, (0, None))
        return WorkerLine(
            name=worker.name,
            host=worker.host,
            pid=worker.pid,
            is_alive=is_up,
            started_at=worker.started_at,
            last_contact=now if is_up and not store.is_shared else worker.beat_at,
            capacity=Resources(worker.cpus, worker.memory, worker.gpus),
            labels=list(worker.labels),
            in_use=Resources(
                sum(task.cpus for task in own), sum(task.memory for task in own), sum(task.gpus for task in own)
            ),
            runs=count,
            first_run_id=first,
            tasks=[_task(task, names.name(task.run_id, task.place), now) for task in own],
            ends_at=worker.ends_at,
            job=worker.job,
            trouble=worker.trouble,
        )

    return [line(worker) for worker in store.workers()]


def _tasks_by_worker(store: Store) -> dict[str, list[LeasedTask]]:
    tasks: dict[str, list[LeasedTask]] = defaultdict(list)
    for task in store.lists.leased_tasks():
        tasks[task.worker].append(task)
    return tasks


def _task(task: LeasedTask, name: str, now: datetime) -> WorkerTask:
    since = task.leased_at
    return WorkerTask(
        run_id=task.run_id,
        workflow=task.workflow,
        step=task.place,
        name=name,
        attempt=task.attempt,
        cpus=task.cpus,
        memory=task.memory,
        gpus=task.gpus,
        since=since,
        seconds=None if since is None else max(0.0, (now - since).total_seconds()),
    )


def find_worker_pool(home: Home, store: Store, state: State) -> WorkerPool | None:
    """The workers that may take the tasks of a run; None if no task waits for a worker.

    In a shared store any worker may. Otherwise the tasks of a run go to the process that drives it.
    """
    if "ready" not in state.statuses():
        return None
    if store.is_shared:
        return WorkerPool(capacities(home, store))
    holder = store.run(state.run.run_id).holder
    return WorkerPool(capacities(home, store, holder), no_worker="nothing is running the run")


def capacities(home: Home, store: Store, name: str | None = None) -> list[WorkerCapacity]:
    """Every registered worker that runs tasks, or the worker of that name."""
    locks = Locks(home, is_shared=store.is_shared)
    now = store.now() or datetime.now(UTC)
    tasks = _tasks_by_worker(store)

    def capacity(worker: WorkerRecord) -> WorkerCapacity:
        is_alive = locks.seems_alive(worker)
        own = (RunningTask(one.run_id, one.place, one.cpus, one.memory, one.gpus) for one in tasks[worker.name])
        return WorkerCapacity(
            name=worker.name,
            host=worker.host,
            cpus=worker.cpus,
            memory=worker.memory,
            gpus=worker.gpus,
            labels=worker.labels,
            nodes=worker.nodes,
            nodes_min=worker.nodes_min,
            tasks=tuple(own) if is_alive else (),
            seconds_left=None if worker.ends_at is None else max(0.0, (worker.ends_at - now).total_seconds()),
            is_alive=is_alive,
        )

    return [capacity(one) for one in store.workers() if one.cpus and name in (None, one.name)]
