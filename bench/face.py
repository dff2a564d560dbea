"""What the Python face costs beside the command line: the same chain of Python steps, run in four ways.

    python bench/face.py                          a chain of 300 steps, and of one, five rounds
    python bench/face.py --count 20 --rounds 1    smaller, to see that it works

Every measurement is one process in a fresh folder. The contestants take turns, and the median of the processor time
(of the process and its children) counts, which a busy machine does not stretch. A chain of one step shows start-up.
The bar: a chain through the face costs what the command line costs, within a tenth.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SRC = Path(__file__).parent.parent / "src"
CODE = "def main(n):\n    return n + 1\n"

LOADED = """
import mulligan
mulligan.run("chain.yaml", parallel=1, show=False, check=True)
"""
BUILT = """
import mulligan
flow = mulligan.Workflow("chain")
for n in range({count}):
    flow.step(f"s{{n}}", python={code!r}, args={{"n": n}}, needs=[f"s{{n - 1}}"] if n else [])
mulligan.run(flow, parallel=1, show=False, check=True)
"""
SERVICE = """
from pathlib import Path
from mulligan.service.driving.driver import machine
from mulligan.service.driving.local_worker import open_driver
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service, open_service
with open_service() as service, open_driver(service.reader, machine(1)) as driver:
    workflow = service.workflows.load_workflow("chain.yaml")
    [run_id] = service.changes.create(prepare(workflow, {}, Path.cwd()), driver)
    assert driver.drive(run_id) == "ended"
"""


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=300, help="steps of the chain (default 300)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the median counts (default 5)")
    asked = parser.parse_args()
    for count in (1, asked.count):
        measured = race(count, asked.rounds)
        bar = statistics.median(cpu for cpu, _ in measured["mulligan run chain.yaml"])
        print(f"a chain of {count} Python step{'s' * (count != 1)}, median of {asked.rounds}:")
        for name, times in measured.items():
            cpu, wall = (statistics.median(column) for column in zip(*times, strict=True))
            print(f"  {name:<28} {cpu * 1000:7.0f} ms processor  {wall * 1000:7.0f} ms wall  {cpu / bar:5.2f} ×")


def race(count: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """The processor time and the wall time of every contestant, round by round."""
    python = [sys.executable, "-c"]
    contestants = {
        "mulligan run chain.yaml": [sys.executable, "-m", "mulligan", "run", "chain.yaml", "--parallel", "1"],
        'mulligan.run("chain.yaml")': [*python, LOADED],
        "mulligan.run(Workflow(…))": [*python, BUILT.format(count=count, code=CODE)],
        "Service, without the face": [*python, SERVICE],
    }
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, argv in contestants.items():
            measured[name].append(measure(argv, count))
    return measured


def measure(argv: list[str], count: int) -> tuple[float, float]:
    """The processor time and the wall time of one process in a fresh folder."""
    folder = Path(tempfile.mkdtemp(prefix="mulligan-bench-", dir=os.environ.get("BENCH_FOLDER", "/var/tmp")))
    try:
        (folder / "chain.yaml").write_text(chain(count))
        environ = {**os.environ, "PYTHONPATH": str(SRC)}
        for name in ("MULLIGAN_HOME", "MULLIGAN_STORE", "PYTHONDONTWRITEBYTECODE"):
            environ.pop(name, None)
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        ended = subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True)
        wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        if ended.returncode:
            sys.exit(f"{argv}: {ended.stderr}")
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall
    finally:
        shutil.rmtree(folder)


def chain(count: int) -> str:
    """The chain as a file."""
    code = CODE.replace("\n", "\n      ").rstrip()
    steps = (
        f"  - step: s{n}\n    python: |\n      {code}\n    args: {{n: {n}}}\n" + f"    needs: [s{n - 1}]\n" * (n > 0)
        for n in range(count)
    )
    return "name: chain\nsteps:\n" + "".join(steps)


if __name__ == "__main__":
    main()
