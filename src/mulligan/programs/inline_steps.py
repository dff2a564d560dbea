"""Run an inline step in the process of its program."""

from __future__ import annotations

import os
import types
from collections.abc import Callable
from typing import Any

from mulligan.programs.errors import NotStorable

_KEY = "MULLIGAN_IDEMPOTENCY_KEY"
_NAMES = ("MULLIGAN_STEP", "MULLIGAN_VISIT", "MULLIGAN_ATTEMPT", "MULLIGAN_RETRY", _KEY)


class InlineEnvironment:
    """Lets an inline step read what a worker sets for it, also for its retries, and not what is of the program.

    Outside of a run there is nothing to read. The variables of the program are read once, since each access costs.
    """

    def __init__(self) -> None:
        self._program = {name: os.environ.get(name) for name in _NAMES}
        self._run = (self._program[_KEY] or "").partition(":")[0]
        # What is set now, and is not as it is for the program.
        self._changed: list[str] = []

    def enter(self, label: str, visit: int, attempt: int) -> None:
        """From here on an inline step runs."""
        if self._program[_KEY] is None:
            return
        values = (label, str(visit), str(attempt), None, f"{self._run}:{label}:{visit}")
        for name, value in zip(_NAMES, values, strict=True):
            if value != self._program[name]:
                self._changed.append(name)
                _set(name, value)

    def leave(self) -> None:
        """From here on the program runs."""
        for name in self._changed:
            _set(name, self._program[name])
        self._changed.clear()


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
