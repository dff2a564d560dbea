"""A wall clock that does not jump: the time at which this process started, plus the seconds since.

Loaded by the supervisor, which must stay small: import only what it needs.
"""

from __future__ import annotations

import time

# The seconds since the machine was started, those of a suspended machine included where it counts them.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_BASE = time.time() - time.clock_gettime(_CLOCK)


def now() -> float:
    """Return the seconds since 1970."""
    return _BASE + time.clock_gettime(_CLOCK)
