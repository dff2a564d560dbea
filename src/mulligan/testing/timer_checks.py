"""Check timers of a simulated cluster by the common time: none fires early, none is late by hours.

A timer follows the time that passes, whatever the wall clocks are set to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Protocol

from mulligan.ports import Commit
from mulligan.store.clock import ProcessClock
from mulligan.testing.store_contents import TimerKey

# Few timers of a random workflow are longer. Most clock changes are larger.
TIMER_SECONDS_MAX = 1500.0
# How much two clocks may differ that were set by a slow store: half of the longest answer for each.
CLOCKS_APART_SECONDS_MAX = 45.0
# Rounding to microseconds, in several places.
_TOLERANCE_SECONDS = 0.001
# For a timer that was not seen being set.
_UNKNOWN = (0.0, 0.0, None)


class CountedClock(ProcessClock):
    """The clock of a process, with a count of how often it was set."""

    def __init__(self, wall: Callable[[], datetime], common: Callable[[], float]) -> None:
        self.settings = 0
        super().__init__(wall, common, common)

    def set(self, moment: datetime) -> None:
        self.settings += 1
        super().set(moment)


class TimedWorker(Protocol):
    """A process, as far as its timers are concerned, and what it can know of others."""

    clock: CountedClock
    host: str
    # When, by `clock.monotonic`, it began what it does now.
    stepped_at: float

    def time_of(self, run_id: int) -> datetime | None:
        """Return the time of a run that it drives; None if it does not."""


class TimerChecks:
    """Record when each timer was set, and for how long. `violations` are the findings."""

    def __init__(self, common: Callable[[], float], *, is_shared: bool) -> None:
        self.violations: list[str] = []
        self._common = common
        self._is_shared = is_shared
        # When it was set by the common time, its minimum seconds, and which clock was used.
        self._set: dict[TimerKey, tuple[float, float, object]] = {}

    def note_commits(self, commits: Iterable[Commit], process: TimedWorker) -> None:
        """Record commits that a process has written. Some time may have passed since it decided them."""
        for commit in commits:
            now = process.time_of(commit.turn.run_id)
            if now is None:
                continue
            for timer in commit.timers:
                decided_at = self._common() - max(0.0, (now - commit.at).total_seconds())
                seconds = (timer.due - commit.at).total_seconds()
                key = (commit.turn.run_id, timer.kind, timer.place, timer.number)
                error = process.clock.error_seconds or 0.0
                self._set[key] = (decided_at, seconds - error, self._clock_key(process.clock))

    def check_fired(
        self, before: Mapping[TimerKey, datetime], after: Mapping[TimerKey, datetime], clock: CountedClock
    ) -> None:
        """Check timers that a process has fired."""
        for key in before.keys() - after.keys():
            was_set = self._set.pop(key, None)
            if was_set is None or key[1] == "until":
                continue
            set_at, seconds, whose = was_set
            early = seconds - (self._common() - set_at)
            if whose == self._clock_key(clock) and early > _TOLERANCE_SECONDS:
                self.violations.append(f"promise 7: timer {key} was set for {seconds:g}s and fired {early:g}s early")

    def check_waiting(self, timers: Mapping[TimerKey, datetime], nows: Mapping[int, datetime], wall: datetime) -> None:
        """Check timers that wait, given the time of the engines that drive their runs. All wall clocks show `wall`.

        A wait until a time of day follows the wall clock, whatever the time of its run is.
        """
        for key, due in timers.items():
            now = wall if key[1] == "until" else nows.get(key[0])
            if now is not None and due - now > self._longest_wait(key):
                self.violations.append(f"promise 10: timer {key} fires in {(due - now).total_seconds():g}s only")

    def _longest_wait(self, key: TimerKey) -> timedelta:
        """Return how long a timer may wait: as most do, or as it was set for, as after many visits of a loop."""
        _, seconds, _ = self._set.get(key, _UNKNOWN)
        return timedelta(seconds=max(TIMER_SECONDS_MAX, seconds + CLOCKS_APART_SECONDS_MAX))

    def _clock_key(self, clock: CountedClock) -> object:
        """Return a key for the clock: one that was set again counts as another; a shared store has one for all."""
        return "the store's" if self._is_shared else (clock, clock.settings)
