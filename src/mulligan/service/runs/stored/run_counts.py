"""Counts over many runs, which take time in proportion to them: those of a large store are kept for a moment.

A server answers with what was counted last, and has it counted again in another thread, so that nobody waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from mulligan.ports import Store

Counts = TypeVar("Counts")
# Has something counted by another thread, with a store of its own.
CountInBackground = Callable[[Callable[[Store], Any]], "Future[Any]"]

# Up to so many runs are counted whenever somebody asks: that takes 2 ms.
COUNTED_MAX = 2_000
# Counts are kept for so long for each run that was counted: fifty times and more what counting it takes.
_KEPT_MICROSECONDS, _KEPT_MAX = 50, timedelta(seconds=10)
# Older ones are answered all the same while they are counted again, for so long.
_USABLE_MICROSECONDS, _USABLE_MIN, _USABLE_MAX = 100, timedelta(seconds=2), timedelta(seconds=60)
# What took long to count, on whatever machine, is good for at least so many times as long; usable for twice as long.
_KEPT_TIMES = 10
# Counts that are good for longer, such as those of past days, are usable for so many times as long.
_USABLE_FACTOR = 10
# What nobody has counted for so long is forgotten.
_FORGOTTEN_AFTER = timedelta(hours=1)


def kept_for(runs: int, took: timedelta = timedelta(0)) -> timedelta:
    """For how long counts of so many runs are good, so that counting takes a small part of the time."""
    if runs <= COUNTED_MAX:
        return timedelta(0)
    return min(max(timedelta(microseconds=_KEPT_MICROSECONDS * runs), _KEPT_TIMES * took), _KEPT_MAX)


def usable_for(runs: int, took: timedelta = timedelta(0)) -> timedelta:
    """For how long counts of so many runs may be answered while they are counted again."""
    if runs <= COUNTED_MAX:
        return timedelta(0)
    usable = max(timedelta(microseconds=_USABLE_MICROSECONDS * runs), _USABLE_MIN, 2 * _KEPT_TIMES * took)
    return min(usable, _USABLE_MAX)


class _Kept(NamedTuple):
    counts: Any
    counted_at: float
    # How many runs there were, and how long it took to count them.
    runs: int
    took: timedelta


class CountCache:
    """What was counted last. Shared by all who ask a server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Without it, whoever asks for what is no longer good waits until it is counted.
        self.count_in_background: CountInBackground | None = None
        self._kept: dict[Hashable, _Kept] = {}
        self._being_counted: set[Hashable] = set()
        # The thread that answers and the one that counts change these.
        self._lock = threading.Lock()

    def status_counts(self, store: Store, project: str | None) -> dict[str, int]:
        """How many runs of a store that shows this project alone have each status; None for all projects."""
        return self.read(
            ("statuses", project),
            store.lists.status_counts,
            lambda other: other.lists.status_counts(project),
            lambda counts: sum(counts.values()),
        )

    def read(
        self,
        what: Hashable,
        count: Callable[[], Counts],
        count_with: Callable[[Store], Counts],
        size: Callable[[Counts], int],
        *,
        at_least: timedelta = timedelta(0),
    ) -> Counts:
        """What was counted, or is counted now, either here or with the store of another thread.

        `size` says how many runs that were. Whatever their number is, the counts are good for `at_least` as long.
        """
        kept, now = self._kept.get(what), self._clock()
        if kept is not None:
            age = now - kept.counted_at
            if age < max(kept_for(kept.runs, kept.took), at_least).total_seconds():
                found: Counts = kept.counts
                return found
            usable = max(usable_for(kept.runs, kept.took), _USABLE_FACTOR * at_least)
            if age < usable.total_seconds() and self.count_in_background:
                self._begin(what, count_with, size)
                found = kept.counts
                return found
        found, took = self._timed(count)
        self._keep(what, found, size(found), now, took)
        return found

    def _begin(self, what: Hashable, count_with: Callable[[Store], Counts], size: Callable[[Counts], int]) -> None:
        """Have it counted elsewhere, unless that has begun. If it fails, somebody counts it when it is too old."""
        with self._lock:
            if what in self._being_counted:
                return
            self._being_counted.add(what)
        now = self._clock()

        def note(done: Future[tuple[Counts, timedelta]]) -> None:
            if not done.cancelled() and done.exception() is None:
                counts, took = done.result()
                self._keep(what, counts, size(counts), now, took)
            with self._lock:
                self._being_counted.discard(what)

        assert self.count_in_background is not None
        # Not the time in which it waits for its turn.
        self.count_in_background(lambda store: self._timed(lambda: count_with(store))).add_done_callback(note)

    def _timed(self, count: Callable[[], Counts]) -> tuple[Counts, timedelta]:
        begun = self._clock()
        return count(), timedelta(seconds=self._clock() - begun)

    def _keep(self, what: Hashable, counts: Any, runs: int, now: float, took: timedelta) -> None:
        with self._lock:
            self._kept[what] = _Kept(counts, now, runs, took)
            oldest = now - _FORGOTTEN_AFTER.total_seconds()
            for old in [one for one, kept in self._kept.items() if kept.counted_at < oldest]:
                del self._kept[old]
