"""The time of a run is up while nobody drives it: whoever takes it up stops it before anything of it is started."""

from __future__ import annotations

import pytest

from mulligan.core.effects.tasks import Task
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.engine.engine import Engine

from .conftest import World

FAN = """
timeout: 60s
cancel_grace: finish
steps:
  - {step: a, shell: make a}
  - {step: b, shell: make b}
  - {step: c, shell: make c, needs: [a, b]}
"""
# What comes due before the time of the run is up, and asks for a task then.
DUE_BEFORE = {
    "a retry": "{step: a, shell: make a, retry: {max_retries: 1, delay: 30s}}",
    "a wait": "{step: w, wait: 30s}, {step: a, shell: make a, needs: [w]}",
    "a triage": "{step: a, shell: make a, triage: {timeout: 30s, default: retry}}",
    "a loop": "{step: a, shell: make a, next: [{to: b}]}, {step: b, shell: make b, next: [{to: a, delay: 30s}]}",
}


def attempts(world: World, run_id: int) -> list[str]:
    """The attempts that started, of actions that a worker carries out."""
    found = (entry.fact for entry in world.store.log(run_id) if isinstance(entry.fact, e.AttemptStarted))
    return [f"{fact.place} {fact.attempt}" for fact in found if fact.worker]


def die(world: World, engine: Engine, *, seconds: float) -> Engine:
    """The worker dies, time passes, and another one finds what it left."""
    world.expire(engine)
    world.clock.advance(seconds)
    return world.engine()


def taken_up(world: World, run_id: int, engine: Engine) -> None:
    engine.take_up([run_id])
    world.settle(engine)


def work(engine: Engine) -> None:
    """Some rounds of the loop, with tasks that do not end."""
    for _ in range(6):
        engine.tick(0.0)


def never(task: Task) -> Outcome | None:
    return None


def test_a_lost_attempt_is_not_run_again_after_the_time_of_the_run(world: World) -> None:
    first = world.engine(ends=never)
    run_id = world.start(FAN, first)
    work(first)

    taken_up(world, run_id, die(world, first, seconds=100))

    assert attempts(world, run_id) == ["a 1", "b 1"]
    assert world.statuses(run_id) == {"a": "cancelled", "b": "cancelled", "c": "cancelled"}
    assert world.status(run_id) == "failed"


def test_a_task_that_was_queued_is_not_started_after_the_time_of_the_run(world: World) -> None:
    first = world.engine(slots=1, ends=never)
    run_id = world.start(FAN, first)
    work(first)
    assert world.statuses(run_id)["b"] == "ready"

    taken_up(world, run_id, die(world, first, seconds=100))

    assert attempts(world, run_id) == ["a 1"]
    assert world.status(run_id) == "failed"


@pytest.mark.parametrize("steps", DUE_BEFORE.values(), ids=list(DUE_BEFORE))
def test_what_came_due_before_the_time_was_up_starts_nothing_after_it(world: World, steps: str) -> None:
    first = world.engine(ends=lambda task: Outcome(exit_code=0 if "next" in steps else 1))
    run_id = world.start(f"timeout: 60s\ncancel_grace: finish\nsteps: [{steps}]", first)
    world.settle(first)
    before = attempts(world, run_id)
    assert world.status(run_id) == "running"

    taken_up(world, run_id, die(world, first, seconds=100))

    assert attempts(world, run_id) == before
    assert world.status(run_id) == "failed"


def test_cleanup_undo_and_end_still_run(world: World) -> None:
    first = world.engine(ends=lambda task: None if task.step == "b" else Outcome(exit_code=0))
    handler = "{shell: sweep, strategy: cleanup}"
    steps = f"{{step: a, shell: make a, undo: remove a}}, {{step: b, shell: make b, on_failure: {handler}}}"
    run_id = world.start(f"timeout: 60s\nsteps: [{steps}]\nend: {{shell: report}}", first)
    work(first)

    taken_up(world, run_id, die(world, first, seconds=100))

    assert attempts(world, run_id) == ["a 1", "b 1", "b.on_failure@1.0 1", "a.undo@1 1", "end 1"]
    assert world.status(run_id) == "failed"


def test_a_child_run_starts_nothing_after_the_time_of_the_run_that_called_it(world: World) -> None:
    first = world.engine(slots=1, ends=never)
    group = "{step: g, group: {steps: [{step: x, shell: make x}, {step: y, shell: make y}]}}"
    run_id = world.start(f"timeout: 60s\nsteps: [{group}]", first)
    work(first)
    child = run_id + 1
    assert attempts(world, child) == ["x 1"]

    second = die(world, first, seconds=100)
    second.take_up([run_id, child])
    world.settle(second)

    assert attempts(world, child) == ["x 1"]
    assert (world.status(run_id), world.status(child)) == ("failed", "cancelled")


@pytest.mark.parametrize("world", ["memory", "sqlite"], indirect=True)
def test_a_pause_does_not_count(world: World) -> None:
    first = world.engine(slots=1, ends=never)
    run_id = world.start(FAN, first)
    work(first)
    world.store.put(run_id, r.PauseRequested(world.clock.now(), "someone"))
    first.request_poll()
    work(first)

    second = die(world, first, seconds=100)
    world.store.put(run_id, r.ResumeRequested(world.clock.now(), "someone"))
    taken_up(world, run_id, second)

    assert world.status(run_id) == "completed"


def test_what_ended_in_time_counts_and_what_follows_is_not_started(world: World) -> None:
    engine = world.engine()
    run_id = world.start("timeout: 60s\norder: sequential\nsteps: [{step: a, shell: x}, {step: b, shell: y}]", engine)
    engine.tick(0.0)

    # Its worker is kept from writing the result until the time is up.
    world.clock.advance(100)
    world.settle(engine)

    assert attempts(world, run_id) == ["a 1"]
    assert world.statuses(run_id) == {"a": "completed", "b": "cancelled"}
