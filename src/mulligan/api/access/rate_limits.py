"""How often somebody may ask: a token bucket for each name."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

from mulligan.errors import TooManyRequests

# More names than this are not remembered: all start with a full bucket again.
NAMES_MAX = 10_000


class TokenBuckets:
    """A bucket of `burst` for each name, filled with `rate` a second."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._levels: dict[str, tuple[float, float]] = {}

    def is_empty(self, name: str) -> bool:
        return self._level(name) < 1

    def take(self, name: str, shown: str) -> None:
        """Take one. `TooManyRequests`, with the time after which there is one again."""
        level = self._level(name)
        if level < 1:
            seconds = max(1, math.ceil((1 - level) / self._rate))
            raise TooManyRequests(
                f"{shown} has sent more than {self._rate:g} requests a second",
                hint=f"wait {seconds} s, as the header Retry-After says",
                retry_after=seconds,
            )
        if len(self._levels) >= NAMES_MAX:
            self._levels.clear()
        self._levels[name] = level - 1, self._clock()

    def spend(self, name: str) -> None:
        """Take one, if there is one."""
        with suppress(TooManyRequests):
            self.take(name, "")

    def _level(self, name: str) -> float:
        now = self._clock()
        level, at = self._levels.get(name, (self._burst, now))
        return min(self._burst, level + (now - at) * self._rate)
