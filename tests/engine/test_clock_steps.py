"""Steps of the wall clock: durations keep their length, times of day follow it, and no log's time goes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from mulligan.core.effects.tasks import Task
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.engine.engine import Engine
from mulligan.ports import Store
from mulligan.store import open_store
from mulligan.testing.clock import START, JumpingClock, WallClock
from mulligan.testing.memory.memory_store import MemoryStore
from mulligan.testing.memory.memory_tables import MemoryTables

from .conftest import World
from .test_fork_at_event import fork

RETRY = """
name: again
steps:
  - {step: a, shell: fail, retry: {max_retries: 1, delay: 10s}}
"""
LIMITED = """
name: limited
timeout: 60s
steps:
  - {step: a, wait: 50s}
"""
WAIT = """
name: waiting
steps:
  - {step: a, wait: 10s}
"""
UNTIL = f"""
name: until
steps:
  - {{step: a, wait: {{until: '{(START + timedelta(minutes=30)).isoformat()}'}}}}
"""
DEADLINE = """
name: deadline
steps:
  - {step: a, shell: fail, retry: {max_retries: 5, delay: 10s, deadline: 15s}}
"""
STEPS = [-7200.0, -30.0, 3600.0]


class Machine:
    """One machine: time that passes, a wall clock that may be stepped, and processes over one store."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.common = JumpingClock()
        self.wall = WallClock(self.common)
        self._kind = kind
        self._tables = MemoryTables()
        self._path = folder / "mulligan.db"
        self._stores: list[Store] = []
        self._engines: list[Engine] = []

    def process(self) -> World:
        """A new process, which reads the wall clock now. A world of its own, on the common store."""
        clock = self.wall.of_process()
        if self._kind == "memory":
            store: Store = MemoryStore(clock=clock, tables=self._tables)
        else:
            store = open_store(self._path, clock=clock)
        self._stores.append(store)
        world = World(store, clock)  # type: ignore[arg-type]
        world.count = 10 * len(self._stores)
        return world

    def pass_time(self, world: World, *engines: Engine, seconds: float) -> None:
        self.common.advance(seconds)
        world.settle(*engines)

    def close(self) -> None:
        for store in self._stores:
            store.close()


