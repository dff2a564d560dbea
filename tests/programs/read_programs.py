"""A program that has every kind of call, for the test of all readers. Workers import this module."""

from __future__ import annotations

import asyncio
from pathlib import Path

import mulligan
from mulligan import StepError, StepFailed, gather, program, step


@step
def book(what: str) -> str:
    return f"booking of {what}"


@book.undo
def unbook(output: str) -> None:
    print(f"gave back the {output}")


@step(inline=True)
def count(number: int) -> int:
    if number == 2:
        raise StepError("TWO", "it does not count beyond two")
    return number + 1


@step
def wait_for(name: str) -> str:
    if not name:
        raise StepError("NOBODY", "nobody is named")
    if name != "first":
        asyncio.run(asyncio.sleep(60))
    return name


@step
def pay(folder: str) -> str:
    if not Path(folder, "money").exists():
        raise StepError("NO_MONEY", "the card is empty")
    return "paid"


@program
def travel(folder: str) -> str:
    mulligan.now()
    for number in range(3):
        try:
            count(number)
        except StepFailed:
            break
    try:
        wait_for("")
    except StepFailed as failed:
        print(failed.code)
    book("flight")
    gather(book.call(what) for what in ("hotel", "car", "bus", "boat"))
    return pay(folder)


@program
async def race() -> str:
    tasks = [asyncio.create_task(wait_for(name)) for name in ("first", "second")]  # type: ignore[arg-type]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    return str(await done.pop())
