"""Finding and expiring dead workers, so that other workers can take their leases and turns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime

from msgspec.structs import replace

from mulligan.core.model.scheduler_job import JobEnd, WorkerJob
from mulligan.ports import LockState, WorkerRecord, WorkerRegistry

# The time between two looks of `SilentWorkers` that counts as a gap, if it is longer than half a lease.
GAP_SECONDS_MIN = 3.0
# Asks a scheduler how jobs have ended, all at once, each with whether its worker is known to be dead. The engine waits
# meanwhile: it must not take long.
AskJobs = Callable[[Mapping[WorkerJob, bool]], Mapping[WorkerJob, JobEnd]]


def without_asking(jobs: Mapping[WorkerJob, bool]) -> dict[WorkerJob, JobEnd]:
    """The jobs as their workers have registered them."""
    return {job: JobEnd(job) for job in jobs}


def expire_dead_workers(
    store: WorkerRegistry,
    lock_state: Callable[[WorkerRecord], LockState],
    kill_leftovers: Callable[[str], object],
    *,
    workers: Iterable[WorkerRecord] | None = None,
    may_expire_others: bool = True,
    silent: Collection[str] | None = None,
    ask_jobs: AskJobs = without_asking,
) -> list[WorkerRecord]:
    """Expire dead workers, of all or of `workers`. Return those that this call has expired.

    A free lock proves at once that a worker is dead. If its lock cannot be seen, an old heartbeat does, unless we could
    not reach the store ourselves (`core.deciding.expiry_permission`); or that it is among the `silent`, if they are
    given. Processes that the worker has left on this machine are killed first, whatever its host is called now:
    afterwards other workers start its tasks.
    """
    dead = []
    for worker in store.workers() if workers is None else workers:
        is_dead = lock_state(worker) == "free"
        is_silent = may_expire_others and _is_silent(store, worker) if silent is None else worker.name in silent
        if is_dead or is_silent:
            dead.append((worker, is_dead))
    if not dead:
        return []
    jobs = {worker.job: is_dead for worker, is_dead in dead if worker.job is not None}
    ends = ask_jobs(jobs) if jobs else {}
    expired = []
    for worker, is_dead in dead:
        kill_leftovers(worker.name)
        job = None if worker.job is None else _with_life(ends.get(worker.job), worker)
        if store.expire(worker.name, is_dead=is_dead or silent is not None, job=job):
            expired.append(worker)
    return expired


class SilentWorkers:
    """Which workers of other hosts have sent no heartbeat to a store of one machine, while we looked for a whole lease.

    The age of a heartbeat says nothing there. A server writes it, whose clock need not be ours if the wall clock was
    set; and while no server ran, none could come.
    """

    def __init__(self, elapsed: Callable[[], float], lease_seconds: float) -> None:
        self._elapsed = elapsed
        self._lease_seconds = lease_seconds
        self._gap_seconds = max(lease_seconds / 2, GAP_SECONDS_MIN)
        self._looked_at = float("-inf")
        # By worker its last heartbeat, and since when we have seen no later one.
        self._seen: dict[str, tuple[datetime | None, float]] = {}

    def look(self, workers: Iterable[WorkerRecord]) -> set[str]:
        """Look at the workers as they are now. The names of the silent ones."""
        now = self._elapsed()
        # After a gap everything begins anew: while this machine was suspended, no heartbeat could come.
        before = self._seen if now - self._looked_at <= self._gap_seconds else {}
        self._looked_at, self._seen = now, {}
        for worker in workers:
            if not worker.lock:
                beat_at, since = before.get(worker.name, (None, now))
                self._seen[worker.name] = worker.beat_at, since if beat_at == worker.beat_at else now
        return {name for name, (_, since) in self._seen.items() if now - since > self._lease_seconds}


def other_workers(workers: Iterable[WorkerRecord], name: str, *, is_shared: bool) -> list[WorkerRecord]:
    """The workers beside this one that take tasks from the store.

    In a store of one machine only those of other hosts do, which have no lock: the tasks of a run come with its turn.
    """
    others = (worker for worker in workers if worker.name != name and worker.cpus)
    return [worker for worker in others if is_shared or not worker.lock]


def _with_life(end: JobEnd | None, worker: WorkerRecord) -> JobEnd | None:
    """The end of its job. The life of a worker that did not know its end is what can be seen of it."""
    if end is None or end.ending != "time" or end.job.life_seconds is not None:
        return end
    if worker.started_at is None or worker.beat_at is None:
        return end
    seconds = max(0.0, (worker.beat_at - worker.started_at).total_seconds())
    return replace(end, job=replace(end.job, life_seconds=seconds))


def _is_silent(store: WorkerRegistry, worker: WorkerRecord) -> bool:
    """Whether its heartbeat is too old. In a store of one machine only workers without a lock send heartbeats.

    In a shared store a worker that was suspended still holds its lock: there only the heartbeat counts.
    """
    return worker.is_expired and (store.is_shared or not worker.lock)
