"""Which trials there are: each sweep goes on with the next moment until a run is over before it comes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import count, product
from typing import NamedTuple

from mulligan.ports import FAULT_POINTS
from proof.crashes import calls, disk, short_writes
from proof.crashes.faults import STORES, Fault, Trial
from proof.crashes.scenarios import SCENARIOS
from proof.crashes.trials import Tried

# Where a pair may strike: a run passes no point more often.
PASSES_MAX = 45


class Sweep(NamedTuple):
    """Everything of one kind that can happen to the process that begins a run."""

    kind: str
    stores: tuple[str, ...]
    whats: tuple[str, ...]


POINTS = tuple(FAULT_POINTS)
SWEEPS = {
    "kills": Sweep("kill", STORES, POINTS),
    "cuts": Sweep("cut", ("postgres",), POINTS),
    "servers": Sweep("server", ("postgres",), POINTS),
    "answers": Sweep("answer", ("postgres",), ("lost",)),
    "disk": Sweep("disk", ("sqlite",), disk.FAULTS),
    "calls": Sweep("call", ("sqlite",), calls.FAULTS),
    "supervisors": Sweep("supervisor", ("sqlite",), calls.SUPERVISOR_FAULTS),
    "moves": Sweep("move", ("sqlite",), POINTS),
    "short_writes": Sweep("short", ("sqlite",), short_writes.FAULTS),
    # The processes around a run.
    **{kind: Sweep(kind, scenario.stores, scenario.points) for kind, scenario in SCENARIOS.items()},
}

Hold = Callable[[Trial], Tried]


def swept(sweep: Sweep, every: int, hold: Hold, only: str = "") -> None:
    """Hold the trials of a sweep: of each thing the first, and each `every` passes later, until it comes no more.

    `only` those things that have this in their names.
    """
    for store, what in product(sweep.stores, (what for what in sweep.whats if only in what)):
        for nth in count(1, every):
            if not hold(Trial(store, (Fault(sweep.kind, what, nth),))).has_happened:
                break


def pairs(number: int, seed: int, stores: Iterable[str] = STORES) -> Iterator[Trial]:
    """Two crashes, the second in the process that takes the run up after the first."""
    chance = random.Random(seed)
    for store in stores:
        for _ in range(number):
            first, second = (Fault("kill", chance.choice(POINTS), chance.randint(1, PASSES_MAX)) for _ in range(2))
            yield Trial(store, (first, second))
