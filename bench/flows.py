"""How long a flow takes to build: 1,000 steps made by calling functions, checked, and the same as YAML.

    python bench/flows.py [STEPS]

Prints the seconds of the processor for building (the function of the flow runs, and its steps are written down) and
for checking: of a chain in which every step reads the one before it, of a fan whose steps have many arguments, and of
the same chain as a YAML file. The goal is under 0.2 s for 1,000 steps.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from mulligan import Retry, flow, step
from mulligan.core.model.workflow import encode
from mulligan.language import load_text

STEPS_DEFAULT = 1_000
ROUNDS = 15
_count = STEPS_DEFAULT


@step(retry=Retry(codes=["CONNECTION"], max_retries=5, delay="1s", factor=2), timeout="1m")
def work(number: int, before: int) -> int:
    return number + before


@step
def load(rows: list[dict[str, Any]], table: str, *, day: str, limit: int = 10) -> int:
    return len(rows) + limit


@flow
def chain(start: int):
    result = start
    for number in range(_count):
        result = work(number, result)
    return {"result": result}


@flow
def fan(table: str, day: str):
    rows = work(0, 0)
    for number in range(_count - 1):
        load(rows[number].rows, f"{table}_{number}", day=day)  # type: ignore[index]


def yaml_chain(count: int) -> str:
    lines = ["name: chain", "inputs: {start: integer}", "steps:"]
    for number in range(count):
        name = "work" if number == 0 else f"work_{number + 1}"
        before = (
            "${inputs.start}" if number == 0 else f"${{steps.{'work' if number == 1 else f'work_{number}'}.output}}"
        )
        lines.append(f"  - step: {name}")
        if number:
            lines.append(f"    needs: [{'work' if number == 1 else f'work_{number}'}]")
        lines += [
            f"    python: {{call: {work.__module__}:work}}",
            f'    args: {{number: {number}, before: "{before}"}}',
            "    retry: {codes: [CONNECTION], max_retries: 5, delay: 1s, factor: 2}",
            "    timeout: 1m",
        ]
    last = "work" if count == 1 else f"work_{count}"
    return "\n".join([*lines, f'outputs: {{result: "${{steps.{last}.output}}"}}', ""])


def seconds(call: Callable[[], Any]) -> float:
    """The best of some rounds: what another process takes is not ours."""
    best = float("inf")
    for _ in range(ROUNDS):
        gc.collect()
        started = time.process_time()
        call()
        best = min(best, time.process_time() - started)
    return best


def main(count: int) -> None:
    global _count
    _count = count
    for made in (chain, fan):
        built = seconds(made.workflow)
        both = seconds(lambda made=made: made.workflow().check())  # type: ignore[misc]
        print(f"{made.name:6} {count:,} steps: build {built:.3f} s, check {both - built:.3f} s, together {both:.3f} s")
    text = yaml_chain(count)
    print(f"yaml   {count:,} steps: {seconds(lambda: load_text(text)):.3f} s")
    print("the chain and the file are equal to the byte:", encode(chain.workflow().check()) == encode(load_text(text)))


if __name__ == "__main__":
    # Under its own name and in its folder, as a worker would import it: the steps of a script carry its source.
    here = Path(__file__).resolve()
    os.chdir(here.parent)
    import_module(here.stem).main(int(sys.argv[1]) if len(sys.argv) > 1 else STEPS_DEFAULT)
