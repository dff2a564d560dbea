"""A worker of a store that is not shared holds the runs that wait, loads none of them, and loses nothing of them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mulligan.core.model import reports as r
from mulligan.engine.driven_runs import UNLOAD_SECONDS
from mulligan.engine.engine import Engine
from mulligan.errors import StoreUnavailable
from mulligan.testing.fake_executor import Ends, all_well
from mulligan.testing.faults import Crash, faults

from .conftest import World

WAIT = "name: waiting\nsteps:\n  - {step: a, wait: 1h}\n  - {step: b, needs: [a], shell: 'true'}\n"
ASK = "name: asking\nsteps:\n  - {step: ask, approve: {message: May it?}}\n  - {step: b, needs: [ask], shell: 'true'}\n"
WORK = "name: work\nsteps:\n  - {step: a, shell: 'true'}\n"


@pytest.fixture(autouse=True)
def in_one_process_at_a_time(world: World) -> None:
    if world.store.is_shared:
        pytest.skip("there any worker gets tasks and timers of any run, without its turn")


def left(world: World, text: str) -> int:
    """A run that a worker without slots has driven as far as it can, before it was stopped."""
    engine = world.engine(slots=0)
    run_id = world.start(text, engine)
    engine.drain()
    world.settle(engine)
    engine.release_all()
    return run_id


def newcomer(world: World) -> Engine:
    engine = world.engine()
    engine.take_up_idle()
    world.settle(engine)
    return engine


def test_a_run_that_waits_is_held_and_not_loaded(world: World) -> None:
    waiting, asking = left(world, WAIT), left(world, ASK)

    engine = newcomer(world)

    assert {world.store.run(run_id).holder for run_id in (waiting, asking)} == {engine.name}
    assert not engine.drivers
    assert engine.runs_held == 2


def rested(world: World, text: str, ends: Ends = all_well) -> tuple[Engine, int]:
    """A worker that has driven a run until it waits, and that has looked at it twice since."""
    engine = world.engine(ends=ends)
    run_id = world.start(text, engine)
    for _ in range(3):
        for _ in range(10):
            engine.tick(0.0)
        world.clock.advance(UNLOAD_SECONDS)
        engine.take_up_idle()
    return engine, run_id


def test_a_run_that_waits_for_long_is_not_loaded_any_more_and_its_timer_wakes_it(world: World) -> None:
    engine, run_id = rested(world, WAIT)
    is_loaded, held = run_id in engine.drivers, engine.runs_held

    world.pass_time(engine, seconds=3600.0)

    assert (is_loaded, held) == (False, 1)
    assert world.status(run_id) == "completed"


def test_an_answer_and_a_worker_that_takes_over_find_a_run_that_was_unloaded(world: World) -> None:
    engine, run_id = rested(world, ASK)
    holder = world.store.run(run_id).holder
    engine.release_all()
    world.store.retire(engine.name)
    other = newcomer(world)

    world.store.put(run_id, r.ApprovalGiven(world.clock.now(), "ask", True, "someone", "fine"))
    other.request_poll()
    world.settle(other)

    assert holder == engine.name
    assert world.status(run_id) == "completed"


def test_a_run_with_a_task_in_flight_stays_loaded(world: World) -> None:
    engine, run_id = rested(world, WORK, ends=lambda _: None)

    assert run_id in engine.drivers


def test_its_timer_fires_when_it_is_due(world: World) -> None:
    run_id = left(world, WAIT)
    engine = newcomer(world)

    world.pass_time(engine, seconds=3599.0)
    is_early = run_id in engine.drivers
    world.pass_time(engine, seconds=1.5)

    assert not is_early
    assert world.status(run_id) == "completed"


def test_an_answer_and_a_cancel_reach_it(world: World) -> None:
    asking, waiting = left(world, ASK), left(world, WAIT)
    engine = newcomer(world)

    world.store.put(asking, r.ApprovalGiven(world.clock.now(), "ask", True, "someone", "fine"))
    world.store.put(waiting, r.CancelRequested(world.clock.now(), "someone", "enough", False))
    engine.request_poll()
    world.settle(engine)

    assert world.status(asking) == "completed"
    assert world.status(waiting) == "cancelled"


def test_a_run_with_a_queued_task_is_loaded_and_one_that_is_paused_waits_for_its_message(world: World) -> None:
    working, paused = left(world, WORK), left(world, WORK)
    other = world.engine(slots=0)
    other.take_up([paused])
    world.store.put(paused, r.PauseRequested(world.clock.now(), "someone", ""))
    world.settle(other)
    other.release_all()

    engine = newcomer(world)

    assert world.status(working) == "completed"
    assert world.status(paused) == "paused"
    assert not engine.drivers


def test_after_a_crash_the_next_worker_holds_what_the_first_one_held(world: World) -> None:
    run_id = left(world, WAIT)
    dead = newcomer(world)
    engine = newcomer(world)
    is_taken = engine.runs_held > 0

    world.expire(dead)
    # As the driver does: the search begins again after something was written.
    engine.request_poll()
    engine.tick(0.0)
    engine.take_up_idle()
    world.settle(engine)
    world.pass_time(engine, seconds=3601.0)

    assert not is_taken
    assert world.status(run_id) == "completed"


def test_turns_whose_answer_was_lost_are_found_again(world: World) -> None:
    run_id = left(world, WORK)
    engine = world.engine()
    store = _Forgetful(world.store)
    engine._runs._store = store  # type: ignore[assignment]

    engine.take_up_idle()
    with pytest.raises(StoreUnavailable):
        engine.tick(0.0)
    is_held = world.store.run(run_id).holder == engine.name
    engine.recover()
    engine.tick(0.0)
    engine.take_up_idle()
    world.settle(engine)

    assert is_held
    assert world.status(run_id) == "completed"


class _Forgetful:
    """A store whose first answer about turns is lost."""

    def __init__(self, store: object) -> None:
        self._store = store
        self._is_lost = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def take_turns(self, run_ids: list[int], holder: str) -> object:
        found = self._store.take_turns(run_ids, holder)  # type: ignore[attr-defined]
        if not self._is_lost:
            self._is_lost = True
            raise StoreUnavailable("gone")
        return found


def test_two_timers_that_another_clock_has_fired_count_once(world: World) -> None:
    engine = world.engine()
    run_id = world.start("name: two\nsteps:\n  - {step: a, wait: 1h}\n  - {step: b, wait: 1h}\n", engine)
    world.settle(engine)
    later = world.clock.now() + timedelta(minutes=10)

    world.store.put(run_id, r.TimerFired(later, "attempt", "a", 99))
    world.store.put(run_id, r.TimerFired(later, "attempt", "b", 99))
    engine.request_poll()
    world.settle(engine)

    assert engine.drivers[run_id].ahead == timedelta(minutes=10)


def test_a_large_run_that_was_cut_while_it_entered_its_first_steps_is_continued(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mulligan.core.model.graph.Graph.starts_at_once", 2)
    steps = "".join(f"  - {{step: s{number}, wait: 1h}}\n" for number in range(6))
    first = world.engine()
    run_id = world.start(f"name: large\nsteps:\n{steps}", first)
    with faults() as points, pytest.raises(Crash):
        points.arm("after_commit", 1)
        world.settle(first)
    world.expire(first)

    engine = newcomer(world)

    assert set(world.statuses(run_id).values()) == {"running"}
    assert run_id in engine.drivers
