"""How long recovery coverage takes: all single failures of a workflow, in one process, and its peak memory.

    python bench/coverage.py [--steps 200 1000] [--shapes chain fan …] [--json FILE]

Shapes: a chain, a fan and layers (as in core.py); `recovering`, layers in which every step has rules, a handler and a
route to a remediation of its own, which stands in for it; `rerunning`, the same with remediations after which the step
runs again, so that a lasting failure is met ten times; `reported`, chains and a last step that runs whatever fails;
`read`, a matrix, and a step that reads what all of it gave. CPU time is measured, since the machine may be shared. The
bar: 1,000 steps in under 10 seconds.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import msgspec

from core import shape as core_shape
from mulligan.analysis.coverage.exploring import Explorer
from mulligan.core.model.workflow import (
    Action,
    Backoff,
    Command,
    Edge,
    Expression,
    Handler,
    Need,
    Rule,
    Step,
    Template,
    Then,
    Workflow,
)
from mulligan.language.expressions import Cel

SHAPES = ("chain", "fan", "layers", "recovering", "rerunning", "reported", "read")
SECONDS_MAX = 10.0
STEPS_OF_THE_BAR = 1_000
TRUE = Action("shell", {"text": "true"})


def shape(name: str, size: int) -> Workflow:
    if name == "reported":
        return _reported(size)
    if name == "read":
        return _read(size)
    thens: dict[str, Then] = {"recovering": "continue", "rerunning": "rerun"}
    return _recovering(size, thens[name]) if name in thens else core_shape(name, size)


def _recovering(size: int, then: Then) -> Workflow:
    """Half of the steps are remediations of the other half, which is in layers of 50."""
    steps: list[Step] = []
    for i in range(size // 2):
        layer, at = divmod(i, 50)
        needs = tuple(Need(f"s{(layer - 1) * 50 + (at + shift) % 50}") for shift in (0, 1)) if layer else ()
        rules = (
            Rule(exit_codes=(11, 12), max_retries=3, backoff=Backoff(delay=60.0, factor=2.0)),
            Rule(codes=("TIMEOUT",), max_retries=1),
        )
        steps.append(
            Step(
                name=f"s{i}",
                action=TRUE,
                needs=needs,
                rules=rules,
                timeout=600.0,
                on_failure=Handler((Command(action=TRUE),), strategy="cleanup"),
                edges=(Edge(f"mend{i}", 0, "failure", then=then),),
            )
        )
    steps += [Step(name=f"mend{i}", action=TRUE) for i in range(size // 2)]
    return Workflow(name="recovering", steps=tuple(steps), end=Step(name="end"))


def _reported(size: int) -> Workflow:
    steps = [Step(name=f"s{i}", action=TRUE, needs=(Need(f"s{i - 1}"),) if i % 10 else ()) for i in range(size - 1)]
    groups = {"all": tuple(step.name for step in steps)}
    report = Step(name="report", action=TRUE, needs=(Need("all", "always", is_group=True),))
    return Workflow(name="reported", steps=(*steps, report), end=Step(name="end"), groups=groups)


def _read(size: int) -> Workflow:
    """A matrix, and a step that reads what all of it gave."""
    matrix = [Step(name=f"sim_{i}", action=TRUE, sweep="sim") for i in range(size - 1)]
    reads = {"VALUES": Template((Expression("steps.sim.output", ("steps.sim",)),))}
    total = Step(
        name="total", action=msgspec.structs.replace(TRUE, bindings=reads), needs=(Need("sim", is_group=True),)
    )
    groups = {"sim": tuple(step.name for step in matrix)}
    return Workflow(name="read", steps=(*matrix, total), end=Step(name="end"), groups=groups)


def measure(name: str, size: int) -> dict[str, object]:
    """One shape at one size, in this process."""
    workflow = shape(name, size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began = time.process_time()
    explorer = Explorer(workflow, Cel())
    cases = sum(1 for _ in explorer.cases())
    seconds = time.process_time() - began
    return {
        "shape": name,
        "steps": size,
        "cases": cases,
        "events": explorer.events,
        "cpu_seconds": round(seconds, 2),
        "us_per_case": round(seconds / cases * 1e6, 1),
        "added_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before, 1),
        "unknown": len(explorer.unknown),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[200, STEPS_OF_THE_BAR])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]))))
        return 0
    found = []
    for name in options.shapes:
        for size in options.steps:
            command = [sys.executable, __file__, "--one", name, str(size)]
            one = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            found.append(one)
            print("  ".join(f"{key} {value}" for key, value in one.items()), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=2)
    late = [one for one in found if one["steps"] <= STEPS_OF_THE_BAR and one["cpu_seconds"] > SECONDS_MAX]
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
