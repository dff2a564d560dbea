"""Debugging of runs: whether it is asked for, and the terminal that the steps get."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from mulligan.errors import InputInvalid
from mulligan.service.driving.driver import Capacity
from mulligan.worker.child.warm_child import Debugging

DEBUG, LOCALS = "MULLIGAN_DEBUG", "MULLIGAN_LOCALS"
_NO = ("", "0", "false", "no")
NOTE = (
    "debugging: steps in Python run one at a time in this terminal, and have no time limit; what they and the debugger "
    "show here is not searched for secrets"
)


def is_asked(variable: str, environ: Mapping[str, str]) -> bool:
    """Whether a variable such as `MULLIGAN_DEBUG=1` asks for something."""
    return environ.get(variable, "").lower() not in _NO


def debugged(capacity: Capacity, *, is_debugged: bool = False, has_locals: bool = False) -> Capacity:
    """The capacity of a worker whose steps in Python are debugged in this terminal; refused without one."""
    before = capacity.debugging or Debugging()
    terminal = before.terminal or (find_terminal() if is_debugged else "")
    wanted = Debugging(terminal=terminal, locals=has_locals or before.locals)
    if wanted == Debugging():
        return capacity
    if capacity.on:
        raise InputInvalid(
            f"--debug and --locals are for steps on this machine, and these run on {capacity.on}",
            hint="run it here: leave out --on",
        )
    return msgspec.structs.replace(capacity, debugging=wanted)


def debugged_if_asked(capacity: Capacity, environ: Mapping[str, str]) -> Capacity:
    """The same as `MULLIGAN_DEBUG=1` asks for, which does nothing here without a terminal: it has another use."""
    is_debugged = is_asked(DEBUG, environ) and not capacity.on and os.isatty(0)
    return debugged(capacity, is_debugged=is_debugged)


def find_terminal() -> str:
    """The terminal of this process, which is its standard input."""
    try:
        if os.isatty(sys.__stdin__.fileno() if sys.__stdin__ is not None else -1):
            return os.ttyname(0)
    except (OSError, ValueError):
        pass
    raise InputInvalid(
        "debugging needs a terminal, and standard input is none",
        hint="run it in a terminal; to debug a failed attempt in an editor: mulligan debug RUN STEP --listen 5678",
    )


def debugging_attempt(port: int = 0, *, has_locals: bool = False) -> Debugging:
    """One attempt, which stops at its first line: in this terminal, or in an editor that connects to a port."""
    if not port:
        return Debugging(terminal=find_terminal(), stops=True, locals=has_locals)
    terminal = os.ttyname(0) if os.isatty(0) else ""
    return Debugging(terminal=terminal, port=port, stops=True, locals=has_locals)


@contextmanager
def kept_terminal(debugging: Debugging | None) -> Iterator[None]:
    """Leave the terminal of the steps as it was, also if what edited a line on it was killed."""
    if debugging is None or not debugging.terminal:
        yield
        return
    import termios

    before = termios.tcgetattr(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
