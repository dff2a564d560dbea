"""Run many random histories, and stop at the first that breaks an invariant.

Then print which one, the smallest workflow and the fewest faults that still break it, the last facts, and the command
that reproduces it. Exit codes: 0 all is well, 1 an invariant was broken, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from proof.arguments import positive_int
from proof.simulator.shrinking import BrokenHistory, Histories
from proof.simulator.simulation import Simulation
from proof.simulator.simulation_pool import PartialResult, SimulationPool, collect_garbage_rarely, parts
from proof.simulator.simulation_totals import SimulationTotals

PROGRESS_SECONDS = 5.0


class SimulationResult(msgspec.Struct):
    """The result so far, and whether to continue."""

    wanted: int
    goes_on: bool = False
    totals: SimulationTotals = msgspec.field(default_factory=SimulationTotals)
    broken: list[BrokenHistory] = []
    is_interrupted: bool = False
    started_at: float = msgspec.field(default_factory=time.monotonic)

    @property
    def is_enough(self) -> bool:
        return self.is_interrupted or (bool(self.broken) and not self.goes_on)

    @property
    def exit_code(self) -> int:
        if self.broken:
            return 1
        return 130 if self.is_interrupted else 0

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self.started_at, 0.001)

    def add(self, part: PartialResult) -> None:
        self.totals.merge(part.totals)
        self.broken += part.broken

    def progress(self) -> str:
        done, rate = self.totals.histories, self.totals.histories / self.seconds
        left = f", {_format_seconds((self.wanted - done) / rate)} left" if rate else ""
        return f"{done:,} of {self.wanted:,} histories, {rate:,.0f} a second, {len(self.broken)} broken{left}"

    def summary(self) -> str:
        totals, rate = self.totals, self.totals.histories / self.seconds
        count = f"{totals.histories:,} histories of {totals.runs:,} runs, {totals.events:,} events"
        verdict = f"{len(self.broken)} broken" if self.broken else "no promise was broken"
        cut = "interrupted: " if self.is_interrupted else ""
        return f"{cut}{count} in {_format_seconds(self.seconds)} ({rate:,.0f} histories a second): {verdict}"


def _format_seconds(seconds: float) -> str:
    """Format a duration roughly."""
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    minutes, hours = seconds / 60, seconds / 3600
    return f"{minutes:.0f} minutes" if minutes < 100 else f"{hours:.0f} hours"


def simulate(seeds: Iterable[int], histories: Histories = Simulation) -> tuple[SimulationTotals, list[BrokenHistory]]:
    """Run these histories one after the other in this process, and shrink the broken ones."""
    result = SimulationResult(0)
    for part in parts(list(seeds), histories, lambda seed: True):
        result.add(part)
    return result.totals, result.broken


# -- the command -----------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None, histories: Histories = Simulation) -> int:
    options = _parser().parse_args(arguments)
    seeds = range(options.seed, options.seed + options.histories)
    result = SimulationResult(len(seeds), options.keep_going)
    with _interruptible(result):
        _run(result, seeds, min(options.jobs, len(seeds)), histories)
    print(result.totals.table() if options.verbose else result.totals.summary())
    for one in result.broken:
        print(f"\n{one.render()}")
    print(f"\n{result.summary()}")
    return result.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proof.simulator", description=__doc__)
    parser.add_argument("--histories", type=positive_int, default=2000, help="how many (default: 2000)")
    parser.add_argument("--seed", type=int, default=0, help="the first one's seed (default: 0)")
    parser.add_argument("--jobs", type=positive_int, default=_processors(), help="processes (default: processors)")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first broken promise")
    parser.add_argument("--verbose", action="store_true", help="count everything that happened, by kind and name")
    return parser


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _interruptible(result: SimulationResult) -> Iterator[None]:
    """Make Ctrl-C stop after the running histories, and a second one at once."""

    def interrupted(*_: object) -> None:
        if result.is_interrupted:
            raise KeyboardInterrupt
        result.is_interrupted = True

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGINT, before)


def _run(result: SimulationResult, seeds: range, jobs: int, histories: Histories) -> None:
    if jobs == 1:
        _follow(result, parts(seeds, histories, lambda seed: not result.is_enough))
        return
    pool = SimulationPool(seeds, jobs, histories)
    try:
        _follow(result, pool.parts(), pool)
    finally:
        pool.close()


def _follow(result: SimulationResult, coming: Iterable[PartialResult], pool: SimulationPool | None = None) -> None:
    """Add up partial results, and print the progress now and then."""
    said_at = time.monotonic()
    for part in coming:
        result.add(part)
        if pool is not None and result.is_enough:
            pool.stop()
        if time.monotonic() - said_at > PROGRESS_SECONDS:
            print(result.progress(), file=sys.stderr, flush=True)
            said_at = time.monotonic()


if __name__ == "__main__":
    collect_garbage_rarely()
    sys.exit(main())
