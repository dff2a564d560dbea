"""The Dask executor beside Dask itself, on one cluster: no-op Python tasks a second.

    python bench/on_dask.py                            2,000 tasks on two workers with one thread each, five rounds
    python bench/on_dask.py --count 200 --rounds 1     smaller, to see that it works
    python bench/on_dask.py --seconds 0.02             tasks that sleep so long

Both use the same processes, in turns. Dask: `client.map` of a function, and `gather`. Mulligan: a run with one map step
of as many Python items, durable in SQLite, from the start of the run to its end. Rates exclude start-up: ten tasks are
timed as well, and subtracted. The median of all rounds counts.
The bar: at least half of the rate of Dask.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster

import mulligan

# What is timed to know the start-up.
FEW = 10
FLOW = """
name: noop
inputs:
  numbers: {{type: array}}
steps:
  - step: work
    map: {{over: "${{inputs.numbers}}"}}
    do:
      - python: |
          import time
          def main():
              time.sleep({seconds}) if {seconds} else None
"""


def sleep(number: int, seconds: float) -> None:
    if seconds:
        time.sleep(seconds)


def with_dask(client: Client, count: int, seconds: float) -> float:
    """Seconds for as many tasks of Dask."""
    began = time.perf_counter()
    client.gather(client.map(sleep, range(count), seconds=seconds, pure=False))
    return time.perf_counter() - began


def with_mulligan(home: mulligan.Home, flow: Any, address: str, count: int) -> float:
    """Seconds for a run of as many items."""
    return home.run(flow, on=address, show=False, check=True, numbers=list(range(count))).seconds


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=2000, help="tasks (default 2000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the median counts (default 5)")
    parser.add_argument("--workers", type=int, default=2, help="Dask workers (default 2)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each (default 1)")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long a task sleeps (default 0)")
    parser.add_argument("--json", type=Path, help="write every single time to this file")
    asked = parser.parse_args()
    counts = (FEW, asked.count)
    times: dict[str, dict[int, list[float]]] = {"Dask": {n: [] for n in counts}, "Mulligan": {n: [] for n in counts}}
    with (
        tempfile.TemporaryDirectory(prefix="mulligan-bench-", dir="/var/tmp") as folder,
        LocalCluster(
            n_workers=asked.workers,
            threads_per_worker=asked.threads,
            processes=True,
            dashboard_address=None,
            local_directory=folder,
        ) as cluster,
        Client(cluster) as client,
        mulligan.open(Path(folder) / "home") as home,
    ):
        path = Path(folder) / "noop.yaml"
        path.write_text(FLOW.format(seconds=asked.seconds), encoding="utf-8")
        flow, address = mulligan.load(path), cluster.scheduler_address
        # Everything is loaded before it is measured.
        with_dask(client, FEW, 0.0)
        with_mulligan(home, flow, address, FEW)
        for count in counts * asked.rounds:
            times["Dask"][count].append(with_dask(client, count, asked.seconds))
            times["Mulligan"][count].append(with_mulligan(home, flow, address, count))
    print(f"{asked.count} Python tasks, {asked.workers} × {asked.threads} threads, median of {asked.rounds}:")
    bar = rate_of(times["Dask"], asked.count)
    for name, found in times.items():
        rate = rate_of(found, asked.count)
        startup = statistics.median(found[FEW])
        print(f"  {name:<9} {rate:7.0f} tasks a second  {rate / bar:5.2f} ×   start-up {startup:.2f} s")
    if asked.json is not None:
        asked.json.write_text(json.dumps(times), encoding="utf-8")


def rate_of(times: dict[int, list[float]], count: int) -> float:
    """Tasks a second, without start-up."""
    return (count - FEW) / (statistics.median(times[count]) - statistics.median(times[FEW]))


if __name__ == "__main__":
    main()
