"""Programs whose calls fail as a test says: `FAILING` has codes by the labels of calls. For the tests of coverage."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from mulligan import Rejected, StepError, StepFailed, approve, gather, now, program, random, sleep, step, wait_event

FAILING: dict[str, str] = {}


def behave() -> None:
    if code := FAILING.get(os.environ["MULLIGAN_STEP"]):
        raise StepError(code, "as the test says")


@step(retry=1)
def fetch(day: str) -> list[int]:
    behave()
    return [1, 2]


@step
def load(part: int) -> int:
    behave()
    return 5


@step
def check(total: int) -> bool:
    behave()
    return True


@step
def publish(total: int) -> str:
    behave()
    return "v1"


@publish.undo
def withdraw(output: str) -> None: ...


@step(triage=True)
def announce(version: str) -> str:
    behave()
    return "said"


@step
def restore(why: str) -> str:
    behave()
    return "restored"


@step(inline=True)
def count(total: int) -> int:
    behave()
    return 3


@program
def nightly(day: str = "monday") -> Any:
    rows = fetch(day)
    try:
        counts = gather(load.call(row) for row in rows)
    except StepFailed as failed:
        if failed.code != "QUOTA":
            raise
        sleep("1h")
        counts = [0]
    total = sum(counts)
    tries = 0
    while True:
        try:
            if check(total):
                break
        except StepFailed:
            tries += 1
            if tries == 3:
                raise
    version = publish(total)
    if total > 1:
        try:
            count(total)
        except StepFailed:
            restore("count")
    announce(version)
    return version


@program
def asking() -> Any:
    now()
    random()
    try:
        approve("go on?", timeout="8h")
    except Rejected as rejected:
        return rejected.code
    try:
        paid = wait_event("paid", timeout="1d")
    except StepFailed:
        restore("paid")
        return "unpaid"
    load.options(key="last")(paid)
    return "paid"


@program
async def beside() -> Any:
    first, second = asyncio.create_task(load(1)), asyncio.create_task(check(2))  # type: ignore[arg-type]
    found = []
    for task in (first, second):
        try:
            found.append(await task)
        except StepFailed as failed:
            found.append(failed.code)
    async with asyncio.timeout(60):
        found.append(await publish(len(found)))  # type: ignore[misc]
    return found


@program
def month(name: str) -> int:
    return sum(load(day) for day in (1, 2))


@program
def year() -> Any:
    try:
        return month("january")
    except StepFailed:
        return load(0)
