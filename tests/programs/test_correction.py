"""What an edited program keeps of a run."""

from __future__ import annotations

import asyncio
from typing import Any

import mulligan
from mulligan import gather, program, sleep
from mulligan.programs import messages as m
from mulligan.programs.correction import corrected
from mulligan.programs.machine import Machine
from mulligan.programs.memory_engine import MemoryEngine
from mulligan.programs.program import Program
from mulligan.programs.running import run_function

from .rehearsed import rehearse
from .steps_of_programs import add, count, double


def kept(before: Program[..., Any], after: Program[..., Any], fakes: Any = None) -> list[str]:
    """The labels of the calls that the edited program keeps; with them alone it goes on without a difference."""
    recorded = rehearse(before, fakes=fakes).program_history()
    found = corrected(after.fn, recorded.inputs, recorded.history)
    history = m.History(
        tuple(call for call in recorded.history.calls if call.id in found.kept),
        tuple(one for one in recorded.history.deliveries if one.id in found.kept),
        is_edited=True,
    )
    machine = Machine(MemoryEngine(fakes, history=history), history=history)
    ended = run_function(machine, after.fn, recorded.inputs)
    assert ended.failure is None
    labels = {call.id: call.label for call in recorded.history.calls}
    return [labels[one] for one in found.kept]


@program
def chain():
    first = double(1)
    second = add(first, 1)
    third = add(second, 1)
    return count(third)


def test_what_is_the_same_is_kept():
    assert kept(chain, chain) == ["double", "add", "add#2", "count"]


def test_a_branch_is_kept_up_to_its_first_difference():
    @program
    def edited():
        first = double(1)
        second = add(first, 2)
        third = add(second, 1)
        return count(third)

    assert kept(chain, edited) == ["double"]


def test_an_edited_gathered_call_cuts_what_follows_its_join_and_no_other():
    @program
    def parts():
        return add(sum(gather(double.call(number) for number in (1, 2, 3))))

    @program
    def edited():
        return add(sum(gather(double.call(number) for number in (1, 5, 3))))

    assert kept(parts, edited) == ["double", "double#3"]


def test_tasks_keep_their_own_calls():
    @program
    async def with_join():
        found = await asyncio.gather(part_of(0, 1), part_of(0, 2))
        return await add(sum(found))

    @program
    async def edited():
        found = await asyncio.gather(part_of(7, 1), part_of(0, 2))
        return await add(sum(found))

    assert kept(with_join, edited) == ["double", "double#2", "add#2"]


async def part_of(changed: int, number: int) -> int:
    return await add(await double(number), changed)


def test_a_call_with_a_key_is_kept_wherever_it_stands():
    @program
    def regions():
        for region in ("eu", "us"):
            double.options(key=region)(len(region))

    @program
    def edited():
        for region in ("as", "eu", "us"):
            double.options(key=region)(len(region))

    assert kept(regions, edited) == ["double#eu", "double#us"]


def test_a_call_with_a_key_that_an_edit_has_removed_is_no_difference():
    @program
    def regions():
        add(1, 1)
        double.options(key="eu")(2)

    @program
    def edited():
        add(1, 2)

    assert kept(regions, edited) == ["double#eu"]


def test_a_call_with_a_key_behind_a_difference_may_get_other_arguments():
    @program
    def regions():
        add(1, 1)
        double.options(key="eu")(2)

    @program
    def edited():
        add(1, 2)
        return double.options(key="eu")(3)

    assert kept(regions, edited) == ["double#eu"]


def test_a_new_value_or_inline_step_is_not_made():
    made = []

    @program
    def edited():
        first = double(1)
        made.append(first)
        mulligan.random()
        made.append("value")

    @program
    def with_inline():
        first = double(1)
        count(first)
        made.append("inline")

    recorded = rehearse(chain).program_history()

    assert len(corrected(edited.fn, {}, recorded.history).kept) == 1
    assert len(corrected(with_inline.fn, {}, recorded.history).kept) == 1
    assert made == [2]


def test_nothing_is_kept_that_a_task_has_called_behind_a_new_inline_step():
    """What the step gives is not known here: the program may end with it before the task comes so far."""

    @program
    async def counted():
        task = asyncio.create_task(part_of(0, 1))
        await count(3)
        return await task

    @program
    async def edited():
        task = asyncio.create_task(part_of(0, 1))
        if await count(4) > 3:
            task.cancel()
            return 0
        return await task

    assert kept(counted, edited) == []


def test_an_edited_program_that_ends_keeps_what_it_has_called():
    @program
    def shorter():
        return double(1)

    recorded = rehearse(chain).program_history()
    found = corrected(shorter.fn, {}, recorded.history)

    assert len(found.kept) == 1


def test_differences_are_said_without_values():
    @program
    def edited():
        first = double(1)
        add(first, 41)

    recorded = rehearse(chain).program_history()
    [difference] = corrected(edited.fn, {}, recorded.history).differences

    assert difference.startswith("'add' (called at test_correction.py:")
    assert "41" not in difference


def test_a_sleep_that_is_edited_is_slept_again():
    @program
    def slept():
        sleep("1h")
        return double(1)

    @program
    def edited():
        sleep("2h")
        return double(1)

    assert kept(slept, edited) == []


def test_a_stopped_program_stays_stopped():
    @program
    def edited():
        try:
            add(1, 99)
        except BaseException:
            double(5)

    recorded = rehearse(chain).program_history()

    assert corrected(edited.fn, {}, recorded.history).kept == ()
