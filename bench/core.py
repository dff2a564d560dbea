"""How much a turn costs as a run grows: microseconds per event and memory, in memory, with no store beneath.

    make bench            or            python bench/core.py [--steps 1000 10000 100000] [--json FILE]

Three shapes: a chain (every step needs the one before), a fan (one step, n beside each other, one that needs all),
and layers (of 100, each step needs three of the layer before). Each size runs in a process of its own, so that
peak memory is its own. Two bars: microseconds per event flat within 1.5x from the smallest to the largest size and
under 60, memory of the largest under 400 MB.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import resource
import subprocess
import sys
import time
from collections import deque
from datetime import UTC, datetime

from mulligan.core.effects import effects as fx
from mulligan.core.model import reports as r
from mulligan.core.model.workflow import Action, Need, Step, Workflow
from mulligan.core.state.state import State
from mulligan.core.turn import turn
from mulligan.testing.history import Answers

SHAPES = ("chain", "fan", "layers")
FLAT_WITHIN = 1.5
MICROSECONDS_MAX = 60.0
MEGABYTES_MAX = 400.0
T0 = datetime(2026, 1, 1, tzinfo=UTC)
TRUE = Action("shell", {"text": "true"})


def shape(name: str, size: int) -> Workflow:
    """A workflow of `size` steps (and, for the fan, one before and one after)."""
    steps: list[Step] = []
    groups: dict[str, tuple[str, ...]] = {}
    if name == "chain":
        steps = [Step(name=f"s{i}", action=TRUE, needs=(Need(f"s{i - 1}"),) if i else ()) for i in range(size)]
    elif name == "fan":
        groups = {"all": tuple(f"s{i}" for i in range(size))}
        steps = [Step(name="first", action=TRUE)]
        steps += [Step(name=f"s{i}", action=TRUE, needs=(Need("first"),)) for i in range(size)]
        steps += [Step(name="last", action=TRUE, needs=(Need("all", is_group=True),))]
    else:
        width = 100
        for i in range(size):
            layer, at = divmod(i, width)
            above = {(at + shift) % width for shift in (0, 1, 7)} if layer else set()
            needs = tuple(Need(f"s{(layer - 1) * width + j}") for j in sorted(above))
            steps.append(Step(name=f"s{i}", action=TRUE, needs=needs))
    return Workflow(name=name, steps=tuple(steps), end=Step(name="end"), groups=groups)


def drive(workflow: Workflow) -> tuple[int, float, str]:
    """Run it to the end, each task ending well in the order it was queued: events, seconds, status."""
    state = State(workflow)
    queue: deque[tuple[str, int]] = deque()
    events = 0
    evaluator = Answers()
    gc.collect()
    gc.freeze()
    began = time.perf_counter()

    def tell(report: r.Report) -> None:
        nonlocal events
        entries = turn(state, report, evaluator)
        state.commit()
        events += len(entries)
        for entry in entries:
            for effect in fx.effects(state, entry.fact):
                if isinstance(effect, fx.QueueTask):
                    queue.append((effect.place, effect.attempt))

    tell(r.RunRequested(T0, run_id=1))
    while queue:
        place, attempt = queue.popleft()
        tell(r.TaskStarted(T0, place, attempt, "w1", "h1"))
        tell(r.TaskEnded(T0, place, attempt))
    return events, time.perf_counter() - began, state.run.status


def measure(name: str, size: int) -> dict[str, object]:
    """One shape at one size, in this process."""
    events, seconds, status = drive(shape(name, size))
    if status != "completed":
        raise SystemExit(f"{name} of {size} steps ended {status}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "shape": name,
        "steps": size,
        "events": events,
        "us_per_event": round(seconds / events * 1e6, 2),
        "us_per_step": round(seconds / size * 1e6, 2),
        "peak_mb": round(peak, 1),
    }


def apart(name: str, size: int, times: int) -> dict[str, object]:
    """Return the best of a few runs, each in its own process: the machine is shared, and noise only adds."""
    command = [sys.executable, __file__, "--one", name, str(size)]
    results = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(times)]
    return min(results, key=lambda result: result["us_per_event"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--times", type=int, default=3, help="take the best of this many runs")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]))))
        return 0
    rows = [apart(name, size, options.times) for name in SHAPES for size in options.steps]
    print(f"Python {platform.python_version()}, {platform.machine()}, best of {options.times}")
    print(f"{'shape':8} {'steps':>8} {'events':>9} {'µs/event':>9} {'µs/step':>8} {'peak MB':>8}")
    for row in rows:
        print("{shape:8} {steps:8,} {events:9,} {us_per_event:9.2f} {us_per_step:8.2f} {peak_mb:8.1f}".format(**row))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=2)
    return judge(rows)


def judge(rows: list[dict[str, object]]) -> int:
    """Hold the figures against the bars, and say how."""
    missed = 0
    for name in SHAPES:
        costs = [float(str(row["us_per_event"])) for row in rows if row["shape"] == name]
        growth = costs[-1] / costs[0]
        memory = max(float(str(row["peak_mb"])) for row in rows if row["shape"] == name)
        met = growth <= FLAT_WITHIN and max(costs) <= MICROSECONDS_MAX and memory <= MEGABYTES_MAX
        missed += not met
        print(
            f"{name}: {growth:.2f}x from the smallest to the largest (bar {FLAT_WITHIN}x), "
            f"{max(costs):.1f} µs at most (bar {MICROSECONDS_MAX:.0f}), {memory:.0f} MB (bar {MEGABYTES_MAX:.0f}): "
            f"{'met' if met else 'MISSED'}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
