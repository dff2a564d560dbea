"""The clock of a process: it is set by the wall clock once, and then counts elapsed seconds.

See docs/project/adr/0022-the-clock-of-a-process.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

# A smaller difference does not mean that the wall clock was set: it was read a moment later, or is being slewed.
STEP = timedelta(seconds=0.5)
_NO_STEP = timedelta(0)
# How long a store may take to return its time, and how often it is asked again if it takes longer.
ANSWER_SECONDS_MAX, ANSWERS_MAX = 1.0, 3


def _wall() -> datetime:
    return datetime.now(UTC)


# Includes time in suspend, unlike `time.monotonic`.
_ELAPSED: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


class ProcessClock:
    """Advances evenly, even if the wall clock is set. `wall` and `elapsed` are its sources."""

    def __init__(
        self,
        wall: Callable[[], datetime] = _wall,
        elapsed: Callable[[], float] = _ELAPSED,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_wall = wall
        self.elapsed = elapsed
        self.monotonic = monotonic
        # How wrong it may be; None if it was never set by the clock of a store.
        self.error_seconds: float | None = None
        self.follow_wall()

    def now(self) -> datetime:
        return self._base + timedelta(seconds=self.elapsed() - self._base_elapsed)

    def stepped(self) -> timedelta:
        """How far the wall clock was set forward since this clock was set."""
        step = self._read_wall() - self.now()
        return _NO_STEP if abs(step) < STEP else step

    def follow_wall(self) -> None:
        """Set this clock by the wall clock. Only while no run depends on it."""
        self.set(self._read_wall())

    def set(self, moment: datetime) -> None:
        """It is `moment` now."""
        self._base, self._base_elapsed = moment, self.elapsed()

    def set_by(self, ask: Callable[[], datetime | None]) -> None:
        """Set this clock by that of a store; `ask` returns the store's time, or None if it has no clock.

        Half of the duration of the call was the way back. A slow answer says little, so the store is asked again. If
        all answers are slow, the best one is used only for a clock that was never set by a store.
        """
        best: tuple[float, datetime] | None = None
        for _ in range(ANSWERS_MAX):
            asked_at = self.elapsed()
            moment = ask()
            if moment is None:
                return
            seconds = self.elapsed() - asked_at
            answered = moment + timedelta(seconds=seconds / 2)
            if seconds <= ANSWER_SECONDS_MAX:
                self.set(answered)
                self.error_seconds = seconds / 2
                return
            if best is None or seconds < best[0]:
                best = seconds, answered - timedelta(seconds=self.elapsed())
        if best is not None and self.error_seconds is None:
            self.set(best[1] + timedelta(seconds=self.elapsed()))
            self.error_seconds = best[0] / 2


# One for each process: stores in local files use it.
PROCESS_CLOCK = ProcessClock()
