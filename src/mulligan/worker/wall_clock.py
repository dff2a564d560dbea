"""A wall clock that does not jump: the time at which this process started, plus the seconds since.

Loaded by the supervisor, which must stay small: import only what it needs.
"""

from __future__ import annotations

import time

_elapsed = (lambda: time.clock_gettime(time.CLOCK_BOOTTIME)) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
_BASE = time.time() - _elapsed()


def now() -> float:
    """Return the seconds since 1970."""
    return _BASE + _elapsed()
