"""A clock that jumps: time passes when a test says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from mulligan.store.clock import ProcessClock

START = datetime(2026, 1, 1, tzinfo=UTC)


class JumpingClock:
    """Stands still until told otherwise, and never goes back; `seen_from` is for reporters whose clocks are wrong."""

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
        """Nobody steps this one: see `ProcessClock` over a `WallClock`."""
        return timedelta(0)

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"a clock does not go back, and {seconds:g}s would")
        self._now += timedelta(seconds=seconds)

    def advance_to(self, moment: datetime) -> None:
        """Jump to `moment`, if it is still to come."""
        self._now = max(self._now, moment)

    def seen_from(self, seconds: float) -> datetime:
        """What a reporter says whose clock is wrong by so much."""
        return self._now + timedelta(seconds=seconds)


class WallClock:
    """The clock on the wall of one host: it goes with the common time, and is wrong by what it was set to."""

    def __init__(self, common: JumpingClock) -> None:
        self._common = common
        self._wrong = timedelta(0)

    def now(self) -> datetime:
        return self._common.now() + self._wrong

    def monotonic(self) -> float:
        """No setting of the clock changes how much time has passed."""
        return self._common.monotonic()

    def of_process(self) -> ProcessClock:
        """The clock of a process that starts now on this host."""
        return ProcessClock(self.now, self.monotonic, self.monotonic)

    def set_wrong(self, seconds: float) -> None:
        """From now on it is ahead by so much, or with less than 0 behind."""
        self._wrong = timedelta(seconds=seconds)
