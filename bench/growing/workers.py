"""How much more several workers do on one PostgreSQL: steps that do nothing, and steps that rest for 50 ms."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from subprocess import Popen

from mulligan.language import load_text
from mulligan.ports import Store
from mulligan.service.home import Home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service

from .figures import Point
from .measuring import Place, Spent, beside, point, used_by, wait_until

GROUP = "workers"
# Steps that each worker runs at once: with steps that rest, eight workers have room for 32.
PARALLEL = 4
STEPS_PER_RUN = 4
WORKLOADS = {"no-op steps": ("true", 200), "steps of 50 ms": ("sleep 0.05", 200)}
_UNFINISHED = ("new", "running", "paused")


def measure(place: Place, sizes: Sequence[int], rounds: int) -> Iterator[Point]:
    """For each number of workers, and each kind of step: all runs are there at once, and end as fast as they can."""
    home = Home(place.folder / "home", place.database)
    store = home.open()
    for size in sizes:
        with ExitStack() as stack:
            workers = [stack.enter_context(_worker(place, number)) for number in range(size)]
            wait_until(partial(_are_up, store, size))
            for series, (shell, runs) in WORKLOADS.items():
                amount = runs * STEPS_PER_RUN
                spent = min(_emptied(home, store, shell, runs, workers) for _ in range(rounds))
                yield point(GROUP, series, place, size, spent, amount)
        # They were killed: the next worker must not wait for their leases.
        for worker in store.workers():
            store.expire(worker.name, is_dead=True)
    store.close()


def _are_up(store: Store, size: int) -> bool:
    return len(store.workers()) == size


def _worker(place: Place, number: int) -> AbstractContextManager[Popen[bytes]]:
    folder = place.folder / f"worker{number}"
    return beside(place.verb("worker", "--parallel", str(PARALLEL), "--home", str(folder / "home")), folder)


def _emptied(home: Home, store: Store, shell: str, runs: int, workers: list[Popen[bytes]]) -> Spent:
    steps = "".join(f"  - {{step: s{number}, shell: '{shell}'}}\n" for number in range(STEPS_PER_RUN))
    workflow = load_text(f"name: chain\norder: sequential\nsteps:\n{steps}")
    before = sum(used_by(worker.pid)[0] for worker in workers)
    began = time.perf_counter()
    Service(home).changes.create(prepare(workflow, {}, Path.cwd()), times=runs)
    wait_until(lambda: not store.runs(limit=1, statuses=_UNFINISHED))
    seconds = time.perf_counter() - began
    used = [used_by(worker.pid) for worker in workers]
    return Spent((seconds, sum(cpu for cpu, _ in used) - before, max(megabytes for _, megabytes in used)))
