"""How many steps a second one run can do: its turns come one after the other, whoever executes its steps.

    python bench/one_run.py           no-op steps, with 1 to 64 results a turn, on SQLite and PostgreSQL
    python bench/one_run.py --quick   small, to see that it works

The executor ends every task at once, so what is left is deciding and writing. `own`: the worker that holds the turn
executes the tasks. `others`: another worker leases and reports them, and only the time of the holder counts, which
is the least that any number of workers has to wait for.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from growing.server import database, server

from mulligan.core.model.reports import RunRequested
from mulligan.core.model.workflow import encode, version
from mulligan.engine.engine import Engine
from mulligan.language import load_text
from mulligan.language.expressions import Cel
from mulligan.ports import NewRun, Store, WorkerRecord
from mulligan.store import open_store
from mulligan.store.clock import ProcessClock
from mulligan.testing.fake_executor import FakeExecutor


class Rate(NamedTuple):
    """Steps a second, and microseconds of the processor that the holder of the turn uses for a step."""

    steps: float
    holder: float


class Crew:
    """An engine that holds the turns, and if there are `others` one that executes the tasks."""

    def __init__(self, stores: list[Store], slots: int) -> None:
        self._clock = ProcessClock()
        self._is_alone = len(stores) == 1
        self._store = stores[0]
        *rest, self._executing = [
            self._engine(store, f"bench.{number}.0", slots if store is stores[-1] else 0)
            for number, store in enumerate(stores)
        ]
        self._holder = rest[0] if rest else self._executing

    def _engine(self, store: Store, name: str, slots: int) -> Engine:
        store.register(WorkerRecord(name, "bench", 1, cpus=slots))
        executor = FakeExecutor(name, self._clock, slots=slots)
        engine = Engine(store, self._clock, Cel({}), name, executor)
        engine.set_alone(self._is_alone)
        return engine

    def measure(self, count: int) -> Rate:
        """The time of the holder's rounds for a run of so many steps."""
        workflow = load_text(f'name: fan\nsteps:\n  - {{step: "s_{{i}}", matrix: {{i: 1..{count}}}, shell: "true"}}\n')
        data = encode(workflow)
        new = NewRun(data, version(data), "fan", RunRequested(self._clock.now(), 0, {}, version(data)))
        turns = self._store.create([new], self._holder.name)
        self._holder.begin(turns, [new])
        wall = used = 0.0
        while turns[0].run_id in self._holder.drivers:
            began, used_before = time.perf_counter(), time.process_time()
            self._holder.tick(0.0)
            wall, used = wall + time.perf_counter() - began, used + time.process_time() - used_before
            if self._holder is not self._executing:
                self._executing.tick(0.0)
                self._executing.tick(0.0)
        return Rate(count / wall, used / count * 1e6)


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sizes, count, rounds = ((4,), 50, 1) if options.quick else ((1, 4, 16, 64), 400, options.rounds)
    print("| results a turn | " + " | ".join(map(str, sizes)) + " |\n|---|" + "---:|" * len(sizes))
    with server() as url, ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, place, workers in (
            ("SQLite, own", "", 1),
            ("PostgreSQL, own", url, 1),
            ("PostgreSQL, others", url, 2),
        ):
            rates: dict[int, list[Rate]] = {size: [] for size in sizes}
            for size in sizes:
                where = stack.enter_context(database(place)) if place else folder / f"{size}.db"
                stores = [stack.enter_context(closing(open_store(where))) for _ in range(workers)]
                crew = Crew(stores, size)
                crew.measure(count // 10)
                rates[size] = [crew.measure(count) for _ in range(rounds)]
            best = (f"{max(found).steps:,.0f} ({min(one.holder for one in found):,.0f})" for found in rates.values())
            print(f"| {name} | " + " | ".join(best) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
