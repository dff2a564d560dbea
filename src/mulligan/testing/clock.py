"""A clock that jumps: time passes when a test says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from mulligan.store.clock import ProcessClock

START = datetime(2026, 1, 1, tzinfo=UTC)


class JumpingClock:
    """Stands still until advanced, and never goes back. `seen_from` is for reporters with wrong clocks."""

    def __init__(self, start: datetime = START) -> None:
        self._start = self._now = start

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return (self._now - self._start).total_seconds()

    def elapsed(self) -> float:
        """Hosts with this clock are never suspended."""
        return self.monotonic()

    def stepped(self) -> timedelta:
        """This clock never steps: see `ProcessClock` over a `WallClock`."""
        return timedelta(0)

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"a clock cannot go back by {seconds:g}s")
        self._now += timedelta(seconds=seconds)

    def advance_to(self, moment: datetime) -> None:
        """Jump to `moment`, if it is in the future."""
        self._now = max(self._now, moment)

    def seen_from(self, seconds: float) -> datetime:
        """Return the time of a reporter whose clock is off by this much."""
        return self._now + timedelta(seconds=seconds)


class WallClock:
    """The wall clock of one host: it follows the common time, off by what it was set to."""

    def __init__(self, common: JumpingClock) -> None:
        self._common = common
        self._wrong = timedelta(0)

    def now(self) -> datetime:
        return self._common.now() + self._wrong

    def monotonic(self) -> float:
        """Setting the clock does not change how much time has passed."""
        return self._common.monotonic()

    def of_process(self) -> ProcessClock:
        """Return the clock of a process that starts now on this host."""
        return ProcessClock(self.now, self.monotonic, self.monotonic)

    def set_wrong(self, seconds: float) -> None:
        """Set it ahead by this much, or behind with a negative number."""
        self._wrong = timedelta(seconds=seconds)
