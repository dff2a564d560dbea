"""Counts over all runs of a store, which take time in proportion to it: of a large one they are kept for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from mulligan.ports import Store

# Up to so many runs are counted whenever somebody asks.
COUNTED_MAX = 10_000
# Counts are kept for so long for each run that was counted: ten times and more what counting it takes.
_MICROSECONDS_A_RUN = 10
_KEPT_MAX = timedelta(seconds=10)


def kept_for(runs: int) -> timedelta:
    """For how long counts of so many runs are kept, so that a server spends a tenth of its time on them or less."""
    if runs <= COUNTED_MAX:
        return timedelta(0)
    return min(timedelta(microseconds=_MICROSECONDS_A_RUN * runs), _KEPT_MAX)


class StatusCounts:
    """How many runs there are with each status, by project; None for all. Shared by all who ask a server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str | None, tuple[float, dict[str, int]]] = {}

    def read(self, store: Store, project: str | None) -> dict[str, int]:
        """The counts of a store that shows this project alone, at most a moment old."""
        now = self._clock()
        kept = self._kept.get(project)
        if kept is not None and now < kept[0]:
            return kept[1]
        found = store.lists.status_counts()
        self._kept[project] = now + kept_for(sum(found.values())).total_seconds(), found
        return found
