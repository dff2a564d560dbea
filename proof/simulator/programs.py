"""Random programs: Python functions that call steps, run by the real machine below a program, one turn at a time.

A program is drawn from a seed that its definition has, and interpreted. A turn starts from the recorded history each
time, as that of a process that was ended. So every turn is a replay, and each one checks that it makes the same calls.
"""

from __future__ import annotations

import asyncio
import zlib
from random import Random
from typing import Any

import msgspec

from mulligan.core.effects.program_history import program_history
from mulligan.core.effects.tasks import Task
from mulligan.core.model.actions import PROGRAM as PROGRAM_KIND
from mulligan.core.model.actions import PYTHON, traits_of
from mulligan.core.model.program_calls import TurnEnd
from mulligan.core.model.workflow import Action, Step, Workflow, expressions_in
from mulligan.core.state.state import State
from mulligan.flows.actions import approve
from mulligan.flows.steps import step
from mulligan.programs import messages as m
from mulligan.programs.conversion import history_of, turn_end_of
from mulligan.programs.definitions import approve_definition, digest_of, sleep_definition
from mulligan.programs.errors import StepFailed, Stopped
from mulligan.programs.machine import Machine
from mulligan.programs.running import run_function
from mulligan.programs.verbs import gather, now, sleep

PROGRAM = "p"
# How deep blocks nest, and how many things a block does.
DEPTH_MAX, LENGTH_MAX = 3, 4


@step
def s0(x: int) -> Any: ...


@step
def s1(x: int) -> Any: ...


@step
def s2(x: int) -> Any: ...


@step(inline=True)
def s3(x: int) -> Any:
    if x % 5 == 0:
        raise ValueError("five")
    return x + 1


STEPS = (s0, s1, s2, s3)
Block = list[tuple[Any, ...]]


class End(Exception):
    """The program returns early."""


# -- random programs ---------------------------------------------------------------------------------------------------


def random_program(rng: Random) -> tuple[bool, Block]:
    """Whether it is asynchronous, and what it does."""
    is_async = rng.random() < 0.4
    return is_async, _block(rng, DEPTH_MAX, is_async=is_async)


def _block(rng: Random, depth: int, *, is_async: bool) -> Block:
    return [_statement(rng, depth, is_async=is_async) for _ in range(rng.randint(1, LENGTH_MAX))]


def _statement(rng: Random, depth: int, *, is_async: bool) -> tuple[Any, ...]:
    simple = ["call"] * 6 + ["gather", "sleep", "now", "approve", "key", "return", "raise"]
    nested = ["try"] * 3 + ["if", "loop", "again"]
    beside = ["race", "timeout", "tasks"] if is_async else []
    kind = rng.choice([*simple, *(nested if depth else []), *beside])
    many = [rng.randrange(len(STEPS)) for _ in range(rng.randint(1, 4))]
    if kind in ("try", "loop", "again"):
        return kind, rng.randint(1, 3), _block(rng, depth - 1, is_async=is_async)
    if kind == "if":
        return kind, *(_block(rng, depth - 1, is_async=is_async) for _ in range(2))
    return kind, rng.randint(2, 9), many


def with_program(rng: Random, workflow: Workflow, steps: tuple[Step, ...]) -> Workflow:
    """The workflow with a program as its only step, which calls steps with the definitions of these."""
    seed = rng.randrange(2**32)
    data = [msgspec.json.encode(_alone(one, index), order="sorted").decode() for index, one in enumerate(steps)]
    action = Action(PROGRAM_KIND, {"call": "simulated:p", "seed": seed, "steps": data})
    program = Step(name=PROGRAM, action=action, deadline=rng.choice((None, None, 200.0)))
    slots = rng.choice((None, None, 1, 2))
    return msgspec.structs.replace(workflow, steps=(program,), groups={}, outputs={}, max_parallel=slots)


def _alone(drawn: Step, index: int) -> Step:
    """The step without what connects it to others, or reads them."""
    action = drawn.action
    found = traits_of(action)
    if action is None or found.calls_run or found.is_agent or index == 3:
        action = Action(PYTHON, {"call": "simulated:s", "args": {"${}": "args"}})
    plain = Step()
    kept = {name: getattr(drawn, name) for name in _KEPT if not _reads_steps(getattr(drawn, name))}
    bindings = {} if _reads_steps(action) else action.bindings
    action = msgspec.structs.replace(action, bindings=bindings) if bindings is not action.bindings else action
    if not bindings:
        action = Action(PYTHON, {"call": "simulated:s"}) if "${}" in str(action.params) else action
    return msgspec.structs.replace(plain, name=f"s{index}", action=action, **kept)


_KEPT = (
    *("rules", "max_attempts", "timeout", "deadline", "on_failure", "handler_failure_fatal", "on_success", "validate"),
    *("validator", "continue_on_error", "resources", "on_lost", "affinity", "breaker", "triage", "undo", "when"),
)


def _reads_steps(part: Any) -> bool:
    return any(read.startswith("steps") for one in expressions_in(part) for read in one.reads)


# -- running one -------------------------------------------------------------------------------------------------------


