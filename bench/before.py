"""A checkout beside another one, in the same rounds: chains, calls of programs, many runs, a large file, a short run.

    python bench/before.py CHECKOUT                          all workloads; CHECKOUT has the source of an earlier commit
    python bench/before.py CHECKOUT chain --rounds 7         one workload
    python bench/before.py CHECKOUT --count 50 --rounds 1    small, to see that it works

Both alternate, each in a process and a folder of its own, and the best of the rounds counts: of the wall time, and of
the processor time of the process and of those that it waited for, which a busy machine stretches less. Where a workload
has many steps, the same with one step is measured as well and taken off: "each" is the cost of one more step or run.
What is done `again` has been done once before in the same folder, with another home: a file that was checked is kept by
its content, in the user's cache. Bars are for processor time, beside 0521e233. Where `perf` is installed, the
instructions in user mode are counted as well: they are nearly the same however busy the machine is.
To get the source of a commit: `git worktree add FOLDER COMMIT`.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import NamedTuple

from growing.measuring import run
from growing.server import database, server
from peers import ours
from peers.contestants import Task
from peers.environments import NotRun
from peers.processes import Command, fresh_folder

from language import one_line_steps

HERE = Path(__file__).resolve().parent.parent
_LOADING = "import sys; from mulligan.formats import examine; examine(sys.argv[1])"


class Workload(NamedTuple):
    """What is measured, how many steps or runs it has, and the bar and the stretch for the ratio of its cpu time."""

    title: str
    prepare: Callable[[Task], Command]
    count: int
    parallel: int = 1
    bars: tuple[float, float] | None = None
    on_postgres: bool = False
    is_again: bool = False


def _load(task: Task) -> Command:
    """Read and check a file with a step on every line, each with two expressions of its own."""
    file = task.folder / "lines.yaml"
    file.write_text(one_line_steps(task.count))
    return Command([sys.executable, "-c", _LOADING, str(file)])


WORKLOADS = {
    "chain": Workload("a chain of no-op Python steps, SQLite", ours.chain, 1_000),
    "chain-again": Workload(
        "a chain of no-op Python steps that has run before, SQLite", ours.chain, 1_000, bars=(0.72, 0.62), is_again=True
    ),
    "calls": Workload("calls of a no-op step by a program, SQLite", ours.program(is_inline=False), 1_000),
    "inline": Workload("calls of a no-op inline step by a program, SQLite", ours.program(is_inline=True), 1_000),
    "runs": Workload("runs of three no-op Python steps, SQLite", ours.mulligan_runs, 1_000, parallel=8),
    "load": Workload("steps of one line each, read and checked", _load, 20_000, bars=(0.4, 0.3)),
    "load-again": Workload("steps of one line each, read before", _load, 20_000, bars=(0.08, 0.05), is_again=True),
    "hello": Workload("run of one step", ours.hello, 1, bars=(0.76, 0.57)),
    "hello-again": Workload("run of one step that has run before", ours.hello, 1, bars=(0.76, 0.57), is_again=True),
    "chain-postgres": Workload("a chain of no-op Python steps, PostgreSQL", ours.chain, 1_000, on_postgres=True),
}


class Cost(NamedTuple):
    """Wall and processor seconds, and instructions; none if they were not counted."""

    wall: float
    cpu: float
    instructions: float = 0.0


class Times:
    """What one checkout has taken: with all steps, and with one."""

    def __init__(self) -> None:
        self.all: list[Cost] = []
        self.one: list[Cost] = []

    @property
    def total(self) -> Cost:
        return _best(self.all)

    def each(self, count: int) -> Cost:
        """The cost of one more step; of a single one, its whole cost."""
        if not self.one:
            return self.total
        idle = _best(self.one)
        return Cost(*((whole - start) / (count - 1) for whole, start in zip(self.total, idle, strict=True)))


def _best(times: list[Cost]) -> Cost:
    return Cost(*map(min, zip(*times, strict=True)))


@cache
def _has_counters() -> bool:
    """Whether `perf` is there and this machine lets it count: in a virtual machine it often cannot."""
    if not shutil.which("perf"):
        return False
    words = ["perf", "stat", "-x,", "-e", "instructions:u", "--", "true"]
    counted = subprocess.run(words, capture_output=True, text=True).stderr
    return counted.partition(",")[0].isdigit()


def in_checkout(command: Command, checkout: Path) -> Command:
    """The same command with the source of a checkout and its own scripts; a program is replaced by its module."""
    first, *rest = (_own(argument, checkout) for argument in command.arguments)
    words = [sys.executable, *rest] if first == sys.executable else [sys.executable, "-m", "mulligan", *rest]
    return Command(words, {**command.environment, "PYTHONPATH": str(checkout / "src")})


def _own(argument: str, checkout: Path) -> str:
    """The checkout's own file, where the argument is one of this bench: scripts import modules that may move."""
    return argument.replace(str(HERE / "bench"), str(checkout / "bench"))


