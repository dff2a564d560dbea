"""Asynchronous programs: what asyncio has runs on the loop of a program, and what cannot is refused."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
from asyncio import as_completed
from typing import Any

import pytest

from mulligan import StepFailed, approve, gather, program, sleep
from mulligan.programs.memory_engine import after
from mulligan.programs.program import Program
from mulligan.programs.rehearsing import Rehearsal, replay

from .rehearsed import rehearse
from .steps_of_programs import add, double, fail


def rehearsed(tested: Program[..., Any], *args: Any, **given: Any) -> Rehearsal:
    """The program, run in memory, and once more over what is recorded."""
    found = rehearse(tested, *args, **given)
    replay(tested, found)
    return found


def failure_of(tested: Program[..., Any], **given: Any) -> tuple[str, str]:
    failure = rehearse(tested, **given).failure
    assert failure is not None
    return failure.code, failure.message


def test_calls_are_awaited():
    @program
    async def one():
        return await add(await double(2), await double.call(3))

    assert rehearsed(one).result == 10


def test_a_gather_of_asyncio_runs_calls_beside_each_other():
    @program
    async def parts():
        return await asyncio.gather(double(1), double(2), fail("X"), return_exceptions=True)

    found = rehearse(parts, fakes={"double": iter([after("2h", 1), after("1h", 2)]), "fail": "fine"})

    assert (found.result, found.seconds) == ([1, 2, "fine"], 7200)


def test_our_own_gather_is_awaited_and_waits_for_all():
    @program
    async def parts():
        try:
            await gather([fail.call("A"), add.call(1), fail.call("B")])
        except StepFailed as failed:
            return [failed.code, [one.code for one in failed.failures]]

    assert rehearsed(parts).result == ["A", ["B"]]


def test_tasks_of_a_group_are_branches():
    @program
    async def parts():
        async def part(number: int) -> int:
            return await add(await double(number))

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part(number)) for number in range(3)]
            call = group.create_task(double(9))
        return [task.result() for task in tasks] + [call.result()]

    found = rehearsed(parts)

    assert found.result == [0, 2, 4, 18]
    assert [(one.id.branch, one.id.ordinal) for one in found.program_history().history.calls] == [
        *(("0", 0), ("1", 0), ("2", 0), ("3", 0), ("0", 1), ("1", 1), ("2", 1)),
    ]


def test_a_failure_in_a_group_cancels_the_others():
    @program
    async def parts():
        found = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail("X"))
                group.create_task(approve("go on?"))
        except* StepFailed as failed:
            found += [str(one) for one in failed.exceptions]
        return found

    assert rehearsed(parts, fakes={"approve": None}).result == ["fail: X: as it was told to"]


def test_the_first_of_many_wins_and_the_others_are_cancelled():
    @program
    async def race():
        tasks = [asyncio.create_task(double(number)) for number in range(3)]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return [task.result() for task in done]

    found = rehearsed(race, fakes={"double": iter([after("3h", 0), after("1h", 1), after("2h", 2)])})

    assert (found.result, found.seconds) == ([1], 3600)


@pytest.mark.parametrize("completed", [asyncio.as_completed, as_completed], ids=["by_module", "by_name"])
def test_what_is_completed_comes_in_the_order_of_the_log(completed: Any):
    @program
    async def order():
        async def part(number: int) -> int:
            return await double(number)

        return [await one for one in completed([part(number) for number in range(4)])]

    ends = iter([after("4h", "d"), after("2h", "b"), after("3h", "c"), after("1h", "a")])
    found = rehearsed(order, fakes={"double": ends})

    assert found.result == ["a", "b", "c", "d"]
    assert [call.arguments["number"] for call in found.calls] == [0, 1, 2, 3]


def test_as_completed_is_that_of_python_again_afterwards():
    async def plain() -> list[int]:
        return [await one for one in asyncio.as_completed([asyncio.sleep(0, 1)])]

    @program
    async def short():
        return [await one for one in asyncio.as_completed([double(1)])]

    rehearse(short)

    assert asyncio.run(plain()) == [1]


def test_a_timeout_is_a_durable_timer():
    @program
    async def patient():
        try:
            async with asyncio.timeout(60):
                await approve("publish it?")
        except TimeoutError:
            return "nobody was there"

    found = rehearsed(patient, fakes={"approve": None})

    assert (found.result, found.seconds, found.names()) == ("nobody was there", 60, ["approve", "sleep"])


def test_a_timeout_that_is_not_needed_is_cancelled():
    @program
    async def quick():
        async with asyncio.timeout(60):
            await double(1)
        async with asyncio.timeout(60):
            pass
        return await double(2)

    found = rehearsed(quick)

    assert (found.result, found.seconds, found.names()) == (4, 0, ["double", "sleep", "double#2"])


def test_sleeps_run_beside_each_other():
    @program
    async def patient():
        await asyncio.gather(asyncio.sleep(10), asyncio.sleep(20), sleep("15s"))
        return asyncio.get_running_loop().time() % 1000

    found = rehearsed(patient)

    assert found.seconds == 20


def test_the_clock_of_the_loop_is_that_of_the_log():
    @program
    async def clock():
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await double(1)
        await asyncio.sleep(5)
        return loop.time() - begin

    found = rehearsed(clock, fakes={"double": after("2s", 1)})

    assert found.result == 7


def test_queues_and_locks_work():
    @program
    async def workers():
        queue: asyncio.Queue[int] = asyncio.Queue()
        found = []

        async def worker() -> None:
            while True:
                found.append(await double(await queue.get()))
                queue.task_done()

        tasks = [asyncio.create_task(worker()) for _ in range(2)]
        for number in range(4):
            queue.put_nowait(number)
        await queue.join()
        for task in tasks:
            task.cancel()
        return found

    assert rehearsed(workers).result == [0, 2, 4, 6]


def test_the_cleanup_of_a_cancelled_task_may_call_steps():
    @program
    async def tidy():
        async def part() -> None:
            try:
                await approve("go on?")
            finally:
                await double(7)

        task = asyncio.create_task(part())
        await double(1)
        task.cancel()

    assert rehearsed(tidy, fakes={"approve": None}).names() == ["double", "approve", "double#2"]


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_call_that_is_not_awaited_is_an_error():
    @program
    async def forgotten():
        double(1)
        return "done"

    code, message = failure_of(forgotten)

    assert code == "UNAWAITED"
    assert message.startswith("the call of 'double' (test_event_loop.py:")
    assert message.endswith("was never awaited; write await before it")


def test_a_coroutine_that_is_not_awaited_is_an_error():
    @program
    async def forgotten():
        async def part() -> None:
            await double(1)

        part()

    code, message = failure_of(forgotten)

    assert code == "UNAWAITED"
    assert "part' (test_event_loop.py:" in message


def test_what_has_no_end_of_time_waits_for_its_call():
    @program
    async def patient():
        async with asyncio.timeout(float("inf")):
            return await add(1)

    tested = rehearsed(patient)

    assert (tested.result, tested.names()) == (1, ["add"])


def test_a_task_with_a_context_of_its_own_calls_steps():
    @program
    async def own():
        loop = asyncio.get_running_loop()
        task = loop.create_task(add(1), context=contextvars.Context())
        soon = loop.create_future()
        loop.call_soon(lambda: soon.set_result(add.call(2)), context=contextvars.Context())
        return [await task, await (await soon)]

    assert rehearsed(own).result == [1, 2]


def test_a_generator_that_is_left_is_closed_and_its_cleanup_may_call_steps():
    async def numbers(found: list[int]):
        try:
            for number in range(5):
                yield await double(number)
        finally:
            found.append(await add(100))

    @program
    async def left():
        found: list[int] = []
        async for number in numbers(found):
            if number == 2:
                break
        found.append(await add(1))
        return found

    tested = rehearsed(left)

    assert sorted(tested.result) == [1, 100]
    assert sorted(tested.names()) == ["add", "add#2", "double", "double#2"]


@pytest.mark.parametrize("is_raising", [False, True])
def test_a_program_ends_when_its_generators_are_closed(is_raising: bool):
    done: list[str] = []

    async def numbers():
        try:
            yield await double(1)
        finally:
            await add(1)
            done.append("closed")

    @program
    async def ends():
        kept = numbers()
        await anext(kept)
        if is_raising:
            raise ValueError("kept by the traceback")

    tested = rehearse(ends)

    assert tested.names() == ["double", "add"]
    assert done == ["closed"]


def test_tasks_that_begin_one_another_are_refused_before_their_names_fill_the_log():
    @program
    async def chain():
        async def link(number: int) -> int:
            await add(number)
            return await asyncio.create_task(link(number + 1))

        return await link(0)

    tested = rehearse(chain)

    assert tested.failure is not None
    assert (tested.failure.code, len(tested.names())) == ("LOOP_LIMIT", 1899)
    assert "tasks are nested too deep" in tested.failure.message


def test_a_task_that_nobody_asks_for_is_an_error():
    @program
    async def forgotten():
        task = asyncio.create_task(double(1))
        await double(2)
        del task

    code, message = failure_of(forgotten)

    assert code == "UNAWAITED"
    assert "was started and nobody asked for it" in message


def test_waiting_for_nothing_is_an_error():
    @program
    async def stuck():
        await asyncio.Event().wait()

    code, message = failure_of(stuck)

    assert code == "EXCEPTION"
    assert "waits for something that no call will end" in message


def run_in_pool() -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        pool.submit(print)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (lambda: asyncio.to_thread(print), "cannot use threads"),
        (lambda: asyncio.get_running_loop().run_in_executor(None, print), "cannot use threads"),
        (lambda: asyncio.open_connection("localhost", 1), "cannot use the network"),
        (lambda: asyncio.create_subprocess_exec("true"), "cannot start processes"),
    ],
    ids=["to_thread", "executor", "socket", "process"],
)
def test_what_no_replay_could_repeat_is_refused_in_words(what: Any, words: str):
    @program
    async def wrong():
        await what()

    code, message = failure_of(wrong)

    assert code == "EXCEPTION"
    assert f"a program {words}" in message


def test_awaiting_a_call_in_a_plain_program_is_refused():
    @program
    def wrong():
        double.call(1).send(None)

    code, message = failure_of(wrong)

    assert code == "EXCEPTION"
    assert "is awaited in a program that is a plain 'def'" in message
