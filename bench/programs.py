"""How long a program takes to come back: a replay of 10,000 calls, plain and asynchronous.

    python bench/programs.py [CALLS]

Prints, for each kind of program, the processor time that one call takes below the engine (encoding, identity,
message), in µs, the seconds that reading its history and replaying it take, and the size of the history. The goal is
under 1 s for the replay of 10,000 calls.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

from mulligan import gather, program, step
from mulligan.programs import messages as m
from mulligan.programs.program import Program
from mulligan.programs.rehearsing import RecordedRun, Rehearsal, rehearse, replay

CALLS_DEFAULT = 10_000
ROUNDS = 5
REPLAY_SECONDS_MAX = 1.0
FAKES = {"load": {"loaded": 1, "table": "facts"}}


@step
def load(rows: list[dict[str, Any]], table: str = "facts") -> dict[str, Any]:
    return {"loaded": len(rows), "table": table}


@program(calls=m.CALLS_MAX)
def chain(calls: int) -> int:
    total = 0
    for number in range(calls):
        total += load([{"number": number, "name": "chair"}])["loaded"]
    return total


@program(calls=m.CALLS_MAX)
def fan(calls: int) -> int:
    return len(gather(load.call([{"number": number, "name": "chair"}]) for number in range(calls)))


@program(calls=m.CALLS_MAX)
async def tasks(calls: int) -> int:
    found = await asyncio.gather(*(load.call([{"number": number, "name": "chair"}]) for number in range(calls)))
    return len(found)


class Recorded:
    """A run whose history is read as a new process reads it."""

    def __init__(self, found: Rehearsal) -> None:
        run = found.program_history()
        self.data = m.encode_history(run.history.calls, run.history.deliveries)
        self._inputs = run.inputs

    def program_history(self) -> RecordedRun:
        return RecordedRun(self._inputs, m.decode_history(self.data))


def seconds(run: Callable[[], Any]) -> float:
    """The least processor time of several rounds."""
    least = float("inf")
    for _ in range(ROUNDS):
        begin = time.process_time()
        run()
        least = min(least, time.process_time() - begin)
    return least


def measure(tested: Program[..., Any], calls: int) -> str:
    recorded = Recorded(rehearse(tested, calls, fakes=FAKES).check())
    first = seconds(lambda: rehearse(tested, calls, fakes=FAKES))
    again = seconds(lambda: replay(tested, recorded))
    size = len(recorded.data) / 1e6
    verdict = "met" if again / calls * CALLS_DEFAULT < REPLAY_SECONDS_MAX else "NOT MET"
    figures = f"a call {first / calls * 1e6:5.0f} µs  replay {again:.2f} s ({verdict})  history {size:.1f} MB"
    return f"{tested.name:6}  {figures}"


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else CALLS_DEFAULT
    print(f"{calls} calls")
    for tested in (chain, fan, tasks):
        print(measure(tested, calls))


if __name__ == "__main__":
    main()
