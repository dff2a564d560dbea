"""The smallest input that still shows what was found."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import mulligan

SECONDS_MAX = 60.0
_PACKAGE = Path(mulligan.__file__).parent


def shrunk(data: bytes, still_shows: Callable[[bytes], bool], seconds_max: float = SECONDS_MAX) -> bytes:
    """`data` without all that can be left out: halves first, then ever smaller parts, until none can go."""
    due = time.monotonic() + seconds_max
    size = max(1, len(data) // 2)
    while size:
        at, has_shrunk = 0, False
        while at < len(data) and time.monotonic() < due:
            shorter = data[:at] + data[at + size :]
            if still_shows(shorter):
                data, has_shrunk = shorter, True
            else:
                at += size
        size = size // 2 if not has_shrunk or size > 1 else 1
        if time.monotonic() >= due:
            break
    return data


def signature(error: BaseException) -> str:
    """What tells one finding from another: the kind of error, and the line of code that raised it."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file.is_relative_to(_PACKAGE):
            place = f"{file.relative_to(_PACKAGE)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__} {place}" if place else type(error).__name__
