"""A program in memory: what a test sees of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.programs import running_programs

import mulligan
from mulligan import StepFailed, approve, program, publish_state, sleep, step
from mulligan.errors import Refused
from mulligan.programs.rehearsing import FakesRefused, ReplayDiffers, after
from mulligan.programs.rehearsing import rehearse as rehearse_strictly

from .rehearsed import rehearse
from .steps_of_programs import add, double


@program
def sums(number: int):
    sleep("10s")
    return add(double(number), 1)


def test_the_story_has_each_call_and_the_end():
    assert rehearse(sums, 2).story() == [
        "sleep(seconds=10.0): None",
        "double(number=2): 4",
        "add(one=4, other=1): 5",
        "the program returned 5",
    ]
    assert rehearse(sums, 2, fakes={"double": StepFailed("X", "no")}).story()[1:] == [
        "double(number=2): X",
        "the program raised X: no",
    ]


@pytest.mark.parametrize(
    ("fake", "result"),
    [
        (7, 7),
        (lambda one, other: one * other, 4),
        (iter([3]), 3),
        (after("1h", 9), 9),
        (after("1h", lambda one, other: one), 4),
        (iter([after("1h", 8)]), 8),
    ],
    ids=["value", "function", "iterator", "after", "after_function", "iterator_of_after"],
)
def test_a_fake_is_what_a_call_ends_with(fake: Any, result: int):
    assert rehearse(sums, 2, fakes={"add": fake}).result == result


def test_a_failure_is_raised_by_check():
    with pytest.raises(StepFailed, match="X"):
        rehearse(sums, 2, fakes={"double": StepFailed("X")}).check()
    assert rehearse(sums, 2).check().status == "completed"


@step(inline=True)
def price(item: str) -> int:
    raise AssertionError("a test must not run this")


@step
def reserve(item: str) -> str:
    return f"reserved {item}"


@reserve.undo
def release(output: str) -> None: ...


@step
def charge(amount: int) -> str:
    raise AssertionError("a test must not run this")


@charge.undo
def refund(output: str) -> None: ...


@program
def buy(item: str):
    reserve(item)
    return charge(price(item))


def test_inline_steps_have_fakes_as_others():
    found = rehearse(buy, "lamp", fakes={"price": after("5s", 12), "charge": "c1"})

    assert (found.result, found.seconds) == ("c1", 5)
    assert found.names() == ["reserve", "price", "charge"]
    assert rehearse(buy, "lamp", fakes={"price": StepFailed("GONE"), "charge": 1}).failure.code == "GONE"


@pytest.mark.parametrize("name", ["price", "charge"])
def test_a_step_without_a_fake_does_not_run_unless_the_test_says_so(name: str):
    fakes = {"reserve": "r1", "price": 12, "charge": "c1"}
    del fakes[name]

    with pytest.raises(FakesRefused, match=rf"the step '{name}' has no fake; give it one, .* real=\['{name}'\]"):
        rehearse_strictly(buy, "lamp", fakes=fakes)


def test_no_except_of_the_program_hides_that_a_fake_is_missing():
    @program
    def careless():
        try:
            double(1)
        except BaseException:
            return "hidden"

    with pytest.raises(FakesRefused, match="'double' has no fake"):
        rehearse_strictly(careless)


def test_steps_run_their_functions_by_name():
    found = rehearse_strictly(sums, 2, fakes={"double": 5}, real=["add"])

    assert found.result == 6


@pytest.mark.parametrize("given", [{"fakes": {"chrage": "c1"}}, {"real": ["chrage"]}], ids=["fake", "real"])
def test_a_misspelled_name_is_refused_before_anything_runs(given: Any):
    with pytest.raises(
        FakesRefused, match=r"'chrage' is no step that the program 'buy' can call; did you mean 'charge'"
    ):
        rehearse_strictly(buy, "lamp", **given)


def test_a_name_that_is_never_called_is_refused_at_the_end():
    with pytest.raises(FakesRefused, match=r"'zzz' is no step .* has called; it has called: add, double"):
        rehearse(sums, 2, fakes={"zzz": 1})


def test_fakes_of_names_that_a_program_chooses_itself_are_taken():
    @program
    def named(region: str):
        return [double.options(name="double_east")(1), double.options(name=f"in_{region}")(1)]

    assert rehearse(named, "west", fakes={"double_east": 3, "in_west": 4}).result == [3, 4]


def test_a_fake_that_is_a_function_may_take_time_and_raise():
    @program
    async def race():
        tasks = [asyncio.create_task(double.call(number)) for number in (3, 2)]
        for done in asyncio.as_completed(tasks):
            return await done

    found = rehearse(race, fakes={"double": lambda number: after(f"{number}s", number)})
    failed = rehearse(sums, 2, fakes={"double": lambda: after("1s", StepFailed("LATE"))})

    assert (found.result, found.seconds) == (2, 2)
    assert failed.failure.code == "LATE"


@dataclass
class Order:
    number: int


@step
def ship(order: Order) -> str: ...


def test_a_function_gets_what_the_step_gets_and_those_arguments_that_it_has_parameters_for():
    @program
    def ships():
        return ship(Order(7))

    assert rehearse(ships, fakes={"ship": lambda order: f"shipped {order.number}"}).result == "shipped 7"
    assert rehearse(ships, fakes={"ship": lambda: "shipped"}).result == "shipped"
    with pytest.raises(FakesRefused, match="missing a required argument: 'nubmer'; there are 'order'"):
        rehearse(ships, fakes={"ship": lambda nubmer: 1})
    with pytest.raises(FakesRefused, match="what the fake of 'ship' returns is of type 'object'"):
        rehearse(ships, fakes={"ship": object()})


def test_what_a_failed_program_has_done_is_undone_the_last_first():
    failed = rehearse(buy, "lamp", fakes={"price": 12, "charge": StepFailed("DECLINED")})
    completed = rehearse(buy, "lamp", fakes={"price": 12, "charge": "c1"})

    @program
    def buys_and_fails():
        buy.fn("lamp")
        raise StepFailed("LATE")

    both = rehearse(buys_and_fails, fakes={"price": 12, "charge": "c1"})

    assert (failed.undone, completed.undone, both.undone) == (["reserve"], [], ["charge", "reserve"])
    assert both.story()[-2:] == ["charge is undone", "reserve is undone"]


def test_a_call_that_the_end_of_the_program_cancels_does_not_begin():
    @program
    async def leaves():
        task = asyncio.create_task(charge.call(1))
        await asyncio.sleep(0)
        assert not task.done()
        raise StepFailed("LATE")

    assert rehearse(leaves).failure.code == "LATE"


def test_a_program_that_is_called_has_the_same_fakes_or_one_of_its_own():
    @program
    def twice():
        return [buy("lamp"), buy("chair")]

    assert rehearse_strictly(twice, fakes={"reserve": "", "price": 1, "charge": {"id": 1}}).result == [{"id": 1}] * 2
    assert rehearse_strictly(twice, fakes={"buy": {"result": 5}}).result == [{"result": 5}] * 2
    failed = rehearse_strictly(twice, fakes={"reserve": "", "price": 1, "charge": StepFailed("DECLINED", "no")}).failure
    assert failed.code == "CHILD_FAILED"
    assert failed.message == "the program 'buy' has failed: DECLINED: no"
    with pytest.raises(FakesRefused, match="'charge' has no fake"):
        rehearse_strictly(twice, fakes={"reserve": "", "price": 1})


def test_a_fake_that_has_no_further_end_is_said():
    with pytest.raises(FakesRefused, match="the fake of 'double' has no further end"):
        rehearse(sums, 2, fakes={"double": iter([])})


def test_an_approval_without_an_answer_is_said():
    with pytest.raises(FakesRefused, match=r"nobody answers 'go on\?'; give an answer: fakes={'approve': True}"):
        rehearse(asks)


@program
def importing(count: int):
    for number in range(count):
        publish_state(done=number, of=count)
        double(number)


def test_a_test_sees_what_a_program_has_published():
    assert rehearse(importing, 3).state == {"done": 2, "of": 3}
    assert rehearse(sums, 2).state == {}


def test_an_approval_returns_who_has_approved_and_why():
    answer = {"approved": True, "by": "ann", "reason": "as planned"}

    assert rehearse(asks, fakes={"approve": answer}).result == answer
    assert rehearse(asks, fakes={"approve": True}).result == {"approved": True, "by": "test", "reason": ""}


@program
def asks():
    return approve("go on?")


def test_the_fixture_runs_a_program(rehearse_program: Any):
    assert rehearse_program(sums, number=3, real=True).result == 7


def test_a_changed_program_is_replayed_over_a_run_of_a_store(tmp_path: Path, replay_program: Any):
    run = mulligan.run(running_programs.asking, home=tmp_path / "home", folder=str(tmp_path), show=False)

    @program
    def changed(folder: str) -> str:
        running_programs.note(folder, "before")
        approve("really?")
        return folder

    replay_program(running_programs.asking, run)
    with pytest.raises(ReplayDiffers, match="is recorded, and now"):
        replay_program(changed, run)


def test_a_run_of_a_flow_has_no_history_of_a_program(tmp_path: Path, replay_program: Any):
    file = tmp_path / "flow.yaml"
    file.write_text("steps: [{step: a, shell: 'true'}]")
    run = mulligan.run(str(file), home=tmp_path / "home", show=False)

    with pytest.raises(Refused, match="not a run of a program"):
        replay_program(sums, run)
