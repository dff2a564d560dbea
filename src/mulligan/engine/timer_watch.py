"""The timers of the runs that an engine drives: when the next one is due, and firing them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from mulligan.core.effects.effects import SetTimer
from mulligan.engine.change_watch import POLL_SECONDS
from mulligan.engine.run_driver import RunDriver
from mulligan.ports import Clock, Poll, Polling, Timers

# A smaller change of the difference between the wall clock and ours does not mean that the wall clock was set.
STEP = timedelta(seconds=0.5)
# How often it is asked whether the wall clock was set: a round of the loop may take less time than the question.
LOOK_SECONDS = 0.02


class _Store(Timers, Polling, Protocol):
    """What has timers, and can be polled."""


class TimerWatch:
    """Knows the next due time without asking the store. `holder` is "" if any worker may fire any timer."""

    def __init__(self, store: _Store, clock: Clock, *, holder: str) -> None:
        self._store = store
        self._clock = clock
        self._holder = holder
        # By our clock; None for no timer.
        self._due: datetime | None = None
        # By run id, how far the run's time is ahead of our clock. Empty if the store has its own clock.
        self.ahead: dict[int, timedelta] = {}
        # How far the wall clock was ahead of ours at the last poll.
        self._stepped = clock.stepped()
        self._looked_at = clock.monotonic()

    def next_due(self, root_run_id: int | None) -> datetime | None:
        """Ask the store for the next due time of a timer or of a breaker that tasks wait for, by our clock."""
        return self._store.next_due(root_run_id, holder=self._holder, ahead=self.ahead)

    def poll(self, worker: str, root_run_id: int | None) -> Poll:
        """What others have written for a worker, and with it the next due time."""
        seen = self._store.poll(worker, root_run_id, holder=self._holder, ahead=self.ahead)
        self._due = seen.due
        return seen

    def refresh(self, root_run_id: int | None) -> None:
        self._due = self.next_due(root_run_id)

    def seconds_left(self, seconds_max: float) -> float:
        """The time until something is due, at most `seconds_max`."""
        if self._due is not None:
            seconds_max = min(seconds_max, (self._due - self._clock.now()).total_seconds())
        return max(0.0, seconds_max)

    @property
    def is_due(self) -> bool:
        return self._due is not None and self._clock.now() >= self._due

    def fire(self, root_run_id: int | None) -> bool:
        """Fire the due timers. Return whether there were any: it may have been a breaker that may be probed."""
        now = self._clock.now()
        has_fired = bool(self._store.fire_timers(root_run_id, holder=self._holder, ahead=self.ahead))
        self.refresh(root_run_id)
        if self._due is not None and self._due <= now:
            # The store's clock is behind ours: there it is not due yet.
            self._due = now + timedelta(seconds=POLL_SECONDS)
        return has_fired

    def add(self, driver: RunDriver, timer: SetTimer) -> None:
        """Note a timer that a commit has set."""
        due = driver.timer_due(timer, self._stepped)
        if self._due is None or due < self._due:
            self._due = due

    def was_clock_set(self, *, is_busy: bool) -> bool:
        """Whether the wall clock was set since the last look. With tasks to answer it is not looked at each time."""
        now = self._clock.monotonic()
        if is_busy and now - self._looked_at < LOOK_SECONDS:
            return False
        self._looked_at = now
        stepped = self._clock.stepped()
        if abs(stepped - self._stepped) < STEP:
            return False
        self._stepped = stepped
        return True
