"""What a secret costs the Python steps of a workflow: the processor time of the whole tree, beside a run without one.

    python bench/warm_steps.py [--steps 30] [--module pandas] [--rounds 5] [--before OTHER/src]

A chain of Python steps, each of which imports a module: without a secret, with one that every step reads, with one that
one step in ten reads, and with two that the steps read in turns. Each is one `mulligan run`, in alternating rounds; the
median counts. `processes` is how many ran the steps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

SRC = Path(__file__).parent.parent / "src"
ENVIRON = {"PYTHONDONTWRITEBYTECODE": "", "FIRST": "first-value", "SECOND": "second-value"}
STEP = """\
  - step: step{number}
    python: |
      import os
      import {module}
      def main({parameter}):
          return os.getpid()
"""

# Which secret a step reads, by its number.
CASES: dict[str, Callable[[int], str]] = {
    "no secret": lambda number: "",
    "one for all": lambda number: "first",
    "one for a tenth": lambda number: "" if number % 10 else "first",
    "two in turns": lambda number: "second" if number % 2 else "first",
}


class Measured(NamedTuple):
    """Processor time, and the processes of the steps."""

    cpu: float
    processes: int


def text_of(name: str, steps: int, module: str) -> str:
    secret_of, parts = CASES[name], [f"name: {name.replace(' ', '-')}\n"]
    if any(map(secret_of, range(steps))):
        parts.append("secrets: {first: {env: FIRST}, second: {env: SECOND}}\n")
    parts.append("steps:\n")
    for number in range(steps):
        secret = secret_of(number)
        parts.append(STEP.format(number=number, module=module, parameter="token" if secret else ""))
        if secret:
            parts.append(f'    args: {{token: "${{secrets.{secret}}}"}}\n')
        if number:
            parts.append(f"    needs: [step{number - 1}]\n")
    return "".join(parts)


def measure(src: Path, text: str, folder: Path) -> Measured:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MULLIGAN_")}
    environ |= {**ENVIRON, "PYTHONPATH": str(src.resolve())}
    with tempfile.TemporaryDirectory(dir=folder) as home:
        (Path(home) / "steps.yaml").write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "mulligan", "run", "steps.yaml", "--json"]
        before = os.times()
        done = subprocess.run(command, cwd=home, env=environ, capture_output=True, text=True, check=False)
        after = os.times()
        if done.returncode:
            raise SystemExit(f"the run failed:\n{done.stdout}{done.stderr}")
        steps = json.loads(done.stdout)["steps"].values()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        return Measured(cpu, len({one["output"] for one in steps}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--module", default="pandas", help="what every step imports")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--before", type=Path, help="a source tree to measure too")
    asked = parser.parse_args()
    trees = {"": SRC, **({" before": asked.before} if asked.before else {})}
    texts = {name: text_of(name, asked.steps, asked.module) for name in CASES}
    found: dict[str, list[Measured]] = {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER", "/var/tmp")) as folder:
        for _ in range(asked.rounds):
            for tree, src in trees.items():
                for name, text in texts.items():
                    found.setdefault(name + tree, []).append(measure(src, text, Path(folder)))
    print(f"| {asked.steps} steps that import {asked.module} | processes | cpu seconds | beside no secret |")
    print("|---|---:|---:|---:|")
    for name, rounds in found.items():
        plain = found["no secret before" if name.endswith(" before") else "no secret"]
        ratio = median(one.cpu / other.cpu for one, other in zip(rounds, plain, strict=True))
        processes = max(one.processes for one in rounds)
        print(f"| {name} | {processes} | {median(one.cpu for one in rounds):.2f} | {ratio:.2f}x |")


if __name__ == "__main__":
    main()
