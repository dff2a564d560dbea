"""Finding workers that are dead, and burying them: their leases and turns are others' to take."""

from __future__ import annotations

from collections.abc import Callable

from ..ports import Store, WorkerRecord


def bury_the_dead(store: Store, host: str, is_free: Callable[[str], bool]) -> list[WorkerRecord]:
    """Those that were found dead and buried, by us.

    A lock that is free says so at once, wherever the lock can be seen: on the same host, and for a store that only
    one host uses. Of the others the store's clock does.
    """
    return [worker for worker in store.workers() if _buries(store, worker, host, is_free)]


def _buries(store: Store, worker: WorkerRecord, host: str, is_free: Callable[[str], bool]) -> bool:
    if worker.lock and (worker.host == host or not store.is_shared):
        # A live one that was stopped for a while holds its lock, and its tasks may still run: only time tells then.
        if is_free(worker.lock):
            return store.bury(worker.name, is_dead=True)
        return store.is_shared and worker.is_expired and store.bury(worker.name)
    return worker.is_expired and store.bury(worker.name)
