"""Stop code that computes without end, by cpu time, so that a busy machine causes no failures."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# How soon it is tried again after a moment at which nothing could be raised.
AGAIN_SECONDS = 0.01


@contextmanager
def limit_cpu(seconds: float) -> Iterator[None]:
    """Raise an AssertionError inside the block after this much cpu time. Only for the main thread.

    What is raised inside a callback of the garbage collector is lost, so it is raised a moment later.
    """

    def ring(_: int, frame: FrameType | None) -> None:
        if frame is not None and any(frame.f_code is getattr(one, "__code__", None) for one in gc.callbacks):
            return
        raise AssertionError(f"promise 10: after {seconds:g} seconds of computing there is no end of it")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds, AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
