"""How cost grows: with steps, runs in the store, a log, items, workers, runs that wait, child runs.

    python bench/growth.py                                   all of it (about 20 minutes), told on stderr as it goes
    python bench/growth.py steps runs --quick                some of it, small, to see that it works
    python bench/growth.py --json FILE                       every figure into FILE
    python bench/growth.py --write docs/project              its plots/*.svg, and the tables in its benchmarks.md
    python bench/growth.py --from FILE --write docs/project  the same from figures that were measured before

Each figure is that of a process of its own, the best of a few: wall time, and beside it the time of the processors,
which a busy machine does not stretch. See bench/README.md.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from growing import children, items, logs, runs, steps, tables, waiting, workers
from growing.charts import write_charts
from growing.figures import Point, from_json, to_json
from growing.measuring import Place
from growing.server import database, server
from peers import ours
from peers.environments import NotRun
from peers.processes import fresh_folder
from peers.tables import machine


class Part(NamedTuple):
    """Something that grows: how it is measured, on which stores, at which sizes, and at which for a quick check."""

    measure: Callable[[Place, Sequence[int], int], Iterator[Point]]
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    stores: tuple[str, ...] = ("SQLite",)


BOTH = ("SQLite", "PostgreSQL")
PARTS = {
    steps.GROUP: Part(steps.measure, (1_000, 10_000, 100_000), (100, 1_000)),
    runs.GROUP: Part(runs.measure, (1, 10, 100, 1_000, 10_000, 100_000), (1, 10, 100), BOTH),
    logs.GROUP: Part(logs.measure, (1_000, 10_000, 100_000, 1_000_000), (1_000, 10_000)),
    items.GROUP: Part(items.measure, (100, 1_000, 10_000, 100_000), (100, 1_000)),
    workers.GROUP: Part(workers.measure, (1, 2, 4, 8), (1, 2), ("PostgreSQL",)),
    waiting.GROUP: Part(waiting.measure, (100, 1_000, 10_000), (10, 100), BOTH),
    children.GROUP: Part(children.measure, (10, 100, 1_000, 5_000), (10, 100)),
}


def main() -> int:
    """Measure or read what the command line asks for, and write it where it says. 1 if something could not be had."""
    # So that a terminated bench still stops its server and removes its folders.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    asked = _arguments()
    if asked.read:
        about, points = from_json(asked.read.read_text())
        problems: list[str] = []
    else:
        about, points, problems = _measured(asked)
    if asked.json:
        asked.json.write_text(to_json(about, points))
    print(tables.markdown(about, points))
    if asked.write:
        write_charts(points, asked.write / "plots")
        tables.write_section(asked.write / "benchmarks.md", about, points)
    return 1 if problems else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="small sizes, once each")
    parser.add_argument("--rounds", type=int, default=2, help="of each look the best of so many (default 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    parser.add_argument(
        "--from", type=Path, dest="read", metavar="FILE", help="measure nothing: read what --json wrote"
    )
    parser.add_argument("--write", type=Path, metavar="DOCS", help="write DOCS/plots/*.svg and DOCS/benchmarks.md")
    asked = parser.parse_args()
    unknown = set(asked.parts) - PARTS.keys()
    if unknown:
        parser.error(f"nothing that grows is called {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    return asked


def _measured(asked: argparse.Namespace) -> tuple[dict[str, Any], list[Point], list[str]]:
    ours.compile_bytecode()
    about: dict[str, Any] = {"command": shlex.join(["python", *sys.argv]), "machine": machine()}
    about["machine"].pop("peers", None)
    points: list[Point] = []
    problems: list[str] = []
    began = time.monotonic()
    with ExitStack() as stack:
        url = ""
        for name in asked.parts or PARTS:
            part = PARTS[name]
            if "PostgreSQL" in part.stores and not url:
                url = stack.enter_context(server())
            for store in part.stores:
                problems += _measure(part, store, url, asked, points)
    about["minutes"] = round((time.monotonic() - began) / 60, 1)
    return about, points, problems


def _measure(part: Part, store: str, url: str, asked: argparse.Namespace, points: list[Point]) -> Iterator[str]:
    """Add measurements to the points; report failures and continue."""
    sizes, rounds = (part.quick, 1) if asked.quick else (part.sizes, asked.rounds)
    with _place(url if store == "PostgreSQL" else "") as place:
        try:
            points.extend(part.measure(place, sizes, rounds))
        except NotRun as problem:
            print(f"  not run: {problem}", file=sys.stderr, flush=True)
            yield str(problem)


@contextmanager
def _place(url: str) -> Iterator[Place]:
    with fresh_folder() as folder, ExitStack() as stack:
        yield Place(folder, stack.enter_context(database(url)) if url else "")


if __name__ == "__main__":
    sys.exit(main())
