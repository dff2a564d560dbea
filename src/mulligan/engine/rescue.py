"""Finding workers that are dead, and burying them: their leases and turns are others' to take."""

from __future__ import annotations

import os
from collections.abc import Callable

from ..ports import Store, WorkerRecord


def is_seen(store: Store, worker: WorkerRecord, host: str, is_there: Callable[[str], bool] = os.path.exists) -> bool:
    """Whether the worker's lock can be seen from here: then it says who is alive, and no clock has to.

    In a store that several hosts share, a lock that is not there may be on another host of the same name.
    """
    if not worker.lock or not store.is_shared:
        return bool(worker.lock)
    return worker.host == host and is_there(worker.lock)


def bury_the_dead(
    store: Store,
    host: str,
    is_free: Callable[[str], bool],
    end_leftovers: Callable[[str], object],
    is_there: Callable[[str], bool] = os.path.exists,
) -> list[WorkerRecord]:
    """Those that were found dead and buried, by us.

    A lock that is free says so at once, wherever the lock can be seen: on the same host, and for a store that only
    one host uses. Of the others the store's clock does. What one has left running on this host is ended before it
    is buried: from then on its tasks are others' to start.
    """
    found = []
    for worker in store.workers():
        can_see = is_seen(store, worker, host, is_there)
        is_dead = can_see and is_free(worker.lock)
        if _may_be_buried(store, worker, is_dead=is_dead, can_see=can_see):
            if worker.host == host:
                end_leftovers(worker.name)
            if store.bury(worker.name, is_dead=is_dead):
                found.append(worker)
    return found


def _may_be_buried(store: Store, worker: WorkerRecord, *, is_dead: bool, can_see: bool) -> bool:
    # A live one that was stopped for a while holds its lock: only time tells then, where there is a heartbeat.
    return is_dead or (worker.is_expired and (store.is_shared or not can_see))
