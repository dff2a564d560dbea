"""What the store knows of how a run goes on: how long it will still take, and which of its tasks nobody takes.

For whoever looks on while it is driven. The store is asked seldom: what is asked for often has been kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from mulligan.errors import StoreUnavailable
from mulligan.history.estimate import StepDuration, format_estimate, remaining_seconds
from mulligan.service.run_progress import Activity, RunProgress, queued_activities
from mulligan.service.step_history import typical_durations
from mulligan.service.verbs import Service

# How often the remaining time is estimated, and the store asked who takes what is queued.
ESTIMATE_SECONDS, QUEUE_SECONDS = 1.0, 3.0


class Outlook:
    """Of one run, with as many slots as the process that drives it has."""

    def __init__(self, service: Service, slots: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._slots = slots
        self._monotonic = monotonic
        self._known: dict[str, StepDuration] | None = None
        self._left, self._left_at = "", -ESTIMATE_SECONDS
        self._queued: Sequence[Activity] = ()
        self._queued_at = -QUEUE_SECONDS

    def look(self, progress: RunProgress) -> tuple[Sequence[Activity], str]:
        """The tasks that nobody takes, and how long it will still take, in words; nothing of what nobody knows."""
        now = self._monotonic()
        try:
            if progress.root is not None and now - self._left_at >= ESTIMATE_SECONDS:
                self._left, self._left_at = self._estimate(progress), now
            if progress.root is not None and now - self._queued_at >= QUEUE_SECONDS:
                self._queued, self._queued_at = self._ask_queue(progress), now
        except StoreUnavailable:
            # Whoever drives the run says so. What was known is shown until the store is back.
            pass
        return self._queued, self._left

    def _estimate(self, progress: RunProgress) -> str:
        state = progress.root
        assert state is not None
        if self._known is None:
            self._known = typical_durations(self._service.store, state)
        seconds = remaining_seconds(state, self._known, datetime.now(UTC), self._slots, progress.running_since())
        return "" if seconds is None else format_estimate(seconds)

    def _ask_queue(self, progress: RunProgress) -> Sequence[Activity]:
        if progress.root is None or not progress.counts.get("ready"):
            return ()
        return queued_activities(self._service.store, self._service.home, progress.root)
