"""Waiting for changes by other processes: by notification if the store has it, otherwise by polling."""

from __future__ import annotations

import select
import time

from mulligan.ports import ChangeFeed

# How often a store without notifications is polled. On SQLite that reads one number.
LOOK_SECONDS = 0.1


class StoreChanges:
    """Changes of a store by other processes."""

    def __init__(self, store: ChangeFeed) -> None:
        self._store = store

    def wait(self, seconds: float) -> bool:
        """Whether another process has written since the last call; waits at most so long for it."""
        deadline = time.monotonic() + seconds
        while not self._store.has_changes():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            descriptor = self._store.fileno()
            if descriptor is None:
                time.sleep(min(LOOK_SECONDS, left))
            else:
                select.select([descriptor], [], [], left)
        return True
