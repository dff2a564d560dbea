"""Stop code that computes without end, by cpu time, so that a busy machine causes no failures."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def limit_cpu(seconds: float) -> Iterator[None]:
    """Raise an AssertionError inside the block after this much cpu time. Only for the main thread."""

    def ring(*_: object) -> None:
        raise AssertionError(f"promise 10: after {seconds:g} seconds of computing there is no end of it")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
