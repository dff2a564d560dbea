"""Run an inline step in the process of its program."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mulligan.programs.errors import Nondeterministic, NotStorable, Stopped
from mulligan.programs.failures import failure_of
from mulligan.programs.messages import CallFailure
from mulligan.values.annotations import ArgumentRefused

_KEY = "MULLIGAN_IDEMPOTENCY_KEY"


@contextmanager
def inline_environment(label: str, visit: int, attempt: int) -> Iterator[None]:
    """Let the code in it read what a worker sets for this step, also for its retries, and not what is of the program.

    What it changes of its environment and its folder ends with it: in a replay it does not run. Outside of a run there
    is nothing to read.
    """
    if _KEY not in os.environ:
        yield
        return
    # As bytes: to decode all of it would cost as much as a small step.
    environment: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
    before, folder = dict(environment), _folder()
    run, _, _ = os.environ[_KEY].partition(":")
    os.environ |= {
        "MULLIGAN_STEP": label,
        "MULLIGAN_VISIT": str(visit),
        "MULLIGAN_ATTEMPT": str(attempt),
        _KEY: f"{run}:{label}:{visit}",
    }
    os.environ.pop("MULLIGAN_RETRY", None)
    try:
        yield
    finally:
        for name in environment.keys() - before.keys():
            del os.environ[os.fsdecode(name)]
        for name, value in before.items():
            if environment.get(name) != value:
                os.environ[os.fsdecode(name)] = os.fsdecode(value)
        if folder and _folder() != folder:
            os.chdir(folder)


def _folder() -> str:
    """The working folder; "" if it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return ""


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
