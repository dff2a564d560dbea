"""A large run begins to run before all of its first steps are entered, and no crash loses the others."""

from __future__ import annotations

import pytest

from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.graph import Graph
from mulligan.testing.faults import Crash, faults

from .conftest import World

PIECE = 20
STEPS = PIECE * 2 + 10
LARGE = "steps:\n" + "".join(f"  - {{step: s{i}, shell: make}}\n" for i in range(STEPS))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enter a few steps at once: what is true of pieces of a thousand is true of these."""
    monkeypatch.setattr(Graph, "starts_at_once", PIECE)


def test_the_first_task_starts_before_the_last_step_is_entered(world: World) -> None:
    engine = world.engine(slots=500)
    run_id = world.start(LARGE, engine)

    world.settle(engine, ticks_max=5 * STEPS)

    facts = [entry.fact for entry in world.store.log(run_id)]
    started = next(i for i, fact in enumerate(facts) if isinstance(fact, e.AttemptStarted))
    entered = max(i for i, fact in enumerate(facts) if isinstance(fact, e.StepEntered) and fact.step != "end")
    assert started < entered
    assert world.status(run_id) == "completed"
    assert set(world.statuses(run_id).values()) == {"completed"}


@pytest.mark.parametrize("crash_at", [1, 2, 3])
def test_after_a_crash_between_two_pieces_the_others_are_entered_once(world: World, crash_at: int) -> None:
    first = world.engine(slots=500)
    run_id = world.start(LARGE, first)
    with faults() as points, pytest.raises(Crash):
        points.arm("after_commit", crash_at)
        world.settle(first, ticks_max=5 * STEPS)
    world.expire(first)

    second = world.engine(slots=500)
    second.take_up([run_id])
    world.settle(second, ticks_max=5 * STEPS)

    entered = [entry.fact.step for entry in world.store.log(run_id) if isinstance(entry.fact, e.StepEntered)]
    assert len(entered) == len(set(entered)) == STEPS + 1
    assert world.status(run_id) == "completed"


def test_a_pause_between_two_pieces_enters_no_more_until_it_is_lifted(world: World) -> None:
    engine = world.engine(slots=500)
    run_id = world.start(LARGE, engine)
    engine.tick(0.0)
    world.store.put(run_id, r.PauseRequested(world.clock.now(), "ann"))
    engine.request_poll()
    world.settle(engine, ticks_max=5 * STEPS)
    entered = [entry.fact for entry in world.store.log(run_id) if isinstance(entry.fact, e.StepEntered)]

    world.store.put(run_id, r.ResumeRequested(world.clock.now(), "ann"))
    engine.request_poll()
    world.settle(engine, ticks_max=5 * STEPS)

    assert len(entered) < STEPS
    assert world.status(run_id) == "completed"
    assert set(world.statuses(run_id).values()) == {"completed"}


ASKING = "steps:\n" + "".join(f"  - {{step: s{i}, approve: {{message: go on?}}}}\n" for i in range(STEPS))


@pytest.mark.parametrize("crash_at", [1, 2])
@pytest.mark.parametrize("world", ["postgres"], indirect=True)
def test_where_nothing_of_them_calls_for_a_worker_the_others_are_entered_by_the_next_one(
    world: World, crash_at: int
) -> None:
    first = world.engine()
    run_id = world.start(ASKING, first)
    with faults() as points, pytest.raises(Crash):
        points.arm("after_commit", crash_at)
        world.settle(first)
    world.expire(first)

    world.settle(world.engine())

    entered = [entry.fact.step for entry in world.store.log(run_id) if isinstance(entry.fact, e.StepEntered)]
    assert len(entered) == len(set(entered)) == STEPS
    assert world.store.inbox([run_id]) == []
