"""Waiting for what other processes write: by notification where the store has one, else by asking a cheap question."""

from __future__ import annotations

import select
import time

from mulligan.ports import ChangeFeed

# How often a store that cannot wake us is asked. On SQLite that reads one number.
LOOK_SECONDS = 0.1


class StoreChanges:
    """What other processes write into a store."""

    def __init__(self, store: ChangeFeed) -> None:
        self._store = store

    def wait(self, seconds: float) -> bool:
        """Whether somebody has written something since we last looked, waiting at most so long for it."""
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
