"""Run an inline step in the process of its program."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from typing import Any

from mulligan.programs.errors import Nondeterministic, NotStorable, Stopped
from mulligan.programs.failures import failure_of
from mulligan.programs.messages import CallFailure
from mulligan.values.annotations import ArgumentRefused

_KEY = "MULLIGAN_IDEMPOTENCY_KEY"
_NAMES = ("MULLIGAN_STEP", "MULLIGAN_VISIT", "MULLIGAN_ATTEMPT", "MULLIGAN_RETRY", _KEY)


class InlineEnvironment:
    """Lets an inline step read what a worker sets for it, also for its retries, and not what is of the program.

    What it changes of its environment and its folder ends with it: in a replay it does not run. Outside of a run there
    is nothing to read. The variables of the program are read once, since each access costs.
    """

    def __init__(self) -> None:
        self._program = {name: os.environ.get(name) for name in _NAMES}
        self._run = (self._program[_KEY] or "").partition(":")[0]
        # What is set now, and is not as it is for the program.
        self._changed: list[str] = []
        # As it was when the step began: as bytes, since to decode all of it would cost as much as a small step.
        self._before: dict[bytes, bytes] = {}
        self._folder = ""

    def enter(self, label: str, visit: int, attempt: int) -> None:
        """From here on an inline step runs."""
        if self._program[_KEY] is None:
            return
        values = (label, str(visit), str(attempt), None, f"{self._run}:{label}:{visit}")
        for name, value in zip(_NAMES, values, strict=True):
            if value != self._program[name]:
                self._changed.append(name)
                _set(name, value)
        self._before, self._folder = dict(_variables()), _folder()

    def leave(self) -> None:
        """From here on the program runs."""
        if self._program[_KEY] is None:
            return
        if _variables() != self._before:
            self._restore()
        for name in self._changed:
            _set(name, self._program[name])
        self._changed.clear()
        if self._folder and _folder() != self._folder:
            os.chdir(self._folder)

    def _restore(self) -> None:
        variables = _variables()
        for name in variables.keys() - self._before.keys():
            del os.environ[os.fsdecode(name)]
        for name, value in self._before.items():
            if variables.get(name) != value:
                os.environ[os.fsdecode(name)] = os.fsdecode(value)


def _variables() -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
    return found


def _folder() -> str:
    """The working folder; "" if it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def run_inline(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Run an inline step to its end, as a worker would. A coroutine gets an event loop of its own.

    That of the program stands still.
    """
    result = function(**arguments)
    if isinstance(result, types.GeneratorType):
        from mulligan.step_context.step_generators import run_generator

        return run_generator(result, _refusal)
    if isinstance(result, types.AsyncGeneratorType):
        from mulligan.step_context.step_generators import run_async_generator

        result = run_async_generator(result, _refusal)
    if not isinstance(result, types.CoroutineType):
        return result
    import asyncio
    from asyncio import events

    outer = events._get_running_loop()
    events._set_running_loop(None)
    try:
        return asyncio.run(result)
    finally:
        events._set_running_loop(outer)


def _refusal(message: str) -> NotStorable:
    return NotStorable(message, code="OUTPUT_INVALID")


def is_end_of_step(error: BaseException) -> bool:
    """Whether an inline step has failed with this, as it would on a worker. The operator's Ctrl-C is none."""
    return not isinstance(error, KeyboardInterrupt | Stopped | Nondeterministic)


def failure_of_step(error: BaseException) -> CallFailure | None:
    """The failure of an inline step that has ended with this; None if it has only ended: `sys.exit()`, a warning."""
    if isinstance(error, ArgumentRefused):
        return CallFailure("INPUT_INVALID", str(error), retryable=False)
    if not isinstance(error, SystemExit):
        found = failure_of(error)
        if found.severity != "warning":
            return found
        print(f"warning: {found.code}: {found.message}", file=sys.stderr)
        return None
    status = _exit_status(error.code)
    return CallFailure("EXIT_NONZERO", f"exit code {status}", exit_code=status) if status else None


def _exit_status(code: object) -> int:
    """The exit status of a process for `sys.exit(code)`, which prints a message."""
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1
