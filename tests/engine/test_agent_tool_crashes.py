"""A crash at every fault point of an agent with five tool calls: the same outcome, and no finished call again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from mulligan.core.effects.tasks import Task
from mulligan.core.model import events as e
from mulligan.core.model.outcome import Outcome
from mulligan.engine.engine import Engine
from mulligan.language.expressions import Cel
from mulligan.ports import FAULT_POINTS, WorkerRecord
from mulligan.testing.clock import JumpingClock
from mulligan.testing.fake_executor import FakeExecutor
from mulligan.testing.faults import Crash, faults
from mulligan.testing.memory.memory_store import MemoryStore

from .conftest import World

# Three turns ask for two, one and two tools, one of which does not work at first; the fourth answers.
FILE = """
steps:
  - step: look
    description: look something up
    tool: {inputs: {word: string}}
    shell: look up "${inputs.word}"
    retry: 1
  - step: ask
    agent: {provider: scripted, prompt: What is it?, tools: [look], session: chat}
"""
WORDS = (("fjord", "ice"), ("sea",), ("salt", "wind"))


class Model:
    """Ends the tasks of the agent, and refuses to end a call whose result is already in the log."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ended: Counter[str] = Counter()

    def end(self, task: Task) -> Outcome:
        self.ended[task.place] += 1
        if task.role == "tool":
            number = int(task.place.rpartition(".")[2])
            assert number not in answered(self.world, task.run_id), f"call {number} was made again"
            return Outcome(exit_code=int(number == 2 and task.tries == 0))
        return Outcome()

    def output(self, task: Task) -> Any:
        if task.role == "tool":
            return f"found {task.env}"
        turn = task.conversation["turn"]
        if turn == len(WORDS):
            said = [result["output"] for one in task.conversation["turns"] for result in one["results"]]
            return {"content": "; ".join(said), "decision": None, "tokens": None}
        calls = [{"id": f"{turn}-{word}", "name": "look", "arguments": {"word": word}} for word in WORDS[turn]]
        return {"content": "", "tool_calls": calls}

    def engine(self) -> Engine:
        """A new worker that asks this model."""
        world = self.world
        world.count += 1
        name = f"w{world.count}"
        world.store.register(WorkerRecord(name, "here", world.count))
        executor = FakeExecutor(name, world.clock, ends=self.end, output=self.output)
        return Engine(world.store, world.clock, Cel({}), name, executor)


def answered(world: World, run_id: int) -> set[int]:
    return {one.fact.number for one in world.store.log(run_id) if isinstance(one.fact, e.ToolAnswered)}


@pytest.fixture
def world() -> Iterator[World]:
    clock = JumpingClock()
    store = MemoryStore(clock=clock)
    yield World(store, clock)
    store.close()


def run_to_end(world: World) -> tuple[dict[str, Any], Model]:
    """What becomes of a run, with a new engine after each crash; every promise is checked from its log."""
    model = Model(world)
    engine: Engine | None = model.engine()
    run_id = world.start(FILE, engine)
    while world.status(run_id) not in ("completed", "failed", "cancelled"):
        if engine is None:
            engine = model.engine()
            engine.take_up([run_id])
        try:
            world.settle(engine)
        except Crash:
            world.expire(engine)
            engine = None
    state = world.state(run_id)
    facts = [one.fact for one in world.store.log(run_id)]
    calls = [(fact.number, fact.arguments) for fact in facts if isinstance(fact, e.ToolCalled)]
    answers = [(fact.number, fact.output, fact.error) for fact in facts if isinstance(fact, e.ToolAnswered)]
    found = {
        "status": state.run.status,
        "output": state.places["ask"].output,
        "calls": calls,
        "answers": answers,
        "tool_calls": state.run.spent.tool_calls,
        "session": [part.messages for part in state.run.sessions["chat"]],
    }
    return found, model


@pytest.mark.parametrize("point", sorted(FAULT_POINTS))
def test_a_crash_at_any_commit_changes_no_outcome_and_makes_no_finished_call_again(world: World, point: str) -> None:
    with faults() as points:
        expected, _ = run_to_end(world)

    assert (expected["status"], len(expected["calls"]), len(expected["answers"])) == ("completed", 5, 5)
    assert points.passes[point] > 5
    for nth in world.crashes(points.passes[point]):
        with faults() as again:
            again.arm(point, nth)
            found, model = run_to_end(world)

        assert found == expected, f"died at pass {nth} of '{point}'"
        # One crash: one task at most ran twice, and the one that did was not in the log.
        assert sum(model.ended.values()) <= 4 + 6 + 1
