"""Run a program in memory with fakes, and run a changed program over what is recorded of an earlier run.

found = rehearse(nightly, "monday", fakes={"fetch": [1, 2], "load": StepFailed("QUOTA")})
assert found.result == {"loaded": 0}

replay(nightly, run)  # raises if the code of today would call something else than is recorded
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from mulligan.programs import messages as m
from mulligan.programs.errors import Nondeterministic, Stopped
from mulligan.programs.machine import Machine, as_exception
from mulligan.programs.memory_engine import BEGIN, MemoryEngine, after
from mulligan.programs.running import run_function

SHOWN_CHARS_MAX = 60
__all__ = ["HasHistory", "RecordedRun", "Rehearsal", "ReplayDiffers", "after", "rehearse", "replay"]


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


class HasHistory(Protocol):
    """A run of a program."""

    def program_history(self) -> RecordedRun: ...


class _RehearsingEngine(MemoryEngine):
    """Runs the programs that a program calls in memory, too, with the same fakes."""

    def run_program(self, program: Any, inputs: dict[str, Any]) -> tuple[float, Any, m.CallFailure | None]:
        inner = rehearse(program, fakes=self.fakes, inputs=inputs)
        return inner.seconds, inner.result, inner.failure


class Rehearsal:
    """A program that was run in memory: how it has ended, and what it has called."""

    def __init__(self, ended: m.Ended, engine: MemoryEngine, inputs: dict[str, Any]) -> None:
        self._ended = ended
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
        return [*lines, f"the program {last}"]

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
    inputs: Mapping[str, Any] | None = None,
    **given: Any,
) -> Rehearsal:
    """Run a program in memory. Steps end as `fakes` say, or run their plain functions; sleeps take no time.

    `fakes` are by the name of a step: a value, an exception, a function that gets the arguments by name, an iterator
    with the ends of one call after the other, or `after("30s", …)` with one of these. `approve` needs one.
    """
    arguments = program.bind(args, {**(inputs or {}), **given})
    engine = _RehearsingEngine(fakes)
    machine = Machine(engine, at=engine.now, calls_max=program.keys.get("calls", m.CALLS_MAX_DEFAULT))
    ended = run_function(machine, program.fn, arguments)
    engine.take(ended)
    return Rehearsal(ended, engine, arguments)


class ReplayDiffers(AssertionError):
    """The program would call something else than what is recorded."""

    def __init__(self, difference: Nondeterministic) -> None:
        super().__init__(difference.message)
        self.recorded = difference.recorded
        self.asked = difference.asked


class _ReplayLink(MemoryEngine):
    """Ends the program when it has come as far as it was."""

    def exchange(self, message: m.Idle) -> m.Deliver:
        raise Stopped


def replay(program: Any, run: HasHistory) -> None:
    """Run the program over what is recorded of a run, and raise ReplayDiffers if it would call something else.

    No step runs. Use it in a test, with runs that you have kept, before you change a program that has open runs.
    """
    inputs, history, at = run.program_history()
    machine = Machine(_ReplayLink(), history=history, at=at, calls_max=m.CALLS_MAX)
    try:
        run_function(machine, program.fn, inputs)
    except Stopped:
        return
    if isinstance(machine.broken, Nondeterministic):
        raise ReplayDiffers(machine.broken)