@pytest.fixture(params=["memory", "sqlite"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    found = Machine(request.param, tmp_path)
    yield found
    found.close()


def fails_first() -> Callable[[Task], Outcome]:
    return lambda task: Outcome(1 if task.attempt == 1 else 0)


def always_fails(task: Task) -> Outcome:
    return Outcome(1)


def times(world: World, run_id: int) -> list[datetime]:
    return [entry.at for entry in world.store.log(run_id)]


@pytest.mark.parametrize("step", STEPS)
def test_a_delay_keeps_its_length(machine: Machine, step: float) -> None:
    world = machine.process()
    engine = world.engine(ends=fails_first())
    run_id = world.start(RETRY, engine)
    world.settle(engine)
    assert world.statuses(run_id) == {"a": "backing_off"}

    machine.wall.set_wrong(step)
    machine.pass_time(world, engine, seconds=9.9)
    assert world.statuses(run_id) == {"a": "backing_off"}
    machine.pass_time(world, engine, seconds=0.2)

    assert world.status(run_id) == "completed"


@pytest.mark.parametrize("step", STEPS)
def test_a_run_has_its_timeout_and_no_more_and_no_less(machine: Machine, step: float) -> None:
    world = machine.process()
    engine = world.engine()
    well, slow = world.start(LIMITED, engine), world.start(LIMITED.replace("50s", "70s"), engine)
    world.settle(engine)

    machine.wall.set_wrong(step)
    machine.pass_time(world, engine, seconds=51)
    assert (world.status(well), world.status(slow)) == ("completed", "running")
    machine.pass_time(world, engine, seconds=10)

    assert world.status(slow) == "failed"


@pytest.mark.parametrize("step", STEPS)
def test_a_deadline_keeps_its_length_and_is_told_to_workers_by_the_clock_of_their_process(
    machine: Machine, step: float
) -> None:
    world = machine.process()
    engine = world.engine(ends=always_fails)
    run_id = world.start(DEADLINE, engine)
    world.settle(engine)

    machine.wall.set_wrong(step)
    machine.pass_time(world, engine, seconds=10.1)

    executor = engine.executor
    second = executor.started[1].task  # type: ignore[union-attr]
    assert second.deadline is not None
    left = (second.deadline - engine.clock.now()).total_seconds()
    assert 4.8 < left <= 5.0
    assert world.status(run_id) == "failed"


def test_a_wait_until_a_time_of_day_follows_the_wall_clock_forward(machine: Machine) -> None:
    world = machine.process()
    engine = world.engine()
    run_id = world.start(UNTIL, engine)
    world.settle(engine)

    machine.wall.set_wrong(1700)
    machine.pass_time(world, engine, seconds=99)
    assert world.statuses(run_id) == {"a": "running"}
    machine.pass_time(world, engine, seconds=2)

    assert world.status(run_id) == "completed"
    assert times(world, run_id)[-1] == START + timedelta(seconds=101)


def test_a_wait_until_a_time_of_day_follows_the_wall_clock_back(machine: Machine) -> None:
    world = machine.process()
    engine = world.engine()
    run_id = world.start(UNTIL, engine)
    world.settle(engine)

    machine.wall.set_wrong(-600)
    machine.pass_time(world, engine, seconds=1801)
    assert world.statuses(run_id) == {"a": "running"}
    machine.pass_time(world, engine, seconds=600)

    assert world.status(run_id) == "completed"


def test_a_time_of_day_that_came_in_a_pause_counts_when_it_is_lifted(machine: Machine) -> None:
    world = machine.process()
    engine = world.engine()
    run_id = world.start(UNTIL, engine)
    world.settle(engine)
    world.store.put(run_id, pause(engine))
    world.settle(engine)

    machine.wall.set_wrong(1800)
    machine.pass_time(world, engine, seconds=1)
    machine.wall.set_wrong(0)
    world.store.put(run_id, resume(engine))
    world.settle(engine)

    assert world.status(run_id) == "completed"


def pause(engine: Engine) -> r.PauseRequested:
    return r.PauseRequested(engine.clock.now(), "someone")


def resume(engine: Engine) -> r.ResumeRequested:
    return r.ResumeRequested(engine.clock.now(), "someone")


def test_a_process_that_starts_when_the_wall_clock_was_stepped_back_goes_on_with_the_time_of_the_log(
    machine: Machine,
) -> None:
    first = machine.process()
    one = first.engine(ends=fails_first())
    run_id = first.start(RETRY, one)
    machine.common.advance(100)
    first.settle(one)

    machine.wall.set_wrong(-7200)
    first.expire(one)
    second = machine.process()
    two = second.engine(ends=fails_first())
    two.take_up_idle()
    second.settle(two)
    assert second.statuses(run_id) == {"a": "backing_off"}
    machine.pass_time(second, two, seconds=10.1)

    assert second.status(run_id) == "completed"
    assert times(second, run_id) == sorted(times(second, run_id))


def test_a_run_from_the_future_does_not_take_others_with_it(machine: Machine) -> None:
    machine.wall.set_wrong(10 * 366 * 86400)
    first = machine.process()
    one = first.engine()
    ahead = first.start(WAIT, one)
    first.settle(one)
    first.expire(one)
    machine.wall.set_wrong(0)

    second = machine.process()
    two = second.engine()
    limited = second.start(LIMITED, two)
    two.take_up([ahead])
    second.settle(two)
    assert (second.status(ahead), second.status(limited)) == ("running", "running")
    machine.pass_time(second, two, seconds=10.1)
    assert (second.status(ahead), second.status(limited)) == ("completed", "running")
    machine.pass_time(second, two, seconds=40)

    assert second.status(limited) == "completed"
    assert times(second, limited)[-1].year == START.year
    assert times(second, ahead)[-1].year == START.year + 10


def test_a_fork_of_a_run_from_the_future_waits_as_long_as_it_says(machine: Machine) -> None:
    first = machine.process()
    one = first.engine()
    run_id = first.start(LIMITED, one)
    machine.pass_time(first, one, seconds=20)
    first.expire(one)
    machine.wall.set_wrong(-7200)

    second = machine.process()
    two = second.engine()
    forked = fork(second, run_id, 4, two)
    second.settle(two)
    assert second.status(forked) == "running"
    machine.pass_time(second, two, seconds=50.1)

    assert second.status(forked) == "completed"
    assert times(second, forked) == sorted(times(second, forked))


def test_a_process_whose_clock_is_ahead_fires_no_timer_of_a_run_that_another_has(machine: Machine) -> None:
    old = machine.process()
    worker = old.engine()
    old.start(LIMITED, worker)
    old.settle(worker)
    machine.wall.set_wrong(-7200)
    new = machine.process()
    engine = new.engine()
    run_id = new.start(WAIT, engine)
    new.settle(engine)

    machine.common.advance(5)
    for _ in range(3):
        worker.request_poll()
        old.settle(worker)
        new.settle(engine)
    assert new.status(run_id) == "running"
    machine.pass_time(new, engine, seconds=5.1)

    assert new.status(run_id) == "completed"


def test_what_is_reported_by_a_clock_that_is_wrong_is_dated_by_who_drives_the_run(machine: Machine) -> None:
    world = machine.process()
    engine = world.engine()
    run_id = world.start(WAIT, engine)
    world.settle(engine)

    world.store.put(run_id, r.PauseRequested(START + timedelta(hours=1), "someone"))
    engine.request_poll()
    world.settle(engine)

    (paused,) = [entry for entry in world.store.log(run_id) if isinstance(entry.fact, e.RunPaused)]
    assert paused.at == START