class _Turn:
    """The way to the engine: the first exchange ends the turn."""

    def __init__(self, steps: list[str], at: float) -> None:
        self.said: m.Idle | None = None
        self._steps = [json.encode() for json in steps]
        self._at = at

    def exchange(self, message: m.Idle) -> m.Deliver:
        self.said = message
        raise Stopped

    def replayed(self) -> None: ...

    def arm(self) -> None: ...

    def disarm(self) -> None: ...

    def differs(self, difference: Any) -> None: ...

    def wall_time(self) -> float:
        return self._at

    def define(self, thing: Any) -> m.StepDefinition:
        data = self._steps[STEPS.index(thing) if thing in STEPS else int(thing.__name__[1])]
        return m.StepDefinition(digest_of(data), data)

    def define_sleep(self) -> m.StepDefinition:
        return sleep_definition()

    def define_approval(self, *, has_timeout: bool) -> m.StepDefinition:
        return approve_definition(has_timeout=has_timeout)


def play_turn(task: Task, state: State, at: float) -> tuple[TurnEnd, Any]:
    """What the program says in this turn, and what it has returned if it has ended."""
    turn = task.turn
    assert turn is not None
    found = program_history(state, turn.delivered + len(turn.deliveries))
    history = m.decode_history(history_of(found)) if found.calls else None
    return play(task.params["seed"], task.params["steps"], history, turn=turn.turn, begun=turn.begun, at=at)


def play(
    seed: int, steps: list[str], history: m.History | None, *, turn: int, begun: float, at: float
) -> tuple[TurnEnd, Any]:
    link = _Turn(steps, at)
    machine = Machine(link, turn=turn, history=history, at=begun)
    is_async, block = random_program(Random(seed))
    run = _Interpreter(is_async=is_async)

    async def beside() -> Any:
        return await run.whole(block)

    def plain() -> Any:
        return _drive(run.whole(block))

    said: m.FromProgram
    try:
        said = run_function(machine, beside if is_async else plain, {})
    except Stopped:
        assert link.said is not None
        said = link.said
    return turn_end_of(said), said.output if isinstance(said, m.Ended) else None


def _drive(coroutine: Any) -> Any:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a plain program does not wait")


class _Interpreter:
    """Does what a block says. All that it learns goes into one number, which decides what it does next."""

    def __init__(self, *, is_async: bool) -> None:
        self.is_async = is_async
        self.x = 1

    async def whole(self, block: Block) -> dict[str, Any]:
        try:
            await self.run(block)
        except End:
            return {"early": self.x}
        return {"x": self.x}

    async def run(self, block: Block) -> None:
        for kind, *rest in block:
            await getattr(self, f"_{kind}")(*rest)

    def learn(self, value: Any) -> None:
        text = msgspec.json.encode([self.x, str(value)])
        self.x = zlib.crc32(text) % 1000

    async def got(self, value: Any) -> Any:
        return await value if self.is_async and hasattr(value, "__await__") else value

    async def _call(self, number: int, which: list[int]) -> None:
        self.learn(await self.got(STEPS[which[0]](self.x)))

    async def _key(self, number: int, which: list[int]) -> None:
        step: Any = STEPS[which[0]].options(key=f"k{self.x}")
        try:
            self.learn(await self.got(step(self.x)))
        except RuntimeError as error:
            self.learn(type(error).__name__)

    async def _gather(self, number: int, which: list[int]) -> None:
        calls = [STEPS[one].call(self.x + at) for at, one in enumerate(which)]
        gathered: Any = gather(calls, failures="return") if number % 2 else gather(calls)
        for one in await self.got(gathered):
            self.learn(getattr(one, "code", one))

    async def _sleep(self, number: int, which: list[int]) -> None:
        await self.got(sleep(number))

    async def _now(self, number: int, which: list[int]) -> None:
        self.learn(now() is None)

    async def _approve(self, number: int, which: list[int]) -> None:
        answer = await self.got(approve("go on?", timeout=f"{number}s"))
        self.learn(answer is None)

    async def _return(self, number: int, which: list[int]) -> None:
        if self.x % number == 0:
            raise End

    async def _raise(self, number: int, which: list[int]) -> None:
        if self.x % number == 0:
            raise ValueError(f"x is {self.x}")

    async def _try(self, number: int, block: Block) -> None:
        try:
            await self.run(block)
        except StepFailed as failed:
            self.learn(failed.code)
        except ValueError:
            self.learn("ValueError")
        finally:
            self.learn("finally")

    async def _if(self, one: Block, other: Block) -> None:
        await self.run(one if self.x % 2 else other)

    async def _loop(self, number: int, block: Block) -> None:
        for turn in range(number):
            self.learn(turn)
            await self.run(block)
            if self.x % 7 == 0:
                break

    async def _again(self, number: int, block: Block) -> None:
        """Recursion, until the number is even or three deep."""
        await self.run(block)
        if self.x % 2 and number < 3:
            await self._again(number + 1, block)

    # -- beside each other

    def _started(self, which: list[int]) -> list[asyncio.Task[Any]]:
        async def one(index: int, at: int) -> Any:
            call: Any = STEPS[index](at)
            return await call

        return [asyncio.ensure_future(one(index, self.x + at)) for at, index in enumerate(which)]

    async def _race(self, number: int, which: list[int]) -> None:
        """The first that ends counts, and the others are cancelled."""
        tasks = self._started(which)
        done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task in done:
                self.learn(task.exception() or task.result())
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _tasks(self, number: int, which: list[int]) -> None:
        """All of them, in the order in which they end."""
        for task in asyncio.as_completed(self._started(which)):
            try:
                self.learn(await task)
            except StepFailed as failed:
                self.learn(failed.code)

    async def _timeout(self, number: int, which: list[int]) -> None:
        try:
            async with asyncio.timeout(number):
                await self._call(number, which)
        except TimeoutError:
            self.learn("late")
