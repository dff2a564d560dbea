"""What the lock files of workers prove, seen from one home."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from mulligan.ports import LockState, WorkerRecord
from mulligan.service.home import Home, this_host
from mulligan.worker import lock


class Locks:
    """Reads the locks of the workers of one store. Remembers since when a lock has proved nothing."""

    def __init__(self, home: Home, *, is_shared: bool, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._home = home
        self._is_shared = is_shared
        self._monotonic = monotonic
        self._unknown_since: dict[str, float] = {}

    @property
    def unproven(self) -> list[str]:
        """The workers whose locks have proved nothing so far in `confirmed_state`."""
        return list(self._unknown_since)

    def state(self, worker: WorkerRecord) -> LockState:
        """What the worker's lock proves now."""
        if not worker.lock:
            return "unknown"
        if self._is_shared:
            return lock.state_of(worker.lock) if self._is_here(worker) else "unknown"
        # A database file belongs to one machine, and its locks are beside it and move with the home. If this home is a
        # copy, the worker still holds the lock in the original home.
        here = lock.state_of(self.path(worker))
        return here if here != "unknown" else lock.state_of(worker.lock)

    def seems_alive(self, worker: WorkerRecord) -> bool:
        """Whether the worker is alive, by its lock or, if the lock cannot be seen from here, by its heartbeat."""
        state = self.state(worker)
        if state == "unknown" and (self._is_shared or not worker.lock):
            return not worker.is_expired
        # A lock that proves nothing does not count: `confirmed_state` waits until the worker must have ended.
        return state == "held"

    def original_home(self, worker: WorkerRecord) -> str:
        """The home in which a live worker drives its runs, if this home is a copy of it; otherwise ""."""
        if self._is_shared or not worker.lock or lock.state_of(self.path(worker)) != "unknown":
            return ""
        home = os.path.dirname(os.path.dirname(worker.lock))
        return home if lock.state_of(worker.lock) == "held" and home != str(self._home.folder) else ""

    def path(self, worker: WorkerRecord) -> str:
        """The path of its lock file, which may not exist."""
        return worker.lock if self._is_shared else str(self._home.locks / os.path.basename(worker.lock))

    def confirmed_state(self, worker: WorkerRecord) -> LockState:
        """Like `state`, for repeated calls: a lock that has proved nothing for a whole lease counts as free.

        A worker notices within a second that its home was moved or removed, and kills its tasks.
        """
        state = self.state(worker)
        if self._is_shared or state != "unknown" or not worker.lock:
            self._unknown_since.pop(worker.name, None)
            return state
        now = self._monotonic()
        since = self._unknown_since.setdefault(worker.name, now)
        if now - since < self._home.lease_seconds:
            return "unknown"
        del self._unknown_since[worker.name]
        return "free"

    def _is_here(self, worker: WorkerRecord) -> bool:
        """Whether the worker runs, or ran, on this machine.

        Another machine may have the same host name and path, and this one may have had another name.
        """
        if not os.path.exists(worker.lock):
            return False
        return worker.host == this_host() or lock.is_of_this_machine(worker.lock)
