"""Run a random program as a Python function that calls steps."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from mulligan.flows.actions import approve
from mulligan.flows.context import running_program
from mulligan.flows.steps import step
from mulligan.programs.errors import ProgramError, StepFailed
from mulligan.programs.verbs import gather, now, sleep, wait_event
from proof.simulator.programs.drawing import EVENTS, Block, RandomProgram

TASK_CALLS_MAX = 2


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


@step(inline=True)
def s4(x: int) -> Any:
    return [x]


STEPS: tuple[Any, ...] = (s0, s1, s2, s3, s4)


class End(Exception):
    """The program returns early."""


def function_of(program: RandomProgram) -> Callable[[], Any]:
    """The program as a function without parameters."""
    run = Interpreter(is_async=program.is_async)

    async def beside() -> Any:
        return await run.whole(program.block)

    def plain() -> Any:
        return drive(run.whole(program.block))

    return beside if program.is_async else plain


def drive(coroutine: Any) -> Any:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a plain program does not wait")


class Interpreter:
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

    # -- what it asks for

    async def _got(self, value: Any) -> Any:
        return await value if self.is_async and hasattr(value, "__await__") else value

    async def call(self, which: int, x: int, key: str = "") -> Any:
        return await self._got((STEPS[which].options(key=key) if key else STEPS[which])(x))

    async def gather(self, which: list[int], x: int, *, returns_failures: bool) -> list[Any]:
        calls = [STEPS[one].call(x + at) for at, one in enumerate(which)]
        gathered: Any = gather(calls, failures="return") if returns_failures else gather(calls)
        found: list[Any] = await self._got(gathered)
        return found

    async def sleep(self, seconds: int) -> None:
        await self._got(sleep(seconds))

    async def approve(self, seconds: int) -> Any:
        return await self._got(approve("go on?", timeout=f"{seconds}s"))

    async def event(self, seconds: int, *, has_default: bool) -> Any:
        default: dict[str, Any] = {"default": 0} if has_default else {}
        return await self._got(wait_event(EVENTS[seconds % 2], timeout=seconds, **default))

    def now(self) -> float:
        return now().timestamp()

    def chance(self, name: str) -> Any:
        """As `mulligan.random` and `uuid4` do it, by numbers that a seed gives again."""
        running: Any = running_program()
        return running.value(name, running.chance)

    # -- statements

    async def _learn_from(self, asked: Awaitable[Any], *, is_caught: bool) -> None:
        try:
            self.learn(await asked)
        except StepFailed as failed:
            if not is_caught:
                raise
            self.learn(failed.code)

    async def _call(self, which: list[int], number: int, is_caught: bool) -> None:
        await self._learn_from(self.call(which[0], self.x), is_caught=is_caught)

    async def _key(self, which: list[int], number: int, is_caught: bool) -> None:
        try:
            await self._learn_from(self.call(which[0], self.x, f"k{number}"), is_caught=is_caught)
        except ProgramError:
            self.learn("used twice")

    async def _gather(self, which: list[int], number: int, is_caught: bool) -> None:
        async def asked() -> list[Any]:
            found = await self.gather(which, self.x, returns_failures=number % 2 == 0)
            return [getattr(one, "code", one) for one in found]

        await self._learn_from(asked(), is_caught=is_caught)

    async def _sleep(self, which: list[int], number: int, is_caught: bool) -> None:
        await self._learn_from(self.sleep(number), is_caught=is_caught)

    async def _approve(self, which: list[int], number: int, is_caught: bool) -> None:
        await self._learn_from(self.approve(number), is_caught=is_caught)

    async def _event(self, which: list[int], number: int, is_caught: bool) -> None:
        await self._learn_from(self.event(number, has_default=len(which) > 2), is_caught=is_caught)

    async def _now(self, which: list[int], number: int, is_caught: bool) -> None:
        self.learn(self.now())

    async def _random(self, which: list[int], number: int, is_caught: bool) -> None:
        self.learn(self.chance("random"))

    async def _uuid(self, which: list[int], number: int, is_caught: bool) -> None:
        self.learn(self.chance("uuid4"))

    async def _return(self, which: list[int], number: int, is_caught: bool) -> None:
        if self.x % number == 0:
            raise End

    async def _raise(self, which: list[int], number: int, is_caught: bool) -> None:
        if self.x % number == 0:
            raise ValueError(f"x is {self.x}")

    async def _try(self, block: Block, number: int) -> None:
        try:
            await self.run(block)
        except StepFailed as failed:
            self.learn(failed.code)
        except ValueError:
            self.learn("ValueError")
        finally:
            self.learn("finally")

    async def _if(self, one: Block, other: Block, number: int) -> None:
        await self.run(one if self.x % 2 else other)

    async def _loop(self, block: Block, number: int) -> None:
        for turn in range(number):
            self.learn(turn)
            await self.run(block)
            if self.x % 7 == 0:
                break

    async def _while(self, block: Block, number: int) -> None:
        """Until it is content, or has tried for long enough."""
        tries = 0
        while self.x % 4 and tries < number:
            tries += 1
            await self.run(block)

    async def _again(self, block: Block, number: int) -> None:
        """Recursion, until the number is even or three deep."""
        await self.run(block)
        if self.x % 2 and number < 3:
            await self._again(block, number + 1)

    # -- beside each other: what follows depends on the order in which calls end

    def _started(self, which: list[int], *, is_caught: bool = True) -> list[asyncio.Task[Any]]:
        async def one(index: int, at: int) -> Any:
            found = None
            for turn in range(1 + index % TASK_CALLS_MAX):
                await self._learn_from(self.call(index, at + turn), is_caught=is_caught)
                found = self.x
            return found

        return [asyncio.ensure_future(one(index, self.x + at)) for at, index in enumerate(which)]

    async def _race(self, which: list[int], number: int, is_caught: bool) -> None:
        """The first that ends counts, and the others are cancelled."""
        tasks = self._started(which, is_caught=is_caught)
        done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task in done:
                self.learn(task.exception() or task.result())
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _tasks(self, which: list[int], number: int, is_caught: bool) -> None:
        """All of them, in the order in which they end."""
        for task in asyncio.as_completed(self._started(which, is_caught=is_caught)):
            with suppress(StepFailed):
                self.learn(await task)

    async def _group(self, which: list[int], number: int, is_caught: bool) -> None:
        """The first failure cancels the others."""
        try:
            async with asyncio.TaskGroup() as group:
                for at, one in enumerate(which):
                    group.create_task(self._learn_from(self.call(one, self.x + at), is_caught=at % 2 == 0))
        except* StepFailed as failed:
            self.learn(len(failed.exceptions))

    async def _shared(self, which: list[int], number: int, is_caught: bool) -> None:
        """Some tasks at a time."""
        slots = asyncio.Semaphore(2)

        async def one(at: int, index: int) -> None:
            async with slots:
                await self._learn_from(self.call(index, at), is_caught=is_caught)

        # After the first failure the others go on.
        await asyncio.gather(*(one(at, index) for at, index in enumerate(which)))

    async def _drop(self, which: list[int], number: int, is_caught: bool) -> None:
        """A call is started and cancelled while another one runs."""
        task = asyncio.ensure_future(self.call(which[0], self.x))
        await self._learn_from(self.call(which[-1], self.x), is_caught=True)
        task.cancel()
        try:
            self.learn(await task)
        except asyncio.CancelledError:
            self.learn("dropped")
        except StepFailed as failed:
            self.learn(failed.code)

    async def _timeout(self, which: list[int], number: int, is_caught: bool) -> None:
        try:
            async with asyncio.timeout(number):
                await self._call(which, number, is_caught)
        except TimeoutError:
            self.learn("late")
