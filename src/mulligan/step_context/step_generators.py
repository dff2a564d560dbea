"""Run a step that yields: what it yields is its progress, what it returns is its output.

Runs in any interpreter: standard library only. `refusal` makes the exception for what is no progress, of a message.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from mulligan.step_context import yielded_progress
from mulligan.step_context.errors import NotInStep

# `typing` itself is not imported: a process that is about to start should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The name that Python gives to `(x for x in y)`: it has values, and no progress.
GENERATOR_EXPRESSION = "<genexpr>"


def run_generator(generator: Any, refusal: Callable[[str], Exception]) -> object:
    """Run a generator to its end; return what it returned."""
    if generator.gi_code.co_name == GENERATOR_EXPRESSION:
        generator.close()
        raise refusal("it returned a generator expression, which would be taken for its progress; return list(…)")
    try:
        while True:
            _report(next(generator), refusal)
    except StopIteration as end:
        return end.value
    finally:
        generator.close()


async def run_async_generator(generator: AsyncGenerator[Any, None], refusal: Callable[[str], Exception]) -> None:
    """Run an asynchronous generator to its end. It cannot return a value, so the step has no output."""
    try:
        async for value in generator:
            _report(value, refusal)
    finally:
        await generator.aclose()


def _report(value: object, refusal: Callable[[str], Exception]) -> None:
    """Report what a step yielded as its progress; refuse anything else."""
    try:
        yielded_progress(value)
    except NotInStep:
        pass  # it is progress, and an inline step of a program has no place to show it
    except (TypeError, ValueError) as problem:
        raise refusal(
            f"it yielded {_short(value)}: {problem}; a step yields its progress, "
            "0.3, (3, 10), (3, 10, 'text') or 'text', and returns its output"
        ) from None


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:
        text = "a value"
    return f"{text[:60]}… ({type(value).__name__})" if len(text) > 60 else f"{text} ({type(value).__name__})"
