"""How the work of a function grows with its input: in lines of Python that run, and in bytes that they allocate.

Both are counts, the same on every machine. Bytes show what lines do not: a tuple or a slice of all that was read so
far, made again for each word. What neither shows is a search in C that allocates nothing; `proof.fuzz.bombs` looks at
the time of those.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

# The input is doubled four times. Work that is proportional grows 16 times, n log n less than 30, n * n 256 times.
DOUBLINGS = 4
GROWTH_MAX = 40.0


class Work(NamedTuple):
    """Lines that ran, and bytes that were allocated, also if they were released at once."""

    lines: int
    bytes: int


def measure(function: Callable[[], object]) -> Work:
    """The work of one call. What it raises is part of it."""
    lines = allocated = 0
    before = sys.gettrace()
    was_tracing = tracemalloc.is_tracing()
    tracemalloc.start(1)
    current, _ = tracemalloc.get_traced_memory()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines, allocated, current
        lines += 1
        now, peak = tracemalloc.get_traced_memory()
        allocated += max(0, peak - current)
        current = now
        tracemalloc.reset_peak()
        return trace

    sys.settrace(trace)
    try:
        function()
    except Exception:
        pass  # a refusal is an answer
    finally:
        sys.settrace(before)
        allocated += max(0, tracemalloc.get_traced_memory()[1] - current)
        if not was_tracing:
            tracemalloc.stop()
    return Work(lines, allocated)


def growth(read: Callable[[str], object], make: Callable[[int], str], size: int) -> tuple[float, float]:
    """How many times more lines and bytes the largest input takes than the smallest."""
    small, large = make(size), make(size << DOUBLINGS)
    read(make(2))  # what is imported or compiled once
    first, last = measure(lambda: read(small)), measure(lambda: read(large))
    return last.lines / max(1, first.lines), last.bytes / max(1, first.bytes)
