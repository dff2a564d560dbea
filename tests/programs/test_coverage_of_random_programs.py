"""Coverage of random programs: what each cell says, against the program in memory with that call failing.

The cells come from the core, which plays a run; what they are compared with has neither a core nor a ladder.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
import pytest
from tests.support.nightly import examples

from mulligan.analysis.coverage.programs.exploring import ProgramExplorer
from mulligan.analysis.coverage.programs.rehearsal import InlineEnds, ProgramTurns, TurnSaid
from mulligan.analysis.playing.player import START
from mulligan.core.deciding.fakes import FakeEnd
from mulligan.core.effects.program_history import program_history, program_turn
from mulligan.core.model.actions import PROGRAM, PYTHON
from mulligan.core.model.workflow import Action, Step, Workflow
from mulligan.core.state.state import Place, State
from mulligan.language.expressions import Cel
from mulligan.programs import messages as m
from mulligan.programs.conversion import recorded_history, turn_end_of
from mulligan.programs.errors import Stopped
from mulligan.programs.machine import Machine
from mulligan.programs.memory_engine import MemoryEngine
from mulligan.programs.running import run_function
from proof.simulator.programs.drawing import PROGRAM as NAME
from proof.simulator.programs.drawing import STEPS_COUNT, RandomProgram, random_program
from proof.simulator.programs.interpreting import function_of
from proof.simulator.programs.turns import Link, SimulatedMachine, _Received

SEEDS_BY_DAY, SEEDS_AT_NIGHT = 4, 1000
FAKES = {
    **{f"s{number}": (FakeEnd(number),) for number in range(STEPS_COUNT)},
    "approve": (FakeEnd(True),),
    "wait_event": (FakeEnd(7),),
}
APPROVED = {"approved": True, "by": "someone", "reason": "assumed"}
STEPS = [msgspec.json.encode(Step(name=f"s{n}", action=Action(PYTHON, {"call": "simulated:s"}))) for n in range(5)]


class _Chance:
    """Numbers that are the same everywhere."""

    def chance(self) -> float:
        return 0.25


class _Machine(_Chance, SimulatedMachine): ...


class _MemoryMachine(_Chance, Machine): ...


class _Turns(ProgramTurns):
    """Replays the program in this process for each turn."""

    def __init__(self, program: RandomProgram) -> None:
        self._program = program

    def say(self, state: State, place: Place, at: datetime, ends: InlineEnds) -> TurnSaid:
        turn = program_turn(state, place)
        found = program_history(state, turn.delivered + len(turn.deliveries))
        history = recorded_history(found) if found.calls else None
        steps = [one.decode() for one in STEPS]
        link = Link(steps, [_Received(turn.turn, at.timestamp(), history=history)])
        machine = _Machine(link, turn=turn.turn, history=history, at=turn.begun)
        said = _said(machine, link, self._program)
        return TurnSaid(turn_end_of(said), said.output if isinstance(said, m.Ended) else None)

    def copy(self) -> _Turns:
        return self

    def copy_of(self, uid: str) -> _Turns:
        return self

    def close(self) -> None: ...

    def returns_nothing(self, definition: str) -> bool:
        return False


def _said(machine: Any, link: Link, program: RandomProgram) -> m.FromProgram:
    try:
        return run_function(machine, function_of(program), {})
    except Stopped:
        assert link.said is not None
        return link.said


class _Engine(MemoryEngine):
    """One call fails once."""

    def __init__(self, failing: str, code: str) -> None:
        fakes = {name: ends[0].output for name, ends in FAKES.items() if name not in ("s3", "s4")}
        super().__init__({**fakes, "approve": APPROVED})
        self.now = START.timestamp()
        self._failing, self._code = failing, code

    def _begin(self, call: m.Call) -> None:
        if self.calls[-1].label == self._failing:
            self._end(call, 0.0, None, m.CallFailure(self._code, self._code))
        else:
            super()._begin(call)


def _in_memory(program: RandomProgram, failing: str = "", code: str = "") -> tuple[str, list[str]]:
    """How the program ends with this call failing, and what it calls."""
    engine = _Engine(failing, code)
    machine = _MemoryMachine(engine, at=engine.now)
    ended = run_function(machine, function_of(program), {})
    engine.take(ended)
    return ended.how, [one.label for one in engine.calls]


def _cells(seed: int) -> Iterator[tuple[str, str, str, str]]:
    program = random_program(seed)
    action = Action(PROGRAM, {"call": "simulated:p"})
    workflow = Workflow(name=NAME, steps=(Step(name=NAME, action=action),), end=Step(name="end"))
    explorer = ProgramExplorer(workflow, Cel({}), {}, FAKES, lambda: _Turns(program))
    path = explorer.rehearse()
    how, called = _in_memory(program)
    assert (path.status == "completed") == (how == "returned"), path.problem
    if path.status != "completed":
        return
    assert set(explorer.rows) <= set(called)
    for case in explorer.cases():
        found = explorer.rows[case.step]
        kind = next(one for one in explorer.kinds[case.step] if one.name == case.failure)
        is_known = kind.name in ("EXCEPTION", "APPROVAL_REFUSED") and not (found.after or found.is_inline)
        if case.times == "once" and is_known:
            how, _ = _in_memory(program, case.step, kind.name)
            yield case.step, kind.name, case.verdict, "handled" if how == "returned" else "fails"


@pytest.mark.parametrize("seed", range(examples(SEEDS_BY_DAY, SEEDS_AT_NIGHT)))
def test_a_cell_of_a_random_program_says_what_becomes_of_it(seed: int) -> None:
    for step, failure, verdict, expected in _cells(seed):
        assert verdict == expected, (step, failure)
