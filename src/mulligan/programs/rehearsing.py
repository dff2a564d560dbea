"""Run a program in memory with fakes, and run a changed program over what is recorded of an earlier run.

found = rehearse(nightly, "monday", fakes={"fetch": [1, 2], "load": StepFailed("QUOTA")})
assert found.result == {"loaded": 0}

replay(nightly, run)  # raises if the code of today would call something else than is recorded
"""

from __future__ import annotations

import json
import types
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from mulligan.flows.flow import FlowCall
from mulligan.flows.functions import FunctionWrapper
from mulligan.language.text.suggestions import did_you_mean
from mulligan.programs import messages as m
from mulligan.programs.errors import FakesRefused, Nondeterministic, Stopped
from mulligan.programs.machine import APPROVE, WAIT_EVENT, Machine, as_exception
from mulligan.programs.memory_engine import BEGIN, MemoryEngine, NoEngine, after
from mulligan.programs.program import Program
from mulligan.programs.running import run_function

SHOWN_CHARS_MAX = 60
CHILD_FAILED = "CHILD_FAILED"
__all__ = ["FakesRefused", "HasHistory", "RecordedRun", "Rehearsal", "ReplayDiffers", "after", "rehearse", "replay"]


class RehearsedCall(NamedTuple):
    """A call of a program in memory."""

    label: str
    name: str
    # By parameter, as they were stored.
    arguments: dict[str, Any]
    line: int


class RecordedRun(NamedTuple):
    """What is recorded of a run of a program."""

    inputs: dict[str, Any]
    history: m.History
    at: float = BEGIN
    # The paths of the artifacts that the results may refer to.
    files: Mapping[str, str] = MappingProxyType({})


class HasHistory(Protocol):
    """A run of a program."""

    def program_history(self) -> RecordedRun: ...


class _RehearsingEngine(MemoryEngine):
    """Runs the programs that a program calls in memory, too, with the same fakes."""

    def run_program(self, program: Any, inputs: dict[str, Any]) -> tuple[float, Any, m.CallFailure | None]:
        inner = _RehearsingEngine(self.fakes, real=self.real)
        try:
            found = _run(inner, program, inputs)
        except FakesRefused as problem:
            self.problem = problem
            raise Stopped from None
        self.called |= inner.called
        failure = found.failure
        if failure is not None:
            message = f"the program '{program.name}' has failed: {failure.code}: {failure.message}"
            failure = m.CallFailure(CHILD_FAILED, message, retryable=failure.retryable)
        return found.seconds, {"result": found.result}, failure


