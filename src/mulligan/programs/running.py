"""Run the function of a program below a machine, from its arguments to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mulligan.flows.context import PROGRAM
from mulligan.programs.call_values import check_returned, storable
from mulligan.programs.errors import Nondeterministic, NotStorable, Stopped, ThreadRefused
from mulligan.programs.failures import failure_of, site_of
from mulligan.programs.machine import Machine
from mulligan.programs.messages import CallFailure, Ended

# The flag of the code of an `async def`: `inspect` costs more than a start.
COROUTINE = 0x80
# What a program returns cannot be stored.
OUTPUT_INVALID = "OUTPUT_INVALID"


def run_function(machine: Machine, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Ended:
    """Run it to its end. `Stopped` leaves this, if the program does not go on here."""
    try:
        result = _call(machine, function, arguments)
        machine.refuse_unstarted()
        machine.finish_replay_at_end("returns")
    except Stopped:
        raise
    except BaseException as error:
        return _raised(machine, error)
    try:
        check_returned(function, result)
        return machine.ended("returned", storable(result, "the result"))
    except NotStorable as refusal:
        return machine.ended("raised", failure=CallFailure(code=OUTPUT_INVALID, message=str(refusal)))


def _call(machine: Machine, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    code = getattr(function, "__code__", None)
    if code is not None and code.co_flags & COROUTINE:
        # asyncio is imported for programs that use it.
        from mulligan.programs.event_loop import ProgramLoop

        machine.loop = ProgramLoop(machine)  # type: ignore[abstract]
    before = PROGRAM.set(machine)
    try:
        result = function(**arguments)
        return result if machine.loop is None else machine.loop.run(result)
    finally:
        PROGRAM.reset(before)


def _raised(machine: Machine, error: BaseException) -> Ended:
    if isinstance(machine.broken, Nondeterministic):
        # Whatever the program has made of it.
        error = machine.broken
    elif isinstance(machine.broken, Stopped):
        raise machine.broken
    elif not isinstance(error, Nondeterministic):
        error = _refused_thread(error) or error
        try:
            machine.finish_replay_at_end("raises")
        except Nondeterministic as difference:
            difference.__cause__ = error
            error = difference
    return machine.ended("raised", failure=failure_of(error), at=site_of(error))


def _refused_thread(error: BaseException) -> ThreadRefused | None:
    """The refusal that an exception comes from."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        if isinstance(found, ThreadRefused):
            return found
        seen.add(id(found))
        found = found.__context__
    return None
