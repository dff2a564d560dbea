"""The programs of the trials. Each is run as `mulligan run programs.py:NAME`, and takes at most some seconds.

This file is copied to the stage of each trial. For `corrected` it is copied twice: the second copy has the line below
MISTAKE corrected, and the run goes on with that.
"""

from __future__ import annotations

import asyncio
import os
import time

from mulligan import (
    Rejected,
    StepError,
    StepFailed,
    approve,
    gather,
    program,
    publish_state,
    random,
    sleep,
    step,
    wait_event,
)

# As `act.sh` writes it.
NAMES = ("RUN_ID", "STEP", "ITEM", "VISIT", "ATTEMPT", "FENCE")


def act(name: str, seconds: float = 0) -> None:
    """Say in the journal when this begins and ends."""
    known = [os.environ.get(f"MULLIGAN_{name}", "-") for name in NAMES]
    said = " ".join((name, *known, str(os.getpid()), os.environ["MULLIGAN_IDEMPOTENCY_KEY"]))
    for verb in ("start", "end"):
        with open(os.environ["JOURNAL"], "a", encoding="utf-8") as journal:
            print(verb, said, file=journal)
        if verb == "start":
            time.sleep(seconds)


@step
def fetch() -> int:
    act("fetch")
    return 3


@step(retry=1)
def clean(part: int) -> int:
    act(f"clean{part}")
    if part == 1:
        raise StepError("ODD", f"part {part} is odd")
    return part


@step(inline=True)
def add(one: int, other: int) -> int:
    return one + other


@step(inline=True)
def keep(number: float) -> None:
    assert 0 <= number < 1


@step
def load(rows: int) -> int:
    act(f"load{rows}")
    return rows


@load.undo
def unload(output: int) -> None:
    act(f"unload{output}")


@step
def sink(name: str) -> None:
    act(name)
    raise StepError("SUNK")


@step
def ask(mirror: str, seconds: float) -> str:
    act(mirror, seconds)
    return mirror


@program
def branches() -> dict[str, object]:
    """Branches, a loop, calls beside each other, inline steps, values."""
    parts = gather((clean.call(part) for part in range(fetch())), failures="return")
    good = [part for part in parts if not isinstance(part, StepFailed)]
    total, rounds = 0, 0
    while total < 4:
        total, rounds = add(total, max(good)), rounds + 1
    # Another number in a replay would be another argument.
    keep(random())
    return {"good": good, "total": load(total), "rounds": rounds}


@program
async def race() -> dict[str, object]:
    """The first answer counts, and the call that is too slow is cancelled; others are taken as they come."""
    tasks = [asyncio.create_task(ask.call("east", 0.0)), asyncio.create_task(ask.call("west", 60.0))]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    found = [task.result() for task in done]
    try:
        async with asyncio.timeout(0.05):
            await ask("north", 60.0)  # type: ignore[misc]
    except TimeoutError:
        found.append("late")
    async with asyncio.TaskGroup() as group:
        loads = [group.create_task(load.call(rows)) for rows in (1, 2)]
    return {"found": found, "loaded": [task.result() for task in loads]}


@program
def waits() -> dict[str, object]:
    """A person who does not answer, and sleeps, beside each other and alone."""
    fetch()
    answers = []
    for number in range(2):
        try:
            approve(f"is {number} right?", timeout="30ms")
        except Rejected as rejected:
            answers.append(rejected.code)
        sleep("20ms")
    gather([sleep.call("30ms"), sleep.call("10ms"), load.call(len(answers))])
    return {"answers": answers}


@program
def sent() -> dict[str, object]:
    """Two events of one name, each taken once, in their order; and what people see of it meanwhile."""
    publish_state(has="nothing")
    first = wait_event("paid")
    publish_state(has=first)
    load(1)
    second = wait_event("paid", timeout="1h")
    return {"first": first, "second": second, "loaded": load(2)}


@program
def undone() -> None:
    """A failure that is caught, and one that is not: what was done is undone, the last one first."""
    load(1)
    try:
        sink("reef")
    except StepFailed:
        gather(load.call(rows) for rows in (2, 3))
    sink("rock")


@program
def corrected() -> dict[str, object]:
    """It fails, and goes on with a corrected file."""
    rows = fetch()
    found = [load(number) for number in range(rows)]
    total = sum(found) // (rows - 3)  # MISTAKE
    return {"total": load(total)}
