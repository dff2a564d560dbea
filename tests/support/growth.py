"""How the work of a function grows with its input. All are counts, the same on every machine.

`growth_of_lines` counts the lines of Python that run. `share_of_copies` finds what lines do not show: a tuple or a
slice of all that was read so far, made again for each word. What neither shows is a search in C that allocates
nothing; `proof.fuzz.bombs` looks at the time of those.
"""

from __future__ import annotations

import gc
import re
import sys
import tracemalloc
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# The last doubling adds twice as many lines as the one before if work is proportional, n log n less than 2.4 times as
# many, n * n four times. What is constant counts for nothing.
GROWTH_MAX = 2.6
# Of the words that were added, how many may come with another large allocation: lists and dicts grow now and then. A
# copy per word makes it 0.59 at least.
COPIES_MAX = 0.4
# Smaller allocations are no copies of the input.
_SMALLEST_BYTES = 512
# The same objects take a little more or less memory each time, as lists of free objects are full or empty: what was
# at least a size in one call was at least this part of it in the other.
_STEADY_PART = 0.7


def count_lines(function: Callable[[], object]) -> int:
    """How many lines of Python one call runs."""
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        lines += 1
        return trace

    with _traced(trace):
        function()
    return lines


def count_allocations(function: Callable[[], object]) -> list[int]:
    """By how much memory grew between two calls of Python functions, also if it was released at once; in order."""
    found: list[int] = []
    was_tracing = tracemalloc.is_tracing()
    tracemalloc.start(1)
    current, _ = tracemalloc.get_traced_memory()

    def trace(frame: FrameType, event: str, _: Any) -> None:
        nonlocal current
        now, peak = tracemalloc.get_traced_memory()
        found.append(peak - current)
        current = now
        tracemalloc.reset_peak()

    try:
        with _traced(trace):
            function()
    finally:
        found.append(tracemalloc.get_traced_memory()[1] - current)
        if not was_tracing:
            tracemalloc.stop()
    return sorted(found)


@contextmanager
def _traced(trace: Callable[[FrameType, str, Any], Any]) -> Iterator[None]:
    """Call `trace` for each line or call. The collector waits: it would run what other objects do at their end."""
    before = sys.gettrace()
    gc.disable()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
        gc.enable()


def _warm_up(read: Callable[[str], object], text: str) -> None:
    """Import and compile what is needed once. A full cache of patterns would drop some of them again."""
    re.purge()
    read(text)


def growth_of_lines(read: Callable[[str], object], make: Callable[[int], str], size: int) -> float:
    """The input is doubled twice: how many times more lines the second doubling adds than the first."""
    _warm_up(read, make(size + 1))
    texts = [make(size << doublings) for doublings in range(3)]
    first, second, third = (count_lines(lambda text=text: read(text)) for text in texts)  # type: ignore[misc]
    # A reader that stops at a limit adds no more; a few lines are noise.
    return max(0, third - second) / max(second - first, size)


def share_of_copies(read: Callable[[str], object], make: Callable[[int], str], size: int) -> float:
    """How many more than twice as many allocations of any large size twice the input takes, per word that is added."""
    _warm_up(read, make(size * 2 + 1))
    text, doubled = make(size), make(size * 2)
    first, second = count_allocations(lambda: read(text)), count_allocations(lambda: read(doubled))
    more = (_count(second, least) - 2 * _count(first, least * _STEADY_PART) for least in _sizes(second[-1]))
    return max(more, default=0) / size


def _sizes(largest: int) -> Iterator[float]:
    """From the smallest that counts, each a little larger."""
    least = float(_SMALLEST_BYTES)
    while least <= largest:
        yield least
        least *= 1.05


def _count(ordered: list[int], least: float) -> int:
    return len(ordered) - bisect_left(ordered, least)
