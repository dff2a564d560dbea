"""No-op Python steps and steps of 50 ms: one worker on SQLite, beside several workers on one PostgreSQL.

    python bench/shared_workers.py                      all workloads with 1, 2, 4 and 8 workers, printed as it goes
    python bench/shared_workers.py --workers 2 --quick  small, to see that it works
    python bench/shared_workers.py --before CHECKOUT    also with the workers of another checkout, in the same rounds
    python bench/shared_workers.py --only 0 2 --scale 2 some of the workloads, at half the number of steps

Every round measures all of them, one after the other, so that a machine that is busy for a while is so for all. Beside
the rate stands the processor time of the workers and of the server for a step, which a busy machine stretches less.
Another checkout must have the same tables.
Steps of 50 ms are as many for each worker, so that beginning and end weigh the same; the last column is the share of
what the slots could do.
The bar: two workers on PostgreSQL do 0.6 of what one does on SQLite.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from subprocess import Popen
from typing import NamedTuple

import psycopg
from growing.measuring import Place, beside, used_by, wait_until
from growing.server import database, server
from peers.processes import Command

from mulligan.language import load_text
from mulligan.ports import Store
from mulligan.service.home import Home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service

BAR = 0.6
_NO_OP = r"def main():\n    return None\n"
NAP_SECONDS = 0.05
_NAP = rf"import time\ndef main():\n    time.sleep({NAP_SECONDS})\n"
_UNFINISHED = ("new", "running", "paused")


class Workload(NamedTuple):
    """The text of a workflow, how often it runs at once, and how many steps that is."""

    text: str
    runs: int
    steps: int
    # How long a step rests.
    seconds: float = 0.0

    def times(self, workers: int) -> Workload:
        """For so many workers: as many steps for each, if they rest."""
        return _fan(self.steps * workers, _NAP, self.seconds) if self.seconds else self


class Rate(NamedTuple):
    """Steps a second, and microseconds of processors that the workers and the server use for a step."""

    steps: float
    workers: float
    server: float


def _fan(count: int, code: str, seconds: float = 0.0) -> Workload:
    text = f'name: fan\nsteps:\n  - {{step: "s_{{i}}", matrix: {{i: 1..{count}}}, python: "{code}"}}\n'
    return Workload(text, 1, count, seconds)


def _chains(runs: int, length: int) -> Workload:
    steps = "".join(f'  - {{step: s{number}, python: "{_NO_OP}"}}\n' for number in range(length))
    return Workload(f"name: chain\norder: sequential\nsteps:\n{steps}", runs, runs * length)


def workloads(scale: int) -> dict[str, Workload]:
    return {
        "one run, steps beside each other": _fan(200 * scale, _NO_OP),
        "one run, one step after the other": _chains(1, 75 * scale),
        "many runs of four steps": _chains(50 * scale, 4),
        "one run, steps of 50 ms": _fan(40 * scale, _NAP, NAP_SECONDS),
    }


class Workers:
    """Workers on one store, and a run of each workload on them."""

    def __init__(
        self, name: str, home: Home, store: Store, processes: list[Popen[bytes]], url: str, slots: int
    ) -> None:
        self.name = name
        self.slots = slots
        self.count = len(processes)
        self._url = url
        self._home = home
        self._store = store
        self._processes = processes

    def measure(self, workload: Workload) -> Rate:
        """Start all runs at once, and wait until they have ended."""
        workload = workload.times(self.count)
        workflow = prepare(load_text(workload.text), {}, Path.cwd())
        before, server_before = self._used(), self._used_by_server()
        began = time.perf_counter()
        Service(self._home).changes.create(workflow, times=workload.runs)
        wait_until(lambda: not self._store.runs(limit=1, statuses=_UNFINISHED))
        seconds = time.perf_counter() - began
        used, by_server = self._used() - before, self._used_by_server() - server_before
        return Rate(workload.steps / seconds, used / workload.steps * 1e6, by_server / workload.steps * 1e6)

    def _used(self) -> float:
        """The processor seconds of the workers so far."""
        return sum(used_by(process.pid)[0] for process in self._processes)

    def _used_by_server(self) -> float:
        """The processor seconds so far of the server's processes that serve our database."""
        if not self._url:
            return 0.0
        with psycopg.connect(self._url) as connection:
            rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database()").fetchall()
        used = 0.0
        for (pid,) in rows:
            # A parallel worker of the server may have ended meanwhile.
            with suppress(FileNotFoundError, ProcessLookupError):
                used += used_by(pid)[0]
        return used


