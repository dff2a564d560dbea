"""The race: all take turns in every round, so that the machine's noise hits all alike, and the best time counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from peers.bars import AtMost, Beside, Verdict
from peers.contestants import Contestant, Task
from peers.environments import NotRun
from peers.postgres import fresh_database
from peers.processes import Measured, fresh_folder, measure
from peers.workloads import Workload

SECONDS_MAX = 900.0


@dataclass(slots=True)
class Result:
    """What a contestant did: the wall times of the rounds, those of a run with a count of 1, or why there are none."""

    contestant: Contestant
    totals: list[float] = field(default_factory=list)
    startups: list[float] = field(default_factory=list)
    megabytes: float = 0.0
    reason: str = ""

    @property
    def seconds(self) -> float:
        """The best time of all that was asked for, start-up and all."""
        return min(self.totals)

    @property
    def startup(self) -> float:
        return min(self.startups, default=0.0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A workload and its results."""

    workload: Workload
    results: list[Result]

    @property
    def ours(self) -> list[Result]:
        names = {contestant.name for contestant in self.workload.ours}
        return [result for result in self.results if result.contestant.name in names]

    def cost(self, result: Result) -> float | None:
        """Seconds for each step or run beyond the first, start-up apart (or all of it where that is the question)."""
        if result.reason:
            return None
        if not self.workload.is_net:
            return result.seconds
        return max(result.seconds - result.startup, 1e-9) / (self.workload.count - 1)

    def times_as_fast(self, ours: Result, theirs: Result) -> float | None:
        """How many times as fast we were, or None if one of the two did not run."""
        mine, other = self.cost(ours), self.cost(theirs)
        return None if mine is None or other is None else other / mine

    def verdicts(self) -> Iterator[Verdict]:
        """Each of our results beside each bar that could be measured."""
        for result in self.ours:
            for bar in self.workload.bars:
                verdict = self._beside(result, bar) if isinstance(bar, Beside) else _at_most(result, bar)
                if verdict is not None:
                    yield verdict

    def _beside(self, result: Result, bar: Beside) -> Verdict | None:
        theirs = [other for other in self.results if other.contestant.name == bar.peer]
        ratio = self.times_as_fast(result, theirs[0]) if theirs else None
        if ratio is None:
            return None
        what = f"{result.contestant.name} beside {bar.peer}"
        return Verdict(what, "x", ratio, bar.bar, bar.stretch, more_is_better=True)


def _at_most(result: Result, bar: AtMost) -> Verdict | None:
    if result.reason:
        return None
    value = result.seconds if bar.measure == "seconds" else result.megabytes
    unit = " s" if bar.measure == "seconds" else " MB"
    return Verdict(result.contestant.name, unit, value, bar.bar, bar.stretch, more_is_better=False)


def race(workload: Workload, rounds: int, server: str) -> Outcome:
    """Run the workload. A contestant that cannot run drops out with its reason, and the others go on."""
    results = [Result(contestant) for contestant in (*workload.ours, *workload.peers)]
    for _ in range(min(rounds, workload.rounds_max)):
        for result in results:
            if not result.reason:
                _one_round(workload, result, server)
    return Outcome(workload, results)


def _one_round(workload: Workload, result: Result, server: str) -> None:
    try:
        if workload.is_net:
            result.startups.append(_once(workload, result.contestant, 1, server).seconds)
        measured = _once(workload, result.contestant, workload.count, server)
    except NotRun as problem:
        result.reason = str(problem)
        return
    result.totals.append(measured.seconds)
    result.megabytes = max(result.megabytes, measured.megabytes)


def _once(workload: Workload, contestant: Contestant, count: int, server: str) -> Measured:
    with fresh_folder() as folder, _database(workload, server) as database:
        command = contestant.prepare(Task(folder, count, workload.parallel, database))
        return measure(command, folder, SECONDS_MAX)


@contextmanager
def _database(workload: Workload, server: str) -> Iterator[str]:
    with fresh_database(server) if workload.on_postgres else nullcontext("") as database:
        yield database
