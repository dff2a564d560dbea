"""The clock of a process: it starts with the wall clock, and from then on counts the seconds that pass.

See docs/project/adr/0022-the-clock-of-a-process.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

# A wall clock that differs by less from ours was not stepped: it was read a moment later, or is being slewed.
STEP = timedelta(seconds=0.5)
_NO_STEP = timedelta(0)
# How long a store may take to say what time it is, and how often it is asked where it takes longer.
ANSWER_SECONDS_MAX, ANSWERS_MAX = 1.0, 3


def _seconds_since_boot() -> float:
    """Counts through a suspend, unlike `time.monotonic`: an hour with the lid closed is an hour."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _wall() -> datetime:
    return datetime.now(UTC)


_ELAPSED = _seconds_since_boot if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


class ProcessClock:
    """Goes on evenly, whatever is done to the wall clock. `wall` and `elapsed` are what it is made of."""

    def __init__(
        self,
        wall: Callable[[], datetime] = _wall,
        elapsed: Callable[[], float] = _ELAPSED,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_wall = wall
        self.elapsed = elapsed
        self.monotonic = monotonic
        # How wrong it may be, where it goes by the clock of a store.
        self.error_seconds: float | None = None
        self.follow_wall()

    def now(self) -> datetime:
        return self._base + timedelta(seconds=self.elapsed() - self._base_elapsed)

    def stepped(self) -> timedelta:
        """How far the wall clock was stepped since we were set."""
        step = self._read_wall() - self.now()
        return _NO_STEP if abs(step) < STEP else step

    def follow_wall(self) -> None:
        """Start anew with the wall clock: for when nothing is timed by us."""
        self.set(self._read_wall())

    def set(self, moment: datetime) -> None:
        """It is `moment` now."""
        self._base, self._base_elapsed = moment, self.elapsed()

    def set_by(self, ask: Callable[[], datetime | None]) -> None:
        """Go by another clock, that of a store, if it has one: `ask` gives its time.

        Half of the time that the answer took was its way back. One that took long says little: it is asked for again,
        and where all do, the best counts only for a clock that was never set by another one.
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


# One for each process: whatever it keeps in a file of its own goes by this clock.
PROCESS_CLOCK = ProcessClock()
