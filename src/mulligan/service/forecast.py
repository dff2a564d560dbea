"""How a run will go on, as the store knows it: how long it will still take, and which tasks no worker takes.

For a display that is drawn while the run is driven. The store is asked seldom, and its answers are kept in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from mulligan.core.state.state import State
from mulligan.errors import StoreUnavailable
from mulligan.history.estimate import Measured, about, measured, remaining_seconds, typical
from mulligan.ports import RunRecord, Store
from mulligan.service.run_progress import Following, Moving, in_queue
from mulligan.service.run_reader import RunReader

# How often the remaining time is estimated, and the store asked who takes what is queued.
ESTIMATE_SECONDS, QUEUE_SECONDS = 1.0, 3.0


class Forecast:
    """Of one run, with as many slots as the process that drives it has."""

    def __init__(self, reader: RunReader, slots: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._slots = slots
        self._monotonic = monotonic
        self._known: dict[str, Measured] | None = None
        self._left, self._left_at = "", -ESTIMATE_SECONDS
        self._queued: Sequence[Moving] = ()
        self._queued_at = -QUEUE_SECONDS

    def look(self, following: Following) -> tuple[Sequence[Moving], str]:
        """The tasks that nobody takes, and how long it will still take, in words; nothing of what nobody knows."""
        now = self._monotonic()
        try:
            if following.root is not None and now - self._left_at >= ESTIMATE_SECONDS:
                self._left, self._left_at = self._estimate(following), now
            if following.root is not None and now - self._queued_at >= QUEUE_SECONDS:
                self._queued, self._queued_at = self._ask_queue(following), now
        except StoreUnavailable:
            # Whoever drives the run says so. What was known is shown until the store is back.
            pass
        return self._queued, self._left

    def _estimate(self, following: Following) -> str:
        state = following.root
        assert state is not None
        if self._known is None:
            self._known = typical_durations(self._reader.store, state)
        seconds = remaining_seconds(state, self._known, datetime.now(UTC), self._slots, following.running_since())
        return "" if seconds is None else about(seconds)

    def _ask_queue(self, following: Following) -> Sequence[Moving]:
        if following.root is None or not following.counts.get("ready"):
            return ()
        return in_queue(self._reader.store, self._reader.home, following.root)


# Of how many runs the newest completed ones of the same workflow are looked for, how many of them count, and how long
# a log may be that is read for it: this is done while the run is driven.
RUNS_SEEN_MAX, RUNS_READ_MAX, ENTRIES_READ_MAX = 200, 3, 4_000


def typical_durations(store: Store, state: State) -> dict[str, Measured]:
    """What each step takes typically, by the newest completed runs of this workflow; nothing where there is none."""
    logs = (store.log(record.run_id, limit=ENTRIES_READ_MAX) for record in _earlier(store, state))
    runs = (found for log in logs if len(log) < ENTRIES_READ_MAX and (found := measured(log)) is not None)
    return typical(runs)


def _earlier(store: Store, state: State) -> Iterator[RunRecord]:
    count = 0
    for record in store.runs(limit=RUNS_SEEN_MAX, before=state.run.run_id, statuses=("completed",)):
        if count < RUNS_READ_MAX and record.workflow == state.workflow.name and record.parent_run_id is None:
            count += 1
            yield record
