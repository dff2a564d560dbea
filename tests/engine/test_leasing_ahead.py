"""Engines that share a store: who takes how many tasks, and how ended tasks of another worker's run are reported."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.model.outcome import Outcome
from mulligan.errors import StoreUnavailable
from mulligan.ports import Offer
from mulligan.testing.clock import JumpingClock
from proof.simulator.cluster.fake_tasks import FakeTasks

from .conftest import World

pytestmark = pytest.mark.postgres

WIDE = "name: wide\nsteps:\n" + "".join(f"  - {{step: s{number:02}, shell: 'true'}}\n" for number in range(20))


class Holding(FakeTasks):
    """An executor with one slot that holds up to ten tasks; it records what it was offered with."""

    def __init__(self, name: str, clock: JumpingClock) -> None:
        super().__init__(name, "here", clock, slots=1, ahead=10)
        self.offers: list[Offer] = []

    def offer(self) -> Offer:
        self.offers.append(super().offer())
        return self.offers[-1]


def holding(world: World, engine: Any) -> Holding:
    """Let an engine that has done nothing yet use such an executor."""
    executor = Holding(engine.name, world.clock)
    engine.executor = engine._supply._executor = engine._tasks.executor = engine._runs._executor = executor
    return executor


def test_an_engine_leaves_most_tasks_of_its_own_run_to_others(world: World) -> None:
    engine = world.engine()
    executor = holding(world, engine)
    engine.set_alone(False)

    world.start(WIDE, engine)
    engine._turns.take()
    engine._poll()
    engine._turns.take()

    # One has the slot, and a quarter of the other nineteen is held.
    assert len(executor.running) == 5


def test_an_engine_that_is_alone_holds_as_many_as_its_executor_takes(world: World) -> None:
    engine = world.engine()
    executor = holding(world, engine)
    engine.set_alone(True)

    world.start(WIDE, engine)
    engine.tick(0.0)
    engine.tick(0.0)

    assert len(executor.running) == 11


def _tokens(engine: Any) -> set[int]:
    return {lease.token for lease in engine.executor.running}


class Recording:
    """A store that records in which calls tasks are reported and leased."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("lease", "report_all", "report_and_lease"):
            self.calls.append(name)
        return getattr(self._store, name)


def test_a_worker_reports_tasks_of_the_run_of_another_and_gets_the_next_ones_at_once(world: World) -> None:
    if not world.store.is_shared:
        pytest.skip("tasks come with the turn of their run")
    driving, working = world.engine(slots=0), world.engine(slots=2, ends=lambda task: None)
    run_id = world.start(WIDE, driving)
    for engine in (driving, working):
        engine.set_alone(False)
        engine.tick(0.0)
    store = Recording(world.store)
    working._tasks._store = working._supply._store = store  # type: ignore[assignment]
    first = _tokens(working)

    working.executor.ends = lambda task: Outcome()  # type: ignore[union-attr]
    working.tick(0.0)
    calls, second = list(store.calls), _tokens(working)
    for _ in range(30):
        world.settle(working)
        driving.request_poll()
        world.settle(driving)

    assert calls == ["report_and_lease"]
    assert len(first) == len(second) == 2 and not first & second
    assert world.status(run_id) == "completed"


class Unavailable:
    """A store that is unavailable for the next report."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.reported: list[int] = []
        self.is_away = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def report_all(self, ended: Any) -> bool:
        if self.is_away:
            self.is_away = False
            raise StoreUnavailable("gone")
        self.reported.append(len(ended))
        return bool(self._store.report_all(ended))


def test_ended_tasks_of_the_run_of_another_worker_are_reported_together_and_an_error_loses_none(world: World) -> None:
    if not world.store.is_shared:
        pytest.skip("tasks come with the turn of their run")
    # The first one drives, and runs nothing.
    driving, working = world.engine(slots=0), world.engine(slots=4, ends=lambda task: None)
    run_id = world.start("name: two\nsteps:\n  - {step: a, shell: 'true'}\n  - {step: b, shell: 'true'}\n", driving)
    driving.set_alone(False)
    working.set_alone(False)
    driving.tick(0.0)
    working.tick(0.0)
    store = Unavailable(world.store)
    working._tasks._store = store  # type: ignore[assignment]

    working.executor.ends = lambda task: Outcome()  # type: ignore[union-attr]
    with pytest.raises(StoreUnavailable):
        working.tick(0.0)
    world.settle(working)
    driving.request_poll()
    world.settle(driving)

    assert store.reported == [2]
    assert world.status(run_id) == "completed"
