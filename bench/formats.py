"""What it costs that a file is another system's: a sweep of 5,000 jobs of Torc beside the same steps written as ours.

    python bench/formats.py [--count 5000] [--rounds 3] [--before OTHER/src]

Five stages, each of a thousand jobs that wait for the barrier before them. Prints how long each form of the file takes
to load (the goal: under 3 s), how long it takes to run, and the ratio. With `--before`, how long `mulligan run` of a
file of ours with one step takes, beside another source tree. All take turns; the best of the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

SRC = Path(__file__).parent.parent / "src"
STAGES = 5
LOAD_SECONDS_MAX = 3.0
_LOADING = """\
import sys, time
from mulligan.formats import examine
started, cpu = time.perf_counter(), time.process_time()
workflow = examine(sys.argv[1]).workflow
print(time.perf_counter() - started, time.process_time() - cpu, len(workflow.steps))
"""


class Spent(NamedTuple):
    """Wall time, and the time of the processors, which a busy machine does not stretch."""

    seconds: float
    cpu: float


Measure = Callable[[], Spent]


def swept(count: int) -> str:
    """Torc's file: a parameter makes the jobs of a stage, and a regular expression its barrier."""
    jobs = []
    for stage in range(1, STAGES + 1):
        before = f"    depends_on: [barrier_{stage - 1}]\n" if stage > 1 else ""
        jobs.append(
            f'  - name: stage_{stage}_{{i:04d}}\n    command: "true"\n'
            f'{before}    parameters: {{i: "1:{count // STAGES - 1}"}}\n'
            f'  - name: barrier_{stage}\n    command: "true"\n    depends_on_regexes: ["^stage_{stage}_"]\n'
        )
    return "name: sweep\njobs:\n" + "".join(jobs)


def written_out(count: int) -> str:
    """The same jobs of Torc, each written out, as programs write them: JSON."""
    return json.dumps({"name": "sweep", "jobs": [_job(*one) for one in _places(count)]}, indent=1)


def _places(count: int) -> Iterable[tuple[int, int]]:
    """Each job: its stage, and its number there; 0 is the barrier."""
    return ((stage, i) for stage in range(1, STAGES + 1) for i in [*range(1, count // STAGES), 0])


def _job(stage: int, i: int) -> dict[str, object]:
    if not i:
        return {"name": f"barrier_{stage}", "command": "true", "depends_on_regexes": [f"^stage_{stage}_"]}
    before = {"depends_on": [f"barrier_{stage - 1}"]} if stage > 1 else {}
    return {"name": f"stage_{stage}_{i:04d}", "command": "true", **before}


def ours(count: int) -> str:
    """Return the same steps as a Mulligan file."""
    return "name: sweep\nsteps:\n" + "".join(_step(*one) for one in _places(count))


def _step(stage: int, i: int) -> str:
    if not i:
        return f'  - {{step: barrier_{stage}, shell: "true", needs: [{{match: "stage_{stage}_.*"}}]}}\n'
    before = f", needs: [barrier_{stage - 1}]" if stage > 1 else ""
    return f'  - {{step: stage_{stage}_{i:04d}, shell: "true"{before}}}\n'


def in_turns(rounds: int, measures: dict[str, Measure]) -> dict[str, Spent]:
    """The best times of each, one after the other, round after round."""
    times: dict[str, list[Spent]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            times[name].append(measure())
    return {name: Spent(*map(min, zip(*each, strict=True))) for name, each in times.items()}


def loading(path: Path, count: int) -> Measure:
    """How long a fresh process takes to read and check the file."""

    def measure() -> Spent:
        seconds, cpu, steps = _python(SRC, "-c", _LOADING, str(path), cwd=path.parent).split()
        assert int(steps) == count, steps
        return Spent(float(seconds), float(cpu))

    return measure


def running(path: Path, src: Path = SRC) -> Measure:
    """How long `mulligan run` takes, from the start of its process to its end."""

    def measure() -> Spent:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            started, cpu = time.perf_counter(), _cpu_of_children()
            _python(src, "-m", "mulligan", "run", str(path), cwd=Path(folder))
            return Spent(time.perf_counter() - started, _cpu_of_children() - cpu)

    return measure


def _cpu_of_children() -> float:
    spent = os.times()
    return spent.children_user + spent.children_system


def _python(src: Path, *words: str, cwd: Path) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MULLIGAN_")}
    environ |= {"PYTHONPATH": str(src.resolve())}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run([sys.executable, *words], cwd=cwd, env=environ, capture_output=True, text=True, check=True)
    return done.stdout


def compare_sweeps(folder: Path, count: int, rounds: int) -> None:
    files = {
        "Torc, swept": ("swept.yaml", swept),
        "Torc, written out": ("out.json", written_out),
        "ours": ("ours.yaml", ours),
    }
    paths = {}
    for name, (file, text) in files.items():
        paths[name] = folder / file
        paths[name].write_text(text(count), encoding="utf-8")
    loads = in_turns(rounds, {name: loading(path, count) for name, path in paths.items()})
    runs = in_turns(rounds, {name: running(path) for name, path in paths.items()})
    print(f"| {count:,} steps in {STAGES} stages | load s | run s | run cpu s | beside ours | cpu beside ours |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in files:
        run, our = runs[name], runs["ours"]
        times = f"{loads[name].seconds:.2f} | {run.seconds:.2f} | {run.cpu:.2f}"
        print(f"| {name} | {times} | {run.seconds / our.seconds:.2f}x | {run.cpu / our.cpu:.2f}x |")
    slowest = max(load.seconds for load in loads.values())
    verdict = "met" if slowest < LOAD_SECONDS_MAX else "NOT MET"
    print(f"\nslowest load: {slowest:.2f} s (bar {LOAD_SECONDS_MAX:g} s: {verdict})")


def compare_start(folder: Path, before: Path, rounds: int) -> None:
    path = folder / "one.yaml"
    path.write_text("name: one\nsteps:\n  - {step: hello, shell: echo hello}\n", encoding="utf-8")
    found = in_turns(rounds, {"before": running(path, before), "now": running(path)})
    print("\n| `mulligan run`, one step of ours | s | cpu s |\n|---|---:|---:|")
    for name, spent in found.items():
        print(f"| {name} | {spent.seconds:.3f} | {spent.cpu:.3f} |")
    now, then = found["now"], found["before"]
    print(f"\nnow beside before: {now.seconds / then.seconds:.3f}x, cpu {now.cpu / then.cpu:.3f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=Path, help="the source tree to compare the start with")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER", "/var/tmp")) as name:
        compare_sweeps(Path(name), asked.count, asked.rounds)
        if asked.before:
            # A start takes a quarter of a second: enough of them to see one that nothing disturbed.
            compare_start(Path(name), asked.before, 5 * asked.rounds)


if __name__ == "__main__":
    main()
