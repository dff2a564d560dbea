"""Times stages by wrapping functions from outside: each moment counts for the innermost stage.

Both in wall time and in processor time of the process, which a busy machine does not stretch.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from importlib import import_module
from typing import Any

from .stages import REST, Stage

_CALIBRATION_CALLS = 20_000
# Wall and processor seconds.
Times = tuple[float, float]


def both_clocks() -> Times:
    return time.perf_counter(), time.process_time()


class StageClock:
    """How long each stage took. `phase`, if set, gets the time of every stage that is not in `kept`."""

    def __init__(self, clock: Callable[[], Times] = both_clocks, kept: frozenset[str] = frozenset()) -> None:
        self._clock = clock
        self._kept = kept
        self._stack = [REST]
        self._last = clock()
        self.phase = ""
        self.wall: defaultdict[str, float] = defaultdict(float)
        self.cpu: defaultdict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()

    def enter(self, stage: str) -> None:
        self._count()
        self._stack.append(stage)
        self.calls[stage] += 1

    def leave(self, then: str = "") -> None:
        self._count()
        self._stack.pop()
        if then:
            self._stack[-1] = then

    def begin_phase(self, phase: str) -> None:
        self._count()
        self.phase = phase

    def _count(self) -> None:
        now, stage = self._clock(), self._stack[-1]
        counted = stage if not self.phase or stage in self._kept else self.phase
        self.wall[counted] += now[0] - self._last[0]
        self.cpu[counted] += now[1] - self._last[1]
        self._last = now

    def wrap(self, function: Callable[..., Any], stage: str, then: str = "") -> Callable[..., Any]:
        """The function, whose time counts for a stage."""

        def timed(*args: Any, **options: Any) -> Any:
            self.enter(stage)
            try:
                return function(*args, **options)
            finally:
                self.leave(then)

        return timed


def seconds_per_call() -> float:
    """What the wrapping of one call adds."""
    clock = StageClock()
    plain: Callable[[], None] = lambda: None  # noqa: E731
    timed = clock.wrap(plain, "calibration")
    spent = []
    for function in (plain, timed):
        began = time.process_time()
        for _ in range(_CALIBRATION_CALLS):
            function()
        spent.append(time.process_time() - began)
    return max(0.0, spent[1] - spent[0]) / _CALIBRATION_CALLS


def find(name: str) -> tuple[Any, str, Any]:
    """The owner of a function, its name there, and what is there: a function, or a static method."""
    module, _, path = name.partition(":")
    owner: Any = import_module(module)
    *outer, last = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    # A method may be that of a base class.
    owner = next((base for base in getattr(owner, "__mro__", ()) if last in vars(base)), owner)
    return owner, last, vars(owner)[last]


def replace(name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace a function by what `make` makes of it."""
    owner, last, found = find(name)
    is_static = isinstance(found, staticmethod)
    made = make(found.__func__ if is_static else found)
    setattr(owner, last, staticmethod(made) if is_static else made)


def instrument(clock: StageClock, stages: tuple[Stage, ...]) -> None:
    for stage in stages:
        for name in stage.functions:
            replace(name, lambda function, stage=stage: clock.wrap(function, stage.name, stage.then))  # type: ignore[misc]
