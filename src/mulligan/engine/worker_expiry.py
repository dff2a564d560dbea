"""Finding and expiring dead workers, so that other workers can take their leases and turns."""

from __future__ import annotations

from collections.abc import Callable

from mulligan.ports import LockState, WorkerRecord, WorkerRegistry


def expire_dead_workers(
    store: WorkerRegistry,
    lock_state: Callable[[WorkerRecord], LockState],
    kill_leftovers: Callable[[str], object],
    *,
    may_expire_others: bool = True,
) -> list[WorkerRecord]:
    """Expire dead workers. Return those that this call has expired.

    A free lock proves at once that a worker is dead. If its lock cannot be seen, an old heartbeat does, unless we could
    not reach the store ourselves (`core.deciding.expiry_permission`). Processes that the worker has left on this
    machine are killed first, whatever its host is called now: afterwards other workers start its tasks.
    """
    expired = []
    for worker in store.workers():
        is_dead = lock_state(worker) == "free"
        if is_dead or (may_expire_others and _is_silent(store, worker)):
            kill_leftovers(worker.name)
            if store.expire(worker.name, is_dead=is_dead):
                expired.append(worker)
    return expired


def _is_silent(store: WorkerRegistry, worker: WorkerRecord) -> bool:
    """Whether its heartbeat is too old. In a store of one machine only workers without a lock send heartbeats.

    In a shared store a worker that was suspended still holds its lock: there only the heartbeat counts.
    """
    return worker.is_expired and (store.is_shared or not worker.lock)
