"""A program runs again over what is recorded: what is the same is not called, and what differs is said."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import mulligan
from mulligan import StepFailed, gather, program, sleep, step
from mulligan.core.effects.program_history import ProgramHistory
from mulligan.core.state.program_progress import RecordedCall
from mulligan.flows.context import Site
from mulligan.programs import messages as m
from mulligan.programs.conversion import recorded_history
from mulligan.programs.differences import AskedCall, difference_of_call
from mulligan.programs.errors import Nondeterministic, Stopped
from mulligan.programs.machine import Machine
from mulligan.programs.memory_engine import MemoryEngine
from mulligan.programs.program import Program
from mulligan.programs.rehearsing import Rehearsal, ReplayDiffers, replay
from mulligan.programs.running import run_function

from .rehearsed import rehearse
from .steps_of_programs import add, count, double, fail


def difference(recorded: Rehearsal, changed: Program[..., Any]) -> ReplayDiffers:
    with pytest.raises(ReplayDiffers) as raised:
        replay(changed, recorded)
    return raised.value


@program
def before(number: int):
    found = double(number)
    sleep("30s")
    return add(found, mulligan.random() > 2)


def test_the_same_program_calls_nothing_again():
    recorded = rehearse(before, 1)

    replay(before, recorded)


def test_values_and_failures_and_inline_steps_come_back():
    seen = []

    @step(inline=True)
    def note(value: float) -> float:
        seen.append(value)
        return value

    @program
    def mixed():
        try:
            fail("X")
        except StepFailed as failed:
            code = failed.code
        return [code, note(mulligan.random())]

    recorded = rehearse(mixed)
    replay(mixed, recorded)

    assert len(seen) == 1


def test_a_new_inline_step_does_not_run():
    seen = []

    @step(inline=True)
    def note() -> None:
        seen.append("new")

    @program
    def noted(number: int):
        before.fn(number)
        note()

    replay(noted, rehearse(before, 1))

    assert seen == []


def test_other_arguments_are_a_difference_and_their_values_are_not_shown():
    recorded = rehearse(before, 1)

    @program
    def changed(number: int):
        double(number + 41)

    found = difference(recorded, changed)

    assert str(found).startswith("'double' (called at test_replay.py:")
    assert "now gets other arguments ('number'), at test_replay.py:" in str(found)
    assert "42" not in str(found)
    assert found.recorded is not None
    assert found.asked is not None
    assert found.asked["arguments"] == ["number"]
    assert (found.recorded["name"], found.asked["name"]) == ("double", "double")


STORED = {"$artifact": {"name": "1/load/1/1/output.json", "size": 80_000, "sha256": "9f2c", "format": "json"}}


@pytest.mark.parametrize(
    ("before", "now", "differing"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, ["b"]),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": 1, "b": 2}, {"a": 1, "c": 2}, ["b", "c"]),
        # What is long, or stored as a file, is only named if nothing else differs.
        ({"a": 1, "rows": "x" * 5000}, {"a": 2, "rows": "x" * 5000}, ["a"]),
        ({"a": 1, "rows": "x" * 5000}, {"a": 1, "rows": "y"}, ["rows"]),
        ({"a": 1, "rows": STORED}, {"a": 1, "rows": [1]}, ["rows"]),
        ({}, {}, []),
    ],
)
def test_the_arguments_that_differ_are_named(before: dict[str, Any], now: dict[str, Any], differing: list[str]):
    call = RecordedCall(0, "p", "", 0, "load", arguments=before, digest="before", file="p.py", line=3)
    [recorded] = recorded_history(ProgramHistory({"load": call}, [])).calls
    asked = AskedCall("step", "load", Site("p.py", 4), "now", json.dumps(now).encode())

    found = difference_of_call(recorded, asked)

    assert (found.asked or {}).get("arguments", []) == differing
    shown = f" ({', '.join(repr(name) for name in differing)})" if differing else ""
    assert found.message == f"'load' (called at p.py:3) now gets other arguments{shown}, at p.py:4"


def test_another_step_is_a_difference():
    recorded = rehearse(before, 1)

    @program
    def changed(number: int):
        add(number)

    assert "is recorded, and now 'add' is called" in str(difference(recorded, changed))


def test_a_call_that_is_left_out_is_a_difference_where_the_program_waits():
    recorded = rehearse(before, 1)

    @program
    async def changed(number: int):
        await double(number)
        import asyncio

        await asyncio.Event().wait()

    assert "and now the program waits" in str(difference(recorded, changed))


def test_a_call_that_is_left_out_is_a_difference_where_the_program_returns_or_raises():
    recorded = rehearse(before, 1)

    @program
    def returns(number: int):
        return double(number)

    @program
    def raises(number: int):
        return double(number) / 0

    assert "now the program returns without calling it" in str(difference(recorded, returns))
    assert "now the program raises without calling it" in str(difference(recorded, raises))


def test_a_step_with_other_keys_is_no_difference():
    recorded = rehearse(before, 1)

    @program
    def changed(number: int):
        found = double.options(timeout="1h", retry=3)(number)
        sleep("30s")
        return add(found, mulligan.random() > 2)

    replay(changed, recorded)


def test_a_gather_that_grows_differs_at_its_end():
    @program
    def parts():
        gather([double.call(1), double.call(2)])
        add(1)

    @program
    def more_parts():
        gather([double.call(1), double.call(2), double.call(3)])
        add(1)

    assert str(difference(rehearse(parts), more_parts)).startswith("'add' (called at")


def test_a_call_with_a_key_survives_an_edit():
    @program
    def regions():
        for region in ("eu", "us"):
            double.options(key=region)(len(region))

    @program
    def more_regions():
        for region in ("as", "eu", "us"):
            double.options(key=region)(len(region))

    replay(more_regions, rehearse(regions))


def test_a_difference_is_not_caught_and_nothing_is_called_after_it():
    recorded = rehearse(before, 1).program_history()
    engine = MemoryEngine()
    reached = []

    @program
    def changed(number: int):
        try:
            add(number)
        except Exception:
            reached.append("except Exception")
        finally:
            try:
                double(number)
            except BaseException as error:
                reached.append(type(error).__name__)

    machine = Machine(engine, history=recorded.history)
    ended = run_function(machine, changed.fn, {"number": 1})

    assert ended.failure is not None
    assert (ended.failure.code, reached, engine.calls) == ("NONDETERMINISTIC", ["Nondeterministic"], [])
    assert not issubclass(Nondeterministic, Exception)


def test_a_program_that_goes_on_says_only_what_is_new():
    class Engine(MemoryEngine):
        def __init__(self, *args: Any, stops_at: int = 0, **given: Any) -> None:
            super().__init__(*args, **given)
            self.said: list[str] = []
            self.stops_at = stops_at

        def exchange(self, message: m.Idle) -> m.Deliver:
            self.said += [call.name for call in message.calls]
            if len(self.said) == self.stops_at:
                self.take(message)
                raise Stopped
            return super().exchange(message)

    @program
    def long():
        return add(double(count(1)), 1)

    first = Engine(stops_at=2)
    with pytest.raises(Stopped):
        run_function(Machine(first), long.fn, {})
    second = Engine({"double": 4}, history=first.history)
    machine = Machine(second, history=first.history)
    # What was in flight ends after the crash.
    [*_, flying] = first.calls
    machine._take([m.Delivery(flying.id, output=4)])

    ended = run_function(machine, long.fn, {})

    assert (ended.output, second.said) == (5, ["add"])


def test_the_end_of_a_call_that_was_not_made_yet_is_a_difference():
    recorded = rehearse(before, 1).program_history()

    @program
    def changed(number: int):
        return double.options(key="new")(number)

    machine = Machine(MemoryEngine(), history=recorded.history)
    ended = run_function(machine, changed.fn, {"number": 1})

    assert ended.failure is not None
    assert ended.failure.code == "NONDETERMINISTIC"
    assert "'double' (called at" in ended.failure.message


@pytest.mark.parametrize(("seen", "expected"), [(0, ["live", 2, 4, 6]), (1, [2, "live", 4, 6]), (3, [2, 4, "live", 6])])
def test_what_follows_the_first_new_end_is_new(seen: int, expected: list[Any]):
    found: list[Any] = []

    @program
    async def beside():
        for one in asyncio.as_completed([asyncio.ensure_future(double(n)) for n in (1, 2, 3)]):
            found.append(await one)

    recorded = rehearse(beside).program_history()
    found.clear()

    class Link(MemoryEngine):
        def replayed(self) -> None:
            found.append("live")

    machine = Machine(Link(), history=recorded.history, seen=seen)
    run_function(machine, beside.fn, {})

    assert found == expected


@pytest.mark.nightly
def test_ten_thousand_calls_are_replayed_with_few_exchanges():
    @program
    def long(number: int):
        total = 0
        for at in range(number):
            total = add(at, total % 7)
        return total

    recorded = rehearse(long, 9_999, fakes={"add": lambda one, other: one + other}).program_history()

    class Engine(MemoryEngine):
        exchanges = 0

        def exchange(self, message: m.Idle) -> m.Deliver:
            self.exchanges += 1
            return super().exchange(message)

    history = m.decode_history(m.encode_history(recorded.history.calls, recorded.history.deliveries))
    engine = Engine()
    ended = run_function(Machine(engine, history=history), long.fn, {"number": 9_999})

    assert (ended.failure, ended.calls, engine.exchanges) == (None, (), 0)
