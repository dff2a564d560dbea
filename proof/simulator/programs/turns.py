"""Turns of random programs: in a process that replays what came before, or in one that has lived through it.

A process that lives is one that gets the ends of calls turn by turn. Here, too, it runs from its beginning each time,
but gets again what it got, in the order in which it got it; a replay gets what the history says.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping
from random import Random
from typing import Any

import msgspec

from mulligan.core.effects.program_history import program_history
from mulligan.core.effects.tasks import Task
from mulligan.core.model.program_calls import Delivery, TurnEnd
from mulligan.core.state.program_progress import NO_PROGRESS
from mulligan.core.state.state import State
from mulligan.programs import messages as m
from mulligan.programs.conversion import deliveries_of, history_of, turn_end_of
from mulligan.programs.definitions import approve_definition, event_wait_definition, sleep_definition
from mulligan.programs.errors import Stopped
from mulligan.programs.machine import Machine
from mulligan.programs.running import run_function
from proof.simulator.programs.drawing import RandomProgram, program_of
from proof.simulator.programs.interpreting import function_of

# How many turns a process lives through at most.
LIVED_MAX = 8
# The attempt of a program, in one process of a worker.
_Key = tuple[str, int, str, int]


class _Received(msgspec.Struct, frozen=True):
    """What a process gets for one turn, and when: at first a history, later what has ended since."""

    turn: int
    at: float
    deliveries: tuple[m.Delivery, ...] = ()
    history: m.History | None = None


def _known(received: _Received) -> int:
    """How many ends of calls a process gets."""
    history = received.history
    return len(received.deliveries) + (0 if history is None else len(history.deliveries))


class SimulatedMachine(Machine):
    """The machine of programs, and numbers that depend on the turn only."""

    def chance(self) -> float:
        link: Any = self._link
        return float(link.chance())


class Link:
    """The way to the engine. It answers with what a process got; then it ends the turn."""

    def __init__(self, steps: list[str], received: list[_Received]) -> None:
        self.said: m.Idle | None = None
        self._steps = [json.encode() for json in steps]
        self._received = iter(received)
        self._enter(next(self._received))

    def _enter(self, received: _Received) -> None:
        self._at, self._dice = received.at, Random(f"{received.turn} {received.at}")

    def exchange(self, message: m.Idle) -> m.Deliver:
        received = next(self._received, None)
        if received is None:
            self.said = message
            raise Stopped
        self._enter(received)
        return m.Deliver(received.turn, received.deliveries)

    def replayed(self) -> None: ...

    def arm(self) -> None: ...

    def disarm(self) -> None: ...

    def differs(self, difference: Any) -> None: ...

    def wall_time(self) -> float:
        return self._at

    def chance(self) -> float:
        return self._dice.random()

    def define(self, thing: Any) -> m.StepDefinition:
        data = self._steps[int(thing.name[1:])]
        return m.StepDefinition(m.digest_of(data), data)

    def define_sleep(self) -> m.StepDefinition:
        return sleep_definition()

    def define_approval(self, given: Collection[str]) -> m.StepDefinition:
        return approve_definition(given)

    def define_event_wait(self, given: Collection[str], schema: Mapping[str, Any] | None) -> m.StepDefinition:
        return event_wait_definition(given, schema)


class ProgramProcesses:
    """The processes of programs of all workers."""

    def __init__(self) -> None:
        self._lived: dict[_Key, list[_Received]] = {}

    def play(
        self, worker: str, task: Task, state: State, at: float, answer: tuple[Delivery, ...] | None = None
    ) -> tuple[TurnEnd, Any]:
        """What the program says in this turn, and what it has returned if it has ended.

        `answer`: the program goes on in its turn, with these ends.
        """
        turn = task.turn
        assert turn is not None
        key = (worker, task.run_id, task.place, task.attempt)
        found = program_history(state, (state.places[task.place].program or NO_PROGRESS).known)
        history = m.decode_history(history_of(found)) if found.calls else None
        anew = [_Received(turn.turn, at, history=history)]
        said = self._say(task, anew)
        lived = self._lived.pop(key, [])
        goes_on = answer is not None and bool(lived) and lived[-1].turn == turn.turn
        # A process that was not answered knows less than is recorded, and is not asked to go on.
        is_next = bool(lived) and lived[-1].turn == turn.turn - 1 and sum(map(_known, lived)) == turn.delivered
        if goes_on or (is_next and len(lived) < LIVED_MAX):
            ends = turn.deliveries if answer is None else answer
            lived = [*lived, _Received(turn.turn, at, deliveries_of(ends))]
            other = self._say(task, lived)
            # A replay says once more which calls were dropped before.
            if _comparable(other) != _comparable(said) or not set(other.cancelled) <= set(said.cancelled):
                raise AssertionError(f"promise 16: a process says {_shown(other)}, and a replay {_shown(said)}")
        # A process ends now and then, and a later turn is a replay.
        if (isinstance(said, m.Idle) and said.goes_on) or zlib.crc32(f"{key} {turn.turn}".encode()) % 4:
            self._lived[key] = lived or anew
        end = turn_end_of(said)
        if end.failure is not None and end.failure.code == "NONDETERMINISTIC":
            raise AssertionError(f"promise 16: a program differs from what is recorded: {end.failure.message}")
        return end, said.output if isinstance(said, m.Ended) else None

    def _say(self, task: Task, received: list[_Received]) -> m.FromProgram:
        assert task.turn is not None
        return say(program_of(task.params), task.params["steps"], received, begun=task.turn.begun)


def say(program: RandomProgram, steps: list[str], received: list[_Received], *, begun: float) -> m.FromProgram:
    """What a program says to the last thing that it gets."""
    link = Link(steps, received)
    machine = SimulatedMachine(link, turn=received[0].turn, history=received[0].history, at=begun)
    try:
        return run_function(machine, function_of(program), {})
    except Stopped:
        assert link.said is not None
        return link.said


def _comparable(said: m.FromProgram) -> m.FromProgram:
    """Without what each process may say in another way: which definitions are known, and how long something took."""
    calls = tuple(msgspec.structs.replace(call, seconds=0.0, failure=_brief(call.failure)) for call in said.calls)
    found = msgspec.structs.replace(said, definitions=(), cancelled=(), calls=calls)
    return msgspec.structs.replace(found, failure=_brief(found.failure)) if isinstance(found, m.Ended) else found


def _brief(failure: m.CallFailure | None) -> m.CallFailure | None:
    return None if failure is None else msgspec.structs.replace(failure, trace="")


def _shown(said: m.FromProgram) -> str:
    return "\n".join(_lines(said))


def _lines(said: m.FromProgram) -> Iterator[str]:
    yield f"{said.turn} {said.at} {getattr(said, 'how', '')} {getattr(said, 'failure', '')}"
    for call in said.calls:
        yield f"{call.id} {call.name} {call.kind} {call.arguments!r} {call.output} {call.failure}"
    yield f"cancelled {said.cancelled}"
