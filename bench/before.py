"""A checkout beside another one, in the same rounds: a chain of steps, many short runs, a large file, a short run.

    python bench/before.py CHECKOUT                          all workloads; CHECKOUT has the source of an earlier commit
    python bench/before.py CHECKOUT chain --rounds 7         one workload
    python bench/before.py CHECKOUT --count 50 --rounds 1    small, to see that it works

Both alternate, each in a process and a folder of its own, and the best of the rounds counts: of the wall time, and of
the processor time of the process and of those that it waited for, which a busy machine stretches less. Where a workload
has many steps, the same with one step is measured as well and taken off: "each" is the cost of one more step or run.
To get the source of a commit: `git worktree add FOLDER COMMIT`.
"""

from __future__ import annotations

import argparse
import compileall
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from growing.measuring import Spent, run
from growing.server import database, server
from peers import ours
from peers.contestants import Task
from peers.environments import NotRun
from peers.processes import Command, fresh_folder

from language import one_line_steps

HERE = Path(__file__).resolve().parent.parent
_LOADING = "import sys; from mulligan.formats import examine; examine(sys.argv[1])"


class Workload(NamedTuple):
    """What is measured, how many steps or runs it has, and the bar and the stretch for the ratio of each."""

    title: str
    prepare: Callable[[Task], Command]
    count: int
    parallel: int = 1
    bars: tuple[float, float] | None = None
    on_postgres: bool = False


def _load(task: Task) -> Command:
    """Read and check a file with a step on every line, each with two expressions of its own."""
    file = task.folder / "lines.yaml"
    file.write_text(one_line_steps(task.count))
    return Command([sys.executable, "-c", _LOADING, str(file)])


WORKLOADS = {
    "chain": Workload("a chain of no-op Python steps, SQLite", ours.chain, 1_000, bars=(0.65, 0.5)),
    "runs": Workload("runs of three no-op Python steps, SQLite", ours.mulligan_runs, 1_000, parallel=8),
    "load": Workload("steps of one line each, read and checked", _load, 20_000),
    "hello": Workload("run of one step", ours.hello, 1),
    "chain-postgres": Workload("a chain of no-op Python steps, PostgreSQL", ours.chain, 1_000, on_postgres=True),
}


class Cost(NamedTuple):
    """Wall and processor seconds."""

    wall: float
    cpu: float


class Times:
    """What one checkout has taken: with all steps, and with one."""

    def __init__(self) -> None:
        self.all: list[Spent] = []
        self.one: list[Spent] = []

    @property
    def total(self) -> Cost:
        return _best(self.all)

    def each(self, count: int) -> Cost:
        """The cost of one more step; of a single one, its whole cost."""
        if not self.one:
            return self.total
        idle = _best(self.one)
        return Cost(*((whole - start) / (count - 1) for whole, start in zip(self.total, idle, strict=True)))


def _best(times: list[Spent]) -> Cost:
    return Cost(min(one[0] for one in times), min(one[1] for one in times))


def in_checkout(command: Command, checkout: Path) -> Command:
    """The same command with the source of a checkout; a program is replaced by its module."""
    first, *rest = command.arguments
    words = [sys.executable, *rest] if first == sys.executable else [sys.executable, "-m", "mulligan", *rest]
    return Command(words, {**command.environment, "PYTHONPATH": str(checkout / "src")})


def measure(workload: Workload, checkout: Path, count: int, url: str) -> Spent:
    with fresh_folder() as folder, database(url) if workload.on_postgres else nullcontext("") as store:
        command = workload.prepare(Task(folder, count, workload.parallel, store))
        return run(in_checkout(command, checkout), folder)


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
    lines += ["| | wall s | cpu s | wall each, µs | cpu each, µs |", "|---|---:|---:|---:|---:|"]
    for name, one in times.items():
        each = one.each(count)
        cells = f"{one.total.wall:.3f} | {one.total.cpu:.3f} | {each.wall * 1e6:,.0f} | {each.cpu * 1e6:,.0f}"
        lines.append(f"| {name} | {cells} |")
    total, each = (
        Cost(*(new / old for new, old in zip(now, then, strict=True)))
        for now, then in (
            (times["now"].total, times["before"].total),
            (times["now"].each(count), times["before"].each(count)),
        )
    )
    lines.append(f"| ratio | {total.wall:.2f} | {total.cpu:.2f} | {each.wall:.2f} | {each.cpu:.2f} |")
    if workload.bars is not None:
        worst = max(each)
        said = (f"{name} {goal:g}: {'met' if worst <= goal else 'NOT MET'}" for name, goal in _goals(workload.bars))
        lines.append(f"\n- wall and cpu of each beside the commit before: {worst:.2f} ({'; '.join(said)})")
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
