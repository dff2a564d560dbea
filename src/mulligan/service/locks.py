"""What the lock files of workers prove, seen from one home."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from mulligan.ports import LockState, WorkerRecord
from mulligan.service.home import Home, this_host
from mulligan.worker import lock


class Locks:
    """Looks at the locks of the workers of one store. Remembers since when a lock has proved nothing."""

    def __init__(self, home: Home, *, is_shared: bool, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._home = home
        self._is_shared = is_shared
        self._monotonic = monotonic
        self._unknown_since: dict[str, float] = {}

    @property
    def unproven(self) -> list[str]:
        """The workers of which `look_again` waits to know whether they live."""
        return list(self._unknown_since)

    def look(self, worker: WorkerRecord) -> LockState:
        """What the worker's lock proves now."""
        if not worker.lock:
            return "unknown"
        if self._is_shared:
            return lock.state_of(worker.lock) if self._is_here(worker) else "unknown"
        # A database file belongs to one machine, and its locks lie beside it. They move with the home; and where this
        # home is a copy, the worker still holds the lock in the home that it was copied from.
        here = lock.state_of(self.path(worker))
        return here if here != "unknown" else lock.state_of(worker.lock)

    def seems_alive(self, worker: WorkerRecord) -> bool:
        """Whether the worker lives, by its lock; by its heartbeat where the lock cannot be seen from here."""
        state = self.look(worker)
        if state == "unknown" and (self._is_shared or not worker.lock):
            return not worker.is_expired
        # A lock that proves nothing: whoever takes a run up waits until its worker must have ended.
        return state == "held"

    def original_home(self, worker: WorkerRecord) -> str:
        """The home in which a live worker drives its runs, where this one is a copy of it; else ""."""
        if self._is_shared or not worker.lock or lock.state_of(self.path(worker)) != "unknown":
            return ""
        home = os.path.dirname(os.path.dirname(worker.lock))
        return home if lock.state_of(worker.lock) == "held" and home != str(self._home.folder) else ""

    def path(self, worker: WorkerRecord) -> str:
        """Where its lock file is, or would be."""
        return worker.lock if self._is_shared else str(self._home.locks / os.path.basename(worker.lock))

    def look_again(self, worker: WorkerRecord) -> LockState:
        """The same, for who looks again and again. A lock that has proved nothing for a whole lease counts as free.

        A worker whose home is moved or removed notices it within a second, and ends what it runs.
        """
        state = self.look(worker)
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
        """Whether the worker runs, or ran, on this machine. Another one may have the same host name and the same path,
        and this one may have had another name.
        """
        if not os.path.exists(worker.lock):
            return False
        return worker.host == this_host() or lock.is_of_this_machine(worker.lock)
