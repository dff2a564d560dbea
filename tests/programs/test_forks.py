"""Forks of programs at every event: real functions, whose steps end as the test says, in a run in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from typing import Any

import pytest
from tests.support.program_runs import Program

import mulligan
from mulligan import StepFailed, approve, gather, sleep, step
from mulligan.core.effects.program_history import program_history
from mulligan.core.effects.tasks import make_task
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.outcome import Outcome
from mulligan.core.state.program_progress import NO_PROGRESS
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.history.moments import is_at_rest
from mulligan.programs import definitions
from mulligan.programs import messages as m
from mulligan.programs.conversion import history_of, turn_end_of
from mulligan.programs.errors import Stopped
from mulligan.programs.machine import Machine
from mulligan.programs.running import run_function
from mulligan.testing.history import Answers

READ = ("inputs", "inputs.seconds", "inputs.prompt", "inputs.timeout")


@step
def load(part: int) -> int: ...


@step(inline=True)
def note(text: str) -> str:
    return text.upper()


@step(inline=True)
def check(part: int) -> int:
    if part == 3:
        raise ValueError("part 3")
    return part


def in_sequence() -> dict[str, Any]:
    """Part 3 fails, and is left out."""
    found = []
    for part in (1, 2, 3, 4):
        try:
            found.append(load(part))
        except StepFailed as failed:
            found.append(failed.code)
        if part == 4 and len(found) == 4:
            found.append(load(10))
    return {"found": found}


def checking() -> list[Any]:
    """An inline step fails in the process of the program; it is not retried."""
    found: list[Any] = []
    for part in (1, 3, 4):
        try:
            found.append(check(part))
        except StepFailed as failed:
            found += [failed.code, load(5)]
    return found


def gathering() -> list[Any]:
    found = gather((load.call(part) for part in range(1, 6)), failures="return")
    return [one.code if isinstance(one, StepFailed) else one for one in found]


def waiting() -> list[Any]:
    one = load(1)
    sleep("8h")
    approve("publish it?", timeout="2h")
    return [one, load(2)]


async def racing() -> dict[str, Any]:
    found: list[Any] = [await note("begin")]  # type: ignore[misc]
    number = mulligan.random()
    tasks = [asyncio.ensure_future(load.call(part)) for part in (1, 2)]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    # The fork is made two days later.
    begun = asyncio.get_running_loop().time()
    async with asyncio.timeout(60):
        await load(5)  # type: ignore[misc]
        await asyncio.sleep(30)
    found.append(asyncio.get_running_loop().time() - begun)
    return {"number": number, "found": [*found, len(done), await note("end")]}  # type: ignore[misc]


class Link:
    """The way to the engine, for a process that ends with each turn."""

    def __init__(self, at: float) -> None:
        self.said: m.Idle | None = None
        self._at = at

    def exchange(self, message: m.Idle) -> m.Deliver:
        self.said = message
        raise Stopped

    def replayed(self) -> None: ...

    def arm(self) -> None: ...

    def disarm(self) -> None: ...

    def differs(self, difference: Any) -> None:
        raise AssertionError(f"the program does something else than is recorded: {difference}")

    def wall_time(self) -> float:
        return self._at

    def define(self, thing: Any) -> m.StepDefinition:
        return definitions.definition_of(thing)

    def define_sleep(self) -> m.StepDefinition:
        return definitions.sleep_definition()

    def define_approval(self, given: Collection[str]) -> m.StepDefinition:
        return definitions.approve_definition(given)

    def define_event_wait(self, given: Collection[str], schema: Mapping[str, Any] | None) -> m.StepDefinition:
        return definitions.event_wait_definition(given, schema)


class Played(Program):
    """A run of a function. Part 3 fails, all others return ten times their number; the first one queued ends first."""

    function: Callable[[], Any]

    @classmethod
    def of(cls, function: Callable[[], Any]) -> Played:
        run = cls()
        run.function = function
        run.evaluator = Answers({name: _reads(name) for name in READ})
        return run.play()

    def forked(self, seq: int = 0, **fields: Any) -> Played:
        fork = super().forked(seq, **fields)
        fork.function = self.function
        return fork

    def play(self) -> Played:
        """Go on to the end."""
        for _ in range(200):
            if self.status in RUN_ENDED:
                return self
            self._go_on()
        raise AssertionError(f"it does not end: {self.statuses}, queued {self.queued}, {self.state.run.status}")

    def _go_on(self) -> None:
        """The turn of the program first, then what starts, then what ends, then the next person or timer."""
        calls = [key for key in self.queued if key != "nightly"]
        asked = [place.key for place in self.state.places.values() if place.is_open_approval]
        if "nightly" in self.tasks:
            del self.tasks["nightly"]
            self._turn_played()
        elif ready := [key for key in calls if self[key].status == "ready"]:
            self.started(ready[0])
        elif calls:
            self._ended(calls[0])
        elif asked:
            self.approve(asked[0])
        else:
            self.wait(min(timer.due for timer in self.timers).timestamp() - self.clock.timestamp())

    def _turn_played(self) -> None:
        place = self["nightly"]
        turn = make_task(self.state, "nightly").turn
        assert turn is not None
        self.report(r.TaskStarted(self.clock, "nightly", place.attempt, "w1", "h1", turn.turn))
        found = program_history(self.state, (self["nightly"].program or NO_PROGRESS).known)
        history = m.decode_history(history_of(found)) if found.calls else None
        link: Any = Link(self.clock.timestamp())
        machine = Machine(link, turn=turn.turn, history=history, at=turn.begun)
        said: Any
        try:
            said = run_function(machine, self.function, {})
        except Stopped:
            said = link.said
        output = getattr(said, "output", None)
        self.report(r.TaskEnded(self.clock, "nightly", self["nightly"].attempt, output=output, turn=turn_end_of(said)))

    def _ended(self, key: str) -> None:
        if self[key].phase == "stopping":
            attempt = self._attempt(key)
            del self.tasks[key]
            self.report(r.TaskEnded(self.clock, key, attempt, Outcome(None, signal=15, is_stopped=True)))
        elif (part := self.state.calls[key].arguments["part"]) == 3:
            self.fail(key)
        else:
            self.ok(key, output=part * 10)


def _reads(name: str) -> Callable[[Any], Any]:
    return lambda names: names["inputs"] if name == "inputs" else names["inputs"][name.partition(".")[2]]


def runs_after(run: Played, seq: int) -> set[str]:
    """The calls of which something ran after this event."""
    facts = (one.fact for one in run.log if one.seq > seq)
    return {getattr(one, "place", "") or one.step for one in facts if isinstance(one, e.AttemptStarted | e.StepRan)}


@pytest.mark.parametrize("function", [in_sequence, checking, gathering, waiting, racing], ids=lambda one: one.__name__)
def test_a_fork_at_any_event_comes_to_what_the_run_came_to_and_repeats_no_call_that_had_ended(function: Any):
    run = Played.of(function)
    points = [one.seq for one, two in pairwise(run.log) if is_at_rest(one, two)]
    assert run.status == "completed" and len(points) > 10

    for seq in points:
        before = [one.fact for one in run.log[:seq]]
        ended = {one.step for one in before if isinstance(one, e.StepCompleted | e.StepFailed | e.StepRan)}
        fork = run.forked(seq).play()
        assert not runs_after(fork, seq) & ended, f"forked at event {seq}"
        output, expected = fork["nightly"].output, run["nightly"].output
        if function is racing and not any(isinstance(one, e.ValueRecorded) for one in before):
            # The number is a new one.
            output["number"] = expected["number"]
        assert (fork.status, output) == ("completed", expected), f"forked at event {seq}"
