"""A wall clock that does not jump: the time at which this process started, plus the seconds since.

Loaded by the supervisor, which must stay small: import only what it needs.
"""

from __future__ import annotations

import time


def _elapsed() -> float:
    """Return the seconds since the machine was started, those of a suspended machine included where it counts them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if _HAS_BOOT_TIME else time.monotonic()


_HAS_BOOT_TIME = hasattr(time, "CLOCK_BOOTTIME")
_BASE = time.time() - _elapsed()


def now() -> float:
    """Return the seconds since 1970."""
    return _BASE + _elapsed()
