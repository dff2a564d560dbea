"""What a worker has done by the time others see it in the store."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from mulligan.service.driving.local_worker import local_worker
from mulligan.service.home import Home
from mulligan.testing.clock import JumpingClock
from mulligan.testing.memory.memory_store import MemoryStore

LEASE_SECONDS = 30.0


class SlowToTell(MemoryStore):
    """A store of several hosts that takes two leases to say what time it is."""

    def __init__(self) -> None:
        self.clock = JumpingClock()
        super().__init__(clock=self.clock, lease_seconds=LEASE_SECONDS, is_shared=True)

    def now(self) -> datetime | None:
        self.clock.advance(2 * LEASE_SECONDS)
        return super().now()


def test_a_worker_that_is_told_the_time_late_is_not_taken_for_dead(tmp_path: Path) -> None:
    store = SlowToTell()

    with local_worker(Home(tmp_path), store, lease_seconds=LEASE_SECONDS):
        expired = [worker.is_expired for worker in store.workers()]

    assert expired == [False]
