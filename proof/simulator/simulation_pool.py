"""Run many histories in several processes, and yield results as they come. One that hangs or dies names its seed."""

from __future__ import annotations

import gc
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import msgspec

from proof.simulator.shrinking import BrokenHistory, Histories, complaint, shrunk
from proof.simulator.simulation_totals import SimulationTotals

# How often a process reports progress.
PART_SECONDS = 1.0
# A process that is asked to stop has one history to finish, and perhaps one to shrink.
GOODBYE_SECONDS = 5.0

_CONTEXT = multiprocessing.get_context("spawn")
_NONE = -1
_STOP = 0


# The number of allocations between two garbage collections.
_GARBAGE_MAX = 50_000


def collect_garbage_rarely() -> None:
    """Collect garbage rarely, in a process that only runs histories: they leave little, and collecting is slow."""
    gc.freeze()
    gc.set_threshold(_GARBAGE_MAX)


class TimeLimits(msgspec.Struct, frozen=True):
    """How long a history may take, which is normally milliseconds.

    One that uses this much cpu time is in an endless loop; one that takes this much wall time hangs in a call that no
    signal interrupts.
    """

    computing_seconds: float = 60.0
    silent_seconds: float = 300.0


PATIENT = TimeLimits()


class PartialResult(msgspec.Struct):
    """The result of some histories."""

    totals: SimulationTotals = msgspec.field(default_factory=SimulationTotals)
    broken: list[BrokenHistory] = []


def parts(
    seeds: Sequence[int], histories: Histories, begin: Callable[[int], bool], limits: TimeLimits = PATIENT
) -> Iterator[PartialResult]:
    """Run these histories one after the other; yield results every second, and at once for a broken invariant.

    `begin` is called with each seed before it is run; False ends the loop.
    """
    part, reported_at = PartialResult(), time.monotonic()
    for seed in seeds:
        if not begin(seed):
            break
        _run(part, seed, histories, limits.computing_seconds)
        if part.broken or time.monotonic() - reported_at > PART_SECONDS:
            yield part
            part, reported_at = PartialResult(), time.monotonic()
    yield part


def _run(part: PartialResult, seed: int, histories: Histories, seconds_max: float) -> None:
    history = histories(seed)
    sentence = complaint(history, seconds_max)
    part.totals.add(history.workflow, history.store_kind, history.happened, history.logs())
    if sentence:
        part.broken.append(shrunk(histories, seed, sentence, history))


# -- processes -------------------------------------------------------------------------------------------------------


class _Worker(msgspec.Struct):
    """A process, the seeds that it has yet to run, and the current one with its start time."""

    number: int
    seeds: Sequence[int]
    process: SpawnProcess
    connection: Connection
    seed: int = _NONE
    since: float = 0.0


class SimulationPool:
    """Run histories in separate processes. `stop` lets each finish its current history."""

    def __init__(self, seeds: range, jobs: int, histories: Histories, limits: TimeLimits = PATIENT) -> None:
        self._histories, self._limits = histories, limits
        # Whether to stop, and the current seed of each process: one writer, one reader, no lock.
        self._board: Any = _CONTEXT.RawArray("q", [0, *[_NONE] * jobs])
        self._workers = [self._start(number, seeds[number - 1 :: jobs]) for number in range(1, jobs + 1)]

    def stop(self) -> None:
        self._board[_STOP] = 1

    def parts(self) -> Iterator[PartialResult]:
        """Yield results until all have ended; at least one per second, if only an empty one."""
        while self._workers:
            ready = wait([worker.connection for worker in self._workers], timeout=PART_SECONDS)
            yield from (self._receive(worker) for worker in list(self._workers) if worker.connection in ready)
            yield from (self._report_lost(worker, "hangs") for worker in list(self._workers) if self._is_silent(worker))
            yield PartialResult()

    def close(self) -> None:
        """End every process, in an orderly way if possible."""
        self.stop()
        for worker in self._workers:
            worker.process.join(GOODBYE_SECONDS)
            worker.process.kill()
            worker.process.join()

    def _start(self, number: int, seeds: Sequence[int]) -> _Worker:
        ours, theirs = _CONTEXT.Pipe(duplex=False)
        self._board[number] = _NONE
        arguments = (seeds, self._histories, self._limits, self._board, number, theirs)
        process = _CONTEXT.Process(target=_run_in_process, args=arguments, daemon=True)
        process.start()
        theirs.close()
        return _Worker(number, seeds, process, ours, since=time.monotonic())

    def _receive(self, worker: _Worker) -> PartialResult:
        try:
            part: PartialResult | None = worker.connection.recv()
        except EOFError:
            return self._report_lost(worker, "died")
        if part is None:
            self._stop(worker)
            return PartialResult()
        return part

    def _is_silent(self, worker: _Worker) -> bool:
        now, seed = time.monotonic(), self._board[worker.number]
        if seed != worker.seed:
            worker.seed, worker.since = seed, now
        return seed != _NONE and now - worker.since > self._limits.silent_seconds

    def _report_lost(self, worker: _Worker, how: str) -> PartialResult:
        """Report the seed of a process that is gone or will be, and start another one for the remaining seeds."""
        self._stop(worker)
        seed = self._board[worker.number]
        if seed == _NONE:
            raise RuntimeError(f"a process died before its first history, with exit code {worker.process.exitcode}")
        code = (
            f", exit code {worker.process.exitcode}"
            if how == "died"
            else f" for {self._limits.silent_seconds:g} seconds"
        )
        left = worker.seeds[worker.seeds.index(seed) + 1 :]
        if left and not self._board[_STOP]:
            self._workers.append(self._start(worker.number, left))
        return PartialResult(
            SimulationTotals(1), [BrokenHistory(seed, f"promise 10: the process that ran it {how}{code}")]
        )

    def _stop(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.connection.close()
        worker.process.join(GOODBYE_SECONDS)
        worker.process.kill()
        worker.process.join()


def _run_in_process(
    seeds: Sequence[int], histories: Histories, limits: TimeLimits, board: Any, number: int, connection: Connection
) -> None:
    # The parent handles Ctrl-C and tells us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    collect_garbage_rarely()

    def begin(seed: int) -> bool:
        board[number] = seed
        return not board[_STOP]

    for part in parts(seeds, histories, begin, limits):
        connection.send(part)
    connection.send(None)
