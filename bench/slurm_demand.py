"""How long it takes to count the demand of a long queue: `slurm auto` asks for it at every look.

    .venv/bin/python -m bench.slurm_demand [TASKS] [POSTGRES_URL]

A schema with the store must not exist at that URL: the queue is written into it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from mulligan.core.effects.tasks import Task
from mulligan.core.model import reports as r
from mulligan.ports import Commit, NewRun, Store, WorkerRecord
from mulligan.store.open_store import open_store
from mulligan.testing.clock import START

SHAPES, BATCH = 20, 5_000


def fill(store: Store, count: int) -> None:
    """One run with so many queued tasks of twenty shapes, each of a kilobyte and more."""
    store.register(WorkerRecord("w", "here", 1))
    request = r.RunRequested(START, 0)
    (turn,) = store.create([NewRun(b'{"name":"n"}', "v", "n", request)], "w")
    for begin in range(0, count, BATCH):
        tasks = [_task(turn.run_id, number) for number in range(begin, min(count, begin + BATCH))]
        store.commit(
            [Commit(turn=turn, after=0, entries=(), rows=(), status="running", round=1, at=START, queued=tasks)]
        )


def _task(run_id: int, number: int) -> Task:
    return Task(
        run_id,
        f"a[{number}].0",
        1,
        "shell",
        {"text": "x" * 1000},
        "n",
        "v",
        "a",
        1,
        cpus=float(1 + number % SHAPES),
        labels=("gpu",) if number % 2 else (),
        timeout=60.0,
    )


def measure(name: str, store: Store, count: int) -> None:
    fill(store, count)
    took = []
    for _ in range(5):
        begin = time.perf_counter()
        found = store.queued_shapes()
        took.append(time.perf_counter() - begin)
    assert sum(shape.count for shape in found) == count
    print(f"{name}: {count:,} tasks of {len(found)} shapes: {min(took) * 1000:.0f} to {max(took) * 1000:.0f} ms")
    store.close()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        measure("SQLite", open_store(str(Path(folder) / "runs.db"), lease_seconds=30.0), count)
    if len(sys.argv) > 2:
        measure("PostgreSQL", open_store(sys.argv[2], lease_seconds=30.0), count)


if __name__ == "__main__":
    main()