class _RehearsingMachine(Machine):
    """Asks the fakes about inline steps, too."""

    def prepare(self, thing: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = super().prepare(thing, args, kwargs)
        if thing.is_inline:
            real, arguments = call.run, json.loads(call.arguments)
            call.run = lambda: self._run_faked(thing, arguments, real)
        return call

    def _run_faked(self, thing: Any, arguments: dict[str, Any], real: Any) -> Any:
        engine = self._link
        assert isinstance(engine, _RehearsingEngine)
        try:
            found = engine.outcome_of_inline(thing, arguments)
        except Stopped as stopped:
            self.broken = stopped
            raise
        if found is None:
            return real()
        output, failure = found
        if failure is not None:
            raise as_exception(failure, thing.name)
        return output


class Rehearsal:
    """A program that was run in memory: how it has ended, and what it has called."""

    def __init__(self, ended: m.Ended, engine: MemoryEngine, inputs: dict[str, Any], state: dict[str, Any]) -> None:
        self._ended = ended
        self._state = state
        self._engine = engine
        self._inputs = inputs

    @property
    def result(self) -> Any:
        """What it has returned, as JSON has it; None if it has raised."""
        return self._ended.output

    @property
    def failure(self) -> m.CallFailure | None:
        """What it has raised; None if it has returned."""
        return self._ended.failure

    @property
    def status(self) -> str:
        """`completed` or `failed`."""
        return "completed" if self._ended.failure is None else "failed"

    @property
    def state(self) -> dict[str, Any]:
        """What it has published last, with `publish_state`."""
        return self._state

    @property
    def seconds(self) -> float:
        """How long it would have taken, by its sleeps and by what fakes say."""
        return self._engine.now - BEGIN

    @property
    def calls(self) -> list[RehearsedCall]:
        """What it has called, in this order."""
        return [
            RehearsedCall(one.label, one.name, self._arguments(one), one.line)
            for one in self._engine.calls
            if one.kind != "value"
        ]

    @property
    def undone(self) -> list[str]:
        """The labels of the calls that are undone because it has failed, in this order: the last completed first.

        No undo runs here: test its function by itself.
        """
        if self._ended.failure is None:
            return []
        made = {one.id: one for one in self._engine.calls}
        completed = [made[one.id] for one in self._engine.deliveries if one.failure is None]
        return [one.label for one in reversed(completed) if self._engine.is_undoable(one)]

    def story(self) -> list[str]:
        """What it has called and what came of it, a line for each call, and how it has ended."""
        ends = {one.id: one for one in self._engine.deliveries}
        lines = []
        for call in self._engine.calls:
            end = ends.get(call.id)
            given = ", ".join(f"{name}={_shown(value)}" for name, value in self._arguments(call).items())
            came = "did not end" if end is None else _shown(end.output) if end.failure is None else end.failure.code
            if call.kind == "value":
                came = _shown(call.output)
            lines.append(f"{call.label}({given}): {came}")
        failure = self.failure
        last = f"returned {_shown(self.result)}" if failure is None else f"raised {failure.code}: {failure.message}"
        undone = [f"{label} is undone" for label in self.undone]
        return [*lines, f"the program {last}", *undone]

    def _arguments(self, call: m.RecordedCall) -> dict[str, Any]:
        return self._engine.arguments.get(call.id, {})

    def names(self) -> list[str]:
        """The labels of its calls: `["fetch", "load", "load#2"]`."""
        return [call.label for call in self.calls]

    def program_history(self) -> RecordedRun:
        """What is recorded, for `replay`."""
        return RecordedRun(self._inputs, self._engine.history)

    def check(self) -> Rehearsal:
        """Raise its failure, if it has one."""
        if self._ended.failure is not None:
            raise as_exception(self._ended.failure, "the program")
        return self


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def rehearse(
    program: Any,
    /,
    *args: Any,
    fakes: Mapping[str, Any] | None = None,
    real: bool | Collection[str] = False,
    inputs: Mapping[str, Any] | None = None,
    **given: Any,
) -> Rehearsal:
    """Run a program in memory. Steps end as `fakes` say, and sleeps take no time.

    `fakes` are by the name of a step: a value, an exception, a function that gets the arguments by name, an iterator
    with the ends of one call after the other, or `after("30s", …)` with one of these. `approve` and `wait_event` need
    one. Steps whose
    names are in `real` run their plain functions; with `real=True` all that have no fake do. Any other step, and a fake
    that belongs to no step, is refused: FakesRefused.
    """
    arguments = program.bind(args, {**(inputs or {}), **given})
    names, texts = names_in_reach(program.fn)
    chosen = () if isinstance(real, bool) else real
    unknown = [name for name in (*(fakes or {}), *chosen) if name not in names | texts]
    for name in unknown:
        if hint := did_you_mean(name, sorted(names - set(fakes or {}))):
            raise FakesRefused(f"'{name}' is no step that the program '{program.name}' can call; {hint}")
    engine = _RehearsingEngine(fakes, real=real)
    found = _run(engine, program, arguments)
    for name in unknown:
        if name not in engine.called:
            message = f"'{name}' is no step that the program '{program.name}' has called"
            raise FakesRefused(f"{message}; it has called: {', '.join(sorted(engine.called)) or 'none'}")
    return found


def _run(engine: _RehearsingEngine, program: Any, arguments: dict[str, Any]) -> Rehearsal:
    machine = _RehearsingMachine(engine, at=engine.now, calls_max=program.keys.get("calls", m.CALLS_MAX_DEFAULT))
    try:
        ended = run_function(machine, program.fn, arguments)
    except Stopped:
        assert engine.problem is not None
        raise engine.problem from None
    engine.take(ended)
    return Rehearsal(ended, engine, arguments, machine.published)


def names_in_reach(function: Any) -> tuple[set[str], set[str]]:
    """The names of the steps that a program knows, by its module and its closure; and the texts in it.

    A text may be a name that the program chooses with `options`.
    """
    names, texts = {APPROVE, WAIT_EVENT}, set[str]()
    left, seen = [function], set[int]()
    while left:
        one = left.pop()
        code = getattr(one, "__code__", None)
        if code is None or id(code) in seen:
            continue
        seen.add(id(code))
        used: set[str] = set()
        _read_code(code, texts, used)
        cells = [cell.cell_contents for cell in one.__closure__ or () if _is_filled(cell)]
        for name, value in (*one.__globals__.items(), *(("", cell) for cell in cells)):
            inside = list(vars(value).values()) if isinstance(value, types.ModuleType) else [value]
            for thing in inside:
                if isinstance(thing, FunctionWrapper | FlowCall):
                    names |= {str(getattr(thing, "name", "")), thing.fn.__name__}
                    left.append(thing.fn if isinstance(thing, Program) else None)
                elif isinstance(thing, types.FunctionType) and (not name or name in used):
                    left.append(thing)
    return names, texts


def _read_code(code: types.CodeType, texts: set[str], used: set[str]) -> None:
    used.update(code.co_names)
    for one in code.co_consts:
        if isinstance(one, str):
            texts.add(one)
        elif isinstance(one, types.CodeType):
            _read_code(one, texts, used)


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


class ReplayDiffers(AssertionError):
    """The program would call something else than what is recorded."""

    def __init__(self, difference: Nondeterministic) -> None:
        super().__init__(difference.message)
        self.recorded = difference.recorded
        self.asked = difference.asked


class _ReplayingMachine(Machine):
    """Ends the program when it has come as far as it was."""

    def _attempt_inline(self, call: Any) -> Any:
        self.broken = Stopped()
        raise self.broken


def replay(program: Any, run: HasHistory) -> None:
    """Run the program over what is recorded of a run, and raise ReplayDiffers if it would call something else.

    No step runs. Use it in a test, with runs that you have kept, before you change a program that has open runs.
    """
    from mulligan.programs.process import decode_arguments

    inputs, history, at, files = run.program_history()
    machine = _ReplayingMachine(NoEngine(), history=history, at=at, calls_max=m.CALLS_MAX, files=dict(files))
    try:
        run_function(machine, program.fn, decode_arguments(program.fn, inputs, files))
    except Stopped:
        return
    if isinstance(machine.broken, Nondeterministic):
        raise ReplayDiffers(machine.broken)
