"""Finding workers that are dead, and burying them: their leases and turns are others' to take."""

from __future__ import annotations

from collections.abc import Callable

from mulligan.ports import LockState, WorkerRecord, WorkerRegistry


def expire_dead_workers(
    store: WorkerRegistry,
    look: Callable[[WorkerRecord], LockState],
    end_leftovers: Callable[[str], object],
    *,
    may_expire_others: bool = True,
) -> list[WorkerRecord]:
    """Those that were found dead and buried, by us.

    A lock that is free says so at once, wherever the lock can be seen. Of the others the store's clock does, where
    workers send heartbeats, unless we were cut off from the store ourselves (`core.heartbeats`). What one has left
    running on this machine is ended before it is buried, whatever the host is called now: from then on its tasks are
    others' to start.
    """
    found = []
    for worker in store.workers():
        is_dead = look(worker) == "free"
        if is_dead or _is_silent(store, worker, may_expire_others=may_expire_others):
            end_leftovers(worker.name)
            if store.bury(worker.name, is_dead=is_dead):
                found.append(worker)
    return found


def _is_silent(store: WorkerRegistry, worker: WorkerRecord, *, may_expire_others: bool) -> bool:
    """Whether its heartbeat is too old. In a store of one machine only those have one that have no lock.

    Where several machines share the store, one that was stopped for a while holds its lock: only time tells then.
    """
    return worker.is_expired and may_expire_others and (store.is_shared or not worker.lock)
