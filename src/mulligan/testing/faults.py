"""Fault points for tests: `arm` one, and the program dies there at its n-th pass.

    with faults() as points:
        points.arm("after_commit", 3)
        ...                                  # raises Crash at the third commit

Outside of `faults()` a fault point does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mulligan.ports import FAULT_POINTS, fault_listeners
from mulligan.ports.fault_points import SERVER_FAULT_POINTS


class Crash(BaseException):
    """The program died here. No handler of `Exception` catches it, as with kill -9."""

    def __init__(self, point: str) -> None:
        super().__init__(f"died at '{point}'")
        self.point = point


class Faults:
    """Count the passes of every point, and die at the one that is armed."""

    def __init__(self) -> None:
        self.passes = dict.fromkeys((*FAULT_POINTS, *SERVER_FAULT_POINTS), 0)
        self._armed: dict[str, int] = {}

    def arm(self, name: str, n: int = 1) -> None:
        """Die at the n-th pass of `name` from now on, once."""
        if name not in self.passes:
            raise KeyError(f"there is no fault point '{name}'; there are {', '.join(sorted(self.passes))}")
        self._armed[name] = self.passes[name] + n

    def disarm(self) -> None:
        self._armed.clear()

    def passed(self, name: str) -> None:
        """Called by `ports.fault_point`. A name that is not in the list is a mistake in the calling code."""
        self.passes[name] += 1
        if self._armed.get(name) == self.passes[name]:
            del self._armed[name]
            raise Crash(name)


@contextmanager
def faults() -> Iterator[Faults]:
    """Listen to the fault points during the block."""
    points = Faults()
    fault_listeners.append(points.passed)
    try:
        yield points
    finally:
        fault_listeners.remove(points.passed)
