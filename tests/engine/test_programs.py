"""A program that goes on in its turn, or may not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mulligan.core.model.actions import PROGRAM
from mulligan.core.model.program_calls import Delivery, ProgramCall, TurnEnd
from mulligan.core.model.reports import CallsMade, Report
from mulligan.core.model.workflow import Action
from mulligan.engine.engine import Engine
from mulligan.language.expressions import Cel
from mulligan.ports import Lease, WorkerRecord
from mulligan.testing.fake_executor import FakeExecutor
from mulligan.testing.history import step, workflow

from .conftest import World

NIGHTLY = workflow(step("nightly", action=Action(PROGRAM, {"call": "m:nightly"})))
COUNT = step("count", action=Action("python", {"call": "m:count"}))


class SayingExecutor(FakeExecutor):
    """Its program says once that it has called an inline step, and waits."""

    is_said = False

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, ends=lambda task: None, **given)
        self.went_on: list[int] = []
        self.ended: list[int] = []

    def collect(self, timeout: float | None) -> list[tuple[Lease, Report]]:
        if self.is_said or not self._running:
            return []
        self.is_said = True
        (lease,) = self._running.values()
        call = ProgramCall("", 0, "count", kind="inline", definition="d", output=1)
        turn = TurnEnd(1, {"d": COUNT}, (call,), goes_on=True)
        return [(lease, CallsMade(self.clock.now(), lease.task.place, lease.task.attempt, turn))]

    def go_on(self, token: int, ends: Sequence[Delivery]) -> None:
        self.went_on.append(token)

    def end_turn(self, token: int) -> None:
        self.ended.append(token)


def begun(world: World) -> tuple[Engine, SayingExecutor, int]:
    world.store.register(WorkerRecord("w1", "here", 1))
    executor = SayingExecutor("w1", world.clock)
    engine = Engine(world.store, world.clock, Cel({}), "w1", executor)
    run_id = world.start(NIGHTLY, engine)
    return engine, executor, run_id


def test_a_program_goes_on_when_its_inline_step_is_recorded(world: World) -> None:
    engine, executor, run_id = begun(world)

    for _ in range(3):
        engine.tick(0.0)

    assert (len(executor.went_on), executor.ended) == (1, [])
    assert world.statuses(run_id) == {"nightly": "running", "count": "completed"}


def test_a_program_does_not_go_on_in_an_engine_that_drains(world: World) -> None:
    engine, executor, run_id = begun(world)
    engine.tick(0.0)

    engine.drain()
    world.settle(engine)

    assert (executor.went_on, len(executor.ended)) == ([], 1)
    assert world.statuses(run_id) == {"nightly": "ready", "count": "completed"}