def _counted(command: Command, folder: Path) -> Cost:
    """What one run takes; its instructions too, where they can be counted."""
    if not _has_counters():
        return Cost(*run(command, folder)[:2])
    counts = folder / "instructions"
    words = ["perf", "stat", "-x,", "-e", "instructions:u", "-o", str(counts), "--", *command.arguments]
    spent = run(Command(words, command.environment), folder)
    found = next((line for line in counts.read_text().splitlines() if "instructions" in line), "")
    number = found.partition(",")[0]
    return Cost(spent[0], spent[1], float(number) if number.isdigit() else 0.0)


def measure(workload: Workload, checkout: Path, count: int, url: str) -> Cost:
    with fresh_folder() as folder, database(url) if workload.on_postgres else nullcontext("") as store:
        command = in_checkout(workload.prepare(Task(folder, count, workload.parallel, store)), checkout)
        if workload.is_again:
            run(command, folder)
            shutil.rmtree(folder / ours.HOME, ignore_errors=True)
        return _counted(command, folder)


def compare(workload: Workload, before: Path, rounds: int, url: str) -> dict[str, Times]:
    """The times of both, round by round."""
    times = {"before": Times(), "now": Times()}
    for _ in range(rounds):
        for name, checkout in (("before", before), ("now", HERE)):
            if workload.count > 1:
                times[name].one.append(measure(workload, checkout, 1, url))
            times[name].all.append(measure(workload, checkout, workload.count, url))
    return times


def table(workload: Workload, times: dict[str, Times]) -> str:
    count = workload.count
    lines = [f"### {count:,} {workload.title}\n" if count > 1 else f"### {workload.title}\n"]
    lines += ["| | wall s | cpu s | wall each, µs | cpu each, µs | instructions each, k |", f"|---|{'---:|' * 5}"]
    for name, one in times.items():
        each = one.each(count)
        cells = f"{one.total.wall:.3f} | {one.total.cpu:.3f} | {each.wall * 1e6:,.0f} | {each.cpu * 1e6:,.0f}"
        counted = f"{each.instructions / 1e3:,.0f}" if _has_counters() else "not counted"
        lines.append(f"| {name} | {cells} | {counted} |")
    total, each = (
        Cost(*(new / old if old else 0.0 for new, old in zip(now, then, strict=True)))
        for now, then in (
            (times["now"].total, times["before"].total),
            (times["now"].each(count), times["before"].each(count)),
        )
    )
    instructions = f"{each.instructions:.2f}" if _has_counters() else "-"
    ratios = f"{total.wall:.2f} | {total.cpu:.2f} | {each.wall:.2f} | {each.cpu:.2f} | {instructions}"
    lines.append(f"| ratio | {ratios} |")
    if workload.bars is not None:
        said = (f"{name} {goal:g}: {'met' if each.cpu <= goal else 'NOT MET'}" for name, goal in _goals(workload.bars))
        lines.append(f"\n- cpu of each beside the commit before: {each.cpu:.2f} ({'; '.join(said)})")
    return "\n".join(lines) + "\n"


def _goals(bars: tuple[float, float]) -> Iterator[tuple[str, float]]:
    return zip(("bar", "stretch"), bars, strict=True)


@contextmanager
def _server(names: list[str]) -> Iterator[str]:
    with server() if any(WORKLOADS[name].on_postgres for name in names) else nullcontext("") as url:
        yield url


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT", help="another checkout of the project")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"some of {', '.join(WORKLOADS)}")
    parser.add_argument("--count", type=int, help="this many steps or runs instead of each workload's own number")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the best counts (default: 5)")
    asked = parser.parse_args()
    names = asked.workloads or list(WORKLOADS)
    unknown = set(names) - WORKLOADS.keys()
    if unknown:
        parser.error(f"no workload is called {', '.join(sorted(unknown))}: they are {', '.join(WORKLOADS)}")
    if not (asked.checkout / "src" / "mulligan").is_dir():
        parser.error(f"'{asked.checkout}' is not a checkout: it has no folder src/mulligan")
    before = asked.checkout.resolve()
    for checkout in (before, HERE):
        compileall.compile_dir(checkout / "src", quiet=1)
        # The first command writes it again: one that lacks a few changed modules would be kept.
        for archive in (checkout / "src" / "mulligan" / "__pycache__").glob("archive.*"):
            archive.unlink()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with _server(names) as url:
        for name in names:
            workload = WORKLOADS[name]
            if asked.count and workload.count > 1:
                workload = workload._replace(count=max(2, asked.count))
            try:
                print(table(workload, compare(workload, before, asked.rounds, url)), flush=True)
            except NotRun as problem:
                print(f"### {name}: not run: {problem}\n", flush=True)


if __name__ == "__main__":
    main()
