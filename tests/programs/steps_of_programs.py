"""Steps that the programs of these tests call."""

from __future__ import annotations

from mulligan import StepError, step


@step
def double(number: int) -> int:
    return number * 2


@step
def add(one: int, other: int = 0) -> int:
    return one + other


@step
def fail(code: str) -> None:
    raise StepError(code, "as it was told to")


@step(inline=True)
def count(number: int) -> int:
    return number + 1
