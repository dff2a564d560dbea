"""The bars for large runs: what people wait for with 100,000 steps or items, a million events, 10,000 waiting runs.

    python bench/large_runs.py                       looks at stored runs, which are made in a minute through the core
    python bench/large_runs.py --before CHECKOUT     also with another checkout, look by look in turn
    python bench/large_runs.py --drive               also real runs: rate, memory; a worker beside runs that wait
    python bench/large_runs.py --size 10000          smaller; the bars are then those of the full size, not met or met

Each figure is the processor time of a process of its own, the start of Python in it: a busy machine stretches it less
than wall time. See bench/README.md.

The other checkout reads stores of this one, so it must have the same migrations.
"""

from __future__ import annotations

import argparse
import compileall
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from growing import items, steps
from growing.measuring import Place, beside, run, used_by, wait_until
from peers import ours
from peers.processes import Command, fresh_folder

from mulligan.service.home import Home

SIZE, EVENTS, WAITING = 100_000, 1_000_000, 10_000
ROOT = Path(__file__).parents[1]


class Bar(NamedTuple):
    """What is measured, its bar, and in which unit; with `is_least` more is better."""

    name: str
    most: float
    unit: str = "s"
    is_least: bool = False

    def says(self, figure: float) -> str:
        is_met = figure >= self.most if self.is_least else figure <= self.most
        return f"{self.most:g} {self.unit}: {'met' if is_met else 'NOT MET'}"


class Side(Place):
    """A home of one checkout."""

    def __init__(self, folder: Path, checkout: Path) -> None:
        super().__init__(folder)
        self._source = str(checkout / "src")

    def verb(self, *arguments: str) -> Command:
        command = super().verb(*arguments)
        return Command(command.arguments, {**command.environment, "PYTHONPATH": self._source})


Measure = Callable[[Path, Path], float]


def _look(kind: str, *arguments: str, is_changing: bool = False, codes: tuple[int, ...] = (0,)) -> Measure:
    """The processor seconds of a command on the stored run of a kind; on a copy of it, if it changes the run."""

    def measure(stored: Path, checkout: Path) -> float:
        with _copied(stored / kind, is_changing) as folder:
            return run(Side(folder, checkout).verb(*arguments), folder, codes)[1]

    return measure


@contextmanager
def _copied(folder: Path, is_copied: bool) -> Iterator[Path]:
    """A folder, or a copy of it that is removed in the end."""
    if not is_copied:
        yield folder
        return
    copy = folder.with_suffix(".copy")
    shutil.copytree(folder, copy)
    try:
        yield copy
    finally:
        shutil.rmtree(copy)


def _resume(stored: Path, checkout: Path) -> float:
    """The processor seconds of `resume` until it has written its first event."""
    with _copied(stored / "cut", True) as folder:
        store = Home(folder / ours.HOME).open()
        before = store.run(1).seq
        with beside(Side(folder, checkout).verb("resume", "1", "--json"), folder / "driver") as process:
            wait_until(lambda: store.run(1).seq > before, process)
            used, _ = used_by(process.pid)
        store.close()
        return used


LOOKS: dict[Bar, Measure] = {
    Bar("show, 100,000 steps", 2): _look("fan", "show", "1"),
    Bar("show, 100,000 steps of which some failed", 2): _look("plain", "show", "1"),
    Bar("explain, 100,000 steps", 5): _look("fan", "explain", "1"),
    Bar("cancel, 90,000 steps left", 2): _look("cut", "cancel", "1", is_changing=True, codes=(0, 3)),
    Bar("resume, 90,000 steps left", 2): _resume,
    Bar("show, a map of 100,000 items", 1): _look("map", "show", "1"),
    Bar("items, a map of 100,000 items", 1): _look("map", "items", "1", "each"),
    Bar("events, a million of them", 8): _look("log", "events", "1"),
    Bar("show, one of 100,000 steps", 2): _look("plain", "show", "1", "s_500"),
    Bar("logs, one of 100,000 steps", 2): _look("plain", "logs", "1", "s_500"),
    Bar("items, one of 100,000 items", 2): _look("map", "items", "1", "each", "--item", "500"),
}


