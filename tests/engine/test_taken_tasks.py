"""Tasks that a turn takes for its own executor: none starts of which the log says that it never did."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.kept_history import pack_history
from mulligan.core.model.outcome import Outcome
from mulligan.engine.engine import Engine
from mulligan.errors import StoreUnavailable
from mulligan.ports import FAULT_POINTS, Lease, NewRun, Offer
from mulligan.testing.fake_executor import FakeExecutor
from mulligan.testing.faults import Crash, faults

from .conftest import World

TIMED = """
timeout: 10s
steps: [{step: quick, shell: quick}, {step: slow, shell: slow}, {step: last, needs: [quick], shell: last}]
"""
TWO = "steps: [{step: a, shell: make a}, {step: b, needs: [a], shell: make b}]"


def executor_of(engine: Engine) -> FakeExecutor:
    assert isinstance(engine.executor, FakeExecutor)
    return engine.executor


def started(engine: Engine) -> list[tuple[str, int]]:
    return [(lease.task.place, lease.task.attempt) for lease in executor_of(engine).started]


def started_by_log(world: World, run_id: int) -> list[tuple[str, int]]:
    facts = (entry.fact for entry in world.store.log(run_id))
    return [(fact.place, fact.attempt) for fact in facts if isinstance(fact, e.AttemptStarted)]


def tick(engine: Engine, times: int = 5) -> None:
    for _ in range(times):
        engine.tick(0.0)


# -- a timer that is due before a task could start -------------------------------------------------------------------


def past_its_time(world: World) -> tuple[int, list[e.Entry]]:
    """A run, and its history up to an event later than its time, nothing stopped yet, as older versions wrote it."""
    engine = world.engine(ends=lambda task: Outcome(exit_code=0) if task.place == "quick" else None)
    run_id = world.start(TIMED, engine)
    tick(engine)
    log = world.store.log(run_id)
    last = next(one.seq for one in log if isinstance(one.fact, e.StepCompleted) and one.fact.step == "quick")
    history = [replace(one, at=one.at + timedelta(seconds=20)) if one.seq == last else one for one in log[:last]]
    world.pass_time(engine, seconds=20)
    assert world.status(run_id) == "failed"
    return run_id, history


def fork(world: World, run_id: int, history: list[e.Entry], engine: Engine) -> int:
    loaded = world.store.load(run_id)
    request = r.RunRequested(
        world.clock.now(),
        0,
        version=loaded.record.version,
        uid=f"fork-{world.count}",
        forked_from=run_id,
        forked_at=history[-1].seq,
        history=pack_history(history),
    )
    new = NewRun(loaded.workflow, loaded.record.version, loaded.record.workflow, request)
    (turn,) = world.store.create([new], engine.name)
    engine.begin([turn], [new])
    return turn.run_id


def test_a_fork_whose_time_is_up_starts_nothing(world: World) -> None:
    original, history = past_its_time(world)
    engine = world.engine()

    run_id = fork(world, original, history, engine)
    world.settle(engine)

    assert world.status(run_id) == "failed"
    assert started(engine) == []
    assert executor_of(engine).reserved == 0
    assert "ReportRefused" not in world.facts(run_id)
    assert not world.store.has_leases(run_id)


@pytest.mark.parametrize("point", sorted(FAULT_POINTS))
def test_a_fork_whose_time_is_up_starts_nothing_whatever_crashes(world: World, point: str) -> None:
    original, history = past_its_time(world)

    def forked(nth: int) -> int:
        with faults() as points:
            points.arm(point, nth)
            engines = [world.engine()]
            run_id = fork(world, original, history, engines[0])
            try:
                world.settle(engines[0])
            except Crash:
                world.expire(engines[0])
                engines.append(world.engine())
                engines[1].take_up([run_id])
                world.settle(engines[1])
        assert (world.status(run_id), world.store.has_leases(run_id)) == ("failed", False)
        assert [one for engine in engines for one in started(engine)] == []
        return points.passes[point]

    nth = 1
    while forked(nth) >= nth:
        nth += 1


# -- a task that is stopped by the turn that has started it ----------------------------------------------------------


@pytest.mark.parametrize("now", [False, True], ids=["cancel", "cancel --now"])
def test_a_task_that_is_stopped_by_the_turn_that_started_it_does_not_begin(world: World, now: bool) -> None:
    is_over = False
    engine = world.engine(ends=lambda task: Outcome(exit_code=0) if is_over else None)
    run_id = world.start(TWO, engine)
    tick(engine)

    # Both are processed by one turn, the end of `a` first.
    is_over = True
    world.store.put(run_id, r.CancelRequested(world.clock.now(), "someone", now=now))
    engine.request_poll()
    world.settle(engine)

    assert world.statuses(run_id) == {"a": "completed", "b": "cancelled"}
    assert started(engine) == [("a", 1)]
    assert executor_of(engine).reserved == 0
    assert not world.store.has_leases(run_id)


def test_a_task_that_is_left_to_finish_begins(world: World) -> None:
    is_over = False
    engine = world.engine(ends=lambda task: Outcome(exit_code=0) if is_over else None)
    run_id = world.start(f"{{cancel_grace: finish, {TWO}}}", engine)
    tick(engine)

    is_over = True
    world.store.put(run_id, r.CancelRequested(world.clock.now(), "someone"))
    engine.request_poll()
    world.settle(engine)

    assert started(engine) == started_by_log(world, run_id)
    assert world.status(run_id) == "cancelled"


# -- what the store has given us while it did not answer -------------------------------------------------------------


class Mute:
    """A store that leases tasks and never says so, the first time."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._is_mute = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def lease(self, worker: str, offer: Offer, **named: Any) -> list[Lease]:
        leases: list[Lease] = self._store.lease(worker, offer, **named)
        if leases and self._is_mute:
            self._is_mute = False
            raise StoreUnavailable("the connection broke")
        return leases


def names(leases: Iterable[Lease]) -> list[str]:
    return [lease.task.place for lease in leases]


@pytest.mark.postgres
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_task_that_was_stopped_before_we_knew_of_it_does_not_begin(world: World, is_stopped: bool) -> None:
    plain = world.store
    driver = world.engine(slots=1, ends=lambda task: None)
    driver.set_alone(False)
    run_id = world.start("steps: [{step: a, shell: a}, {step: b, shell: b}]", driver)
    tick(driver, 2)
    world.store = Mute(plain)  # type: ignore[assignment]
    other = world.engine()
    other.set_alone(False)
    other.take_up([])
    with pytest.raises(StoreUnavailable):
        tick(other)
    assert names(plain.leases_of(other.name)) == ["b"]

    if is_stopped:
        plain.put(run_id, r.CancelRequested(world.clock.now(), "someone"))
        driver.request_poll()
        tick(driver)
    other.recover()
    world.settle(other)

    assert started(other) == ([] if is_stopped else [("b", 1)])
    assert plain.leases_of(other.name) == []
