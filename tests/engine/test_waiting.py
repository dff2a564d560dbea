"""An engine without an executor waits for its store instead of asking it all the time."""

from __future__ import annotations

from typing import cast

import pytest

from mulligan.core.state.scope import Evaluator
from mulligan.engine.engine import Engine
from mulligan.engine.store_wait import StoreWait
from mulligan.ports import WorkerRecord
from mulligan.testing.clock import JumpingClock
from mulligan.testing.memory.memory_store import MemoryStore


class CountingStore(MemoryStore):
    """Counts the questions whether something has changed."""

    asked = 0

    def has_changes(self) -> bool:
        self.asked += 1
        return super().has_changes()


@pytest.mark.parametrize("is_shared", [True, False])
def test_every_round_without_work_waits_and_asks_once(is_shared: bool) -> None:
    clock = JumpingClock()
    store = CountingStore(clock=clock, is_shared=is_shared)
    store.register(WorkerRecord("w", "here", 1))
    waits: list[float] = []

    def wait(fd: int | None, seconds: float) -> None:
        waits.append(seconds)
        clock.advance(seconds)

    engine = Engine(store, clock, cast(Evaluator, None), "w", store_wait=StoreWait(wait))
    # The first round looks into the store at once.
    engine.tick(0.1)
    store.asked = 0

    for _ in range(50):
        engine.tick(0.1)

    assert len(waits) == 50
    assert sum(waits) >= 50 * 0.019
    assert store.asked <= 50


def test_a_descriptor_of_the_store_wakes_it() -> None:
    seen: list[tuple[int | None, float]] = []
    wait = StoreWait(lambda fd, seconds: seen.append((fd, seconds)))

    wait.watch(7)
    wait.wait(0.5)
    wait.wait(0.0)

    assert seen == [(7, 0.5)]