def _driven(text: str, size: int, checkout: Path) -> tuple[float, float, float]:
    """A real run: items or steps a second, their processor seconds, and the peak megabytes of the driver."""
    with fresh_folder() as folder:
        side = Side(folder, checkout)
        file = side.write("large.yaml", text.format(count=size))
        seconds, cpu, megabytes = run(side.verb("run", file, "--parallel", "8", "--json"), folder)
        return size / seconds, cpu / size, megabytes


def _worker(checkout: Path, waiting: int) -> float:
    """The processor seconds of a worker that has started beside runs that wait."""
    with fresh_folder() as folder:
        side = Side(folder, checkout)
        run(side.script("filling", 0, waiting, "timer"), folder)
        with beside(side.verb("worker", "--parallel", "2"), folder / "worker") as worker:
            before, used = -1.0, 0.0
            # At rest it takes about 0.01 s a second.
            while used - before > 0.1:
                time.sleep(3)
                before, used = used, used_by(worker.pid)[0]
            return used


def drives(checkout: Path, size: int) -> Iterator[tuple[Bar, float]]:
    """Real runs: they take minutes."""
    _, small, _ = _driven(steps._FAN, max(100, size // 100), checkout)
    _, large, megabytes = _driven(steps._FAN, size, checkout)
    yield Bar("100,000 steps beside 1,000, the rate by processor time", 0.95, "x", is_least=True), small / large
    yield Bar("100,000 shell steps, peak of the driver", 350, "MB"), megabytes
    rate, _, _ = _driven(items._MAP, size, checkout)
    yield Bar("a map of 100,000 items", 1400, "a second", is_least=True), rate
    yield Bar("start of a worker beside 10,000 waiting runs", 0.3), _worker(checkout, WAITING * size // SIZE)


def make(folder: Path, size: int) -> None:
    """The stored runs."""
    for kind in ("fan", "plain", "cut", "map", "log"):
        place = Side(folder / kind, ROOT)
        place.folder.mkdir(parents=True)
        looping = ("looping", EVENTS * size // SIZE)
        script = place.script(*looping) if kind == "log" else place.script("many", kind, size)
        run(script, place.folder)


def main() -> int:
    """Measure, print the table, and say whether the bars are met: 1 if one is not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="another checkout of the project")
    parser.add_argument("--size", type=int, default=SIZE, help=f"steps and items (default: {SIZE:,})")
    parser.add_argument("--rounds", type=int, default=1, help="of each look the best of so many (default: 1)")
    parser.add_argument("--drive", action="store_true", help="also real runs, which take minutes")
    parser.add_argument("--only", metavar="WORD", default="", help="only looks with this word in their name")
    asked = parser.parse_args()
    sides = [*([asked.before.resolve()] if asked.before else []), ROOT]
    for side in sides:
        compileall.compile_dir(side / "src", quiet=1)
    print(
        "| | " + ("before | " if asked.before else "") + "now | bar |\n|---|" + "---:|" * len(sides) + "---|",
        flush=True,
    )
    is_met = True
    with fresh_folder() as folder:
        make(folder, asked.size)
        for bar, measure in LOOKS.items():
            if asked.only in bar.name:
                found = [min(measure(folder, side) for _ in range(asked.rounds)) for side in sides]
                is_met = _row(bar, found) and is_met
    if asked.drive:
        for pairs in zip(*(drives(side, asked.size) for side in sides), strict=True):
            is_met = _row(pairs[0][0], [figure for _, figure in pairs]) and is_met
    return 0 if is_met else 1


def _row(bar: Bar, figures: list[float]) -> bool:
    shown = " | ".join(f"{figure:,.0f}" if figure >= 100 else f"{figure:.2f}" for figure in figures)
    said = bar.says(figures[-1])
    print(f"| {bar.name}, {bar.unit} | {shown} | {said} |", flush=True)
    return "NOT" not in said


if __name__ == "__main__":
    sys.exit(main())
