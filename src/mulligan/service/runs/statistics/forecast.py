"""How a run will go on, as the store knows it: how long it will still take, and which tasks no worker takes.

For a display that is drawn while the run is driven. The store is asked seldom, and its answers are kept in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from mulligan.core.model.events import Entry
from mulligan.core.state.state import State
from mulligan.errors import CodecError, StoreUnavailable
from mulligan.history.estimate import StepDuration, format_estimate, measure_steps, median_durations, remaining_seconds
from mulligan.ports import RunRecord, Store
from mulligan.service.driving.run_progress import Activity, RunProgress, queued_activities
from mulligan.service.runs.stored.run_reader import RunReader

# How often the remaining time is estimated, and the queue read.
ESTIMATE_SECONDS, QUEUE_SECONDS = 1.0, 3.0


class Forecast:
    """The forecast of one run; `slots`: how many tasks the process that drives it runs at once."""

    def __init__(self, reader: RunReader, slots: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._slots = slots
        self._monotonic = monotonic
        self._known: dict[str, StepDuration] | None = None
        self._left, self._left_at = "", -ESTIMATE_SECONDS
        self._queued: Sequence[Activity] = ()
        self._queued_at = -QUEUE_SECONDS

    def look(self, progress: RunProgress) -> tuple[Sequence[Activity], str]:
        """The tasks that no worker takes, and the remaining time in words; empty if unknown."""
        now = self._monotonic()
        try:
            if progress.root is not None and now - self._left_at >= ESTIMATE_SECONDS:
                self._left, self._left_at = self._estimate(progress), now
            if progress.root is not None and now - self._queued_at >= QUEUE_SECONDS:
                self._queued, self._queued_at = self._ask_queue(progress), now
        except StoreUnavailable:
            # The driver reports it. The last answers are shown until the store is back.
            pass
        return self._queued, self._left

    def _estimate(self, progress: RunProgress) -> str:
        state = progress.root
        assert state is not None
        if self._known is None:
            self._known = typical_durations(self._reader.store, state)
        seconds = remaining_seconds(state, self._known, datetime.now(UTC), self._slots, progress.running_since())
        return "" if seconds is None else format_estimate(seconds)

    def _ask_queue(self, progress: RunProgress) -> Sequence[Activity]:
        if progress.root is None or not progress.counts.get("ready"):
            return ()
        return queued_activities(self._reader.store, self._reader.home, progress.root)


# Of how many runs the newest completed ones of the same workflow are looked for, how many of them count, and how long
# a log may be that is read for it: this is done while the run is driven.
RUNS_SEEN_MAX, RUNS_READ_MAX, ENTRIES_READ_MAX = 200, 3, 4_000


def typical_durations(store: Store, state: State) -> dict[str, StepDuration]:
    """How long each step takes, by the newest completed runs of this workflow; empty if there is none."""
    logs = (_log(store, record.run_id) for record in _earlier(store, state))
    runs = (found for log in logs if len(log) < ENTRIES_READ_MAX and (found := measure_steps(log)) is not None)
    return median_durations(runs)


def _log(store: Store, run_id: int) -> list[Entry]:
    """The log of an earlier run; nothing of one that cannot be read."""
    try:
        return store.log(run_id, limit=ENTRIES_READ_MAX)
    except CodecError:
        return []


def _earlier(store: Store, state: State) -> Iterator[RunRecord]:
    count = 0
    for record in store.runs(limit=RUNS_SEEN_MAX, before=state.run.run_id, statuses=("completed",)):
        if count < RUNS_READ_MAX and record.workflow == state.workflow.name and record.parent_run_id is None:
            count += 1
            yield record
