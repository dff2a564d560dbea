"""A program that is interrupted anywhere, and replayed, ends as if it had not been, and calls nothing twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

import mulligan
from mulligan import StepError, StepFailed, gather, program, sleep, step
from mulligan.programs import messages as m
from mulligan.programs.errors import Stopped
from mulligan.programs.machine import Machine
from mulligan.programs.memory_engine import MemoryEngine
from mulligan.programs.program import Program
from mulligan.programs.running import run_function

_LOSSES = ("before it is recorded", "after it is recorded", "after something has ended")


@step
def work(number: int) -> int:
    if number % 5 == 3:
        raise StepError("FIFTH", f"{number}")
    return number * 2 + 1


@step(inline=True)
def note(number: int) -> int:
    return work.fn(number)


class Engine(MemoryEngine):
    """Ends the open calls in an order of chance, several at once, and loses the process where it is told to."""

    def __init__(self, seed: int, losses: dict[int, str]) -> None:
        super().__init__()
        self._chance = random.Random(seed)
        self._losses = losses
        self._exchanges = 0
        self.ran: Counter[m.CallId] = Counter()

    def exchange(self, message: m.Idle) -> m.Deliver:
        self._exchanges += 1
        loss = self._losses.get(self._exchanges)
        if loss == _LOSSES[0]:
            raise Stopped
        self.take(message)
        if loss == _LOSSES[1]:
            raise Stopped
        found = self.ends() if message.wants_ends else ()
        if loss == _LOSSES[2]:
            raise Stopped
        self._turn += 1
        return m.Deliver(turn=self._turn, deliveries=found)

    def _begin(self, call: m.Call) -> None:
        self.ran[call.id] += 1
        super()._begin(call)

    def ends(self) -> tuple[m.Delivery, ...]:
        """Some of the open calls, in any order. By the log alone: so it is the same whoever was lost meanwhile."""
        ready = sorted((one for _, _, one in self._due if one.id in self._open), key=lambda one: one.id.branch)
        chance = random.Random(f"{self._chance.random()} {len(self.deliveries)}")
        chosen = chance.sample(ready, min(len(ready), 1 + (chance.random() < 0.3)))
        self._open -= {one.id for one in chosen}
        self.now += 1
        return tuple(self.deliver(one) for one in chosen)


def outcome_of(tested: Program[..., Any], tree: Any, engine: Engine) -> m.Ended:
    """Run the program until it ends, with a new process after each loss."""
    history = None
    while True:
        machine = Machine(engine, history=history, at=engine.now)
        try:
            ended = run_function(machine, tested.fn, {"tree": tree})
        except Stopped:
            # It is read as a new process reads it.
            history = m.decode_history(m.encode_history(engine.calls, engine.deliveries))
            continue
        engine.take(ended)
        return ended


# -- programs of chance ------------------------------------------------------------------------------------------------

_numbers = st.integers(0, 9)
_leaves = st.one_of(
    st.tuples(st.just("call"), _numbers),
    st.tuples(st.just("inline"), _numbers),
    st.tuples(st.just("sleep"), _numbers),
    st.tuples(st.just("value"), st.just(0)),
    st.tuples(st.just("gather"), st.lists(_numbers, max_size=3)),
    st.tuples(st.just("return"), st.just(0)),
    st.tuples(st.just("raise"), _numbers),
)


def _nodes(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    body = st.lists(inner, max_size=3)
    return st.one_of(
        st.tuples(st.just("if"), body, body),
        st.tuples(st.just("loop"), st.integers(0, 3), body),
        st.tuples(st.just("try"), body),
        st.tuples(st.just("finally"), body, body),
        st.tuples(st.just("recursion"), body),
        st.tuples(st.just("beside"), st.lists(body, max_size=3)),
        st.tuples(st.just("race"), st.lists(body, min_size=1, max_size=3)),
        st.tuples(st.just("timeout"), _numbers, body),
    )


_trees = st.lists(st.recursive(_leaves, _nodes, max_leaves=10), max_size=5)


class Returned(Exception):
    """An early return, from any depth."""


class Plain:
    """The verbs of a program as plain functions."""

    work = staticmethod(work.fn)
    note = staticmethod(note.fn)

    @staticmethod
    def sleep(_duration: Any) -> None: ...

    @staticmethod
    def value() -> float:
        return 0.0

    @staticmethod
    def gather(numbers: list[int]) -> list[int]:
        found = []
        failures = []
        for number in numbers:
            try:
                found.append(work.fn(number))
            except StepError as failed:
                failures.append(failed)
        if failures:
            raise failures[0]
        return found


class Durable:
    """The same, as a program has them."""

    work = work
    note = note
    sleep = staticmethod(sleep)

    @staticmethod
    def value() -> float:
        return mulligan.random() * 0

    @staticmethod
    def gather(numbers: list[int]) -> list[int]:
        return gather(work.call(number) for number in numbers)


def run_plain(nodes: Any, verbs: Any, seen: list[Any], depth: int = 0) -> None:
    """What the tree says, with `seen` as the memory that it decides by."""
    for kind, *given_ in nodes:
        last = seen[-1] if seen and isinstance(seen[-1], int) else len(seen)
        if kind == "call":
            seen.append(verbs.work(given_[0] + last % 3))
        elif kind == "inline":
            seen.append(verbs.note(given_[0] + last % 3))
        elif kind == "sleep":
            verbs.sleep(given_[0])
        elif kind == "value":
            seen.append(verbs.value())
        elif kind == "gather":
            seen.extend(verbs.gather([number + last % 2 for number in given_[0]]))
        elif kind == "return":
            if last % 3 == 1:
                raise Returned
        elif kind == "raise":
            if last % 4 == given_[0] % 4:
                raise ValueError("as the tree says")
        elif kind == "if":
            run_plain(given_[0] if last % 2 else given_[1], verbs, seen, depth)
        elif kind == "loop":
            for _ in range(given_[0]):
                run_plain(given_[1], verbs, seen, depth)
        elif kind in ("try", "timeout"):
            try:
                run_plain(given_[-1], verbs, seen, depth)
            except (StepFailed, StepError, ValueError) as error:
                seen.append(getattr(error, "code", "VALUE"))
        elif kind == "finally":
            try:
                run_plain(given_[0], verbs, seen, depth)
            finally:
                run_plain(given_[1], verbs, seen, depth)
        elif kind == "recursion":
            run_plain(given_[0], verbs, seen, depth + 1)
            if depth < 2 and last % 2:
                run_plain([(kind, *given_)], verbs, seen, depth + 1)
        else:
            for body in given_[0]:
                run_plain(body, verbs, seen, depth)


def decide(tree: Any, verbs: Any) -> Any:
    seen: list[Any] = []
    try:
        run_plain(tree, verbs, seen)
    except Returned:
        seen.append("returned")
    return seen


@program(calls=25_000)
def plain_program(tree: Any) -> Any:
    return decide(tree, Durable)


async def run_beside(nodes: Any, seen: list[Any]) -> None:
    """The same tree in an asynchronous program, where branches run beside each other and see each other."""
    for kind, *given_ in nodes:
        last = seen[-1] if seen and isinstance(seen[-1], int) else len(seen)
        if kind == "call":
            seen.append(await work(given_[0] + last % 3))
        elif kind == "inline":
            seen.append(await note(given_[0] + last % 3))
        elif kind == "sleep":
            await asyncio.sleep(given_[0])
        elif kind == "value":
            seen.append(mulligan.random())
        elif kind == "gather":
            found = await asyncio.gather(*(work(number) for number in given_[0]), return_exceptions=True)
            seen.extend(one if isinstance(one, int) else type(one).__name__ for one in found)
        elif kind == "return":
            if last % 3 == 1:
                raise Returned
        elif kind == "raise":
            if last % 4 == given_[0] % 4:
                raise ValueError("as the tree says")
        elif kind == "if":
            await run_beside(given_[0] if last % 2 else given_[1], seen)
        elif kind == "loop":
            for _ in range(given_[0]):
                await run_beside(given_[1], seen)
        elif kind == "try":
            try:
                await run_beside(given_[0], seen)
            except (StepFailed, ValueError) as error:
                seen.append(type(error).__name__)
        elif kind == "finally":
            try:
                await run_beside(given_[0], seen)
            finally:
                await run_beside(given_[1], seen)
        elif kind == "timeout":
            try:
                async with asyncio.timeout(given_[0]):
                    await run_beside(given_[1], seen)
            except TimeoutError:
                seen.append("timeout")
        elif kind == "beside":
            async with asyncio.TaskGroup() as group:
                for body in given_[0]:
                    group.create_task(run_beside(body, seen))
        elif kind == "race":
            tasks = [asyncio.create_task(run_beside(body, seen)) for body in given_[0]]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            seen.append([str(task.exception()) for task in done])
            for task in tasks:
                task.cancel()
        else:
            await run_beside(given_[0], seen)


@program(calls=25_000)
async def asynchronous_program(tree: Any) -> Any:
    seen: list[Any] = []
    try:
        await run_beside(tree, seen)
    except* Returned:
        seen.append("returned")
    except* (ValueError, StepFailed) as group:
        seen.append(str(group.exceptions))
    return seen


# -- what holds --------------------------------------------------------------------------------------------------------

_losses = st.dictionaries(st.integers(1, 25), st.sampled_from(_LOSSES), max_size=8)
_quick = settings(max_examples=examples(100, 600), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def shown(ended: m.Ended) -> Any:
    """How it has ended, without the trace, which names addresses."""
    failure = ended.failure
    return ended.output, failure and (failure.code, failure.message)


@_quick
@given(_trees, st.integers(0, 9), _losses)
def test_a_plain_program_ends_as_its_function_does(tree: Any, seed: int, losses: dict[int, str]):
    try:
        expected = ([*decide(tree, Plain)], None)
    except (StepError, ValueError) as error:
        expected = None, getattr(error, "code", "EXCEPTION")
    engine = Engine(seed, losses)

    ended = outcome_of(plain_program, tree, engine)

    assert (ended.output, ended.failure and ended.failure.code) == expected
    assert set(engine.ran.values()) <= {1}


@_quick
@given(_trees, st.integers(0, 9), _losses)
def test_an_asynchronous_program_ends_as_without_interruptions(tree: Any, seed: int, losses: dict[int, str]):
    engine = Engine(seed, losses)

    ended = outcome_of(asynchronous_program, tree, engine)

    # The log of the interrupted run, read by a process that is never lost.
    calm = Engine(seed, {})
    history = msgspec.msgpack.decode(msgspec.msgpack.encode(engine.history), type=m.History)
    again = run_function(Machine(calm, history=history, at=MemoryEngine().now), asynchronous_program.fn, {"tree": tree})
    assert (again.calls, calm.calls) == ((), [])
    assert shown(again) == shown(ended)
    assert set(engine.ran.values()) <= {1}
