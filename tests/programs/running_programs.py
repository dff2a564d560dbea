"""Programs that run, for the tests of whole runs. Workers import this module."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import mulligan
from mulligan import Rejected, StepError, StepFailed, approve, gather, program, sleep, step


@step
def note(folder: str, text: str) -> str:
    """Leave a line, so that a test sees how often it ran."""
    with open(Path(folder, "lines"), "a", encoding="utf-8") as lines:
        lines.write(f"{text}\n")
    return text


@note.undo
def forget(output: str, folder: str) -> None:
    with open(Path(folder, "lines"), "a", encoding="utf-8") as lines:
        lines.write(f"not {output}\n")


@step(inline=True)
def count(number: int) -> int:
    return number + 1


@step(retry=1)
def needs(folder: str, name: str) -> str:
    """Fail until there is a file of that name."""
    if not Path(folder, name).exists():
        raise StepError("MISSING", f"there is no {name}")
    return name


@program
def everything(folder: str) -> dict[str, Any]:
    found: list[str] = []
    try:
        needs(folder, "file")
    except StepFailed as failed:
        found.append(failed.code)
    number = 0
    while number < 3:
        number = count(number)
    sleep(0.01)
    found += gather(note.call(folder, text) for text in "ab")
    if mulligan.random() < 2:
        found.append(note(folder, "c"))
    return {"found": found, "number": number}


@program
async def beside(folder: str) -> list[str]:
    tasks = [asyncio.create_task(note(folder, text)) for text in "ab"]  # type: ignore[arg-type]
    return [await task for task in tasks]


@step
def much(size: int) -> list[str]:
    """More than a log holds: it is stored as a file."""
    return ["x" * 1000] * size


@step(inline=True)
def same(rows: list[str]) -> list[str]:
    return rows


@step
def size(rows: list[str]) -> int:
    return len(rows)


@program
def asking(folder: str) -> str:
    note(folder, "before")
    rows = same(same(much(100)))
    assert size(rows) == size(rows)
    try:
        approve(f"load {len(rows)} rows?", evidence={"first": [{"text": "a", "rows": 1}], "all": rows})
    except Rejected:
        return f"{len(rows)} rejected"
    rows += much(101)
    return note(folder, f"{len(rows)}-loaded")


@program
def broken_between(folder: str) -> str:
    note(folder, "a")
    needs(folder, "file")
    return note(folder, "b")


@step(inline=True, retry=1)
def charge(folder: str, cents: int) -> None:
    """Fail at first, having charged."""
    name = os.environ["MULLIGAN_STEP"]
    with open(Path(folder, "charges"), "a", encoding="utf-8") as charges:
        charges.write(f"{name} {cents} {mulligan.attempt()} {mulligan.idempotency_key()}\n")
    if cents == 0 and mulligan.attempt() % 2:
        raise StepError("TRY_AGAIN")


@program
def charging(folder: str) -> None:
    before = mulligan.idempotency_key()
    note(folder, "a")
    for cents in (0, 1, 0):
        charge(folder, cents)
    charge.options(key="again")(folder, 0)
    needs(folder, "file")
    assert mulligan.idempotency_key() == before


@program
def killed(folder: str) -> str:
    note(folder, "before")
    if not Path(folder, "killed").exists():
        Path(folder, "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return note(folder, "after")


class Closed(ConnectionError):
    """As a library would raise it."""


@step(retry=mulligan.Retry(exceptions=[ConnectionError], max_retries=1))
def connect(folder: str) -> None:
    note.fn(folder, "connect")
    raise Closed("by peer")


@step(inline=True, retry=mulligan.Retry(exceptions=[Closed], max_retries=1))
def connect_here(folder: str) -> None:
    note.fn(folder, "here")
    raise Closed("by peer")


@program
def catching(folder: str) -> list[object]:
    found: list[object] = []
    for call in (connect, connect_here):
        try:
            call(folder)
        except StepFailed as failed:
            found += [failed.code, failed.exception, failed.raised(KeyError, ConnectionError), failed.raised(KeyError)]
    try:
        needs(folder, "file")
    except StepFailed as failed:
        found += [failed.exception, failed.raised(ConnectionError)]
    return found


@program(retry=mulligan.Retry(exceptions=[PermissionError], max_retries=1))
def refused(folder: str) -> str:
    if not Path(folder, "lines").exists():
        Path(folder, "lines").touch()
        raise PermissionError("not yet")
    return "done"
