"""More runs than can be taken up between two heartbeats: some at a time, and none is forgotten on the way."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from mulligan.core.model.outcome import Outcome
from mulligan.engine import driven_runs
from mulligan.engine.engine import Engine
from mulligan.errors import StoreUnavailable
from mulligan.ports import LoadedRun

from .conftest import World

ONE = "steps: [{step: a, approve: {message: 'may it?'}}]"
TAKEN_AT_ONCE_MAX = 10
RUNS = TAKEN_AT_ONCE_MAX * 2 + 5


@pytest.fixture(autouse=True)
def few_are_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driven_runs, "TAKEN_AT_ONCE_MAX", TAKEN_AT_ONCE_MAX)


class LosesALoad:
    """A store that goes away once, when a certain run is to be read."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.lost_at = 0
        self.is_away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def load_all(self, run_ids: Collection[int]) -> list[LoadedRun]:
        if self.lost_at in run_ids:
            self.lost_at = 0
            raise StoreUnavailable("it went away")
        found: list[LoadedRun] = self._store.load_all(run_ids)
        return found

    def commit(self, commits: Any) -> Any:
        if self.is_away:
            raise StoreUnavailable("it is away")
        return self._store.commit(commits)


def test_many_runs_that_wait_are_taken_up_some_with_each_round(world: World) -> None:
    run_ids = [world.start(ONE) for _ in range(RUNS)]
    engine = world.engine()

    counts = []
    for _ in range(4):
        engine.tick(0.0)
        counts.append(len(engine.drivers))

    assert counts == [TAKEN_AT_ONCE_MAX, TAKEN_AT_ONCE_MAX * 2, RUNS, RUNS]
    assert sorted(engine.drivers) == run_ids


def test_an_engine_is_not_settled_while_runs_wait_to_be_taken_up(world: World) -> None:
    for _ in range(RUNS):
        world.start(ONE)
    engine = world.engine()

    engine.tick(0.0)
    was_settled = engine.is_settled
    for _ in range(5):
        engine.tick(0.0)

    assert (was_settled, engine.is_settled) == (False, True)


def test_a_store_that_is_back_is_told_that_we_live_between_the_runs_that_are_read_again(world: World) -> None:
    engine = world.engine()
    for _ in range(RUNS):
        world.start(ONE, engine)
    settle(engine)

    engine.recover()
    at_once = len(engine.drivers)
    settle(engine)

    assert (at_once, len(engine.drivers)) == (TAKEN_AT_ONCE_MAX, RUNS)


@pytest.mark.postgres
def test_a_store_that_goes_away_again_while_runs_are_read_again_costs_none_of_them(world: World) -> None:
    world.store = store = LosesALoad(world.store)  # type: ignore[assignment]
    engine = world.engine()
    first, second = (world.start(ONE, engine) for _ in range(2))
    settle(engine)
    store.lost_at = second

    with pytest.raises(StoreUnavailable):
        engine.recover()
    engine.recover()

    assert sorted(engine.drivers) == [first, second]


def settle(engine: Engine) -> None:
    for _ in range(6):
        engine.tick(0.0)


def test_what_has_ended_is_not_done_again_where_the_store_goes_away_twice(world: World) -> None:
    world.store = store = LosesALoad(world.store)  # type: ignore[assignment]
    begun: list[int] = []
    engine = world.engine(ends=lambda task: (begun.append(task.run_id), Outcome(exit_code=0))[1])
    run_id = world.start("steps: [{step: a, shell: make a}]", engine)
    engine.tick(0.0)
    store.is_away = True
    with pytest.raises(StoreUnavailable):
        engine.tick(0.0)

    store.lost_at = run_id
    with pytest.raises(StoreUnavailable):
        engine.recover()
    store.is_away = False
    engine.recover()
    settle(engine)

    assert (begun, world.status(run_id)) == ([run_id], "completed")
