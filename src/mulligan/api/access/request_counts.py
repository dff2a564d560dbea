"""How many requests a server answered, and how long that took, by route."""

from __future__ import annotations

from collections import Counter

from mulligan.engine.timings import Histogram


class RequestCounts:
    """Counters since the server began."""

    def __init__(self) -> None:
        # By method, path of the table, and status.
        self.answered: Counter[tuple[str, str, str]] = Counter()
        self.seconds = Histogram()

    def add(self, method: str, path: str, status: int, seconds: float) -> None:
        self.answered[method, path, str(status)] += 1
        self.seconds.add(seconds)