def start(stack: ExitStack, name: str, url: str, count: int, parallel: int, checkout: Path | None = None) -> Workers:
    """Start workers on a new database of the server, or on a SQLite home if there is no URL."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    place = Place(folder, stack.enter_context(database(url)) if url else "")
    home = Home(folder / "home", place.database)
    store = home.open()
    stack.callback(store.close)
    processes = []
    for number in range(count):
        own = folder / f"worker{number}"
        command = place.verb(
            "worker", "--parallel", str(parallel), "--home", str(own / "home" if url else folder / "home")
        )
        if checkout is not None:
            environment = {**command.environment, "PYTHONPATH": str(checkout.absolute() / "src")}
            command = Command([sys.executable, "-m", "mulligan", *command.arguments[1:]], environment)
        processes.append(stack.enter_context(beside(command, own)))
    wait_until(lambda: len(store.workers()) == count, processes[-1])
    return Workers(name, home, store, processes, place.database, count * parallel)


def main() -> int:
    """Measure, print a table for each workload, and say whether the bar is met: 1 if not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8], metavar="N")
    parser.add_argument("--parallel", type=int, default=4, help="steps that each worker runs at once (default: 4)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--scale", type=int, default=4, help="how large the workloads are (default: 4)")
    parser.add_argument("--only", type=int, nargs="+", default=[0, 1, 2, 3], metavar="N", help="some workloads, from 0")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="another checkout of the project")
    options = parser.parse_args()
    is_met = True
    with server() as url, ExitStack() as stack:
        all_workers = [start(stack, "SQLite, 1 worker", "", 1, options.parallel)]
        for count in options.workers:
            if options.before is not None:
                before = start(stack, f"PostgreSQL, {count} before", url, count, options.parallel, options.before)
                all_workers.append(before)
            all_workers.append(start(stack, f"PostgreSQL, {count}", url, count, options.parallel))
        chosen = list(workloads(1 if options.quick else options.scale).items())
        for name, workload in (chosen[number] for number in options.only):
            is_met = _measured(name, workload, all_workers, 1 if options.quick else options.rounds) and is_met
    return 0 if is_met else 1


def _measured(name: str, workload: Workload, all_workers: list[Workers], rounds: int) -> bool:
    print(f"\n{name} ({workload.steps} steps{' for each worker' if workload.seconds else ''})\n")
    print("| | steps a second, best | median | beside SQLite | µs of workers | µs of the server | of the slots |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for workers in all_workers:
        workers.measure(workload)  # Children are started, and averages known.
    rates: dict[str, list[Rate]] = {workers.name: [] for workers in all_workers}
    for _ in range(rounds):
        for workers in all_workers:
            rates[workers.name].append(workers.measure(workload))
    best = {name: max(found).steps for name, found in rates.items()}
    first = next(iter(best.values()))
    for workers in all_workers:
        used = min(one.workers for one in rates[workers.name])
        ratio = best[workers.name] / first
        server = min(one.server for one in rates[workers.name])
        median = sorted(one.steps for one in rates[workers.name])[rounds // 2]
        rate = f"{best[workers.name]:,.0f} | {median:,.0f} | {ratio:.2f}"
        share = f"{best[workers.name] * workload.seconds / workers.slots:.2f}" if workload.seconds else ""
        print(f"| {workers.name} | {rate} | {used:,.0f} | {server:,.0f} | {share} |", flush=True)
    return best.get("PostgreSQL, 2", first) >= BAR * first


if __name__ == "__main__":
    sys.exit(main())
