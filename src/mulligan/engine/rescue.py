"""Finding workers that are dead, and burying them: their leases and turns are others' to take."""

from __future__ import annotations

from collections.abc import Callable

from ..ports import Store, WorkerRecord


def bury_the_dead(
    store: Store, host: str, is_free: Callable[[str], bool], end_leftovers: Callable[[str], object]
) -> list[WorkerRecord]:
    """Those that were found dead and buried, by us.

    A lock that is free says so at once, wherever the lock can be seen: on the same host, and for a store that only
    one host uses. Of the others the store's clock does. What one has left running on this host is ended before it
    is buried: from then on its tasks are others' to start.
    """
    return [worker for worker in store.workers() if _buries(store, worker, host, is_free, end_leftovers)]


def _buries(
    store: Store,
    worker: WorkerRecord,
    host: str,
    is_free: Callable[[str], bool],
    end_leftovers: Callable[[str], object],
) -> bool:
    is_seen = bool(worker.lock) and (worker.host == host or not store.is_shared)
    is_dead = is_seen and is_free(worker.lock)
    # A live one that was stopped for a while holds its lock: only time tells then, where there is a heartbeat.
    if not is_dead and not (worker.is_expired and (store.is_shared or not is_seen)):
        return False
    if worker.host == host:
        end_leftovers(worker.name)
    return store.bury(worker.name, is_dead=is_dead)
