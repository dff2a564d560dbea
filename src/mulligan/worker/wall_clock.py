"""The wall clock as it was when this process started, and the seconds since: no step of the clock is in a duration.

The standard library alone, and little of it: the supervisor loads this.
"""

from __future__ import annotations

import time

_elapsed = (lambda: time.clock_gettime(time.CLOCK_BOOTTIME)) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
_BASE = time.time() - _elapsed()


def now() -> float:
    """Seconds since 1970."""
    return _BASE + _elapsed()
